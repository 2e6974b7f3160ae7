"""Times in all notations are read or refused, and the steps that are stated for them."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterError, ForecasterWarning, UsageError
from forecaster.series import find_late, next_times
from forecaster.series.combination.nature import Nature
from forecaster.series.panel.panel import Panel
from tests.conftest import run
from tests.messages import refuses, warns

MONDAYS = pd.date_range("2026-01-05", periods=30, freq="W-MON")
JUNE = pd.DatetimeIndex(["2026-06-28"])
FRIDAY = MONDAYS.append(pd.DatetimeIndex(["2026-08-07"]))
HOURS = pd.date_range("2026-01-05 01:00", periods=100, freq="h")
SECOND = pd.Timedelta("1s")


def serial(days: pd.DatetimeIndex) -> list[int]:
    """Days as spreadsheets count them, where 45292 is 2024-01-01."""
    return [45292 + (day - pd.Timestamp("2024-01-01")).days for day in days]


def table(times: list | pd.Series | pd.Index) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "A", "ds": times, "y": np.arange(len(times)) + 1.0})


def times_of(times: list, **options) -> list[str]:
    """The times of a frame as the panel shows them."""
    return [str(time).removesuffix("T00:00:00.000000000") for time in read(times, **options)]


def read(times: list | pd.Series, **options) -> np.ndarray:
    return fc.load_panel(table(times), **options).times


@pytest.mark.parametrize(
    ("written", "first", "last"),
    [
        ([202201, 202204, 202207], "2022-01-01", "2022-07-01"),
        (["202111", "202112", "202201"], "2021-11-01", "2022-01-01"),
        ([187101, 187102], "1871-01-01", "1871-02-01"),
        ([20240101, 20240102], "2024-01-01", "2024-01-02"),
        (["2022Q1", "2022Q4"], "2022-01-01", "2022-10-01"),
        (["2022-Q2", "2022-q3"], "2022-04-01", "2022-07-01"),
        (["2022W05", "2022W06"], "2022-01-31", "2022-02-07"),
        (["2020-W53", "2021-W01"], "2020-12-28", "2021-01-04"),
        (["2022-W05-5", "2022-W06-5"], "2022-02-04", "2022-02-11"),
        (["2022M01", "2022M12"], "2022-01-01", "2022-12-01"),
    ],
)
def test_periods_become_their_first_day(written, first, last):
    assert times_of(written)[:: len(written) - 1] == [first, last]


COUNTED = [range(1, 201), range(-3, 4), [0, 1, 5_000, 5_007], range(2001, 2024),
           range(1950, 2030, 5), [5]]  # fmt: skip


@pytest.mark.parametrize("counted", COUNTED)
def test_numbers_that_count_stay_numbers(counted):
    assert read(list(counted)).tolist() == list(counted)


# Each may be a date or a count, or has dates of which not all are read alike; and formats that do
# not fit.
REFUSED = [
    serial(pd.bdate_range("2024-01-01", periods=30)),
    [202052, 202053, *range(202101, 202153)],
    range(45_000, 45_040),
    [0, *range(1_700_000_000_000, 1_700_000_005_000, 1_000)],
    [1704067200, 1704153600],
    ["01022022", "02022022"],
    [202401, 20240215],
    [202201, 202202, 202213],
    [202201.0, 202202.0],
    [45292.5, 45293.5],
    [2024.08, 2024.09, 2024.1, 2024.11],
    [1960.0, 1960.25, 1960.5],  # fractions of years, as R writes them
    ["2020.1", "2020.2"],
    pd.Series([10**9000, 1], dtype=object),
    ["2024-01-01", "now"],
    [1j, 2j],
    [pd.Timedelta(1, "D"), True],
    ["2022Q1", "2022Q5"],
    ["2021-W52", "2021-W53"],
    ["2024-01-01 10:00+16", "2024-01-02 10:00+16"],
    # Dates of two precisions: totals among the periods that they sum.
    ["2024-01-01 22:00", "2024-01-01 23:00", "2024-01-01"],
    # A time of day settles no doubt about the day.
    ["03/04/2024 10:00", "03/04/2024 11:00"],
    ["28.03.2024 10:00", "29.03.2024 25:00"],
    ["03/28/2024 1:00 PM", "03/28/2024 13:00 PM"],
    ["Mar 2024 10:00", "Apr 2024 10:00"],
    ["2024-03-28 9:00", "2024-03-28 10:00 11:00"],
    ["2026-01-30 10:00", "2026-01-30 24:01"],
    ["2026-01-30 10:00", "2026-01-30 24:00:01"],
    ["2026-01-30 10:00", "2026-01-30 10:24:00:5"],
    ["28.03.2024 10:00", "29.03.2024"],
    # Summer and winter time.
    ["2024-10-27 02:00+02", "2024-10-27 02:00+01"],
    ["2024-01-01 10:00Z", "2024-01-01 10:30+01"],
    ([1.5, 2.0], "steps"),
    (["45292", "soon"], "excel"),
    (["2024-01-01 10:00Z", "2024-01-01"], "utc"),
    (["1711584000", "soon"], "s"),
    (["03/04/2024", "now"], "%d/%m/%Y"),
    ([1], "calc"),
]


@pytest.mark.parametrize("written", REFUSED)
def test_times_with_two_readings_or_none_are_refused_with_the_option_that_decides(written):
    written, form = written if isinstance(written, tuple) else (written, None)
    with refuses(ForecasterError):
        read(written if isinstance(written, pd.Series) else list(written), date_format=form)


@pytest.mark.parametrize(
    ("written", "date_format", "first"),
    [
        (serial(pd.bdate_range("2024-01-01", periods=3)), "excel", "2024-01-01"),
        ([45292.25, 45293.0], "excel", "2024-01-01T06:00:00.000000000"),
        ([2024060, 2024061], "%Y%j", "2024-02-29"),
        ([202201, 202202], "%Y%m", "2022-01-01"),
        ([1995, 2003], "%Y", "1995-01-01"),
        (
            ["28.3.2024 10:00+01:00", "29.3.2024 10:00Z"],
            "%d.%m.%Y %H:%M%z",
            "2024-03-28T10:00:00.000000000",
        ),
        ([1711584000, 1711587600], "s", "2024-03-28"),
        ([1711584000_000, 1711587600_000], "ms", "2024-03-28"),
        (["1711584000000000", "1711587600000000"], "us", "2024-03-28"),
        ([1711584000_000000001, 1711587600_000000000], "ns", "2024-03-28T00:00:00.000000001"),
        ([45292, 45293], "steps", "45292"),
        (["2024-01-01 10:30+01", "2024-01-01 11:00-05"], "utc", "2024-01-01T09:30:00.000000000"),
        ([20214, 20221, 20222], "steps", "20214"),
    ],
)
def test_a_format_decides(written, date_format, first):
    assert times_of(written, date_format=date_format)[0] == first


@pytest.mark.parametrize(
    ("written", "local"),
    [
        ("2024-01-01 10:00:00+00", "10:00:00"),  # as PostgreSQL writes
        ("2024-01-01 10:00:00.25+05:30", "10:00:00.250000"),
        ("2024-01-01T10Z", "10:00:00"),
        ("2024-01-01T10:00Z", "10:00:00"),
        ("2024-01-01T10:00+01", "10:00:00"),
        ("2024-01-01T10:00:00 -0500", "10:00:00"),
        ("20240101T100000Z", "10:00:00"),
        ("2024-01-01 10:00 UTC", "10:00:00"),
    ],
)
def test_an_offset_is_dropped_and_the_local_time_kept(written, local):
    frame = table([written, written.replace("2024", "2025")])
    expected = [pd.Timestamp(f"{year}-01-01 {local}") for year in (2024, 2025)]
    assert fc.load_panel(frame).times.astype("M8[us]").tolist() == expected
    assert Panel.from_frame(frame).times.astype("M8[us]").tolist() == expected


def test_offsets_of_summer_and_winter_time_mix():
    spring = ["2024-03-30 10:00+01", "2024-03-31 10:00+02", "2024-04-01 10:00+02"]
    assert times_of(spring)[1] == "2024-03-31T10:00:00.000000000"
    with_format = times_of([f"{time}00" for time in spring], date_format="%Y-%m-%d %H:%M%z")
    assert with_format == times_of(spring)
    zoned = [pd.Timestamp(time) for time in spring]
    assert times_of(zoned) == times_of(spring)
    two = pd.concat(
        [table(["2024-01-01 10:00Z"]), table(["2024-01-01 10:30+01"]).assign(unique_id="B")]
    )
    assert fc.load_panel(two).ids == ("A", "B")


def test_an_hour_that_repeats_in_autumn_is_read_in_utc_if_so_told(tmp_path):
    hours = pd.date_range("2023-10-28", periods=49, freq="h", tz="Europe/Berlin")
    one = table(list(hours)).drop(columns="unique_id")
    one.assign(ds=hours.map(pd.Timestamp.isoformat), B=1.0).to_csv(tmp_path / "x.csv", index=False)
    for data, wide in ((one, None), (f"files:{tmp_path}/x.csv", True)):
        with refuses(DataError):
            fc.load_panel(data, wide=wide)
        times = pd.DatetimeIndex(fc.load_panel(data, wide=wide, date_format="utc").times)
        assert times.equals(pd.date_range("2023-10-27 22:00", periods=49, freq="h"))


NOTATIONS = [
    f"{day}{clock}"
    for day in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%b %d, %Y", "%d-%b-%Y")
    for clock in ("", " %H:%M:%S", ", %I:%M %p", " %I:%M:%S%p")
]


@pytest.mark.parametrize("form", [*NOTATIONS, "%Y-%m-%d %I:%M %p", "%m/%Y", "%b %Y", "%d-%b-%y"])
@pytest.mark.parametrize("day", [28, 5])
def test_other_notations_are_read_by_the_formats_that_the_error_names(form, day):
    """Days above 12 have one reading, others two: both are named."""
    times = pd.Series(pd.date_range(f"2024-03-{day} 21:30:07", periods=3))
    written = list(times.dt.strftime(form).unique())
    with pytest.raises(DataError) as error:
        read(written)
    named = re.findall(r"--date-format ('[^']*'|\S+)", str(error.value))
    made = [read(written, date_format=one.strip("'")).tolist() for one in named]
    expected = pd.to_datetime(pd.Series(written), format=form).to_numpy("M8[ns]")
    assert expected.tolist() in made
    assert len(made) == 1 or day < 13


def test_24_00_is_the_midnight_that_ends_a_day():
    times = read(["2026-12-30 23:00", "2026-12-31 24:00"])
    assert times.astype("M8[h]").astype(str).tolist() == ["2026-12-30T23", "2027-01-01T00"]


@pytest.mark.parametrize("bad", ["01/02/2024", "5.3.2024", "13-1-24", "1/2", 20240101, 5, 5.0])
@pytest.mark.parametrize("option", ["start", "end"])
def test_spans_are_given_with_the_year_first(bad, option):
    with refuses(UsageError):
        fc.load_panel(table(list(pd.date_range("2024-01-01", periods=9))), **{option: bad})


@pytest.mark.parametrize(
    ("end", "last"),
    [("2024-01", "2024-01-31"), ("2024", "2024-12-31"), ("2024-01-05", "2024-01-05"),
     ("01/2024", "2024-01-31"), ("Jan 2024", "2024-01-31"), ("2024Q1", "2024-03-31"),
     ("20240105", "2024-01-05"), ("2024-01-05 10:00", "2024-01-05"),
     ("2262", "2025-02-03"), ("9999", "2025-02-03")],
)  # fmt: skip
def test_an_end_is_that_of_its_month_or_year(end, last):
    panel = fc.load_panel(table(list(pd.date_range("2024-01-01", periods=400))), end=end)
    assert str(panel.times[-1].astype("M8[D]")) == last


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
    nature = Nature.from_rows(panel.times, panel.values[0, :, 0], panel.frequency, None)
    assert (nature.seasons, nature.rhythm, nature.spacing) == ((52,), "W-MON", 7 * 86_400)
    (late,) = (one for one in find_late(panel, "2026-08-17") if one.kind == "late")
    assert late.rows == 3
    days = fc.load_panel(table(MONDAYS), frequency="D")
    assert Nature.from_rows(days.times, days.values[0, :, 0], days.frequency, None).seasons == (7,)


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
