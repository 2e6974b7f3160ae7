"""``daily`` after a ticker is renamed: history, network, record and alarms are kept."""

import pandas as pd
import pytest

from forecaster.ingest import Store
from tests.cli.desk import DAYS, NAMES, TABLE, desk, fitted, renamed
from tests.conftest import run
from tests.slow import rest_slow, slow

__all__ = ["desk", "fitted"]  # fixtures


@pytest.mark.parametrize("how", rest_slow(["since", "all", "both", "only later"]))
def test_a_renamed_ticker_keeps_history_network_and_record(desk, how):
    desk.until(DAYS[310])
    assert desk.daily().exit_code == 0
    band = pd.read_csv(desk.folder / "f.csv").query("unique_id == 'BBB'")
    table = renamed(TABLE, since=DAYS[311] if how in ("since", "only later") else None)
    if how == "both":  # the old name goes on as well
        table = pd.concat([table, TABLE[(TABLE["ticker"] == "BBB") & (TABLE["date"] <= DAYS[310])]])
    if how == "only later":
        table = table[table["ticker"] != "BBB"]
    desk.until(DAYS[311], table)
    assert desk.daily().exit_code == 4 and ("changed", "NEW") in desk.alarms()
    done = run("tickers", "rename", "bbb", "NEW", "--home", desk.home)
    assert done.exit_code == 0, done.output
    assert f"312 rows, {DAYS[0]} to {DAYS[311]}; 2 files of the record changed" in done.stdout
    assert run("tickers", "rename", "BBB", "NEW", "--home", desk.home).exit_code == 0  # once more
    for day_after in (311, 312):
        desk.until(DAYS[day_after], table)
        done = desk.daily()
        assert done.exit_code == 0 and not done.stderr, done.output
        made = pd.read_csv(desk.folder / "f.csv")
        assert set(made["unique_id"]) == {"AAA", "CCC", "NEW"}
        assert "forecast_by" not in made or made["forecast_by"].eq("own network").all()
    assert set(desk.record()["unique_id"]) == {"AAA", "CCC", "NEW"}
    assert desk.summary()["scores"]["all"]["outcomes"] >= 9
    width = made.query("unique_id == 'NEW'")
    ratio = (width["LSTM-hi-80"] / width["LSTM-lo-80"]).iloc[0] - 1
    assert ratio == pytest.approx((band["LSTM-hi-80"] / band["LSTM-lo-80"]).iloc[0] - 1, rel=0.3)


def test_names_that_cannot_be_are_clear_errors(desk):
    done = run("tickers", "rename", "NOPE", "NEW", "--home", desk.home)
    assert done.exit_code == 2 and "NOPE: not among the 3 stored series" in done.stderr
    done = run("tickers", "rename", "AAA", "AAA", "--home", desk.home)
    assert done.exit_code == 2 and "expected another name" in done.stderr


def test_forecasts_of_a_renamed_ticker_are_those_of_before(desk):
    desk.until(DAYS[310])
    assert desk.daily().exit_code == 0
    before = pd.read_csv(desk.folder / "f.csv")
    assert run("tickers", "rename", "BBB", "NEW", "--home", desk.home).exit_code == 0
    desk.until(DAYS[310], renamed(TABLE))
    assert desk.daily().exit_code == 0
    after = pd.read_csv(desk.folder / "f.csv")
    expected = before.assign(unique_id=before["unique_id"].replace("BBB", "NEW"))
    columns = ["unique_id", "ds"]
    pd.testing.assert_frame_equal(
        after.sort_values(columns, ignore_index=True),
        expected.sort_values(columns, ignore_index=True),
    )
    record = desk.record()
    assert not record.duplicated(["unique_id", "origin", "ds"]).any() and len(record) == 9


@pytest.mark.parametrize("how", ["since", slow("all")])
def test_a_cut_file_is_noticed_for_a_renamed_ticker_too(desk, how):
    table = renamed(TABLE, since=DAYS[311] if how == "since" else None)
    for end in DAYS[310:312]:
        desk.until(end, TABLE if end == DAYS[310] else table)
        desk.daily()
    assert run("tickers", "rename", "BBB", "NEW", "--home", desk.home).exit_code == 0
    desk.until(DAYS[312], table)
    assert desk.daily().exit_code == 0
    desk.write(table[table["date"] == DAYS[313]])
    assert desk.daily().exit_code == 4
    assert set(desk.alarms()) == {("shrunk", name) for name in ("AAA", "CCC", "NEW")}
    (store,) = Store.all_of(desk.home)
    assert {len(store.read_one(name)) for name in store.ids} == {313}
    source = f"files:{desk.folder / 'p.csv'}"
    assert run("ingest", "--source", source, "--append", "--home", desk.home).exit_code == 0
    (store,) = Store.all_of(desk.home)
    assert {len(store.read_one(name)) for name in store.ids} == {314}
    desk.until(DAYS[314], table)
    assert desk.daily().exit_code == 0 and not desk.alarms()


@pytest.mark.slow
def test_a_refresh_ends_the_alarm_of_a_renamed_ticker_whose_file_became_shorter(desk):
    """It said that the source lacks rows again with the next file, whatever was done."""
    desk.until(DAYS[311], renamed(TABLE))
    desk.daily()
    assert run("tickers", "rename", "BBB", "NEW", "--home", desk.home).exit_code == 0
    shorter = renamed(TABLE)[TABLE["date"] >= DAYS[60]]
    desk.until(DAYS[312], shorter)
    assert desk.daily().exit_code == 4 and ("shrunk", "NEW") in desk.alarms()
    source = f"files:{desk.folder / 'p.csv'}"
    assert run("ingest", "--source", source, "--refresh", "--home", desk.home).exit_code == 0
    for end in DAYS[312:314]:
        desk.until(end, shorter)
        done = desk.daily()
        assert done.exit_code == 0, done.output
    desk.write(shorter[(shorter["date"] >= DAYS[80]) & (shorter["date"] <= DAYS[314])])
    assert desk.daily().exit_code == 4 and ("shrunk", "NEW") in desk.alarms()


def test_a_ticker_is_not_renamed_to_another_series(desk):
    desk.until(DAYS[309])
    assert desk.daily().exit_code in (0, 4)
    before = run("export", "--home", desk.home, "--output", desk.folder / "a.csv").exit_code
    done = run("tickers", "rename", "BBB", "CCC", "--home", desk.home)
    assert done.exit_code == 2 and "CCC: is another series than BBB: from " in done.stderr
    assert before == run("export", "--home", desk.home, "--output", desk.folder / "b.csv").exit_code
    assert (desk.folder / "a.csv").read_bytes() == (desk.folder / "b.csv").read_bytes()
    assert set(desk.record()["unique_id"]) == set(NAMES)
