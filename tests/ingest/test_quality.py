"""Flags of prices, and the review of a store."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import StoreError, UsageError
from forecaster.files import Home
from forecaster.ingest import Store, ingest, masked_rows, open_source, panel_from_store
from forecaster.ingest.loading import load_panel
from forecaster.ingest.review import review as review_module
from forecaster.ingest.review.quality import (
    MASKS,
    WRONG,
    find_flags,
    flags_known,
)
from forecaster.ingest.review.review import count_gaps, in_parts, review
from forecaster.series import Panel, infer_frequency, regular_sessions
from tests.ingest.older import written
from tests.markets import FAULTS as PLANTED
from tests.markets import SESSIONS, Fault, market
from tests.messages import refuses

KINDS = ("copy", "equals", "spike", "jump", "still", "again", "copies", "spike", "gap")


@pytest.fixture
def frame() -> pd.DataFrame:
    """Ten series of 300 sessions, with cents, of New York's days."""
    panel = load_panel("simulated", [f"T{i}" for i in range(10)], start="2024-06-03", mask=())
    frame = panel.to_frame().drop(columns="adj_close").sort_values(["unique_id", "ds"])
    prices = ["open", "high", "low", "close"]
    frame[prices] = frame[prices].round(2)
    return frame.reset_index(drop=True)


def at(frame: pd.DataFrame, name: str, number: int) -> int:
    return int(np.flatnonzero(frame["unique_id"] == name)[number])


def flagged(frame: pd.DataFrame, *kinds: str) -> set[tuple[str, str]]:
    flags = find_flags(Panel.from_frame(frame))
    some = flags[flags["flag"].isin(kinds)] if kinds else flags
    return {(str(row.unique_id), str(row.ds)[:10]) for row in some.itertuples()}


def row(frame: pd.DataFrame, where: int) -> tuple[str, str]:
    return str(frame["unique_id"][where]), str(frame["ds"][where])[:10]


PRICES = ["open", "high", "low", "close"]


def test_nothing_is_found_in_sound_prices(frame):
    assert not flagged(
        frame, "copied", "reversed", "ohlc", "frozen", "zero_volume", "closed", "jump"
    )


@pytest.mark.parametrize("suffix", ["", ".L", ".XY"])
def test_a_holiday_with_the_prices_of_the_session_before_does_not_take_its_place(suffix):
    """Carried forward by the source, in all series: of the two only the holiday is wrong."""
    days = pd.bdate_range("2024-03-01", "2024-05-31")
    holiday = pd.Timestamp("2024-05-27")  # in New York and London
    made = market([], 10, 3).frame()
    made["ds"] = made["ds"].map(dict(zip(SESSIONS, pd.bdate_range("2023-10-09", periods=170))))  # noqa: B905
    made = made[made["ds"].isin(days)].assign(unique_id=made["unique_id"] + suffix)
    for _, own in made.groupby("unique_id"):
        before = own[own["ds"] < holiday].iloc[-1]
        made.loc[own.index[own["ds"] == holiday], PRICES] = before[PRICES].to_numpy(float)
    found = {day for _, day in flagged(made, "copied")}
    assert "2024-05-27" in found and ("2024-05-24" in found) == (suffix == ".XY")
    then = made[made["ds"] <= holiday]  # on the evening of the holiday it is the same
    assert {day for _, day in flagged(then, "copied")} == found


@pytest.mark.parametrize("kind", ["copied", "reversed"])
def test_a_wrong_session_is_known_at_a_later_one(frame, kind):
    """At that from which it is copied, or at the next, which takes its move back."""
    wrong = at(frame, "T3", 100)
    known = at(frame, "T3", 109 if kind == "copied" else 101)
    if kind == "copied":
        frame.loc[wrong, [*PRICES, "volume"]] = frame.loc[known, [*PRICES, "volume"]].to_numpy()
    else:
        frame.loc[wrong, PRICES] *= 1.3
    flags = find_flags(Panel.from_frame(frame))
    (flag,) = flags[flags["flag"] == kind].itertuples()
    assert (flag.unique_id, str(flag.ds)[:10]) == row(frame, wrong)
    assert flag.known == frame["ds"][known]


