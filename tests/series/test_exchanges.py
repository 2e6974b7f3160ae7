"""Which exchange a symbol trades on, when it is open, and intraday times within its sessions."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError
from forecaster.series import Frequency, Hours, infer_frequency
from forecaster.series.calendar.exchanges import exchange_of, regular_sessions
from tests.messages import refuses


@pytest.mark.parametrize(
    ("symbol", "exchange"),
    [("AAPL", "XNYS"), ("^GSPC", "XNYS"), ("^FTSE", None), ("SAP.DE", "XETR"), ("X.QQ", None),
     ("BTC-USD", "24/7"), ("EURUSD=X", "24/5"), ("GC=F", "CMES")],
)  # fmt: skip
def test_a_symbol_says_which_exchange_it_trades_on(symbol, exchange):
    assert exchange_of(symbol) == exchange


def test_new_york_is_closed_on_its_holidays():
    sessions = regular_sessions("2021-12-20", "2022-01-19")
    closed = pd.bdate_range("2021-12-20", "2022-01-19").difference(sessions)
    assert [str(day.date()) for day in closed] == ["2021-12-24", "2022-01-17"]


DAYS = pd.Timestamp("2024-10-01"), pd.Timestamp("2024-11-27")


def clock(times) -> list[str]:
    return [str(time)[:16] for time in times]


@pytest.mark.parametrize("utc", [False, True])
@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize(
    ("exchange", "days"),
    [
        ("XNYS", DAYS),
        ("XASX", DAYS),
        ("XHKG", DAYS),
        ("XTKS", (pd.Timestamp("2024-05-07"), pd.Timestamp("2024-06-28"))),  # it closed at 15:00
        ("XSGO", (pd.Timestamp("2024-05-07"), pd.Timestamp("2024-06-28"))),  # winter: till 16:00
    ],
)
def test_the_hours_of_an_exchange_at_that_time_are_found(exchange, days, utc, closing):
    hours = Hours(exchange, utc, 900, 900 if closing else 0, closing)
    times = hours.between(*days)
    assert infer_frequency(times) == Frequency("900s", hours=hours)
    gappy = np.delete(times, np.random.default_rng(0).integers(0, len(times), len(times) // 5))
    assert infer_frequency(gappy).hours == hours


def test_forecasts_end_at_the_close_and_early_closes_count():
    times = Hours("XNYS", False, 1800, 0, False).between(*DAYS)  # until the day before a holiday
    assert clock(times[-2:]) == ["2024-11-27T15:00", "2024-11-27T15:30"]
    later = infer_frequency(times).after(times[-1], 9)
    assert clock(later[:7]) == [  # the day after Thanksgiving closes at 13:00
        "2024-11-29T09:30", "2024-11-29T10:00", "2024-11-29T10:30", "2024-11-29T11:00",
        "2024-11-29T11:30", "2024-11-29T12:00", "2024-11-29T12:30",
    ]  # fmt: skip
    assert clock(later[7:]) == ["2024-12-02T09:30", "2024-12-02T10:00"]
    assert infer_frequency(times).elapsed(times[-1], "2024-11-29 10:10") == 2


def test_the_clock_of_utc_changes_with_the_summer():
    times = Hours("XNYS", True, 3600, 0, False).between(*DAYS)
    frequency = infer_frequency(times)
    assert frequency.hours == Hours("XNYS", True, 3600, 0, False)
    assert clock(frequency.after("2024-11-01 19:30", 1)) == ["2024-11-04T14:30"]
    assert clock(frequency.after("2024-10-31 18:30", 2))[1] == "2024-11-01T13:30"


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2024-01-01", periods=3000, freq="5min"),
        pd.date_range("2024-01-01", periods=800, freq="h"),
        pd.DatetimeIndex([d + pd.Timedelta(minutes=5 * i) for d in pd.bdate_range("2024-03-04",
                          periods=20) for i in range(48, 240)]),  # 4:00 to 20:00
        pd.date_range("2024-03-04 09:30", periods=30, freq="5min"),  # one day is too few
    ],
    ids=["crypto", "electricity", "before and after hours", "one day"],
)  # fmt: skip
def test_other_intraday_times_go_on_as_they_did(times):
    times = times.to_numpy("datetime64[ns]")
    frequency = infer_frequency(times)
    assert frequency.hours is None and frequency.alias in ("300s", "3600s")
    assert frequency.after(times[-1], 1)[0] - times[-1] == np.timedelta64(
        int(frequency.alias[:-1]), "s"
    )


def test_a_saved_model_keeps_its_hours_and_forecasts_within_them(tmp_path):
    times = Hours("XNYS", False, 3600, 0, False).between(
        pd.Timestamp("2024-07-01"), pd.Timestamp("2024-09-20")
    )
    y = 50 + np.cumsum(np.random.default_rng(0).normal(size=len(times)))
    panel = fc.load_panel(pd.DataFrame({"unique_id": "s", "ds": times, "y": y}))
    fitted = fc.fit(panel, fc.Config(model="theta", horizon=3))
    model = fc.load(fc.save(fitted, tmp_path / "run"))
    assert model.frequency == panel.frequency and model.frequency.hours is not None
    assert clock(fc.predict(model, panel)["ds"]) == [
        "2024-09-23 09:30", "2024-09-23 10:30", "2024-09-23 11:30"
    ]  # fmt: skip
    text = (tmp_path / "run" / "model.json").read_text()
    (tmp_path / "run" / "model.json").write_text(text.replace('"XNYS"', '"NOPE"'))
    with refuses(ModelError):
        fc.load(tmp_path / "run")
