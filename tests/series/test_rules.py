"""Dates by business days, weekdays of the month and weeks: their seasons, and the dates ahead."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError
from forecaster.series.calendar.exchanges import regular_sessions
from forecaster.series.calendar.frequency import Frequency, common_frequency, infer_frequency
from forecaster.series.calendar.rhythms import rhythm_of
from forecaster.series.calendar.seasons import default_season, seasons_of
from forecaster.series.calendar.wording import in_words
from forecaster.storage.model.fields import frequency_of

MONTHS = ["MS", "ME", "BMS", "BME", "WOM-1MON", "WOM-3FRI", "LWOM-SAT", "LWOM-FRI"]
LAST = {  # aliases that pandas cannot read before version 3
    "LWOM-SAT": pd.offsets.LastWeekOfMonth(weekday=5),
    "LWOM-FRI": pd.offsets.LastWeekOfMonth(weekday=4),
}
PERIODS = ["4-4-5", "4-5-4", "5-4-4"]


def dated(convention: str, count: int, start: str = "2021-01-01") -> pd.DatetimeIndex:
    """Return dates from ``start`` on, by a pandas alias or by the weeks of a quarter's periods."""
    if convention not in PERIODS:
        return pd.date_range(start, periods=count, freq=LAST.get(convention, convention))
    weeks = np.resize([int(each) for each in convention.split("-")], count)
    sunday = pd.Timestamp(start) + pd.offsets.Week(weekday=6)
    return pd.DatetimeIndex(sunday + pd.to_timedelta(7 * np.cumsum(weeks), unit="D"))


def ahead_of(times: pd.DatetimeIndex, count: int) -> list[pd.Timestamp]:
    stamps = times.to_numpy("datetime64[ns]")
    return list(pd.DatetimeIndex(infer_frequency(stamps).after(stamps[-1], count)))


@pytest.mark.parametrize(
    ("conventions", "season"),
    [
        ([*MONTHS, *PERIODS], 12),
        (["QS", "QE", "BQS", "BQE", "QS-FEB", "BQE-NOV", "3WOM-3FRI", "13W-SUN", "91D"], 4),
        (["2MS", "2ME", "2BME"], 6),
        (["4ME"], 3),
        (["6MS", "2QE", "26W-SAT"], 2),
        (["4W-FRI", "28D"], 13),
        (["2W-TUE"], 26),
        (["SMS", "SME", "SME-14"], 24),
        (["YS", "YE-JUN", "BYE", "2YE", "52W-SUN"], 1),
    ],
)
def test_the_season_is_a_year_whatever_the_convention(conventions, season):
    for convention in conventions:
        times = dated(convention, 40, "1970-01-01").to_numpy("datetime64[ns]")
        expected = () if season == 1 else (season,)
        assert seasons_of(times, np.arange(40.0)) == expected, convention
        assert default_season(infer_frequency(times)) == season, convention


@pytest.mark.parametrize(
    "convention",
    [*MONTHS, *PERIODS, "BQS", "BQE", "3WOM-3FRI", "13W-SUN", "4W-FRI", "2W-TUE", "SMS", "SME"],
)
@pytest.mark.parametrize("missing", [[], [7], [7, 8, 20]])
@pytest.mark.parametrize("count", [36, 37, 38])
def test_dates_go_on_by_their_convention_despite_missing_rows(convention, missing, count):
    times = dated(convention, count + 15)
    assert ahead_of(times[:count].delete(missing), 15) == list(times[count:])
    closing = times + pd.Timedelta(hours=17)
    assert ahead_of(closing[:count].delete(missing), 15) == list(closing[count:])


@pytest.mark.parametrize("convention", [*MONTHS, *PERIODS, "SMS", "SME", "BQE"])
def test_short_series_go_on_by_their_convention(convention):
    times = dated(convention, 14, "2022-06-01")
    assert ahead_of(times[:8], 6) == list(times[8:])