def test_copies_without_their_volume_count_when_many_have_them_on_a_day(frame):
    days = frame.loc[frame["unique_id"] == "T0", "ds"].to_numpy()
    for name in [f"T{i}" for i in range(6)]:
        part = frame[frame["unique_id"] == name].set_index("ds")
        if days[100] in part.index and days[103] in part.index:
            where = frame.index[(frame["unique_id"] == name) & (frame["ds"] == days[100])]
            frame.loc[where, PRICES] = part.loc[[days[103]], PRICES].to_numpy()
    assert len(flagged(frame, "copied")) >= 5
    single = frame[frame["unique_id"] == "T2"]
    assert not flagged(single, "copied")  # of one series it may be chance


def test_a_crash_is_a_jump_and_one_today_waits_for_tomorrow(frame):
    crash = at(frame, "T1", 200)
    later = (frame["unique_id"] == "T1") & (frame["ds"] >= frame["ds"][crash])
    frame.loc[later, PRICES] *= 0.4
    last = at(frame, "T2", -1)
    frame.loc[last, PRICES] *= 0.4
    assert flagged(frame, "jump") == {row(frame, crash)}
    assert flagged(frame, "unconfirmed") == {row(frame, last)}
    assert not flagged(frame, "reversed")


def test_of_two_equal_sessions_in_a_row_either_may_be_wrong(frame):
    first, second = at(frame, "T3", 100), at(frame, "T3", 101)
    frame.loc[second, [*PRICES, "volume"]] = frame.loc[first, [*PRICES, "volume"]].to_numpy()
    assert flagged(frame, "copied") == {row(frame, first), row(frame, second)}


def test_symbols_of_other_exchanges_keep_their_own_calendar(frame):
    """Among stocks of New York; and stamped at the opening, not at midnight."""
    days = pd.date_range("2024-06-03", "2025-12-31")
    coin = frame[frame["unique_id"] == "T0"].iloc[[0] * len(days)]
    coin = coin.assign(unique_id="BTC-USD", ds=days)
    both = pd.concat([frame, coin], ignore_index=True)
    flags = find_flags(Panel.from_frame(both))
    assert not (flags["flag"] == "closed").any()
    stamped = frame.assign(ds=frame["ds"] + pd.Timedelta("14h30min"))
    assert not (find_flags(Panel.from_frame(stamped))["flag"] == "closed").any()


def test_other_things_that_cannot_be(frame):
    outside = at(frame, "T1", 50)
    frame.loc[outside, "close"] = frame.loc[outside, "high"] * 1.02
    negative = at(frame, "T1", 60)
    frame.loc[negative, "low"] = -1.0
    assert flagged(frame, "ohlc") == {row(frame, outside), row(frame, negative)}
    start = at(frame, "T2", 70)
    frame.loc[start : start + 6, PRICES] = frame.loc[start, "close"]
    assert flagged(frame, "frozen") == {row(frame, start + k) for k in (4, 5, 6)}
    frame.loc[at(frame, "T4", 9), "volume"] = 0
    assert flagged(frame, "zero_volume") == {row(frame, at(frame, "T4", 9))}


