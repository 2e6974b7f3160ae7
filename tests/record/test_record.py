"""Forecasts are recorded, and scored by their outcomes."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import UsageError
from forecaster.evaluation.scores.metrics import crps
from forecaster.files import Home, run_name
from forecaster.ingest import Store, panel_from_store
from forecaster.record import Made, earlier, keep, keeping, read_record, score_record
from forecaster.record.timing import AFTER, made_after
from forecaster.series.calendar.exchanges import regular_sessions
from tests.conftest import run
from tests.messages import refuses
from tests.record.made import DAYS, forecast, store, table

PRICES = ["open", "high", "low", "close"]


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def scored(home):
    """Score forecasts from days 50, 100 and 101, with prices until day 101."""
    source = store(home, table().groupby("ticker").head(101))
    for until in (50, 100, 101):
        forecast(home, source, until)
    return score_record(home, read_record(home))


def test_what_is_kept_is_what_was_forecast(home):
    source = store(home, table())
    path = forecast(home, source, 50)
    frame = pd.read_parquet(home.record)  # as anyone would
    assert path.parent == home.record and len(frame) == 4
    assert path.stat().st_size < 12_000
    close = table().set_index(["ticker", "date"])["close"]
    first = frame.iloc[0]
    assert first["origin"] == DAYS[49] and first["ds"] == DAYS[50] and first["step"] == 1
    for steps, name in ((0, "value"), (5, "value_5"), (20, "value_20")):
        assert first[name] == close["AAA", str(DAYS[49 - steps].date())]
    assert first["forecast-lo-95"] == pytest.approx(0.94 * first["value"])
    assert (first["source"], first["run"]) == (source, "20240101-000000-000-lstm")


def test_a_repeated_forecast_counts_once_and_another_run_for_itself(home):
    source = store(home, table())
    first = forecast(home, source, 50)
    assert forecast(home, source, 50) == first and len(home.recorded()) == 1
    forecast(home, source, 50, growth=1.5)  # by the same run, renamed meanwhile
    forecast(home, source, 50, growth=1.2, run="20240101-000000-000.mine")
    assert len(home.recorded()) == 3
    frame = read_record(home).frames[source]
    np.testing.assert_allclose(frame["forecast"], 1.2 * frame["value"])  # the last one made
    assert len(frame) == 4
    forecast(home, source, 50, run="20240102-000000-000.other")
    assert score_record(home, read_record(home)).total()["forecasts"] == 4
    assert len(read_record(home).of(run="other").frames[source]) == 4
    with refuses(UsageError):
        read_record(home).of(run="x")


def test_of_right_wrong_and_right_again_the_last_made_counts(home):
    """In one evening the vendor corrects a price for the worse, and back."""
    right, wrong = table(), table()
    wrong.loc[wrong["date"] == str(DAYS[49].date()), PRICES] *= 2

    def made(frame: pd.DataFrame, run: str = "20240101-000000-000-lstm") -> int:
        source = store(home, frame)
        forecast(home, source, 50, run=run)
        (rows,) = read_record(home).of(run=run_name(Path(run))).frames.values()
        np.testing.assert_allclose(rows["value"], closing(frame, rows.assign(ds=rows["origin"])))
        return len(home.recorded())

    assert [made(frame) for frame in (right, wrong, right, right, wrong)] == [1, 2, 3, 3, 4]
    assert made(wrong, "20240102-000000-000-lstm") == 5
    assert made(right, "20240101-000000-000.renamed") == 6
    assert made(right, "20240101-000000-000.renamed") == 6  # another run does not count
    keeping.compact(home, home.recorded())
    assert [made(frame) for frame in (wrong, right, right)] == [2, 3, 3]


def test_a_forecast_after_its_outcome_takes_no_place_and_is_not_scored(home):
    """Prices were rolled back by twenty days, forecast again, and repaired."""
    source = store(home, table())
    for until in (60, 80):
        forecast(home, source, until)
    once = score_record(home, read_record(home))
    for until in (60, 70):  # the first has been forecast before, the second has not
        forecast(home, source, until, growth=1.01)
    card = score_record(home, read_record(home))
    assert card.count("apart") == 4 and set(card.rows["origin"][card.rows["state"] == "apart"]) == {
        DAYS[69]
    }
    pd.testing.assert_series_equal(card.total(), once.total())
    assert "4 values were forecast after their outcome, and do not count" in " ".join(card.lines())
    assert card.lines()[0].startswith("4 forecasts of 2 series were made, with 8 values")
    forecast(home, source, 81)  # afterwards all is as before
    assert score_record(home, read_record(home)).count("apart") == 4


def test_a_forecast_that_a_wrong_clock_dated_later_than_now_is_made_again(home, monkeypatch):
    """It seems to be made after its outcome; the one that is made next counts, once."""
    source = store(home, table())
    now = datetime(2024, 3, 8, 23, tzinfo=UTC)  # the evening of the origin
    assert DAYS[49].date() == now.date()
    for wrong_by in (8, 0, 0):
        at = now + timedelta(days=wrong_by)
        monkeypatch.setattr(keeping, "datetime", Mock(now=lambda zone, at=at: at))
        forecast(home, source, 50)
    assert len(home.recorded()) == 2
    frame = read_record(home).frames[source]
    assert len(frame) == 4 and not frame[AFTER].any() and (frame["made"] == now).all()


def behind(frame: pd.DataFrame, name: str, days: int) -> pd.DataFrame:
    """The rows of a record with one series' origin and times some days earlier."""
    its = frame["unique_id"] == name
    back = pd.Timedelta(days=days)
    return frame.assign(**{c: frame[c].mask(its, frame[c] - back) for c in ("origin", "ds")})


