"""Rename a stored ticker, with its history and with later rows under the old name."""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, UsageError
from forecaster.files import atomic
from forecaster.home import Home
from forecaster.ingest.review.review import review
from forecaster.ingest.sources.renamed import SAME, joined_rows, log_ratios
from forecaster.ingest.store.adjusting import (
    adjusted,
    read_adjusted,
    read_adjustments,
    write_adjustments,
)
from forecaster.ingest.store.export import find_store
from forecaster.ingest.store.renames import (
    PENDING,
    read_pending,
    read_renames,
    read_until,
    with_rename,
    write_pending,
    write_renames,
    write_since,
    write_until,
)
from forecaster.ingest.store.retiring import stored_names
from forecaster.ingest.store.series_file import encode
from forecaster.ingest.store.store import Store
from forecaster.series import show_time


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
        finish_renaming(store)
        done = read_renames(store.folder)
        if old not in store and done.get(old) == new:
            return store, old
        (name,) = stored_names(store, [old])
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


def finish_renaming(store: Store) -> None:
    """Finish a renaming that was interrupted, and say so; the store must be locked."""
    if (pending := read_pending(store.folder)) is None:
        return
    old, new = pending
    _rename(store, old, new)
    warnings.warn(
        f"the renaming of {old} to {new} was interrupted, and is finished in the store; "
        f"`forecaster tickers rename {old} {new}` once more finishes it in the record",
        ForecasterWarning,
        stacklevel=2,
    )


def _rename(store: Store, name: str, new: str) -> None:
    """Rename a stored series; each step may be repeated. The store must be locked."""
    kept = read_adjustments(store.folder)
    its = [*kept.get(new, []), *kept.pop(name, [])]
    if name in store:
        frame, later = read_adjusted(store, name, its), None
        entry = store.index.series[name]
        if new in store:  # with the whole history, as the source sends it: not adjusted
            later, _ = adjusted(read_adjusted(store, new, its), its, frame)
            _check_same(name, frame, new, later)
            entry = store.index.series[new]
        write_pending(store.folder, name, new)
        until = read_until(store.folder)
        until = {old: time for old, time in until.items() if old not in (name, new)}
        if later is not None:
            write_since(store.folder, new, later)
            first = later["ds"].iloc[0]
            until[name] = first if isinstance(first, pd.Timestamp) else int(first)
            frame = joined_rows(frame, later)
        write_until(store.folder, until)
        series = encode(new, frame, asked_from=entry.asked_from, timezone=entry.timezone)
        store.replace(name, series)
    if its:
        write_adjustments(store.folder, {**kept, new: its})
    write_renames(store.folder, with_rename(read_renames(store.folder), name, new))
    atomic.remove_file(store.folder / PENDING)
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
