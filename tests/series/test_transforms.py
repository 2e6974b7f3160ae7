"""Transforms: causal, invertible, and honest about series they cannot take."""

import functools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import Kind, Skipped
from forecaster.series.combination.nature import Nature
from forecaster.series.features.any_series import AnySeries
from forecaster.series.features.choosing import choose_transform, transform_class
from forecaster.series.features.transforms import NAMES, Transform
from forecaster.series.panel.panel import Panel

ROWS, HORIZON = 60, 3


def market(seed: int = 0, series: int = 3) -> pd.DataFrame:
    """Return prices of several tickers with unequal starts and a gap."""
    random = np.random.default_rng(seed)
    parts = []
    for k in range(series):
        close = 50 * np.exp(np.cumsum(random.normal(0, 0.02, ROWS)))
        part = pd.DataFrame(
            {
                "unique_id": f"s{k}",
                "ds": pd.bdate_range("2024-01-01", periods=ROWS),
                "open": close * np.exp(random.normal(0, 0.005, ROWS)),
                "high": close * 1.02,
                "low": close * 0.97,
                "close": close,
                "volume": random.integers(1, 10**6, ROWS).astype(float),
            }
        )
        parts.append(part.drop(index=[20 + k]).iloc[5 * k :])
    return pd.concat(parts, ignore_index=True)


@functools.cache
def transform_of(name: str) -> Transform:
    """The transform of this name, as a fit on the first rows leaves it."""
    table = market()
    known = table[table["ds"] <= np.sort(table["ds"].unique())[30]]
    transform = transform_class(name)(name)
    return transform.with_components(Panel.from_frame(known), HORIZON)


def any_series(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns={"close": "y"})[["unique_id", "ds", "y"]]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(30, ROWS - 2),
    st.integers(0, 2**31),
    st.sampled_from(["open", "high", "low", "close", "volume"]),
    st.sampled_from([1e-3, 0.5, 7.0, 1e6]),
)
def test_nothing_after_a_cutoff_changes_what_is_known_at_it(name, cutoff, seed, column, factor):
    """Invariant 4: later values change no feature, base or scale."""
    transform = transform_of(name)
    table = market(seed)
    times = np.sort(table["ds"].unique())
    later = table["ds"] > times[cutoff]
    edited = table.copy()
    edited.loc[later, column] *= factor
    before = transform.apply(Panel.from_frame(table), HORIZON)
    after = transform.apply(Panel.from_frame(edited), HORIZON)
    truncated = transform.apply(Panel.from_frame(table[~later]), HORIZON)
    for row in range(3):
        known = (before.positions[row] >= 0) & (times[before.positions[row]] <= times[cutoff])
        for part in ("features", "base", "scale"):
            a, b = getattr(before, part)[row, known], getattr(after, part)[row, known]
            np.testing.assert_array_equal(a, b)
            cut = getattr(truncated, part)[row]
            bits = 1e-9 if name == "combined" else 0.0  # its classical models round by length
            np.testing.assert_allclose(a, cut[len(cut) - known.sum() :], rtol=bits, atol=bits)


@pytest.mark.parametrize("name", NAMES)
def test_targets_turn_back_into_the_series(name):
    panel = Panel.from_frame(market())
    transform = transform_class(name)(name)
    t = transform.apply(panel, HORIZON)
    back = t.invert(t.base + t.scale * t.targets())
    y = t.invert(t.z)
    for row in range(3):
        for h in range(HORIZON):
            first = t.first[row]
            got = back[row, first : -(h + 1), h]
            np.testing.assert_allclose(got, y[row, first + h + 1 :], rtol=1e-5)
    assert np.isnan(t.targets()[:, -1]).all()  # the future of the last row is unknown


def test_missing_highs_volumes_and_opens_do_not_spread():
    table = market()
    table.loc[30, ["open", "high", "volume"]] = np.nan
    table.loc[31, "volume"] = 0
    t = Transform("log_return").apply(Panel.from_frame(table), HORIZON)
    assert np.isfinite(t.features).all()
    assert np.isfinite(t.targets()[0, t.first[0] : -HORIZON]).all()


def test_transforms_are_chosen_by_what_the_series_are():
    prices = Panel.from_frame(market())
    weekdays = Panel.from_frame(any_series(market()))
    steps = Panel.from_frame(
        any_series(market()).assign(ds=lambda t: t.groupby("unique_id").cumcount())
    )
    assert choose_transform("auto", prices) == Transform("log_return")
    on_weekdays = Nature(
        logarithmic=True, seasons=(5,), spacing=86_400.0, rhythm="B", open=(0, 1, 2, 3, 4)
    )
    natures = dict.fromkeys(weekdays.ids, on_weekdays)
    assert choose_transform("auto", weekdays) == AnySeries("combined", natures=natures)
    natures = {name: Nature(logarithmic=True, spacing=1.0) for name in steps.ids}
    assert choose_transform("auto", steps) == AnySeries("combined", natures=natures)
    natures = {name: Nature(logarithmic=True, seasons=(4, 8), spacing=1.0) for name in steps.ids}
    assert choose_transform("auto", steps, (4, 8)) == AnySeries("combined", natures=natures)


def test_unusable_series_are_named_with_the_day():
    table = market()
    table.loc[table.unique_id == "s1", "close"] = 5.0
    table.loc[(table.unique_id == "s2") & (table.ds == "2024-02-15"), "close"] = -1.5
    still = Skipped(Kind.CONSTANT, column="close")
    assert Transform("log_return").usable_rows(Panel.from_frame(table)).reasons() == {
        "s1": still,
        "s2": Skipped(Kind.NOT_POSITIVE, column="close", value=-1.5, first="2024-02-15"),
    }
    assert Transform("difference").usable_rows(Panel.from_frame(table)).reasons() == {"s1": still}
