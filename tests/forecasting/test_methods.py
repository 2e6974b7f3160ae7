"""Every series gets a forecast that its rows carry, and says what it rests on."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning
from forecaster.forecasting import FORECAST_BY, Method
from forecaster.forecasting.methods import counted, worth_networks
from tests.frames import long as frame_by_name
from tests.messages import refuses, warns

HORIZON = 4
SMALL = fc.Config(horizon=HORIZON, hidden=2, members=1, epochs=1, lookback=20)
ODD = {
    "constant": [5.0] * 12,
    "one": [3.0],
    "two": [3.0, 4.0],
    "zeros": [0.0] * 12,
    "one value, then zeros": [7.0] + [0.0] * 11,
    "above and below": [(-1.0) ** n * n for n in range(12)],
    "small": list(1e-300 * np.arange(1, 13)),
    "large": list(1e300 * np.arange(1, 13)),
}


def frame_of(series: dict[str, list[float]]) -> pd.DataFrame:
    return frame_by_name(series, np.arange(max(map(len, series.values()))))


def trends(rows: int, count: int = 40, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    growth = random.normal(1, 0.5, (count, 1)) * np.arange(rows)
    y = 50 + growth + random.normal(size=(count, rows)).cumsum(1)
    return frame_of({f"s{n:02d}": list(row) for n, row in enumerate(y)})


def test_odd_series_are_all_forecast():
    frame = frame_of(ODD)
    model = fc.fit(frame, SMALL)
    assert not model.skipped and set(model.ids) == set(ODD)
    made = fc.predict(model, frame)
    numbers = made.drop(columns=["unique_id", "ds", FORECAST_BY]).to_numpy(float)
    assert np.isfinite(numbers).all()
    by = made.groupby("unique_id")[FORECAST_BY].first()
    assert by.pop("zeros") == Method.SHRUNKEN_MEAN  # counts, though none has come
    last = ["constant", "one", "two"]
    assert (by[last] == Method.LAST_VALUE).all() and (by.drop(last) == Method.COMBINATION).all()
    first = made.groupby("unique_id").first()
    for name, value in (("constant", 5.0), ("one", 3.0), ("two", 4.0), ("zeros", 0.0)):
        assert first.loc[name, "LSTM"] == pytest.approx(value, abs=1e-9)
    width = first["LSTM-hi-80"] - first["LSTM-lo-80"]
    assert (width[["one", "two"]] > 0.5).all(), "one or two rows say little"
    assert (
        made.set_index("unique_id").loc[["zeros", "one value, then zeros"], "LSTM-lo-95"] >= 0
    ).all()
    simulated = fc.simulate(model, frame, 10)
    assert np.isfinite(simulated["LSTM"]).all()


def test_a_fifth_of_the_series_must_be_long_enough_for_networks_unless_they_are_asked_for():
    shares = [worth_networks(fc.Config(), long, 100) for long in (0, 19, 20, 34)]
    assert shares == [False, False, True, True]
    asked = [worth_networks(fc.Config(model="gru"), long, 100) for long in (0, 1)]
    assert asked == [False, True]


@pytest.mark.parametrize(("rows", "asked", "by"), [
    (199, {}, Method.COMBINATION), (200, {}, Method.OWN), (199, {"model": "lstm"}, Method.OWN),
    (199, {"start": "independent"}, Method.OWN),
])  # fmt: skip
def test_one_short_series_has_networks_only_if_they_are_asked_for(rows, asked, by):
    model = fc.fit(trends(rows, 1), dataclasses.replace(SMALL, **asked))
    assert list(model.report[FORECAST_BY]) == [by]


def test_long_series_have_networks_and_short_ones_the_common_one():
    long, shorter, shortest = trends(80, 6), trends(30, 3, seed=1), trends(10, 3, seed=2)
    frame = pd.concat(
        part.assign(unique_id=part["unique_id"] + name)
        for name, part in (("long", long), ("short", shorter), ("least", shortest))
    )
    model = fc.fit(frame, SMALL)
    methods = model.report[FORECAST_BY]
    for name, method in (
        ("long", Method.OWN),
        ("short", Method.COMMON),
        ("least", Method.COMBINATION),
    ):
        assert (methods[methods.index.str.endswith(name)] == method).all(), name
    assert counted(methods) == "6 by own networks, 3 by common network, 3 by combination"
    made = fc.predict(model, frame)
    assert made["unique_id"].nunique() == 12 and np.isfinite(made["LSTM"]).all()
    some = ["s01short", "s00long", "s02least"]
    alone = fc.predict(model.only(some), fc.load_panel(frame).only(some)).set_index("unique_id")
    whole = made.set_index("unique_id").loc[some]
    pd.testing.assert_frame_equal(alone, whole, check_exact=True)


def test_prices_too_short_for_networks_have_the_last_value_unless_log_returns_are_asked_for():
    rows = 30
    frame = trends(rows, 3).rename(columns={"y": "close"})
    frame["ds"] = pd.date_range("2024-01-01", periods=rows, freq="B").to_numpy()[frame["ds"]]
    with refuses(DataError):
        fc.fit(frame, dataclasses.replace(SMALL, transform="log_return"))
    with warns(ForecasterWarning):
        assert (fc.fit(frame, SMALL).report[FORECAST_BY] == Method.LAST_VALUE).all()


def test_the_median_of_sparse_demand_is_zero_unless_it_has_a_season():
    random = np.random.default_rng(0)
    parts = {f"part{n}": list(1.0 * random.poisson(0.3, 48)) for n in range(10)}
    summer = np.arange(48) % 12 < 4
    parts["summer"] = list(summer * (20.0 + random.poisson(3, 48)))
    config = dataclasses.replace(SMALL, season=12, horizon=12)
    made = fc.predict(fc.fit(frame_of(parts), config), frame_of(parts)).set_index("unique_id")
    assert (made.drop("summer")["LSTM"] == 0).all()
    assert (made.drop("summer")["LSTM-hi-95"] > 0).all() and (made["LSTM-lo-95"] >= 0).all()
    sold = made[made.index == "summer"]["LSTM"].to_numpy()
    assert (sold[:4] > 10).all() and (sold[4:] < 10).all()


@pytest.mark.parametrize(
    "values", [[1e300, -1e300] * 15, [1e300, 1e-300] * 15, [0.0, 1.0] * 14 + [1e200, 0.0]]
)
def test_a_series_beyond_numbers_takes_no_other_forecast_away(values):
    frame = pd.concat([trends(30, 5), frame_of({"far": values})])
    with np.errstate(all="raise", under="ignore"):
        model = fc.fit(frame, SMALL)
    assert list(model.skipped) == ["far"] and "too far apart" in str(model.skipped["far"])
    with warns(ForecasterWarning):
        made = fc.predict(fc.fit(trends(30, 5), SMALL), frame)
    assert made["unique_id"].nunique() == 5 and np.isfinite(made["LSTM-hi-95"]).all()


def test_what_was_never_below_zero_has_no_band_below_it():
    """Of a series always above zero, and of one with zeros; not of one that was below."""
    wild = np.exp(np.random.default_rng(0).normal(size=40))
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": np.arange(40), "y": y})
        for name, y in {"above": wild, "zeros": np.floor(10 * wild) / 10, "below": 1 - wild}.items()
    )
    made = fc.predict(fc.fit(frame, fc.Config(horizon=6)), frame, level=[99]).set_index("unique_id")
    lowest = made.filter(like="-lo-99").iloc[:, 0].groupby("unique_id").min()
    assert (lowest[["above", "zeros"]] >= 0).all() and lowest["below"] < 0