def test_months_have_their_rhythm_if_each_has_a_row():
    for convention in MONTHS:
        assert rhythm_of(dated(convention, 40).to_numpy("datetime64[ns]")) == "M"
    assert rhythm_of(dated("BQE", 40).to_numpy("datetime64[ns]")) == "Q"
    for convention in [*PERIODS, "4W-FRI", "SMS", "2MS"]:  # two rows or none in some months
        assert rhythm_of(dated(convention, 40).to_numpy("datetime64[ns]")) == ""


def test_the_last_sessions_of_months_lead_to_last_weekdays():
    """The session of 28 March 2024 was followed by Good Friday, the month's last weekday."""
    sessions = regular_sessions("2020-01-01", "2024-03-31").to_series()
    times = pd.DatetimeIndex(sessions.groupby(sessions.dt.to_period("M")).last())
    assert [str(day.date()) for day in ahead_of(times, 2)] == ["2024-04-30", "2024-05-31"]
    frequency = infer_frequency(times.to_numpy("datetime64[ns]"))
    assert frequency.elapsed("2024-03-28", "2024-03-31") == 0
    assert frequency.elapsed("2024-03-28", "2024-04-30") == 1


@pytest.mark.parametrize("rows_after", [1, 2, 3, 7])
def test_a_year_of_53_weeks_moves_the_dates_after_it_by_a_week(rows_after):
    weeks = [4, 5, 4] * 11 + [4, 5, 5] + [4, 5, 4] * 6
    times = pd.DatetimeIndex(
        pd.Timestamp("2021-01-30") + pd.to_timedelta(7 * np.cumsum(weeks), "D")
    )
    rows = 35 + rows_after
    assert ahead_of(times[:rows], 9) == list(times[rows : rows + 9])


def test_quarters_of_13_weeks_go_on_despite_a_year_of_53_weeks():
    weeks = [13] * 11 + [14] + [13] * 12
    times = pd.DatetimeIndex(
        pd.Timestamp("2021-01-30") + pd.to_timedelta(7 * np.cumsum(weeks), "D")
    )
    assert ahead_of(times[:16], 8) == list(times[16:])
    assert default_season(infer_frequency(times[:16].to_numpy("datetime64[ns]"))) == 4


def test_weeks_at_random_distances_are_no_quarters():
    random = np.random.default_rng(0)
    found = []
    for _ in range(50):
        days = np.cumsum(random.choice([28, 28, 35], size=30)).astype("timedelta64[D]")
        times = np.datetime64("2020-01-04", "ns") + days
        found.append(infer_frequency(times).alias)
    assert "4-4-5" not in found


def test_periods_that_are_over_are_counted_between_two_days():
    times = dated("4-4-5", 30).to_numpy("datetime64[ns]")
    frequency = infer_frequency(times)
    for steps in (1, 2, 3, 7):
        assert frequency.elapsed(times[5], times[5 + steps]) == steps
        assert frequency.elapsed(times[5], times[5 + steps] - np.timedelta64(1, "D")) == steps - 1


def test_series_whose_quarters_begin_on_other_days_are_of_one_frequency():
    early = dated("4-4-5", 30).to_numpy("datetime64[ns]")
    late = dated("4-4-5", 30, "2021-01-08").to_numpy("datetime64[ns]")
    weekly = pd.date_range("2021-01-03", periods=99, freq="W").to_numpy("datetime64[ns]")
    series = [early, late, late, weekly, weekly]
    assert common_frequency(series) == infer_frequency(late) != infer_frequency(early)