def test_a_series_behind_the_others_is_forecast_after_its_outcome(home):
    source = store(home, table())
    forecast(home, source, 54, horizon=3)
    frame = read_record(home).frames[source].drop(columns=AFTER)
    third = frame[frame["unique_id"] == "AAA"].assign(unique_id="CCC")
    late = behind(pd.concat([frame, third]), "AAA", 1)
    assert late["ds"][made_after(late)].tolist() == [DAYS[53]]  # the origin of the others
    elsewhere = late.assign(unique_id=late["unique_id"].replace({"AAA": "AAA.T"}))
    assert not made_after(elsewhere).any()  # Tokyo is not compared with New York


@pytest.mark.parametrize(
    ("made", "count"),
    [("2024-05-24 20:00", 0), ("2024-05-24 20:31", 1), ("2024-05-29 03:00", 3), ("2024-09-01", 0)],
)
def test_the_clock_tells_that_a_session_was_over(home, made, count):
    day = pd.Timestamp("2024-05-24")
    frame = pd.DataFrame(
        {
            "made": pd.Timestamp(made, tz="UTC"), "unique_id": "AAA",
            "origin": pd.Timestamp("2024-05-23"), "step": [1, 2, 3, 4],
            "ds": [day, *(day + pd.Timedelta(days=n) for n in (3, 4, 5))],
        }
    )  # fmt: skip
    assert made_after(frame).sum() == count
    hours = {name: frame[name] + pd.Timedelta(hours=20) for name in ("ds", "origin")}
    assert made_after(frame.assign(**hours)).sum() == count  # at the close in UTC
    other = frame.assign(unique_id="AAA.XY")  # whose hours are not known: at the next day's noon
    assert made_after(other).sum() == {"2024-05-29 03:00": 2}.get(made, 0)


def test_bands_that_were_asked_for_later_are_scored_too(home):
    source = store(home, table())
    forecast(home, source, 50, level="95")
    forecast(home, source, 50, level="80")
    frame = read_record(home).frames[source]
    assert len(frame) == 4 and frame.filter(like="forecast-").notna().all(axis=None)
    forecast(home, source, 50, level="95", growth=1.1)  # bands of another forecast are not its own
    frame = read_record(home).frames[source]
    assert frame.filter(like="-95").isna().all(axis=None) and frame["forecast-lo-80"].notna().all()


def test_numbers_that_count_have_no_clock():
    frame = pd.DataFrame(
        {"made": pd.to_datetime([1, 1, 2, 2], unit="s", utc=True), "unique_id": "A",
         "origin": [50, 50, 40, 40], "ds": [51, 52, 41, 55], "step": [1, 2, 1, 15]}
    )  # fmt: skip
    assert made_after(frame).tolist() == [False, False, True, False]


