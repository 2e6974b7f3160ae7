"""Apply adjustments to a store on request: the proposed ones, or a factor that a user gives."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from datetime import date

import numpy as np

from forecaster.errors import NoSeries, UsageError, listed
from forecaster.files import Home
from forecaster.ingest.review.adjustments import Proposal, proposals
from forecaster.ingest.review.review import in_parts, review
from forecaster.ingest.store.corrections import Adjustment
from forecaster.ingest.store.export import find_store
from forecaster.ingest.store.store import Store
from forecaster.series import Panel

_NONE = 1.0  # the factor that is kept for a jump that does not come from a split


def proposed(store: Store) -> dict[str, Proposal]:
    """Return the adjustment that the stored prices of each series call for, if any, by series."""
    found: dict[str, Proposal] = {}
    for names in in_parts(store.ids):  # all rows of all series may not fit into memory
        series, _ = store.read_arrays(names)
        dated = {name: each for name, each in series.items() if each.times.dtype.kind == "M"}
        with contextlib.suppress(NoSeries):
            found |= proposed_of(store, Panel.from_arrays(dated))
    return found


def proposed_of(store: Store, panel: Panel) -> dict[str, Proposal]:
    """Return the proposals for some of a store's series, without those that were dismissed."""
    found = proposals(panel)
    kept = {name: store.corrections_of(name).adjustments for name in found}
    dismissed = {(n, one.time) for n, its in kept.items() for one in its if one.factor == _NONE}
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
        kept = {n: its for n, its in store.index.corrections.items() if its.adjustments}
        there = [name for name in kept if name in store] if undo else list(found)
        chosen = there if names is None else [store.spelled(name) for name in names]
        if unknown := [name for name in chosen if name not in there]:
            what = "no adjustment is kept for" if undo else "no adjustment is proposed for"
            more = f"; there are {listed(there)}" if there else ""
            raise UsageError(f"{what} {listed(unknown)}{more}")
        for name in chosen if undo else ():
            store.correct(name, dataclasses.replace(kept[name], adjustments=()))
        applied = {name: found[name] for name in chosen if name in found}
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
        if not Adjustment(one.time, factor, split).shows(store.read_one(series)):
            raise UsageError(
                f"{series}: prices did not move by about {factor:g} from the session before "
                f"{one.time} to it, so nothing was changed. Give the first day with the new "
                "prices, and what earlier prices are to be multiplied by"
            )
        _apply(store, {series: one})
    return store, {series: one}


def _apply(store: Store, chosen: dict[str, Proposal], *, dismiss: bool = False) -> None:
    """Add adjustments to those of series, and commit. The store must be locked."""
    for name, (time, factor, _, split) in chosen.items():
        its = store.corrections_of(name)
        times = store.read_delivered(name)["ds"].to_numpy()
        one = Adjustment(time, _NONE if dismiss else factor, split)
        if not dismiss:
            one = one.of(times, one.before(times))
        earlier = (each for each in its.adjustments if (each.time, each.factor) != (time, _NONE))
        store.correct(name, dataclasses.replace(its, adjustments=(*earlier, one)))
    review(store)
