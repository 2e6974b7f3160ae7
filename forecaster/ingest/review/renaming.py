"""Rename a stored ticker, with its history and with later rows under the old name."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from forecaster.errors import UsageError
from forecaster.files import Home
from forecaster.ingest.review.review import review
from forecaster.ingest.sources.renamed import SAME, first_time, joined_in_time, log_ratios
from forecaster.ingest.store.corrections import Corrections, Time
from forecaster.ingest.store.export import find_store
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
        done = store.index.renames
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


def _rename(store: Store, name: str, new: str) -> None:
    """Rename a stored series in one transaction. The store must be locked."""
    frame, entry = store.read_delivered(name), store.index.series[name]
    its = entry.corrections
    since: Time | None = None
    if new in store:
        entry = store.index.series[new]
        now = entry.corrections
        later = store.read_delivered(new)
        since = first_time(later)
        both = joined_in_time([later, frame[frame["ds"] < since]], new)
        came = (both["ds"] >= since).to_numpy()
        before, after = store.read_one(name), store.read_one(new)
        known = pd.concat([before, after[~after["ds"].isin(before["ds"])]]).sort_values("ds")
        its = Corrections((*now.adjustments, *its.adjustments), now.names | its.names)
        its = its.of_rows(both, known, came)
        _check_same(name, before, new, its.applied(both)[came])
        frame = both
    names = {old: time for old, time in its.dates.items() if old != new} | {name: since}
    series = encode(new, frame, asked_from=entry.asked_from, corrections=its.named(names))
    store.write_file_of(series)
    store.note_written(series)
    store.put(name, None)
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