def test_scores_are_those_of_the_textbook(scored):
    known = scored.known
    assert scored.total()[["forecasts", "outcomes", "open"]].tolist() == [6, 6, 6]
    assert (known.groupby("origin").size() == [4, 2]).all()
    row = known.iloc[0]
    name, day = row["unique_id"], row["ds"]
    close = table().set_index(["ticker", "date"])["close"][name]
    assert row["y"] == close[str(day.date())]
    steps = np.diff(np.log(close.iloc[:50]))
    quantiles = np.array([0.025, 0.1, 0.5, 0.9, 0.975])
    from scipy.stats import norm

    unchanged = row["value"] * np.exp(norm.ppf(quantiles) * np.sqrt((steps**2).mean()))
    ours = row[["forecast-lo-95", "forecast-lo-80", "forecast", "forecast-hi-80", "forecast-hi-95"]]
    unit = (unchanged[3] - unchanged[1]) / 2
    assert row["crps"] == pytest.approx(crps(row["y"], ours.to_numpy(float), quantiles) / unit)
    assert row["crps_unchanged"] == pytest.approx(crps(row["y"], unchanged, quantiles) / unit)
    assert row["error"] == pytest.approx(abs(row["y"] - row["value"]) / unit)
    assert scored.total()["mae"] == pytest.approx(1.0)  # its medians are "unchanged"
    inside = ((known["y"] / known["value"] - 1).abs() < 0.03).mean()
    assert scored.total()["held-80"] == pytest.approx(inside) and inside > 0
    assert scored.total()["held-95"] >= scored.total()["held-80"]
    assert "made from 2 days: too few to judge by" in " ".join(scored.lines())


def test_no_price_after_the_origin_changes_what_is_expected_of_unchanged(home):
    source = store(home, table().groupby("ticker").head(60))
    forecast(home, source, 50)
    before = score_record(home, read_record(home)).known
    later = table()
    later.loc[later["date"] > str(DAYS[60].date()), PRICES] *= 1.3
    store(home, later)
    after = score_record(home, read_record(home)).known
    columns = ["y", "error", "error_unchanged", "crps", "crps_unchanged"]
    np.testing.assert_allclose(after[columns], before[columns])


def test_a_dividend_since_then_is_no_miss_where_returns_are_forecast(home):
    frame = table().groupby("ticker").head(60)
    source = store(home, frame.assign(adj_close=frame["close"]))
    forecast(home, source, 50)
    before = score_record(home, read_record(home)).known
    paid = table().assign(adj_close=table()["close"] * 0.97)
    paid.loc[paid["date"] >= str(DAYS[51].date()), PRICES] *= 0.97
    store(home, paid)
    after = score_record(home, read_record(home)).known
    np.testing.assert_allclose(after["y"], before["y"])


def closes(first: str, last: str) -> pd.DatetimeIndex:
    """The closes of New York in UTC: at 16:00 by its clock, at 13:00 before some holidays."""
    days = regular_sessions(pd.Timestamp(first), pd.Timestamp(last))
    early = days.isin(pd.to_datetime(["2024-11-29", "2024-12-24"]))
    local = days + pd.to_timedelta(np.where(early, 13, 16), "h")
    return local.tz_localize("America/New_York").tz_convert("UTC").tz_localize(None)


@pytest.mark.parametrize("change", ["2024-03-10", "2024-11-03", "2024-11-29"])
def test_outcomes_are_those_of_the_session_though_the_clocks_change(home, change):
    times = closes("2023-11-01", "2025-02-28")
    first = int(np.searchsorted(times, np.datetime64(change)))
    frame = pd.DataFrame({"unique_id": "AAA", "ds": times, "y": np.arange(100.0, 100 + len(times))})
    missing = times[first + 3]
    source = store(home, frame[(frame["ds"] != missing)][: first + 13])
    opened = Store.open(home, source)
    for until in range(first - 10, first + 1):
        panel = panel_from_store(opened, ["AAA"], end=str(times[until - 1]))
        ds = panel.frequency.after(panel.times[-1], 15)
        value = panel.channel("y")[0, panel.mask[0]][-1]
        made = pd.DataFrame({"unique_id": "AAA", "ds": ds, "LSTM": value})
        keep(home, Made(panel, made, "LSTM", "20240101-000000-000-lstm", source))
    card = score_record(home, read_record(home))
    assert card.count("missing") == 11 and card.count("open") == 1  # the session after the last
    known = card.known
    np.testing.assert_allclose(known["y"] - known["value"], known["step"])


