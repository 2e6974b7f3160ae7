"""Series that are computed at once have the bits that each has alone."""

import itertools

import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.series import Transform
from forecaster.series.combination import alike as joining
from forecaster.series.combination.alike import alike, padded


def panel_of(kinds: int = 12) -> fc.Panel:
    """Series of unequal length: positive, around zero, sparse, and counts; half with a season."""
    random = np.random.default_rng(3)
    frames = []
    for number, rows in zip(range(kinds), itertools.cycle((2, 9, 26, 40, 41, 77)), strict=False):
        step = np.arange(rows)
        wave = (number % 2) * 5 * np.sin(step * np.pi / 6)
        y = [
            40 + wave + random.normal(size=rows),
            wave + random.normal(size=rows).cumsum(),
            np.where(random.random(rows) < 0.7, 0.0, random.exponential(3, rows)),
            random.poisson(1.5, rows).astype(float),
        ][number % 4]
        frames.append({"unique_id": [f"s{number:02d}"] * rows, "ds": step, "y": y})
    columns = {name: np.concatenate([frame[name] for frame in frames]) for name in frames[0]}
    return fc.load_panel(pd.DataFrame(columns))


def test_series_of_one_kind_and_similar_size_are_joined_each_once():
    sizes, kinds = [10, 100, 12, 11, 400, 120], ["a", "a", "a", "b", "a", "a"]
    parts = list(alike(sizes, kinds))
    assert sorted(itertools.chain(*parts)) == list(range(6))
    assert sorted(parts) == [[0, 2], [1, 5], [3], [4]]


def test_few_enough_are_joined(monkeypatch):
    monkeypatch.setattr(joining, "_CELLS", 250)
    assert [len(part) for part in alike([100] * 5, [0] * 5)] == [2, 2, 1]
    assert list(alike([1000, 1000], [0, 0])) == [[0], [1]]  # one is never too large


def test_missing_steps_are_padded_at_the_end():
    got = padded([np.ones((2, 3)), np.zeros((1, 3))])
    assert got.shape == (2, 2, 3) and np.isnan(got[1, 1]).all() and (got[0] == 1).all()


def test_the_bits_of_a_series_do_not_depend_on_those_that_are_computed_with_it(monkeypatch):
    panel = panel_of()
    transform = Transform.choose("auto", panel).learned_from(panel, 4).with_experts(panel)
    together = transform.apply(panel, 4)
    monkeypatch.setattr(joining, "_CELLS", 1)  # each alone
    apart = transform.apply(panel, 4)
    for name in ("features", "base", "scale"):
        np.testing.assert_array_equal(getattr(together, name), getattr(apart, name))
