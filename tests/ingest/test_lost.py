"""Files that lack rows which are stored: cut, of one day only, or with values left out."""

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import DataError, ForecasterWarning, UsageError
from forecaster.files import Home
from forecaster.ingest import ingest, load_panel, open_source
from tests.conftest import error, prices, run
from tests.messages import refuses, warns

BOTH = pd.concat([prices("AAA", 60), prices("BBB", 50)])
DAY = str(BOTH["date"].max())


@pytest.fixture
def stored(tmp_path):
    """Write a file and ingest it; return a function that writes another one in its place."""
    path = tmp_path / "p.csv"

    def write(table, **options):
        table.to_csv(path, index=False)
        return open_source(f"files:{path}", **options)

    ingest(Home(tmp_path), write(BOTH), None)
    return write


def series(arrived, name: str) -> pd.DataFrame:
    return arrived.store.read_one(name)


def test_a_file_of_one_day_replaces_nothing_however_often_it_is_read(tmp_path, stored):
    arrived = ingest(Home(tmp_path), stored(BOTH), None)
    before = series(arrived, "AAA")
    for _ in range(2):
        arrived = ingest(Home(tmp_path), stored(BOTH[BOTH["date"] == DAY]), ["AAA"])
        assert arrived.changed == 0 and arrived.ids == ["AAA"]
        assert "lacks 59 of the 60 stored rows (2020-01-01 to 2020-03-23)" in arrived.stale["AAA"]
        assert arrived.store.index.series["AAA"].state == "suspect"
    pd.testing.assert_frame_equal(series(arrived, "AAA"), before)
    again = ingest(Home(tmp_path), stored(BOTH), ["AAA"])
    assert not again.stale and again.store.index.series["AAA"].state == "ok"


@pytest.mark.parametrize("at", [0, 30, 59])
def test_a_single_row_that_is_lost_anywhere_is_named(tmp_path, stored, at):
    arrived = ingest(Home(tmp_path), stored(BOTH[BOTH["ticker"] == "AAA"].drop(index=at)), ["AAA"])
    day = BOTH["date"].iloc[at]
    assert f"lacks 1 of the 60 stored rows ({day}). " in arrived.stale["AAA"]


def test_a_value_that_is_no_longer_there_is_lost_as_its_row_would_be(tmp_path, stored):
    blank = BOTH.assign(close=BOTH["close"].where(BOTH["date"] != "2020-01-09"))
    arrived = ingest(Home(tmp_path), stored(blank), None)
    assert set(arrived.stale) == {"AAA", "BBB"} and "(2020-01-09)" in arrived.stale["BBB"]
    kept = ingest(Home(tmp_path), stored(blank, append=True), None, refresh=True)
    assert not kept.stale and len(series(kept, "AAA")) == 60
    assert series(kept, "AAA")["close"].notna().all()


def test_days_one_by_one_are_appended(tmp_path, stored):
    later = pd.concat([BOTH, prices("AAA", 2, start="2020-03-25")])
    one = later[later["date"] > DAY]
    arrived = ingest(Home(tmp_path), stored(one, append=True), ["AAA"], refresh=True)
    assert not arrived.stale and arrived.changed == 1
    assert series(arrived, "AAA")["ds"].dt.strftime("%Y-%m-%d").tolist() == list(
        later["date"][later["ticker"] == "AAA"]
    )
    corrected = one.assign(close=2 * one["close"])
    arrived = ingest(Home(tmp_path), stored(corrected, append=True), ["AAA"], refresh=True)
    assert len(series(arrived, "AAA")) == 62
    assert series(arrived, "AAA")["close"].iloc[-1] == pytest.approx(corrected["close"].iloc[-1])


def test_a_refresh_replaces_all_rows(tmp_path, stored):
    arrived = ingest(Home(tmp_path), stored(BOTH.iloc[:40], refresh=True), ["AAA"], refresh=True)
    assert not arrived.stale and len(series(arrived, "AAA")) == 40


def test_options_that_contradict_each_other(tmp_path):
    with refuses(UsageError):
        open_source("simulated", append=True)
    with refuses(UsageError):
        open_source(f"files:{tmp_path}", append=True, refresh=True)


