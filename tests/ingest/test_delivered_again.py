"""Rows that come again after ``adjust``, or under a name that another company was given."""

from datetime import date
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import ForecasterWarning
from forecaster.files import Home
from forecaster.ingest import Store, adjust_by, ingest, rename_ticker
from forecaster.ingest.review import correcting
from forecaster.ingest.sources.source import Fetched
from forecaster.ingest.store.corrections import Adjustment, Corrections
from tests.conftest import prices, run
from tests.messages import warns
from tests.slow import rest_slow

BAR = ["open", "high", "low", "close"]
ROWS, SPLIT, FIRST = 80, 60, 62  # rows, the first one after the split, and the last on morning one
DAYS = sorted(prices("A", ROWS)["date"])


def with_split(name: str, share: float = 0.25) -> pd.DataFrame:
    """A ticker costs ``share`` times as much from the split on."""
    table = prices(name, ROWS).astype({"volume": float})
    return scaled(table, table["date"] >= DAYS[SPLIT], share)


def restated(table: pd.DataFrame, since: int = 0, share: float = 0.25) -> pd.DataFrame:
    """Rows from ``since`` up to the split are on the scale of those after it."""
    return scaled(table, table["date"].between(DAYS[since], DAYS[SPLIT - 1]), share)


def scaled(table: pd.DataFrame, rows: pd.Series, share: float) -> pd.DataFrame:
    table = table.copy()
    table.loc[rows, BAR] *= share
    table.loc[rows, "volume"] /= share
    return table


def revised(table: pd.DataFrame) -> pd.DataFrame:
    """The last row before the split is revised by a cent."""
    table = table.copy()
    table.loc[SPLIT - 1, BAR] += 0.01
    return table


HOW = {  # how each ticker is delivered, morning by morning; then as on the last one
    "STAYS": lambda raw: [raw],
    "SAMEDAY": lambda raw: [restated(raw)],
    "LATE": lambda raw: [raw, restated(raw)],
    "HALF": lambda raw: [restated(raw, since=51), restated(raw, since=51), restated(raw)],
    "CENT": lambda raw: [revised(raw), raw],
    "ADAY": lambda raw: [restated(raw), raw],
}
RAW = {name: with_split(name) for name in HOW}


class Vendor:
    """A file that is delivered each morning: its latest twenty sessions, or all."""

    def __init__(self, folder, *, append: bool):
        self.path, self.home, self.append = folder / "p.csv", Home(folder / "home"), append

    def deliver(self, tables, last: int, *options: str):
        first = last - 19 if self.append and last > FIRST else 0
        table = pd.concat(tables)
        table = table[table["date"].between(DAYS[first], DAYS[last])]
        return self.ingest(table, *options)

    def ingest(self, table: pd.DataFrame, *options: str):
        table.to_csv(self.path, index=False)
        options = ("--append", *options) if self.append else options
        return run("ingest", "--source", f"files:{self.path}", "--home", self.home, *options)

    def __call__(self, *words: str):
        done = run(*words, "--home", self.home)
        assert done.exit_code == 0, done.output
        return done

    @property
    def store(self) -> Store:
        (store,) = Store.all_of(self.home)
        return store


@pytest.fixture(params=[True, False], ids=["append", "whole"])
def vendor(tmp_path, request):
    return Vendor(tmp_path, append=request.param)


def wrong(stored: pd.DataFrame, raw: pd.DataFrame, last: int, share: float = 0.25) -> str:
    """By what stored rows up to a morning must be multiplied to be true; "" if they are."""
    truth = restated(raw, share=share)[: last + 1]
    assert len(stored) == len(truth)
    close, volume = (
        (truth[name].to_numpy() / stored[name].to_numpy()).round(3) for name in ("close", "volume")
    )
    if (close == 1).all() and (volume == 1).all():
        return ""
    return f"prices need {np.unique(close)}, volumes {np.unique(volume)}"


@pytest.mark.parametrize(
    "rename", rest_slow(["none", "new name in the file", "before", "after"], 2)
)
def test_rows_that_are_delivered_again_are_adjusted_once(vendor, rename):
    """Each delivery comes twice. A rename beside it changes nothing."""
    name = {old: old if rename == "none" else f"N-{old}" for old in HOW}
    assert vendor.deliver(RAW.values(), FIRST).exit_code == 0
    for old, new in name.items():
        if rename == "before":
            vendor("tickers", "rename", old, new)
        its = new if rename == "before" else old
        vendor("adjust", its, "--factor", "0.25", "--before", DAYS[SPLIT])
        if new not in (old, its):
            vendor("tickers", "rename", old, new)
    found = {}
    for morning in range(1, 4):
        tables = []
        for old in HOW:
            ways = HOW[old](RAW[old])
            table = ways[min(morning, len(ways)) - 1]
            if rename == "new name in the file":
                is_new = table["date"] > DAYS[FIRST]
                table = table.assign(ticker=table["ticker"].mask(is_new, name[old]))
            tables.append(table)
        for _ in range(2):
            done = vendor.deliver(tables, FIRST + morning)
            assert done.exit_code == 0, done.output
            for old, new in name.items():
                if why := wrong(vendor.store.read_one(new), RAW[old], FIRST + morning):
                    found.setdefault(old, f"morning {morning}: {why}")
    assert not found


