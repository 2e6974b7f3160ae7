"""A store over years: updates, contradictions, damage, and older versions."""

import os

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import NoNetwork, ServerError, StoreError
from forecaster.files import Home
from forecaster.ingest import Store, ingest, open_source, panel_from_store
from forecaster.ingest.sources import files
from forecaster.ingest.sources.yahoo import Yahoo
from forecaster.ingest.store.store import export_prices
from tests.conftest import prices
from tests.ingest.standin import Company, StandIn, standing_in
from tests.messages import refuses

NAMES = ["AAPL", "KO", "GE"]


@pytest.fixture
def server():
    with standing_in(today="2024-05-31 23:00") as server:
        for name in NAMES:
            server.companies[name] = Company.invented(name)
        yield server


def update(server: StandIn, home, names=NAMES, start=None, **options):
    source = Yahoo(
        rewrite=server.rewrite, now=server.now, requests_per_second=500.0, cool_down=0.05, **options
    )
    server.forget()
    return ingest(Home(home), source, names, start=start)


@pytest.mark.slow
def test_a_month_of_daily_updates_ends_as_one_download(server, tmp_path):
    company = server.companies["KO"]
    company.splits[pd.Timestamp("2024-06-12")] = 2.0
    company.dividends[pd.Timestamp("2024-06-20")] = 0.3
    asked = 0
    for day in pd.bdate_range("2024-05-31", "2024-06-28"):
        server.today = pd.Timestamp(f"{day.date()} 23:00", tz="UTC")
        arrived = update(server, tmp_path / "daily")
        assert not arrived.stale and not arrived.skipped
        asked = max(asked, server.charts()["KO"])
        update(server, tmp_path / "daily")
        assert not server.charts()  # nothing new on the same evening
    once = update(server, tmp_path / "once").store
    daily = Store.open(Home(tmp_path / "daily"), "yahoo")
    pd.testing.assert_frame_equal(daily.read(NAMES), once.read(NAMES))
    assert asked == 2  # at the split: the overlap, then all of it


def test_a_ticker_that_seems_gone_is_kept_as_suspect_until_it_is_back(server, tmp_path):
    store = update(server, tmp_path).store
    before = store.read(["GE"])
    server.today = pd.Timestamp("2024-06-03 23:00", tz="UTC")
    gone = server.companies.pop("GE")
    arrived = update(server, tmp_path)
    assert arrived.ids == NAMES and list(arrived.stale) == ["GE"] and not arrived.skipped
    entry = Store.open(Home(tmp_path), "yahoo").index.series["GE"]
    assert entry.state == "suspect" and entry.reason and "delisted" in entry.reason
    pd.testing.assert_frame_equal(Store.open(Home(tmp_path), "yahoo").read(["GE"]), before)
    server.companies["GE"] = gone
    assert not update(server, tmp_path).stale
    assert Store.open(Home(tmp_path), "yahoo").index.series["GE"].state == "ok"


def test_a_lost_history_is_not_believed_unless_refreshed(server, tmp_path):
    update(server, tmp_path)
    server.today = pd.Timestamp("2024-06-03 23:00", tz="UTC")
    company = server.companies["GE"]
    server.companies["GE"] = Company(company.days[-30:], company.close[-30:] * 3)
    arrived = update(server, tmp_path)
    assert "now lacks" in arrived.stale["GE"] and "--refresh" in arrived.stale["GE"]
    arrived = update(server, tmp_path, refresh=True)
    assert not arrived.stale
    assert len(arrived.store.read(["GE"])) < 30
    assert arrived.store.index.series["GE"].state == "ok"


def test_a_later_start_shortens_nothing_and_an_earlier_one_fetches_more(server, tmp_path):
    update(server, tmp_path, start="2024-03-01")
    assert Store.open(Home(tmp_path), "yahoo").index.series["KO"].first == "2024-03-01"
    update(server, tmp_path, start="2024-05-01")
    assert not server.charts()
    store = update(server, tmp_path).store
    assert store.index.series["KO"].first == "2024-01-02"
    panel = panel_from_store(store, NAMES, start="2024-05-01", end="2024-05-15")
    assert str(panel.times[0])[:10] == "2024-05-01" and str(panel.times[-1])[:10] == "2024-05-15"


