"""What series share is learned from a sample; without it no series influences another."""

import numpy as np
import pytest

from forecaster.series import held_back_rows
from forecaster.series.combination.components import Kind, components_ahead
from forecaster.series.combination.learning import (
    NOTHING,
    combine,
    fitted,
    kinds_of,
    learn,
    with_judged_blends,
)
from forecaster.series.combination.nature import Nature

HORIZON = 4


def seasonal(rows: int = 60, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    steps = np.arange(rows)
    return 50 + 0.3 * steps + 8 * np.sin(steps * np.pi / 6) + random.normal(size=rows)


ROWS = [seasonal(60), seasonal(40, 1), seasonal(75, 2), *(seasonal(9 + n, n) for n in range(3))]
NATURES = [Nature(seasons=(12,))] * 4 + [Nature(seasons=(4,)), Nature(seasons=(3, 6))]


def all_of(rows, known, learned, horizon=HORIZON):
    """Series with components and blends, the errors of which were held back."""
    first = [row[: len(row) - held_back_rows(len(row), horizon)] for row in rows]
    kinds = kinds_of(rows, known, None, list(map(len, first)))
    some = fitted(first, known, kinds, learned.early or learned.pools, horizon)
    return with_judged_blends(rows, some, horizon, learned)


@pytest.mark.parametrize("shared", [False, True])
def test_series_change_each_other_only_through_what_they_share(shared):
    """To the bit; also where what they share is learned, once it is known."""
    learned = learn(ROWS, NATURES, HORIZON, None) if shared else NOTHING
    every = all_of(ROWS, NATURES, learned)
    made = list(combine(ROWS, every, HORIZON))
    for number, (row, known) in enumerate(zip(ROWS, NATURES, strict=True)):
        (own,) = all_of([row], [known], learned)
        np.testing.assert_equal(own.components, every[number].components)
        assert own.blend == every[number].blend
        np.testing.assert_array_equal(next(combine([row], [own], HORIZON)), made[number])


def test_a_sparse_series_may_be_forecast_as_zero():
    z = np.where(np.random.default_rng(0).random(60) < 0.8, 0.0, 3.3)
    nature = Nature.of(np.arange(60), z, ())
    assert nature.sparse and not nature.counts
    (one,) = all_of([z], [nature], NOTHING)
    assert one.components.kind.names[-1] == "zero"
    assert one.blend is not None and one.blend.weights[-1] > 0.2
    assert (components_ahead([z], [one.components], 3)[0][-1] == 0).all()
    assert "zero" not in Kind.of(60, 60, (), None, sparse=False).names