def test_it_is_said_which_rows_stay_adjusted_and_which_were_restated(vendor):
    assert vendor.deliver([RAW["STAYS"], RAW["HALF"]], FIRST).exit_code == 0
    for name in ("STAYS", "HALF"):
        vendor("adjust", name, "--factor", "0.25", "--before", DAYS[SPLIT])
    done = vendor.deliver([RAW["STAYS"], restated(RAW["HALF"], since=51)], FIRST + 1)
    where, all_rows = f"before {DAYS[SPLIT]}", 16 if vendor.append else SPLIT
    raw = all_rows - (SPLIT - 51)
    lines = done.stderr.splitlines()
    assert f"Warning: STAYS: {all_rows} rows {where} came unadjusted: times 0.25" in lines
    assert (
        f"Warning: HALF: {raw} rows {where} came unadjusted: times 0.25; "
        f"{SPLIT - 51} rows {where} came restated: kept"
    ) in lines


@pytest.mark.parametrize("share", rest_slow([0.25, 0.5]))
def test_a_later_split_that_is_restated_leaves_the_adjustment(vendor, share):
    """The source rescales all rows it has; the earlier jump in them stays."""
    raw = RAW["STAYS"]
    assert vendor.deliver([raw], FIRST).exit_code == 0
    vendor("adjust", "STAYS", "--factor", "0.25", "--before", DAYS[SPLIT])
    now = scaled(raw, raw["date"].notna(), share)
    for last in (FIRST + 1, FIRST + 2):
        done = vendor.deliver([now], last)
        assert done.exit_code == 0 and "came restated" not in done.stderr, done.output
        came = vendor.store.read_one("STAYS")[-20 if vendor.append else 0 :]
        truth = restated(now)[: last + 1]["close"]
        np.testing.assert_allclose(came["close"], truth[-len(came) :])


@pytest.mark.parametrize("late", [[55], range(30)], ids=["one row", "earlier rows"])
def test_rows_that_were_not_stored_are_adjusted_when_they_are_appended(tmp_path, late):
    vendor, raw = Vendor(tmp_path, append=True), RAW["STAYS"]
    assert vendor.ingest(raw[: FIRST + 1].drop(index=late)).exit_code == 0
    vendor("adjust", "STAYS", "--factor", "0.25", "--before", DAYS[SPLIT])
    done = vendor.ingest(raw.iloc[late])
    assert f"{len(late)} rows before {DAYS[SPLIT]} came unadjusted" in done.stderr, done.output
    assert not wrong(vendor.store.read_one("STAYS"), raw, FIRST)


def test_each_of_two_adjustments_is_applied_to_the_rows_that_lack_it():
    days = pd.bdate_range("2024-01-01", periods=50)
    truth = pd.DataFrame({"ds": days, "close": np.linspace(90, 110, 50), "volume": 1000.0})
    early, late = (
        Adjustment(str(days[40].date()), 0.5, True),
        Adjustment(str(days[45].date()), 0.25, True),
    )
    frame = truth.copy()
    lacks = {early: [0, 1, 2, 3, 4, 10, 11], late: [5, 6, 7, 8, 9, 10, 11, 41, 42]}
    for one, rows in lacks.items():
        frame.loc[rows, "close"] /= one.factor
        frame.loc[rows, "volume"] *= one.factor
    made = Corrections((early, late)).of_rows(frame, truth)
    pd.testing.assert_frame_equal(made.applied(frame), truth)
    changed = [one.among(days.to_numpy()) for one in made.adjustments]
    assert [list(np.flatnonzero(rows)) for rows in changed] == list(lacks.values())
    # Rows that were not stored are treated like the nearest ones that were.
    gone = range(12, 40)
    few = frame.drop(index=gone)
    made = Corrections((early, late)).of_rows(few, truth.loc[[2, 7, 9, 10, 11, 40, 41, 42, 43]])
    pd.testing.assert_frame_equal(made.applied(few), truth.drop(index=gone))


def test_a_row_between_two_stored_ones_is_treated_like_the_earlier_and_times_may_repeat():
    days = pd.date_range("2024-01-01", periods=9)
    frame = pd.DataFrame({"ds": days, "close": [100.0, 100, 25, *[25] * 6]})
    stored = pd.DataFrame({"ds": days[[0, 0, 2, 7, 8]], "close": 25.0})
    made = Corrections((Adjustment(str(days[6].date()), 0.25, True),)).of_rows(frame, stored)
    assert list(made.applied(frame)["close"]) == [25.0] * 9