def test_without_a_network_what_is_stored_is_used(server, tmp_path):
    update(server, tmp_path)
    server.today = pd.Timestamp("2024-06-03 23:00", tz="UTC")
    nowhere = Yahoo(rewrite=lambda url: "http://127.0.0.1:9/", now=server.now, cool_down=0.05)
    arrived = ingest(Home(tmp_path), nowhere, NAMES)
    assert arrived.ids == NAMES and "cannot be reached" in arrived.stale["KO"]
    with refuses(NoNetwork):
        ingest(Home(tmp_path), nowhere, [*NAMES, "IBM"])


def test_damaged_files_are_set_aside_and_fetched_again(server, tmp_path):
    store = update(server, tmp_path).store
    good = store.read(NAMES)
    path = store.folder / store.index.series["KO"].file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert list(store.damages()) == ["KO"]
    arrived = update(server, tmp_path)
    assert list(arrived.quarantined) == ["KO"] and set(server.charts()) == {"KO"}
    pd.testing.assert_frame_equal(arrived.store.read(NAMES), good)
    (aside,) = Store.open(Home(tmp_path), "yahoo").index.quarantine
    assert aside.series == "KO" and "damaged" in aside.reason
    assert (store.folder / "quarantine" / str(aside.file)).read_bytes() == bytes(raw)


def test_a_damaged_index_is_set_aside_and_made_anew_from_the_files(server, tmp_path):
    store = update(server, tmp_path, start="2024-02-01").store
    good, entries = store.read(NAMES), store.index.series
    path = store.folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-100])
    with refuses(StoreError):
        Store.open(Home(tmp_path), "yahoo")
    again = update(server, tmp_path, start="2024-02-01").store
    assert not server.charts()  # nothing had to be fetched
    assert again.index.series == entries
    pd.testing.assert_frame_equal(again.read(NAMES), good)
    assert len(list((store.folder / "quarantine").iterdir())) == 1


def test_damaged_flags_are_found_again(server, tmp_path):
    store = update(server, tmp_path).store
    flags = store.flags()
    assert store.index.quality is not None
    (store.folder / store.index.quality.file).write_bytes(b"no")
    with refuses(StoreError):
        store.flags()
    pd.testing.assert_frame_equal(update(server, tmp_path).store.flags(), flags)


def test_prices_are_stored_as_they_were_and_adjusted_when_asked_for(server, tmp_path):
    server.companies["KO"].dividends[pd.Timestamp("2024-03-01")] = 2.0
    store = update(server, tmp_path).store
    stored = store.read(["KO"])
    panel = panel_from_store(store, ["KO"])
    assert panel.target == "adj_close" and not {"dividends", "splits"} & set(panel.channels)
    few = panel_from_store(store, ["KO"], channels=("close", "adj_close"))
    assert few.target == "adj_close" and set(few.channels) == {"close", "adj_close"}
    np.testing.assert_array_equal(few.channel("adj_close"), panel.channel("adj_close"))
    factor = stored["adj_close"] / stored["close"]
    assert factor.iloc[0] < 0.99 and factor.iloc[-1] == 1.0
    export_prices(Home(tmp_path), tmp_path / "adjusted.parquet", ["KO"], adjusted=True)
    table = pd.read_parquet(tmp_path / "adjusted.parquet")
    np.testing.assert_allclose(table["open"], stored["open"] * factor)


def test_a_file_that_changed_is_read_again_and_one_that_did_not_is_not(tmp_path, monkeypatch):
    path = tmp_path / "prices.csv"
    pd.concat([prices("AAA"), prices("BBB")]).to_csv(path, index=False)
    first = ingest(Home(tmp_path / "home"), open_source(f"files:{path}"), None)
    assert first.changed == 2
    with monkeypatch.context() as patch:
        patch.setattr(files, "read_series", lambda *args: pytest.fail("it was read"))
        again = ingest(Home(tmp_path / "home"), open_source(f"files:{path}"), None)
        assert again.changed == 0 and again.ids == ["AAA", "BBB"]
    pd.concat([prices("AAA"), prices("BBB", rows=410), prices("CCC")]).to_csv(path, index=False)
    third = ingest(Home(tmp_path / "home"), open_source(f"files:{path}"), None)
    assert third.changed == 2 and third.ids == ["AAA", "BBB", "CCC"]


