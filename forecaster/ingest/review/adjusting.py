"""Apply adjustments to a store on request: the proposed ones, or a factor that a user gives."""

from collections.abc import Callable, Sequence
from datetime import date

import numpy as np

from forecaster.errors import NoSeries, UsageError, listed
from forecaster.home import Home
from forecaster.ingest.review.adjustments import ROWS_SEEN, Proposal, proposals
from forecaster.ingest.review.review import AT_A_TIME, review
from forecaster.ingest.store.adjusting import (
    Adjustment,
    adjusted,
    read_adjustments,
    write_adjustments,
)
from forecaster.ingest.store.export import find_store
from forecaster.ingest.store.series_file import Arrays
from forecaster.ingest.store.store import Store
from forecaster.series import Panel

_NONE = 1.0  # the factor that is kept for a jump that does not come from a split


def proposed(store: Store) -> dict[str, Proposal]:
    """Return the adjustment that the stored prices of each series call for, if any, by series."""
    if _of_values(store):
        return {}
    ids, series = store.ids, dict[str, Arrays]()
    for low in range(0, len(ids), AT_A_TIME):  # all rows of all series may not fit into memory
        part, _ = store.read_arrays(ids[low : low + AT_A_TIME])
        series |= {name: _latest(each) for name, each in part.items()}
    try:
        return proposed_of(store, Panel.from_arrays(series)) if series else {}
    except NoSeries:
        return {}


def _latest(series: Arrays) -> Arrays:
    """Return a copy of the rows that proposals look at."""
    times, values, channels = series
    return Arrays(times[-ROWS_SEEN:].copy(), values[-ROWS_SEEN:].copy(), channels)


def _of_values(store: Store) -> bool:
    """Return whether the store has other series than prices; one that can be read tells it."""
    for name in store.ids:
        series, _ = store.read_arrays([name])
        if series:
            return "y" in series[name].channels
    return False


def proposed_of(store: Store, panel: Panel) -> dict[str, Proposal]:
    """Return the proposals for some of a store's series, without those that were dismissed."""
    found = proposals(panel)
    kept = read_adjustments(store.folder) if found else {}
    dismissed = {
        (name, one.time) for name, each in kept.items() for one in each if one.factor == _NONE
    }
    return {name: one for name, one in found.items() if (name, one.time) not in dismissed}


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

    Adjustments are kept, and applied to rows that arrive later as long as these rows show the jump.

    - ``names``: the series, in any spelling; None: all series with a proposal
    - ``source``: the source whose store has the series; None: the only source
    - ``undo``: forget the adjustments of these series instead. Stored rows stay as they are until
      they are read again
    - ``dismiss``: leave the rows as they are instead, and do not propose the adjustments again
    - ``on_wait(message)``: called if another process is updating the same store

    Raises UsageError if the source is not stored, or if a series has nothing proposed or kept.
    """
    store = find_store(home, source)
    with store.locked(on_wait):
        kept = read_adjustments(store.folder)
        there = dict.fromkeys(kept) if undo else proposed(store)
        chosen = list(there) if names is None else [store.spelled(name) for name in names]
        if unknown := [name for name in chosen if name not in there]:
            what = "no adjustment is kept for" if undo else "no adjustment is proposed for"
            more = f"; there are {listed(there)}" if there else ""
            raise UsageError(f"{what} {listed(unknown)}{more}")
        if undo:
            left = {name: each for name, each in kept.items() if name not in chosen}
            write_adjustments(store.folder, left)
            return store, {}
        found = proposed(store)
        applied = {name: found[name] for name in chosen}
        _apply(store, applied, dismiss=dismiss)
    return store, applied


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
    if not (np.isfinite(factor) and factor > 0 and factor != _NONE):
        raise UsageError(f"factor: expected a number above 0 other than 1; got {factor:g}")
    store = find_store(home, source)
    with store.locked(on_wait):
        series = store.spelled(name)
        if series not in store.ids:
            raise UsageError(f"{name}: not stored; there are {listed(store.ids)}")
        one = Proposal(before.isoformat(), factor, "as asked for", split)
        frame = store.read_one(series)
        if Adjustment(one.time, factor, split).applied(frame) is frame:
            raise UsageError(
                f"{series}: prices did not move by about {factor:g} from the session before "
                f"{one.time} to it, so nothing was changed. Give the first day with the new "
                "prices, and what earlier prices are to be multiplied by"
            )
        _apply(store, {series: one})
    return store, {series: one}


def _apply(store: Store, chosen: dict[str, Proposal], *, dismiss: bool = False) -> None:
    """Keep adjustments, and write the rows that they change. The store must be locked."""
    kept = read_adjustments(store.folder)
    for name, (time, factor, _, split) in chosen.items():
        one = Adjustment(time, _NONE if dismiss else factor, split)
        kept[name] = [*(each for each in kept.get(name, []) if each.time != time), one]
    # Before the rows are written: after an interruption the same command finishes the work.
    write_adjustments(store.folder, kept)
    if dismiss:
        return
    for name in chosen:
        _write(store, name, kept[name])
    store.commit()
    review(store)


def _write(store: Store, name: str, adjustments: Sequence[Adjustment]) -> None:
    """Write a series with its adjustments; the rest of its index entry does not change."""
    from forecaster.ingest.store.series_file import encode

    entry = store.index.series[name]
    frame = adjusted(store.read_one(name), list(adjustments))
    series = encode(name, frame, asked_from=entry.asked_from, timezone=entry.timezone)
    store.write_encoded(series, entry.fingerprint)