@pytest.mark.parametrize("step", ["correct", "commit"])
def test_an_adjustment_that_is_killed_is_there_as_a_whole_or_not_at_all(vendor, monkeypatch, step):
    raw = pd.concat([RAW["STAYS"], RAW["LATE"]])
    assert vendor.deliver([raw], FIRST).exit_code == 0
    before = vendor.store.read(["STAYS", "LATE"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Store, step, Mock(side_effect=KeyboardInterrupt))
        adjust_by(vendor.home, "STAYS", 0.25, date.fromisoformat(DAYS[SPLIT]))
    pd.testing.assert_frame_equal(vendor.store.read(["STAYS", "LATE"]), before)
    vendor("adjust", "--all")
    for name in ("STAYS", "LATE"):
        assert not wrong(vendor.store.read_one(name), RAW[name], FIRST)
    vendor("adjust", "--all", "--undo")
    pd.testing.assert_frame_equal(vendor.store.read(["STAYS", "LATE"]), before)


OLD, OTHER = prices("OLD", ROWS), prices("AAA", ROWS)
REUSED = 70  # the first row of another company under the name


def other_company() -> pd.DataFrame:
    """Another company is listed as OLD, at a price of 7."""
    table = prices("OLD", ROWS, start="2020-01-01")
    table[BAR] = table[BAR] / table["close"].iloc[0] * 7
    return table[table["date"] >= DAYS[REUSED]]


def named(since: int) -> pd.DataFrame:
    """The rows of the renamed company: from ``since`` on it is called NEW."""
    return OLD.assign(ticker=OLD["ticker"].where(OLD["date"] < DAYS[since], "NEW"))


@pytest.mark.parametrize("begins", rest_slow([FIRST + 1, 0, FIRST - 5], 2))
def test_a_name_that_another_company_is_given_is_a_series_of_its_own(vendor, begins):
    """The new name begins after the renaming, in the first row, or before the renaming."""
    company = named(begins)
    assert (
        vendor.deliver([OLD if begins in (0, FIRST + 1) else company, OTHER], FIRST).exit_code == 0
    )
    vendor("tickers", "rename", "OLD", "NEW")
    for last in (FIRST + 1, REUSED - 1, REUSED, REUSED + 1, ROWS - 3):
        done = vendor.deliver([company, OTHER, other_company()], last)
        assert done.exit_code == 0, done.output
        assert set(vendor.store.ids) == {"AAA", "NEW"} | ({"OLD"} if last >= REUSED else set())
        assert ("OLD: was renamed; since" in done.stderr) == (last == REUSED)
    for last in (ROWS - 2, ROWS - 1):  # without the new name: it is known whose rows these are
        done = vendor.deliver([company[company["ticker"] != "NEW"], OTHER, other_company()], last)
        assert done.exit_code == 3 and "NEW" in done.stderr
    stored = vendor.store.read_one("NEW")
    np.testing.assert_allclose(stored["close"], OLD["close"][: ROWS - 2])
    stored = vendor.store.read_one("OLD")
    np.testing.assert_allclose(stored["close"], other_company()["close"])
    assert list(stored["ds"].dt.strftime("%Y-%m-%d")) == DAYS[REUSED:]
    done = run("tickers", "rename", "OLD", "NEW", "--home", vendor.home)
    assert done.exit_code == 2 and "a name can be renamed only once" in done.stderr
    done = run("tickers", "rename", "AAA", "OLD", "--home", vendor.home)
    assert done.exit_code == 2 and "choose another new name" in done.stderr


@pytest.mark.parametrize(
    "alias", [{}, {"volume": 100}, {"close": 0.01}, {"close": 0.6, "high": 0.6}],
    ids=["equal", "a volume", "a cent", "half a percent"],
)  # fmt: skip
def test_rows_that_come_under_both_names_also_revised_are_one_series(vendor, alias):
    """Each of them is the first that comes under both names."""
    assert vendor.deliver([OLD, OTHER], FIRST).exit_code == 0
    vendor("tickers", "rename", "OLD", "NEW")
    for last in (FIRST + 1, FIRST + 2):
        new = OLD.assign(ticker="NEW").astype({"volume": float})
        for column, more in alias.items():
            new.loc[[0, FIRST - 18, FIRST - 17], column] += more
        done = vendor.deliver([OLD, new, OTHER], last)
        assert done.exit_code == 0 and not done.stderr, done.output
        assert set(vendor.store.ids) == {"AAA", "NEW"}
        stored = vendor.store.read_one("NEW")["close"]
        np.testing.assert_allclose(stored, OLD["close"][: last + 1], rtol=0.01 if alias else 1e-7)


def test_earlier_rows_that_come_under_the_new_name_leave_the_other_company(vendor):
    """The source restates them, and has those under the old name as they were."""
    assert vendor.deliver([OLD, OTHER], FIRST).exit_code == 0
    vendor("tickers", "rename", "OLD", "NEW")
    company = named(FIRST + 1)
    vendor.deliver([company, OTHER], FIRST + 1)
    whole = OLD.assign(ticker="NEW")
    whole[BAR] *= 0.95
    for last, new in ((REUSED, company), (REUSED + 1, whole), (REUSED + 2, whole)):
        tables = [company[company["ticker"] == "OLD"], new[new["ticker"] == "NEW"]]
        done = vendor.deliver([*tables, OTHER, other_company()], last)
        assert done.exit_code == 0, done.output
        stored = vendor.store.read_one("OLD")["close"]
        np.testing.assert_allclose(stored, other_company()["close"][: last + 1 - REUSED])


def test_a_ticker_that_is_renamed_back_is_one_series(vendor):
    """The source has some rows under the other name, between those under the first."""
    company = named(FIRST + 1)
    company["ticker"] = company["ticker"].mask(company["date"] >= DAYS[FIRST + 4], "OLD")
    assert vendor.deliver([company, OTHER], FIRST).exit_code == 0
    vendor("tickers", "rename", "OLD", "NEW")
    assert vendor.deliver([company, OTHER], FIRST + 2).exit_code == 0
    vendor("tickers", "rename", "NEW", "OLD")
    for last in range(FIRST + 3, FIRST + 7):
        done = vendor.deliver([company, OTHER], last)
        assert done.exit_code == 0 and not done.stderr, done.output
        assert set(vendor.store.ids) == {"AAA", "OLD"}
        np.testing.assert_allclose(vendor.store.read_one("OLD")["close"], OLD["close"][: last + 1])


def test_another_company_with_its_own_history_leaves_that_of_the_renamed_one(vendor):
    """The history that comes under the old name is from before the new name as well."""
    assert vendor.deliver([OLD, OTHER], FIRST).exit_code == 0
    vendor("tickers", "rename", "OLD", "NEW")
    company, whole = named(FIRST + 1), prices("OTHER", ROWS).assign(ticker="OLD")
    whole[BAR] *= 0.07
    vendor.deliver([company, OTHER], FIRST + 1)
    for last in (REUSED, REUSED + 1):
        done = vendor.deliver([company[company["ticker"] == "NEW"], OTHER, whole], last)
        assert done.exit_code == 0 and "under the name OLD are not those of NEW" in done.stderr
        np.testing.assert_allclose(vendor.store.read_one("NEW")["close"], OLD["close"][: last + 1])
        assert vendor.store.read_one("OLD")["close"].max() < 10


def test_it_is_said_that_a_source_of_tickers_is_asked_for_the_new_name(tmp_path):
    """Whether another company has the old one is not known."""
    table = OLD[: FIRST + 1].rename(columns={"date": "ds"}).drop(columns="ticker")
    table["ds"] = pd.to_datetime(table["ds"])
    source = Mock(fingerprint=lambda: None)
    source.name = "yahoo"
    source.fetch = lambda names, *_: (Fetched(n, table.assign(unique_id=n)) for n in names)
    home = Home(tmp_path)
    ingest(home, source, ["OLD"])
    rename_ticker(home, "OLD", "NEW")
    with warns(ForecasterWarning):
        assert ingest(home, source, ["OLD"]).ids == ["NEW"]


@pytest.mark.parametrize("step", ["encode", "commit", "review"])
def test_a_renaming_that_is_killed_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch, step):
    """Names were ahead of rows: the next delivery began the series anew under the new name."""
    vendor = Vendor(tmp_path, append=True)
    name = "STAYS"
    table = RAW[name].assign(ticker=RAW[name]["ticker"].where(RAW[name].index < FIRST, "NEW"))
    assert vendor.deliver([table, OTHER], FIRST).exit_code == 0
    vendor("adjust", name, "--factor", "0.25", "--before", DAYS[SPLIT])
    owner = Store if step == "commit" else correcting
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, step, Mock(side_effect=KeyboardInterrupt))
        rename_ticker(vendor.home, name, "NEW")
    assert set(vendor.store.ids) == {"AAA", "NEW", name}
    vendor("tickers", "rename", name, "NEW")
    for last in (FIRST + 1, FIRST + 2):
        done = vendor.deliver([table, OTHER], last)
        assert done.exit_code == 0, done.output
        assert set(vendor.store.ids) == {"AAA", "NEW"}
        assert not wrong(vendor.store.read_one("NEW"), RAW[name], last)
