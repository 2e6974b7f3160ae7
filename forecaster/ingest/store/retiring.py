"""Mark stored series that get no more rows, because they were delisted or given up."""

from collections.abc import Callable, Sequence

from forecaster.errors import UsageError, listed, near, spelled, spellings
from forecaster.files import Home
from forecaster.ingest.store.export import find_store
from forecaster.ingest.store.store import Store


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
    chosen = stored_names(store, names)
    with store.locked(on_wait):
        store.retire(chosen, retired=retired)
    return store, chosen


def stored_names(store: Store, names: Sequence[str]) -> list[str]:
    """Return the stored series for names in any spelling. Raises UsageError."""
    known = spellings(store.ids)
    found = {name: spelled(known, name) for name in names}
    if unknown := [name for name, series in found.items() if series is None]:
        similar = near(store.ids, unknown[0])
        raise UsageError(
            f"{listed(unknown)}: not among the {len(store.ids)} stored series of {store.source}"
            + (
                f"; near: {listed(similar)}"
                if similar
                else "; `forecaster status --all` lists them"
            )
        )
    return [series for series in dict.fromkeys(found.values()) if series is not None]