def old(store: Store) -> None:
    for path in store.folder.glob("*.parquet"):
        os.utime(path, (1e9, 1e9))


def test_damaged_files_beside_a_damaged_index_are_set_aside(tmp_path):
    store = ingest(Home(tmp_path), open_source("simulated"), NAMES).store
    path = store.folder / store.index.series["KO"].file
    path.write_bytes(path.read_bytes()[:-1])
    (store.folder / "manifest.json").write_text("{")
    old(store)
    again = ingest(Home(tmp_path), open_source("simulated"), ["MSFT"]).store
    assert set(again.ids) == {"AAPL", "GE", "MSFT"}
    aside = {record.series: record.file for record in again.index.quarantine}
    assert "KO" in aside and (store.folder / "quarantine" / str(aside["KO"])).exists()


def test_damage_of_a_ticker_that_was_not_asked_for_stays_until_it_is(server, tmp_path):
    store = update(server, tmp_path, start="2024-03-01").store
    path = store.folder / store.index.series["KO"].file
    path.write_bytes(path.read_bytes()[:-1])
    assert not update(server, tmp_path, ["AAPL"]).quarantined
    assert list(Store.open(Home(tmp_path), "yahoo").damages()) == ["KO"]
    again = update(server, tmp_path, start="2024-05-01")
    assert list(again.quarantined) == ["KO"]
    assert again.store.index.series["KO"].first == "2024-03-01"  # as had been asked for


def test_some_of_a_changed_file_do_not_stand_for_all(tmp_path):
    def write(rows):
        both = pd.concat([prices("AAA", rows), prices("BBB", rows)])
        both.to_csv(tmp_path / "p.csv", index=False)
        return open_source(f"files:{tmp_path / 'p.csv'}", refresh=True)  # some have fewer rows

    ingest(Home(tmp_path), write(100), None)
    ingest(Home(tmp_path), write(110), ["AAA"])
    third = ingest(Home(tmp_path), open_source(f"files:{tmp_path / 'p.csv'}"), None)
    assert third.changed == 1
    assert [e.rows for e in third.store.index.series.values()] == [110, 110]
    assert ingest(Home(tmp_path), write(100), ["AAA"]).changed == 1
    assert ingest(Home(tmp_path), write(110), None).changed == 1


def test_refresh_with_a_start_loses_no_earlier_history(server, tmp_path):
    update(server, tmp_path)
    store = update(server, tmp_path, start="2024-05-01", refresh=True).store
    assert store.index.series["KO"].first == "2024-01-02"


def test_sessions_that_yahoo_loses_stay(server, tmp_path):
    before = update(server, tmp_path).store.read(["GE"])
    company = server.companies["GE"]
    for day in (20, 60, 100):
        company.close[day] = float("nan")
    company.dividends[pd.Timestamp("2024-06-03")] = 1.0  # rewrites what came before
    server.today = pd.Timestamp("2024-06-04 23:00", tz="UTC")
    store = update(server, tmp_path).store
    after = store.read(["GE"])
    assert set(before["ds"]) < set(after["ds"]) and len(after) == len(before) + 2
    company.close[[20, 60, 100]] = before["close"].iloc[[20, 60, 100]]
    expected = company.adjusted()[1][: len(after)]
    assert after["adj_close"].to_numpy() == pytest.approx(expected, rel=1e-3)


def test_a_server_out_of_order_is_not_asked_for_hours(server, tmp_path):
    server.trouble = lambda server, symbol, count: "500"
    names = [f"T{i}" for i in range(100)]
    with refuses(ServerError):
        update(server, tmp_path, names)
    assert len(server.requests) < 80


def test_a_final_refusal_names_only_what_did_not_come(server, tmp_path):
    update(server, tmp_path)
    server.today = pd.Timestamp("2024-06-03 23:00", tz="UTC")
    server.trouble = lambda server, symbol, count: "429" if symbol != "AAPL" else None
    arrived = update(server, tmp_path, workers=1)
    assert set(arrived.stale) == {"KO", "GE"}
