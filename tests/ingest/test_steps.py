"""The step of rows as a caller states it: rows that do not fit it are named."""

import re
import shlex

import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning, UsageError
from forecaster.series import find_late, next_times
from forecaster.series.combination.nature import Nature
from tests.conftest import run
from tests.messages import refuses, warns

MONDAYS = pd.date_range("2026-01-05", periods=30, freq="W-MON")
JUNE = pd.DatetimeIndex(["2026-06-28"])
FRIDAY = MONDAYS.append(pd.DatetimeIndex(["2026-08-07"]))
HOURS = pd.date_range("2026-01-05 01:00", periods=100, freq="h")
SECOND = pd.Timedelta("1s")


def table(times) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "A", "ds": times, "y": range(len(times))})


@pytest.mark.parametrize(
    ("times", "frequency", "odd", "after"),
    [
        (FRIDAY, "W-MON", "2026-08-07", "2026-08-10"),
        (MONDAYS[:1], "D", None, "2026-01-06"),
        (MONDAYS[:2], "MS", "2026-01-05", "2026-02-01"),
        (MONDAYS[::2], "W-MON", None, "2026-07-27"),
        (MONDAYS[[0, 1, 3, 7, 8, 15]], "D", None, "2026-04-21"),
        (MONDAYS[:9], "2W-MON", "2026-01-12", "2026-03-16"),
        # Of several steps most rows say which are meant, not the first one.
        (MONDAYS[:1].append(MONDAYS[1::2]), "2W-MON", "2026-01-05", "2026-08-10"),
        # Half seconds of years would fill the memory.
        (MONDAYS.append(MONDAYS[-1:] + SECOND), "500ms", None, "2026-07-27T00:00:01.5"),
        (HOURS[[0, 1, 3, 4, 30, 31]], "h", None, "2026-01-06T09:00"),
        (MONDAYS[:9].append(MONDAYS[9:] + pd.Timedelta("20min")), "15min", "2026-01-05", None),
        (pd.date_range("2024-01-31", periods=29, freq="ME").append(JUNE), "ME", "2026-06-28",
         "2026-06-30"),
        # Nothing comes a few days before the first day of a month.
        (pd.date_range("2024-01-01", periods=29, freq="MS").append(JUNE), None, None, "2026-07-01"),
    ],
)  # fmt: skip
def test_a_stated_step_is_followed_and_rows_beside_it_are_named(times, frequency, odd, after):
    if odd is None:
        panel = fc.load_panel(table(times), frequency=frequency)
    else:
        with warns(ForecasterWarning) as said:
            panel = fc.load_panel(table(times), frequency=frequency)
        assert f"column 'ds': {odd}" in str(said[0].message)
    expected = next_times(panel.times, 1, panel.frequency)[0]
    assert after is None or expected == pd.Timestamp(after)


@pytest.mark.parametrize("name", ["week", "minute"])
def test_numbers_beside_dates_that_are_no_hours_are_refused(tmp_path, name):
    table(MONDAYS).assign(**{name: range(30)}).to_csv(tmp_path / "x.csv", index=False)
    with refuses(DataError):
        fc.load_panel(f"files:{tmp_path / 'x.csv'}", time_col=f"ds+{name}")


@pytest.mark.parametrize("name", ["M", "x", "", "0D", "-1D", 5])
def test_what_is_no_name_of_an_offset_is_refused(name):
    with refuses(UsageError):
        fc.load_panel(table(MONDAYS), frequency=name)


@pytest.mark.parametrize(
    ("times", "frequency"),
    [(range(9), "D"), (HOURS, "B"), (HOURS, "MS"), (MONDAYS, "h"), (MONDAYS + SECOND, "15min")],
)
def test_a_step_of_another_kind_than_the_rows_is_refused(times, frequency):
    with refuses(DataError) as error:
        fc.load_panel(table(times), frequency=frequency)
    option = re.search(r"Say --frequency (\S+)", str(error.value))
    given = option[1] if option else None
    assert next_times(fc.load_panel(table(times), frequency=given).times, 1)[0] > times[-1]


def test_seasons_lateness_and_gaps_follow_from_the_stated_step():
    """Rows on Mondays, half of them missing, are weeks; what they would show is a fortnight."""
    panel = fc.load_panel(table(MONDAYS[::2].append(MONDAYS[-1:])), frequency="W-MON")
    nature = Nature.of(panel.times, panel.values[0, :, 0], panel.frequency, None)
    assert (nature.seasons, nature.rhythm, nature.spacing) == ((52,), "W-MON", 7 * 86_400)
    (late,) = (one for one in find_late(panel, "2026-08-17") if one.kind == "late")
    assert late.rows == 3
    days = fc.load_panel(table(MONDAYS), frequency="D")
    assert Nature.of(days.times, days.values[0, :, 0], days.frequency, None).seasons == (7,)


@pytest.mark.parametrize("times", [FRIDAY, MONDAYS[[0, 1, 3, 4, 8, 9, 14, 16, 21]]])
def test_the_option_that_a_warning_names_states_the_step_for_good(tmp_path, times):
    table(times).to_csv(tmp_path / "x.csv", index=False)
    home, fit = ("--home", tmp_path / "home"), ("fit", "--model", "ets", "--horizon", 2)
    source = ("--source", f"files:{tmp_path / 'x.csv'}")
    doubted = run(*fit, *source, *home)
    found = re.search(r"--frequency [\w-]+", doubted.stderr)
    assert doubted.exit_code == 0 and found, doubted.stderr
    stated = run(*fit, *source, *shlex.split(found[0]), *home)
    assert stated.exit_code == 0 and "regular times" not in stated.stderr, stated.stderr
    assert "at another time than" not in stated.stderr
    said = run("predict", "A", "--output", tmp_path / "f.csv", *home)
    assert said.exit_code == 0 and "--frequency" not in said.stderr, said.stderr
    first = pd.read_csv(tmp_path / "f.csv")["ds"].iloc[0]
    assert pd.Timestamp(first) > times[-1]
