"""Rename a stored ticker: its history, and whatever arrives under the old name, follow."""

from collections.abc import Callable

from forecaster.errors import UsageError
from forecaster.home import Home
from forecaster.ingest.review.review import review
from forecaster.ingest.sources.renamed import joined_rows
from forecaster.ingest.store.adjusting import read_adjustments, write_adjustments
from forecaster.ingest.store.export import find_store
from forecaster.ingest.store.renames import read_renames, with_rename, write_renames
from forecaster.ingest.store.retiring import stored_names
from forecaster.ingest.store.series_file import encode
from forecaster.ingest.store.store import Store


def rename_ticker(
    home: Home,
    old: str,
    new: str,
    source: str | None = None,
    *,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[Store, str]:
    """Rename a stored ticker; return the store and the old name as it was stored.

    Rows that are stored under the new name stay; the old ones before them are put in front. Rows
    that the source still has, or sends later, under the old name belong to the new one.

    - ``old``: in any spelling
    - ``source``: the source whose store has it; None: the only one
    - ``on_wait(message)``: called if another process is updating the same store

    Raises UsageError where the source or the ticker is not stored, and for a new name that is empty
    or the old one.
    """
    store = find_store(home, source)
    new = new.strip()
    done = read_renames(store.folder)
    if old not in store and done.get(old) == new:
        return store, old  # an earlier call was interrupted after this, or is repeated
    (name,) = stored_names(store, [old])
    if not new or name == new:
        raise UsageError(f"{name}: expected another name; got {new!r}")
    with store.locked(on_wait):
        # Before the rows: if this is interrupted, the same command does the rest.
        write_renames(store.folder, with_rename(done, name, new))
        kept = read_adjustments(store.folder)
        if name in kept:
            write_adjustments(store.folder, {**kept, new: [*kept.get(new, []), *kept[name]]})
        entry = store.index.series[name]
        frame = store.read_one(name)
        if new in store:
            frame, entry = joined_rows(frame, store.read_one(new)), store.index.series[new]
        series = encode(new, frame, asked_from=entry.asked_from, timezone=entry.timezone)
        store.replace(name, series)
        review(store)
    return store, name
