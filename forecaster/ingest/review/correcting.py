"""Correct a store as a user says: adjust rows, rename a ticker, expect no more rows of it."""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import date

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, listed, near, spelled, spellings
from forecaster.files import Home
from forecaster.ingest.review.adjustments import DISMISSED, Proposal, proposed
from forecaster.ingest.review.review import review
from forecaster.ingest.sources.renamed import SAME, first_time, joined_in_time, log_ratios
from forecaster.ingest.store.corrections import Adjustment, Corrections, Time
from forecaster.ingest.store.series_file import encode
from forecaster.ingest.store.store import Store, find_store
from forecaster.series import show_time


def adjust(
    home: Home,
    names: Sequence[str] | None,
    source: str | None = None,
    *,
    undo: bool = False,
    dismiss: bool = False,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[Store, dict[str, Proposal]]:
    """Adjust the stored rows of some series as proposed; return the store and what was applied.

    Adjustments are kept, and applied to rows that arrive again unless the source has restated them.

    - ``names``: the series, in any spelling; None: all series with a proposal
    - ``source``: the source whose store has the series; None: the only source
    - ``undo``: instead, forget the adjustments of these series
    - ``dismiss``: instead, change no row, and do not propose the adjustments again
    - ``on_wait(message)``: called if another process is updating the same store

    Raises UsageError if the source is not stored, or if a series has nothing proposed or kept.
    """
    store = find_store(home, source)
    with store.locked(on_wait):
        found = {} if undo else proposed(store)
        kept = [name for name in store.ids if store.corrections_of(name).adjustments]
        there = kept if undo else list(found)
        chosen = there if names is None else list(dict.fromkeys(map(store.spelled, names)))
        if unknown := [name for name in chosen if name not in there]:
            what = "no adjustment is kept for" if undo else "no adjustment is proposed for"
            more = f"; there are {listed(there)}" if there else ""
            raise UsageError(f"{what} {listed(unknown)}{more}")
        for name in chosen:
            if undo:
                none = dataclasses.replace(store.corrections_of(name), adjustments=())
                store.correct(name, none)
            else:
                _adjust(store, name, found[name], dismiss=dismiss)
        review(store)
    return store, {name: found[name] for name in chosen if name in found}


def adjust_by(
    home: Home,
    name: str,
    factor: float,
    before: date,
    source: str | None = None,
    *,
    split: bool = True,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[Store, dict[str, Proposal]]:
    """Adjust the rows of a series before a day by a factor; return the same as :func:`adjust`.

    - ``name, source, on_wait``: as for :func:`adjust`
    - ``factor``: the factor that earlier prices are multiplied by, such as 0.25 for a split 4 for 1
    - ``before``: the first day with the new prices
    - ``split``: whether earlier volumes are divided by the factor

    Raises UsageError for a series that is not stored, and for a factor that is not above 0 or is 1.
    It also raises it if prices did not move by about this factor on that day, as with a wrong date.
    """
    if not (np.isfinite(factor) and factor > 0 and factor != DISMISSED):
        raise UsageError(f"factor: expected a number above 0 other than 1; got {factor:g}")
    store = find_store(home, source)
    with store.locked(on_wait):
        series = store.spelled(name)
        if series not in store:
            raise UsageError(f"{name}: not stored; there are {listed(store.ids)}")
        one = Proposal(before.isoformat(), factor, "as asked for", split)
        if not Adjustment(one.time, factor, split).shows(store.read_one(series)):
            raise UsageError(
                f"{series}: prices did not move by about {factor:g} from the session before "
                f"{one.time} to it, so nothing was changed. Give the first day with the new "
                "prices, and what earlier prices are to be multiplied by"
            )
        _adjust(store, series, one)
        review(store)
    return store, {series: one}


def _adjust(store: Store, name: str, proposal: Proposal, *, dismiss: bool = False) -> None:
    """Add an adjustment to those of a series, in place of its dismissal. The store is locked."""
    time, factor, _, split = proposal
    its = store.corrections_of(name)
    one = Adjustment(time, DISMISSED if dismiss else factor, split)
    if not dismiss:
        times = store.read_delivered(name)["ds"].to_numpy()
        one = one.of(times, one.before(times))
    earlier = (each for each in its.adjustments if (each.time, each.factor) != (time, DISMISSED))
    store.correct(name, dataclasses.replace(its, adjustments=(*earlier, one)))


def rename_ticker(
    home: Home,
    old: str,
    new: str,
    source: str | None = None,
    *,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[Store, str]:
    """Rename a stored ticker; return the store and the old name as it was stored.

    Rows that are stored under the new name stay; the rows of the old name that are before them are
    put in front. Rows that the source has under the old name, now or later, belong to the new name
    if they are before the first one under that.

    - ``old``: the ticker, in any spelling
    - ``source``: the source whose store has the ticker; None: the only source
    - ``on_wait(message)``: called if another process is updating the same store

    Raises UsageError if the source or the ticker is not stored, for a new name that is empty or the
    old one, and if either name was renamed before. It also raises it if another series is stored
    under the new name, which shows in other prices on the same days.
    """
    store = find_store(home, source)
    new = new.strip()
    with store.locked(on_wait):
        done = store.index.renames
        if old not in store and done.get(old) == new:
            return store, old
        (name,) = _stored_names(store, [old])
        if not new or name == new:
            raise UsageError(f"{name}: expected another name; got {new!r}")
        if name in done:
            raise UsageError(
                f"{name}: was renamed to {done[name]} before, and is the name of another series "
                f"since {store.index.series[name].first}; a name can be renamed only once"
            )
        if done.get(new, name) != name:
            raise UsageError(
                f"{new}: was renamed to {done[new]} before, so rows under this name may be of "
                "either series; choose another new name"
            )
        _rename(store, name, new)
    return store, name


def _rename(store: Store, name: str, new: str) -> None:
    """Rename a stored series in one transaction. The store must be locked."""
    frame, entry = store.read_delivered(name), store.index.series[name]
    its = entry.corrections
    since: Time | None = None
    if new in store:
        entry = store.index.series[new]
        now, later = entry.corrections, store.read_delivered(new)
        since = first_time(later)
        frame = joined_in_time([later, frame[frame["ds"] < since]], new)
        came = (frame["ds"] >= since).to_numpy()
        before, after = store.read_one(name), store.read_one(new)
        known = joined_in_time([before, after], new)
        its = Corrections((*now.adjustments, *its.adjustments), now.names | its.names)
        its = its.of_rows(frame, known, came)
        _check_same(name, before, new, its.applied(frame)[came])
    names = {old: time for old, time in its.names.items() if old != new} | {name: since}
    its = dataclasses.replace(its, names=names)
    series = encode(new, frame, asked_from=entry.asked_from, corrections=its)
    store.write_file_of(series)
    store.note_written(series)
    del store.index.series[name]
    review(store)


def _check_same(old: str, before: pd.DataFrame, new: str, after: pd.DataFrame) -> None:
    """Raise UsageError if two series have rows at the same times that do not belong together."""
    ratios = log_ratios(before, after)  # the adjusted prices of one series may differ by a factor
    same = (ratios == 0).all() or (
        len(ratios) > 1 and np.isfinite(ratios).all() and float(ratios.std(ddof=0)) <= SAME
    )
    if not same:
        first, last = (show_time(ratios.index[row]) for row in (0, -1))
        raise UsageError(
            f"{new}: is another series than {old}: from {first} to {last} both have rows, with "
            f"other values. A renaming joins the rows of an old name with those after them; use "
            f"`forecaster tickers retire {old}` if no more rows of it are to come"
        )


def retire(
    home: Home,
    names: Sequence[str],
    source: str | None = None,
    *,
    retired: bool = True,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[Store, list[str]]:
    """Mark stored series as retired; return the store and the series.

    Retired series are no longer expected from the source, and are not forecast with all others.
    Their rows are kept, and later rows end the retirement.

    - ``names``: the series, in any spelling
    - ``source``: the source whose store has the series; None: the only source
    - ``retired``: False: mark them as no longer retired
    - ``on_wait(message)``: called if another process is updating the same store

    Raises UsageError if the source or a series is not stored.
    """
    store = find_store(home, source)
    with store.locked(on_wait):
        chosen = _stored_names(store, names)
        for name in chosen:
            if store.index.series[name].retired != retired:  # a suspect series stays suspect
                store.mark(name, "retired" if retired else "ok")
        store.commit()
    return store, chosen


def _stored_names(store: Store, names: Sequence[str]) -> list[str]:
    """Return the stored series for names in any spelling. Raises UsageError."""
    known = spellings(store.ids)
    found = {name: spelled(known, name) for name in names}
    if unknown := [name for name, series in found.items() if series is None]:
        similar = near(store.ids, unknown[0])
        raise UsageError(
            f"{listed(unknown)}: not among the {len(store.ids)} stored series of {store.source}; "
            + (f"near: {listed(similar)}" if similar else "`forecaster status --all` lists them")
        )
    return [series for series in dict.fromkeys(found.values()) if series is not None]
