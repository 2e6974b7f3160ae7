"""A model learns from new rows: who is updated, who is not, and from what."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, UsageError
from tests.frames import long
from tests.messages import refuses
from tests.slow import rest_slow

NAMES = ["AAA", "BBB", "CCC"]
QUICK: dict[str, Any] = {
    "horizon": 2, "lookback": 12, "burn_in": 4, "members": 2, "hidden": 4, "epochs": 3,
}  # fmt: skip


def prices(rows: int) -> pd.DataFrame:
    """Return the first rows of simulated prices, the same for any number of rows."""
    drawn = [np.random.default_rng(number).standard_t(5, 400) for number in range(len(NAMES))]
    walks = 50 * np.exp(np.cumsum(drawn, axis=1) * 0.01)[:, :rows]
    days = pd.bdate_range("2022-01-03", periods=rows)
    return long(dict(zip(NAMES, walks, strict=True)), days, "close")


def values(rows: int, short: int = 12) -> pd.DataFrame:
    """Return series that are no prices, of which the last is too short for networks."""
    walks = 0.2 * np.random.default_rng(3).normal(size=(4, 300)).cumsum(1)
    y = 20 + walks + 3 * np.sin(np.arange(300) * 2 * np.pi / 7)
    parts = [(name, short if name == "d" else rows) for name in "abcd"]
    frames = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(count), "y": own[:count]})
        for (name, count), own in zip(parts, y, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module", params=rest_slow(["pooled", "independent"]))
def model(request):
    return fc.fit(prices(300), fc.Config(**QUICK, start=request.param), seed=5)


def forecasts(model, frame, name: str) -> pd.DataFrame:
    return fc.predict(model, frame[frame["unique_id"] == name]).reset_index(drop=True)


def test_a_series_that_is_not_updated_keeps_its_bits_and_the_others_learn(model):
    new = prices(360)
    updated = fc.update(model, new, ["BBB"])
    assert updated.ids == model.ids
    for name in ("AAA", "CCC"):
        pd.testing.assert_frame_equal(
            forecasts(updated, new, name), forecasts(model, new, name), check_exact=True
        )
    before, now = (one.report.loc["BBB"] for one in (model, updated))
    assert (before["rows"], now["rows"]) == (300, 360)
    until = dict(zip(updated.ids, updated.fitted_until, strict=True))
    assert until["BBB"] == new["ds"].max() > until["AAA"] == prices(300)["ds"].max()
    assert not forecasts(updated, new, "BBB").equals(forecasts(model, new, "BBB"))
    kernels = (one.params["out"]["kernel"] for one in (model, updated))
    far = np.abs(np.subtract(*kernels)).max((1, 2, 3))
    assert far[1] > 0 and far[0] == far[2] == 0


def test_series_without_new_rows_are_left_out_and_named_ones_must_be_known(model):
    frame = prices(360)
    only = frame[(frame["unique_id"] == "AAA") | (frame["ds"] < prices(300)["ds"].max())]
    updated = fc.update(model, only)
    assert updated.report["rows"].to_dict() == {"AAA": 360, "BBB": 300, "CCC": 300}
    with refuses(DataError):
        fc.update(model, prices(300))
    with refuses(UsageError):
        fc.update(model, frame, ["AAA", "XXX"])
    with refuses(UsageError):
        fc.update(dataclasses.replace(model, provenance={"tuned": True}), frame)


@pytest.mark.slow
def test_the_rung_of_a_series_follows_its_rows():
    model = fc.fit(values(120), fc.Config(**QUICK), seed=1)
    assert model.report.loc["d", "forecast_by"] == "combination"
    new = values(130, short=130)
    updated = fc.update(model, new)
    assert updated.report["forecast_by"].tolist() == ["own networks"] * 4
    assert np.isfinite(fc.predict(updated, new)["LSTM"]).all()
    one = fc.update(model, values(130))  # the short series has no new rows
    pd.testing.assert_frame_equal(
        forecasts(one, new[new["ds"] < 12], "d"), forecasts(model, new[new["ds"] < 12], "d"),
        check_exact=True,
    )  # fmt: skip


def test_a_series_that_lost_rows_stays_as_it_was_and_is_named(model):
    new = prices(360)
    few = new[(new["unique_id"] != "BBB") | (new["ds"] >= new["ds"].unique()[-100])]
    updated = fc.update(model, few)
    assert updated.report["rows"].to_dict() == {"AAA": 360, "BBB": 300, "CCC": 360}
    with refuses(UsageError):
        fc.update(model, few, ["BBB"])