def test_the_command_names_them_and_exits_with_3(tmp_path):
    path, home = tmp_path / "p.csv", ("--home", tmp_path / "home")
    source = ("--source", f"files:{path}")
    BOTH.to_csv(path, index=False)
    assert run("ingest", *source, *home).exit_code == 0
    text = path.read_text()
    BOTH[BOTH["date"] >= DAY].to_csv(path, index=False)
    done = run("ingest", *source, *home, "--tickers", "AAA")
    assert done.exit_code == 3 and "0 changed" in done.stdout
    assert "AAA: lacks 59 of the 60 stored rows" in done.stderr
    assert "suspect: lacks 59" in run("status", "AAA", *home).stdout
    done = run("ingest", *source, *home, "--append", "--tickers", "AAA")
    assert done.exit_code == 0 and done.stderr == ""
    path.write_text(text[: len(text) * 6 // 10 + 9])  # within a line
    cut = error("ingest", *source, *home, code=1)
    assert "line 67: the file ends within this line, which has 5 of 7 cells" in cut


AROUND_NOW = pd.Timestamp.now().normalize() - pd.offsets.BDay(30)
INVENTED = {
    "days of the past": (pd.bdate_range("2020-01-01", periods=60), None),
    "days of the future": (pd.bdate_range("2090-01-01", periods=60), None),
    "many days of the future": (pd.bdate_range(AROUND_NOW, periods=60), None),
    "few days of the future": (pd.bdate_range(AROUND_NOW, periods=40), r"\(2.* to 2.*\); correct"),
    "the month under way": (
        pd.date_range(end=pd.Timestamp.now() + pd.offsets.MonthEnd(0), periods=9, freq="ME"), None,
    ),
    "a wrong year": (
        pd.bdate_range("2020-01-01", periods=60).append(pd.DatetimeIndex(["2099-01-01"])),
        r"\(2099-01-01\)",
    ),
    "steps": (range(50), None),
}  # fmt: skip


@pytest.mark.parametrize("case", INVENTED)
def test_rows_in_the_future_are_meant_only_where_there_are_many(tmp_path, case):
    times, refused = INVENTED[case]
    table = pd.DataFrame({"ds": list(times), "y": 1.0})
    table.to_csv(tmp_path / "p.csv", index=False)
    if refused is None:
        assert len(load_panel(f"files:{tmp_path}/p.csv").times) == len(times)
        return
    with pytest.raises(DataError, match=f"p: holds rows in the future {refused}"):
        load_panel(f"files:{tmp_path}/p.csv")


def test_coming_days_without_a_value_do_not_refuse_their_series(tmp_path):
    days = pd.date_range(end=pd.Timestamp.now().normalize(), periods=40)
    coming = pd.date_range(days[-1] + pd.Timedelta(1, "D"), periods=7)
    table = pd.DataFrame({"ds": days.append(coming), "y": [1.0] * 40 + [np.nan] * 7})
    table.to_csv(tmp_path / "p.csv", index=False)
    with warns(ForecasterWarning):
        panel = load_panel(f"files:{tmp_path}/p.csv")
    assert len(panel.times) in (40, 41)  # tomorrow has begun


def day_after(table: pd.DataFrame, count: int = 1, **columns) -> pd.DataFrame:
    start = pd.Timestamp(table["date"].max()) + pd.offsets.BDay(1)
    return prices("AAA", count, start=str(start.date())).assign(**columns)


def test_rows_in_another_currency_are_not_appended(tmp_path, stored):
    euros = prices("AAA", 60).assign(currency="EUR")
    ingest(Home(tmp_path), stored(euros), None, refresh=True)
    dollars = stored(day_after(euros, currency="USD"), append=True)
    arrived = ingest(Home(tmp_path), dollars, ["AAA"], refresh=True)
    assert "the currency of some is 'EUR', of others 'USD'" in arrived.stale["AAA"]
    assert len(series(arrived, "AAA")) == 60
    for unit in ("EUR", None, "EUR"):  # a day that states none keeps what was stated
        euros = pd.concat([euros, day_after(euros, currency=unit)])
        more = ingest(Home(tmp_path), stored(euros[-1:], append=True), ["AAA"], refresh=True)
        assert not more.stale and len(series(more, "AAA")) == len(euros)
        assert series(more, "AAA").attrs["units"] == {"currency": "EUR"}


def test_a_currency_under_another_heading_and_of_a_wide_table_is_compared_too(tmp_path):
    path = tmp_path / "w.csv"
    wide = pd.DataFrame({"date": pd.bdate_range("2024-01-01", periods=9), "AA": range(9)})
    wide[:8].assign(currency="EUR").to_csv(path, index=False)
    ingest(Home(tmp_path), open_source(f"files:{path}"), None)
    wide[8:].assign(ccy="USD").to_csv(path, index=False)
    arrived = ingest(Home(tmp_path), open_source(f"files:{path}", append=True), None, refresh=True)
    (why,) = arrived.stale.values()
    assert "the currency of some is 'EUR', of others 'USD'" in why


def test_another_target_is_not_appended(tmp_path, stored):
    other = day_after(BOTH)[["ticker", "date", "close"]].rename(columns={"close": "y"})
    arrived = ingest(Home(tmp_path), stored(other, append=True), ["AAA"], refresh=True)
    assert "it holds 'y', the stored rows 'close'" in arrived.stale["AAA"]


@pytest.mark.parametrize("rows", [3, 5])
def test_monthly_rows_are_not_appended_to_daily_ones(tmp_path, stored, rows):
    months = prices("AAA", rows).assign(date=pd.date_range("2020-04-01", periods=rows, freq="MS"))
    arrived = ingest(Home(tmp_path), stored(months, append=True), ["AAA"], refresh=True)
    assert "its rows are 30 days apart, the stored ones 1 day; give" in arrived.stale["AAA"]
    assert len(series(arrived, "AAA")) == 60


def test_whole_numbers_are_not_appended_to_dates(tmp_path, stored):
    steps = BOTH.assign(date=range(len(BOTH))).rename(columns={"date": "ds"})
    arrived = ingest(Home(tmp_path), stored(steps, append=True), ["AAA"], refresh=True)
    assert "some hold dates, others whole numbers" in arrived.stale["AAA"]