@pytest.mark.parametrize(
    ("times", "symbol", "gaps"),
    [
        (regular_sessions("2024-01-02", "2024-12-31"), "AAPL", 0),
        (regular_sessions("2024-01-02", "2024-12-31").delete([5, 6, 40]), "AAPL", 3),
        (pd.bdate_range("2024-03-01", "2024-05-31").drop(["2024-03-29", "2024-04-01"]), "A.L", 0),
        (pd.date_range("2024-01-01", "2024-12-31").delete(9), "BTC-USD", 1),
        (pd.date_range("2022-01-01", periods=100, freq="W-SAT").delete([7, 8]), None, 2),
        (pd.date_range("2018-01-01", periods=72, freq="MS"), None, 0),
        (pd.Index(np.arange(0, 100, 5)).delete(4), None, 1),
        (pd.date_range("2024-01-01", periods=1), None, 0),
    ],
)
def test_gaps_are_counted_against_the_exchange_or_the_spacing_of_the_series(times, symbol, gaps):
    own = times.to_numpy()
    assert count_gaps(own, infer_frequency(own), symbol) == gaps


def entries(flags: pd.DataFrame) -> list[tuple[str, pd.Timestamp, str]]:
    return sorted(flags[["unique_id", "ds", "flag"]].itertuples(index=False, name=None))


def check_at_cutoffs(faults: list[Fault], series: int, seed: int) -> None:
    """At some of the times at which flags appear or change, and just before them."""
    frame = market(faults, series, seed).frame()
    whole = find_flags(Panel.from_frame(frame))
    changes = np.searchsorted(SESSIONS, pd.concat([whole["ds"], whole["known"]]).unique())
    some = np.random.default_rng(seed).permutation(np.union1d(changes, changes - 1))
    for cutoff in SESSIONS[np.append(some[some > 40][:4], 169)]:
        then = find_flags(Panel.from_frame(frame[frame["ds"] <= cutoff]))
        for mask in (WRONG, MASKS):
            expected = entries(flags_known(then, mask))
            assert entries(flags_known(whole, mask, cutoff)) == expected, cutoff


COPIES: list[Fault] = [("copies", 0, 91, 2), ("again", 0, 91, 30)]  # known by day, then by volume


@pytest.mark.parametrize(
    ("faults", "series"), [(COPIES, 10), ([("equals", 0, 91, 30), ("jump", 0, 60, 1)], 1)]
)
def test_what_is_flagged_by_a_day_is_what_the_rows_up_to_it_show(faults, series):
    check_at_cutoffs(faults, series, 0)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(PLANTED, min_size=1, max_size=12), st.sampled_from([1, 9, 10, 12]),
       st.integers(0, 2**31))  # fmt: skip
def test_so_it_is_in_many_markets(faults, series, seed):
    check_at_cutoffs(faults, series, seed)


def test_series_that_begin_later_change_no_flag_before(frame):
    """Nine series say nothing about a day; the tenth begins after the spike."""
    spikes = [at(frame, f"T{i}", 150) for i in range(9)]
    for spike in spikes:
        frame.loc[spike, PRICES] *= 1.1
    nine = frame[frame["unique_id"] != "T9"]
    tenth = frame[(frame["unique_id"] == "T9") & (frame["ds"] > frame["ds"][spikes[0] + 20])]
    assert len(flagged(nine, "reversed")) >= 5
    both = pd.concat([nine, tenth], ignore_index=True)
    assert flagged(nine, "reversed") == flagged(both, "reversed")


def test_the_store_keeps_flags_and_a_panel_is_made_without_them(tmp_path, frame):
    bad = frame.copy()
    bad.loc[at(bad, "T5", 150), PRICES] *= 1.3
    bad.to_parquet(tmp_path / "prices.parquet")
    source = open_source(f"files:{tmp_path / 'prices.parquet'}")
    store = ingest(Home(tmp_path / "home"), source, None).store
    assert store.index.counts["T5"]["reversed"] == 1
    whole = panel_from_store(store, store.ids)
    reversed_rows = masked_rows(store, store.ids, ("reversed",))
    clean = panel_from_store(store, store.ids, flagged=reversed_rows)
    assert whole.mask.sum() - clean.mask.sum() == 1
    straight = load_panel(source.name)
    assert (straight.mask == whole.mask).all()  # the row is there, and marked
    assert (straight.masked().mask == clean.mask).all()
    with refuses(UsageError):
        load_panel(source.name, mask=("wrong",))
    # A later row on a holiday would take it back.
    with refuses(UsageError):
        load_panel(source.name, mask=("copied", "closed"))


