"""Series whose latest row is of a period that is still running."""

import pandas as pd
import pytest

import forecaster as fc
from forecaster.series.findings import running
from tests.conftest import run

NOW = pd.Timestamp("2026-11-26 19:00")  # a Thursday


def panel(times) -> fc.Panel:
    return fc.Panel.from_frame(pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0}))


@pytest.mark.parametrize(
    ("frequency", "last", "until"),
    [
        ("MS", "2026-11-01", "2026-12-01"),
        ("BMS", "2026-11-02", "2026-12-01"),
        ("QS", "2026-10-01", "2027-01-01"),
        ("YS", "2026-01-01", "2027-01-01"),
        ("W-MON", "2026-11-23", "2026-11-30"),
        ("W-SUN", "2026-11-29", "2026-11-29"),  # named by its end, which is to come
        ("ME", "2026-11-30", "2026-11-30"),
        ("QE", "2026-12-31", "2026-12-31"),
        ("YE", "2026-12-31", "2026-12-31"),
        # All is over.
        ("MS", "2026-10-01", None),
        ("BMS", "2026-10-01", None),
        ("QS", "2026-07-01", None),
        ("YS", "2025-01-01", None),
        ("W-MON", "2026-11-16", None),
        ("W-SUN", "2026-11-22", None),
        ("W-FRI", "2026-11-20", None),
        ("ME", "2026-10-31", None),
        ("BME", "2026-10-30", None),
        ("QE", "2026-09-30", None),
        ("YE", "2025-12-31", None),
        # No periods, or invented data.
        ("D", "2026-11-26", None),
        ("B", "2026-11-26", None),
        ("h", "2026-11-26 19:00", None),
        ("MS", "2031-11-01", None),
    ],
)
@pytest.mark.parametrize("gap", [False, True])
def test_a_period_is_running_until_the_clock_says_that_it_is_over(frequency, last, until, gap):
    times = pd.date_range(end=last, periods=40, freq=frequency)
    assert times[-1] == pd.Timestamp(last)
    found = [one.said for one in running(panel(times.delete(7) if gap else times), NOW)]
    said = f"dated {last}, not over before {until}; --end "
    assert [text.startswith(said) for text in found] == ([] if until is None else [True])


def test_prices_and_steps_have_no_periods():
    times = pd.date_range(end="2026-11-01", periods=40, freq="MS")
    close = pd.DataFrame({"unique_id": "a", "ds": times, "close": 1.0})
    assert not list(running(fc.Panel.from_frame(close), NOW))
    assert not list(running(panel(range(40)), NOW))


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]])
def test_the_commands_name_the_row_and_how_to_leave_it_out(tmp_path, monkeypatch, memory):
    monkeypatch.setattr(pd.Timestamp, "now", lambda zone=None: NOW.tz_localize(zone))
    times = pd.date_range(end="2026-11-01", periods=60, freq="MS")
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": times, "y": range(60)}) for name in "abc"
    )
    frame.to_csv(tmp_path / "sales.csv", index=False)
    home = ["--home", tmp_path / "home"]
    message = (
        "latest row of 3 of 3 series is of a period that is not over: a, b, c (dated 2026-11-01, "
        "not over before 2026-12-01; --end 2026-10-31 leaves it out). It counts as the value of "
        "the whole period; if it is not, leave it out"
    )
    fit = ["fit", "--source", f"files:{tmp_path / 'sales.csv'}", "--model", "ets", *memory, *home]
    done = run(*fit)
    assert done.exit_code == 0 and done.stderr.count(message) == 1, done.output
    done = run("predict", "--all", *home)
    assert done.exit_code == 0 and done.stderr.count(message) == 1, done.output
    done = run("predict", "--all", "--end", "2026-10-31", "--format", "csv", *home)
    assert "not over" not in done.stderr and "a,2026-11-01," in done.stdout, done.output
    done = run(*fit, "--end", "2026-10-31")
    assert done.exit_code == 0 and "not over" not in done.stderr, done.output