def test_a_price_that_was_corrected_is_no_adjustment(home):
    wrong = table().groupby("ticker").head(60)
    here = wrong["date"] == str(DAYS[49].date())
    wrong.loc[here, PRICES] *= 2
    source = store(home, wrong)
    forecast(home, source, 50)
    store(home, table())
    known = score_record(home, read_record(home)).known
    close = table().set_index(["ticker", "date"])["close"]
    row = known.iloc[0]
    assert row["y"] == close[row["unique_id"], str(row["ds"].date())]
    assert row["error_unchanged"] > 10  # the forecast was wrong
    card = score_record(home, read_record(home))
    assert (
        known["corrected"].all() and np.isnan(card.total()["mae"]) and card.total()["held-80"] == 0
    )
    forecast(home, source, 60)
    card = score_record(home, read_record(home))
    assert card.total()["mae"] == pytest.approx(1) and card.total()["outcomes"] == 8
    assert "4 values were forecast from a value that has been corrected" in " ".join(card.lines())


def closing(frame: pd.DataFrame, rows: pd.DataFrame) -> list[float]:
    """The closes in a table of the times that were forecast."""
    close = frame.set_index(["ticker", "date"])["close"]
    days = rows["ds"].dt.strftime("%Y-%m-%d")
    return [close[name, day] for name, day in zip(rows["unique_id"], days, strict=True)]


def times(factor: float, since: int = 0, until: int | None = None) -> pd.DataFrame:
    """Prices, those of some days times a factor."""
    frame = table()
    days = [str(day.date()) for day in DAYS[since:until]]
    frame.loc[frame["date"].isin(days), PRICES] *= factor
    return frame


SPLIT = times(0.25, since=49)  # the rows before it are still in the old units
PENCE, SOUND = times(100, since=49, until=51), table()
REVISED = times(0.25)
REVISED.loc[REVISED["date"] == str(DAYS[49].date()), PRICES] *= 1.0024


@pytest.mark.parametrize(
    ("steps", "units"),
    [
        # The vendor restates all rows, since a split, or long after it; and pays a dividend later.
        ([(SOUND, 60, 50), (times(0.25), 330, None)], SOUND),
        ([(SOUND, 60, 50), (times(10), 330, None)], SOUND),
        ([(SPLIT, 50, 50), (times(0.25), 60, None)], SPLIT),
        ([(SPLIT, 53, 53), (times(0.25), 60, None)], SPLIT),
        ([(SPLIT, 50, 50), (times(0.25), 60, 60), (times(0.25 * 0.97), 330, None)], SPLIT),
        ([(SPLIT, 53, 53), (times(0.25), 60, 60), (times(0.25 * 0.97), 330, None)], SPLIT),
        # The price of the origin is revised beside the split.
        ([(SPLIT, 50, 50), (REVISED, 60, None)], SPLIT),
        # Two splits are adjusted at once: no forecast after the first is from its units alone.
        ([(SPLIT, 51, 50), (SPLIT, 51, 51), (times(0.125), 330, None)], SPLIT),
        # Prices were wrong for two days, which is no split.
        ([(PENCE, 50, 50), (PENCE, 51, 51), (SOUND, 60, 60), (times(0.97), 330, None)], SOUND),
    ],
)
def test_outcomes_have_the_units_in_which_was_forecast(home, steps, units):
    for frame, rows, until in steps:
        source = store(home, frame.groupby("ticker").head(rows))
        if until is not None:
            forecast(home, source, until)
    known = score_record(home, read_record(home)).known
    first = known[known["origin"] <= DAYS[52]]
    assert len(first) >= 4
    np.testing.assert_allclose(first["y"], closing(units, first), rtol=0.003)


