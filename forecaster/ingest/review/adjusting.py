"""Apply proposed adjustments to a store on request."""

from collections.abc import Callable, Sequence

from forecaster.errors import NoSeries, UsageError, listed
from forecaster.home import Home
from forecaster.ingest.review.adjustments import Proposal, proposals
from forecaster.ingest.review.review import review
from forecaster.ingest.store.adjusting import (
    Adjustment,
    adjusted,
    read_adjustments,
    write_adjustments,
)
from forecaster.ingest.store.export import find_store
from forecaster.ingest.store.store import Store
from forecaster.series import Panel


def proposed(store: Store) -> dict[str, Proposal]:
    """Return by series the adjustment that the stored prices call for, if any."""
    series, _ = store.read_arrays(store.ids)
    try:
        return proposals(Panel.from_arrays(series)) if series else {}
    except NoSeries:
        return {}


def adjust(
    home: Home,
    names: Sequence[str] | None,
    source: str | None = None,
    *,
    undo: bool = False,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[Store, dict[str, Proposal]]:
    """Adjust the stored rows of some series as proposed; return the store and what was applied.

    Adjustments are kept, and applied to rows that arrive later for as long as these show the jump.

    - ``names``: in any spelling; None: all series with a proposal
    - ``source``: the source whose store has them; None: the only one
    - ``undo``: forget the adjustments of these series instead. Stored rows stay as they are until
      they are read again
    - ``on_wait(message)``: called if another process is updating the same store

    Raises UsageError where the source is not stored, or nothing is proposed or kept for a series.
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
        for name in chosen:
            one = Adjustment(found[name].time, found[name].factor, found[name].split)
            others = [each for each in kept.get(name, []) if each.time != one.time]
            kept[name] = [*others, one]
        # Before the rows: if this is interrupted, the same command does the rest.
        write_adjustments(store.folder, kept)
        for name in chosen:
            _write(store, name, kept[name])
        store.commit()
        review(store)
    return store, {name: found[name] for name in chosen}


def _write(store: Store, name: str, adjustments: Sequence[Adjustment]) -> None:
    """Write a series with its adjustments; the rest of its entry stays as it is."""
    from forecaster.ingest.store.series_file import encode

    entry = store.index.series[name]
    frame = adjusted(store.read_one(name), list(adjustments))
    series = encode(name, frame, asked_from=entry.asked_from, timezone=entry.timezone)
    store.write_encoded(series, entry.fingerprint)
