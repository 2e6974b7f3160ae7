"""Panels: long frames as stacked arrays, and back."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.errors import DataError, Kind, Skipped, UsageError
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import UNCONFIRMED, Panel
from tests.messages import refuses


def frame(lengths: dict[str, int]) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {"unique_id": name, "ds": pd.date_range("2024-01-01", periods=n), "y": np.arange(n) + 1}
        )
        for name, n in lengths.items()
    ]
    return pd.concat(parts)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 2**31))
def test_a_panel_holds_exactly_the_rows_it_was_made_from(lengths, seed):
    whole = frame({f"s{i}": n for i, n in enumerate(lengths)})
    kept = whole.sample(frac=0.7, random_state=seed)
    if kept.empty:
        return
    panel = Panel.from_frame(kept)
    back = panel.to_frame().sort_values(["unique_id", "ds"], ignore_index=True)
    kept = kept.sort_values(["unique_id", "ds"], ignore_index=True)
    assert (back["unique_id"].tolist(), back["y"].tolist()) == (
        kept["unique_id"].tolist(),
        kept["y"].tolist(),
    )
    assert (back["ds"].to_numpy() == kept["ds"].to_numpy()).all()
    assert np.isnan(panel.values[~panel.mask]).all()


def test_histories_are_aligned_at_their_end_without_gaps():
    table = frame({"long": 6, "short": 4})
    table = table[~((table.unique_id == "long") & (table.y == 4))]  # a missing day
    histories = Histories.from_panel(Panel.from_frame(table))
    assert histories.first.tolist() == [0, 1]
    y = histories.values[:, :, 0]
    np.testing.assert_array_equal(y, [[1, 2, 3, 5, 6], [np.nan, 1, 2, 3, 4]])
    assert histories.positions.tolist() == [[0, 1, 2, 4, 5], [-1, 0, 1, 2, 3]]


def test_the_first_row_decides_whether_a_series_has_adjusted_closes():
    """So no later row changes the data that a forecast was made from."""
    early, late, both, none = (frame({name: 4}).assign(close=2.0) for name in "abcd")
    nan = np.nan
    tables = [
        early.assign(adj_close=[1.0, nan, 1.0, nan]),
        late.assign(adj_close=[nan, nan, nan, 1.0]),
        both.assign(adj_close=1.0, close=[nan, 2.0, 2.0, 2.0]),
        none.assign(close=[nan, 2.0, 2.0, nan], adj_close=nan),
    ]
    panel = Panel.from_frame(pd.concat(tables).drop(columns="y"))
    np.testing.assert_array_equal(
        panel.channel("adj_close"), [[1, nan, 1, nan], [2, 2, 2, 2], [1, 1, 1, 1], [nan, 2, 2, nan]]
    )


def test_unusable_series_are_named_not_lost():
    table = pd.concat(
        [frame({"good": 5, "twice": 3}), frame({"twice": 1}), frame({"empty": 4}).assign(y=np.nan)]
    )
    panel = Panel.from_frame(table)
    assert panel.ids == ("good",)
    assert panel.skipped == {
        "twice": Skipped(Kind.REPEATED_TIME, first="2024-01-01"),
        "empty": Skipped(Kind.NO_NUMBER, column="y"),
    }


@pytest.mark.parametrize(
    "table",
    [
        frame({"a": 3}).drop(columns="ds"),
        frame({"a": 3}).drop(columns="y"),
        frame({"a": 3}).assign(y="text"),
        frame({"a": 3}).assign(ds="soon"),
        frame({"a": 3}).assign(y=np.nan),
    ],
)
def test_bad_frames_say_what_is_wrong(table):
    with refuses(DataError):
        Panel.from_frame(table)


def flagged_panel() -> Panel:
    """Return ten days of two series. The fourth day of "a" is flagged from the seventh day on, the
    sixth of "b" from its own day until the eighth."""
    days = pd.date_range("2024-01-01", periods=10).to_numpy("datetime64[ns]")
    flags = pd.DataFrame(
        {"unique_id": ["a", "b", "gone"], "ds": days[[3, 5, 5]],
         "flag": ["copied", UNCONFIRMED, "copied"], "known": days[[6, 5, 5]],
         "until": np.array(["NaT", days[7], "NaT"], days.dtype)}
    )  # fmt: skip
    return Panel.from_frame(frame({"a": 10, "b": 10})).with_flags(flags)


def rows_of(panel: Panel, flagged: np.ndarray) -> list[tuple[str, int]]:
    rows, positions = np.nonzero(flagged)
    days = panel.times[positions].astype("datetime64[D]").astype(object)
    return [(panel.ids[row], day.day) for row, day in zip(rows, days, strict=True)]


@pytest.mark.parametrize(
    ("day", "wrong"),
    [(5, []), (6, [("b", 6)]), (7, [("a", 4), ("b", 6)]), (8, [("a", 4)]), (10, [("a", 4)])],
)
def test_rows_are_left_out_while_they_are_known_to_be_wrong(day, wrong):
    panel, cutoff = flagged_panel(), f"2024-01-{day:02d}"
    assert rows_of(panel, panel.flagged(cutoff)) == wrong
    masked = panel.masked(cutoff)
    assert rows_of(panel, panel.mask & ~masked.mask) == wrong
    # What was known then does not depend on what is known now.
    early = panel.until(cutoff)
    assert rows_of(early, early.flagged()) == wrong
    assert (early.masked().mask == masked.until(cutoff).mask).all()
    confirmed = [row for row in wrong if row != ("b", 6)]
    assert rows_of(panel, panel.flagged(cutoff, forecasting=True)) == confirmed


def test_flags_follow_their_rows():
    panel = flagged_panel()
    assert rows_of(panel, panel.only(["a"]).flagged("2024-01-07")) == [("a", 4)]
    turned = panel.only(["b", "a"])
    assert set(rows_of(turned, turned.flagged("2024-01-07"))) == {("a", 4), ("b", 6)}
    late = panel.between(start="2024-01-05")
    assert rows_of(late, late.flagged("2024-01-07")) == [("b", 6)]
    early = panel.between(end="2024-01-07")
    assert rows_of(early, early.flagged()) == [("a", 4), ("b", 6)]
    assert early.flags is not None and early.flags["until"].isna().all()  # not known yet
    gone = panel.without(np.array([0]), np.array([3]))
    assert rows_of(gone, gone.flagged()) == [] and gone.masked() is gone
    again = panel.masked("2024-01-07").masked("2024-01-10")
    assert rows_of(again, panel.mask & ~again.mask) == [("a", 4), ("b", 6)]


@pytest.mark.parametrize("far", ["2608-01-01", "9999-12-31", datetime.date(9999, 12, 31),
                                 datetime.datetime(2262, 4, 11, 23, 59), pd.Timestamp.max,
                                 np.datetime64("2608-01-01")])  # fmt: skip
def test_dates_beyond_nanoseconds_are_later_than_all_others(far):
    panel = flagged_panel()
    assert panel.between(None, far).times.tolist() == panel.times.tolist()
    assert panel.until(far).times.tolist() == panel.times.tolist()
    assert rows_of(panel, panel.flagged(far)) == rows_of(panel, panel.flagged("2100-01-01"))
    with refuses(DataError):
        panel.between(far)


@pytest.mark.parametrize("wrong", ["soon", "", pd.NaT, "2024-13-01", "99999-01-01", object()])
def test_what_is_no_date_is_named(wrong):
    panel = flagged_panel()
    for call in (panel.between, panel.until, lambda end: panel.between(None, end)):
        with refuses(UsageError):
            call(wrong)


def test_series_that_do_not_fit_into_memory_are_refused_before_it_is_taken(monkeypatch):
    monkeypatch.setattr("forecaster.series.panel.stacking.free_memory", lambda: 1000)
    frame = pd.DataFrame({"unique_id": list("abcdefghijkl"), "ds": range(1, 13), "y": 1.0})
    with refuses(DataError):
        fc.load_panel(frame)