@pytest.mark.parametrize("made", [50, 53])
def test_so_it_has_where_the_owner_of_the_prices_adjusts_them(home, made):
    """The vendor never restates the rows before the split."""
    source = store(home, SPLIT.groupby("ticker").head(made))
    forecast(home, source, made)
    for name in ("AAA", "BRK-B"):
        words = ("adjust", name, "--factor", "0.25", "--before", str(DAYS[49].date()))
        assert run(*words, "--home", home).exit_code == 0
    store(home, SPLIT.groupby("ticker").head(60))
    known = score_record(home, read_record(home)).known
    assert len(known) == 4 and not known["corrected"].any()
    np.testing.assert_allclose(known["y"], closing(SPLIT, known))


def test_what_is_no_longer_there_is_said(home, scored):
    (home.record / "20240101-000000-000-000000000000.parquet").write_bytes(b"PAR1")
    shutil.rmtree(home.prices)
    day = DAYS[50].strftime("%Y-%m-%d")
    store(home, table().query(f"ticker == 'AAA' and date != '{day}'"))
    record = read_record(home)
    assert len(record.damaged) == 1
    card = score_record(home, record)
    assert [card.count(state) for state in ("known", "open", "missing", "gone")] == [5, 0, 1, 6]
    said = " ".join(card.lines())
    assert "6 values cannot be compared" in said and "1 values have no outcome" in said


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("made", "now", "now"),
        ("step", 0.5, "truncated"),
        ("forecast", "x", "'x'"),
        ("unique_id", None, "unique_id"),
    ],
)
def test_a_file_of_other_types_is_damaged(home, scored, column, value, message):
    path = next(iter(home.recorded()))
    pd.read_parquet(path).assign(**{column: value}).to_parquet(path, index=False)
    record = read_record(home)
    assert message in record.damaged[path]
    assert score_record(home, record).lines()


def test_levels_that_only_some_forecasts_have(home):
    source = store(home, table())
    forecast(home, source, 50)
    forecast(home, source, 52, level="95")
    card = score_record(home, read_record(home))
    assert card.levels == ["80", "95"] and card.known["crps"].notna().all()
    later = card.known["origin"] == DAYS[51]
    total = card.total()
    first = card.known[~later]
    inside = (first["y"] >= first["forecast-lo-95"]) & (first["y"] <= first["forecast-hi-95"])
    assert total["held-95"] == pytest.approx(inside.mean())


def test_simulated_forecasts_count_only_by_themselves(home):
    source = store(home, table())
    forecast(home, source, 50)
    record = read_record(home)
    simulated = next(iter(record.frames.values())).assign(source="simulated")
    both = type(record)({**record.frames, "simulated": simulated}, {})
    card = score_record(home, both)
    assert not card.simulated and set(card.rows["source"]) == {source}
    alone = score_record(home, type(record)({"simulated": simulated}, {}))
    assert alone.simulated and alone.count("gone") == 4


def test_the_forecast_of_a_week_ago_is_found(home):
    source = store(home, table())
    for until in (80, 90, 93, 95):
        forecast(home, source, until)
    frame = read_record(home).frames[source]
    found = earlier(frame, {"AAA": np.datetime64(DAYS[97])}, np.timedelta64(7, "D"))
    assert len(found) == 2 and (found["unique_id"] == "AAA").all()
    assert (found["origin"] == DAYS[92]).all()  # five sessions before; DAYS[94] are three
    assert earlier(frame, {"AAA": np.datetime64(DAYS[0])}, np.timedelta64(7, "D")).empty


def test_two_processes_may_write_at_once(home):
    from concurrent.futures import ThreadPoolExecutor

    source = store(home, table())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: forecast(home, source, 40 + n % 4), range(16)))
    (frame,) = read_record(home).frames.values()
    assert len(frame) == 16 and not [p for p in home.record.iterdir() if "tmp" in p.name]


def test_a_record_that_is_not_there_is_said(home, tmp_path):
    assert not read_record(home).frames and not read_record(home, "yahoo").frames
    source = store(home, table())
    forecast(home, source, 50)
    assert set(read_record(home.folder, source).frames) == {source}
    with refuses(UsageError):
        read_record(home, "yaho")
    with refuses(UsageError):
        read_record(home, 5)  # pyright: ignore[reportArgumentType]
    with refuses(UsageError):
        read_record(tmp_path / "elsewhere")
    with refuses(UsageError):
        read_record("a\0b")
