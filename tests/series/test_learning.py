"""Components and blends of series that share nothing, or what was learned from all."""

import numpy as np

from forecaster.series import held_back_rows
from forecaster.series.combination.components import Combination, components_ahead
from forecaster.series.combination.learning import NOTHING, fitted, kinds_of, with_judged_blends
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


def test_a_sparse_series_may_be_forecast_as_zero():
    z = np.where(np.random.default_rng(0).random(60) < 0.8, 0.0, 3.3)
    nature = Nature.of(np.arange(60), z, ())
    assert nature.sparse and not nature.counts
    (one,) = all_of([z], [nature], NOTHING)
    assert one.components.kind.names[-1] == "zero"
    assert one.blend is not None and one.blend.weights[-1] > 0.2
    assert (components_ahead([z], [one.components], 3, [0])[0][-1] == 0).all()
    assert "zero" not in Combination.of(60, 60, (), None, sparse=False).names