def test_one_panel_has_the_same_forecasts_by_each_convention(tmp_path):
    """Rows 48 months long, with a strong yearly season; only their dates differ."""
    random, steps = np.random.default_rng(4), np.arange(48)
    season = 1 + 0.3 * np.sin(2 * np.pi * steps / 12)
    values = {f"s{k}": 1000 * season * np.exp(0.03 * random.normal(size=48)) for k in range(4)}
    forecasts = {}
    for convention in ["MS", "BME", "LWOM-SAT", "4-4-5"]:
        times = dated(convention, 54)
        frame = pd.concat(
            pd.DataFrame({"unique_id": name, "ds": times[:48], "y": y})
            for name, y in values.items()
        )
        config = fc.Config(horizon=6, members=1, epochs=2, hidden=4)
        fitted = fc.fit(frame, config, seed=0)
        model = fc.load(fc.save(fitted, tmp_path / convention))
        assert model.frequency == fitted.frequency
        found = fc.predict(model, frame)
        assert list(found["ds"]) == list(times[48:]) * 4, convention
        forecasts[convention] = found["LSTM"].to_numpy()
    truth = 1000 * (1 + 0.3 * np.sin(2 * np.pi * np.arange(48, 54) / 12))
    for convention, found in forecasts.items():
        np.testing.assert_allclose(found, forecasts["MS"], rtol=0.02, err_msg=convention)
        assert np.abs(found.reshape(4, 6) / truth - 1).mean() < 0.05


def test_a_file_may_not_put_a_quarter_outside_its_days():
    fields = {"alias": "4-4-5", "step": 1, "nyse": False, "hours": None, "day": 91, "open": []}
    assert frequency_of({"frequency": fields}) == Frequency("4-4-5", day=91)
    for day in (0, 92):
        with pytest.raises(ValueError, match="day: expected 1 to 91"):
            frequency_of({"frequency": fields | {"day": day}})
    with pytest.raises(ValueError, match="day: expected 0 to 31"):
        frequency_of({"frequency": fields | {"alias": "months", "day": 32}})


@pytest.mark.parametrize("days", [(1, 11, 21), (10, 20, 31)])
@pytest.mark.parametrize("rows", [3, 4, 5, 36, 70])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_dekads_go_on_by_the_days_of_the_month(days, rows, skip):
    months = pd.date_range("2023-01-01", periods=40, freq="MS")
    every = [m.replace(day=min(day, m.days_in_month)) for m in months for day in days]
    times = pd.DatetimeIndex(every)[skip:] + pd.Timedelta(hours=7)
    assert ahead_of(times[:rows], 8) == list(times[rows : rows + 8])
    frequency = infer_frequency(times[:rows].to_numpy("datetime64[ns]"))
    assert frequency.elapsed(times[rows - 1], times[rows + 4]) == 5
    assert default_season(frequency) == 36 and in_words(frequency) == "three times a month"
    assert (
        frequency_of(json.loads(json.dumps({"frequency": dataclasses.asdict(frequency)})))
        == frequency
    )
    if rows > 30:
        assert ahead_of(times[:rows].delete([7, 8, 20]), 8) == list(times[rows : rows + 8])


@pytest.mark.parametrize("rows", [6, 7, 24])
def test_months_named_by_their_first_or_last_day_in_turn_are_months(rows):
    months = pd.period_range("2023-01", periods=rows + 3, freq="M")
    every = [m.start_time if n % 2 else m.end_time.normalize() for n, m in enumerate(months)]
    made = ahead_of(pd.DatetimeIndex(every)[:rows], 3)
    assert [day.to_period("M") for day in made] == list(months[rows:])


def test_dates_beyond_the_reach_of_nanoseconds_are_one_error():
    times = pd.date_range("2261-01-31", periods=12, freq="ME").to_numpy("datetime64[ns]")
    with pytest.raises(DataError, match="the 9 times after 2261-12-31 go beyond 2262-04-11"):
        infer_frequency(times).after(times[-1], 9)
    hours = pd.date_range("2262-01-02", "2262-04-05", freq="h")
    open_hours = hours[(hours.hour >= 9) & (hours.hour < 17) & (hours.day_of_week < 5)]
    stamps = open_hours.to_numpy("datetime64[ns]")
    with pytest.raises(DataError, match="the 200 times after 2262-04-04 16:00:00 go beyond"):
        infer_frequency(stamps).after(stamps[-1], 200)
