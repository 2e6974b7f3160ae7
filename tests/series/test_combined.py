"""The doubt about the combination of anchors, chosen from a panel's past."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from forecaster.series.features.anchors import DOUBT, combine, errors_by_doubt
from forecaster.series.features.nature import Nature
from forecaster.series.features.sample import Sample
from forecaster.series.features.transforms import Transform
from forecaster.series.panel.panel import Panel

SERIES, ROWS = 20, 300


def walks(seed: int = 3, series: int = SERIES) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(series, ROWS)).cumsum(1)


def noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(SERIES, ROWS))


def chosen(values: np.ndarray) -> float:
    return Sample(list(values), [Nature()] * len(values)).weights(4)[0]


@pytest.mark.parametrize("seed", range(4))
def test_of_random_walks_no_more_is_believed_than_by_default_and_of_noise_all(seed):
    assert chosen(walks(seed)) >= DOUBT
    assert chosen(noise(seed)) <= DOUBT


def test_where_it_is_sure_random_walks_stay_what_they_are():
    assert chosen(walks()) == 3.0


def test_a_few_series_say_too_little():
    assert chosen(walks(series=7)) == DOUBT
    still = np.ones((SERIES, ROWS))
    assert chosen(still) == DOUBT


def test_more_doubt_draws_nearer_to_the_last_value():
    z = walks()[0]
    naive = z[:, None]
    certain, usual, doubtful = (combine(z, (), 4, doubt).base for doubt in (0.0, DOUBT, 3.0))
    assert (np.abs(doubtful - naive) <= np.abs(usual - naive)).all()
    assert (np.abs(usual - naive) <= np.abs(certain - naive)).all()
    assert (np.abs(usual - naive) < np.abs(certain - naive)).any()


def test_errors_are_those_of_the_combination():
    z = walks(5)[0]
    for doubt, error in zip((0.0, 1.0), errors_by_doubt(z, (), 2, (0.0, 1.0)), strict=True):
        base = combine(z, (), 2, doubt).base
        known = [
            abs(z[step] - made[step - ahead, ahead - 1])
            for made in (base,)
            for step in range(ROWS // 2, ROWS)
            for ahead in (1, 2)
        ]
        naive = [abs(z[s] - z[s - ahead]) for s in range(ROWS // 2, ROWS) for ahead in (1, 2)]
        assert error == pytest.approx(np.mean(known) / np.mean(naive))


def test_a_transform_keeps_what_it_learned():
    frame = pd.concat(
        pd.DataFrame({"unique_id": f"s{n}", "ds": np.arange(ROWS), "y": y})
        for n, y in enumerate(walks())
    )
    panel = Panel.from_frame(frame)
    before = Transform.choose("auto", panel)
    after = before.learned_from(panel, 4)
    assert before.doubt == DOUBT < after.doubt
    assert Transform.from_dict(after.to_dict()) == after
    newer = ("doubt", "shares", "common_seasons", "unit", "counts", "optimism")
    older = {name: value for name, value in after.to_dict().items() if name not in newer}
    assert Transform.from_dict(older) == before
    assert not np.array_equal(before.apply(panel, 4).base, after.apply(panel, 4).base)
    prices = dataclasses.replace(before, name="difference")
    assert prices.learned_from(panel, 4) is prices