def test_a_store_reviewed_by_earlier_rules_is_reviewed_again(tmp_path, frame, monkeypatch):
    from forecaster.ingest.store import index

    frame.to_parquet(tmp_path / "prices.parquet")
    source = open_source(f"files:{tmp_path / 'prices.parquet'}")
    monkeypatch.setattr(index, "RULES", 1)
    store = ingest(Home(tmp_path / "home"), source, None).store
    before = store.flags()
    monkeypatch.undo()
    with refuses(StoreError):
        store.flags()
    after = ingest(Home(tmp_path / "home"), source, None).store.flags()
    pd.testing.assert_frame_equal(before, after)


@pytest.mark.slow
def test_the_bad_days_of_a_public_data_set(real_data):
    """Days on which bars were copied from later sessions, as its README and a second source say;
    and hardly anything in a clean set."""
    flags = find_flags(load_panel(f"files:{real_data / 'sp500_2013_2018.parquet'}", mask=()))
    sessions = ["unique_id", "ds"]
    assert len(flags_known(flags).drop_duplicates(sessions)) == 1452  # as docs/data.md says
    wrong = flags[flags["flag"].isin(["copied", "reversed"])]
    days = wrong.groupby(wrong["ds"].astype(str).str[:10]).size()
    for day, least in {
        "2014-10-30": 144, "2014-10-29": 50, "2017-08-01": 200, "2014-08-01": 200,
        "2014-07-17": 100, "2017-09-14": 30,
    }.items():  # fmt: skip
        assert days[day] >= least, day
    clean = find_flags(load_panel(f"files:{real_data / 'us_stocks_2000_2015.parquet'}", mask=()))
    assert len(flags_known(clean).drop_duplicates(sessions)) == 14  # of 1,530,531
    ehc = clean[(clean["unique_id"] == "EHC") & (clean["ds"] == "2003-03-26")]
    assert ehc["flag"].tolist() == ["jump"]  # a true fall of 97 %, which is kept


@pytest.fixture
def store(tmp_path) -> Store:
    """Twelve stocks with faults of each kind, one of them damaged on disk, and one of no dates."""
    faults: list[Fault] = [(kind, k, 92 + 7 * k, 3) for k, kind in enumerate(KINDS)]
    store = Store.open(Home(tmp_path), "files")
    with store.locked():
        for name, rows in market(faults, 12, 3).frame().groupby("unique_id"):
            written(store, str(name), rows.drop(columns="unique_id").reset_index(drop=True))
        written(store, "counted", pd.DataFrame({"ds": np.arange(50), "close": np.arange(50.0)}))
        store.commit()
    damaged = store.folder / store.index.series["s11"].file
    damaged.write_bytes(damaged.read_bytes()[:-3])
    return store


def test_a_large_store_is_reviewed_in_parts_that_later_series_do_not_change(store, monkeypatch):
    monkeypatch.setattr(review_module, "AT_A_TIME", 5)
    parts = [list(part) for part in in_parts(list("abcdefghijklmn"))]
    assert parts == [list("abcde"), list("fghijklmn")] and list(in_parts([])) == [[]]
    with store.locked():
        review(store)
    flags = store.flags()
    assert {"copied", "reversed", "jump", "frozen"} <= set(flags["flag"])
    for part in in_parts(store.ids):
        alone = find_flags(Panel.from_arrays(store.read_arrays(part)[0]))
        found = flags[flags["unique_id"].isin(part)].reset_index(drop=True)
        pd.testing.assert_frame_equal(found, alone, check_dtype=False)
    assert store.index.counts.keys() == set(store.ids) - {"counted", "s11"}
