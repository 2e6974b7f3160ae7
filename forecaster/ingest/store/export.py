"""Export stored prices as one long table for other programs."""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import pandas as pd

from forecaster.errors import UsageError
from forecaster.files import Home, as_text, check_output
from forecaster.ingest.store.store import Store

_AT_ONCE = 200  # number of series in memory at once


def export_prices(
    home: Home,
    output: Path,
    tickers: Sequence[str] | None = None,
    *,
    form: str | None = None,
    source: str | None = None,
    overwrite: bool = False,
    adjusted: bool = False,
) -> int:
    """Write stored series as one table, whole or not at all; return its number of rows.

    - ``tickers``: the series to export; None: all
    - ``form``: ``csv``, ``json``, ``parquet`` or ``excel``; None: the format of the ending of
      ``output``. In a CSV, a quote precedes text that a spreadsheet would take for a formula
    - ``source``: the source whose store is exported; None: the only source
    - ``overwrite``: whether ``output`` may exist
    - ``adjusted``: convert open, high, low and close to the scale of ``adj_close``, and leave
      ``adj_close`` out

    The store is not locked: a series that is updated meanwhile is written as it then is.

    Raises UsageError if the source, a ticker, the format or the folder does not exist, or if the
    file exists, StoreError if a series is damaged.
    """
    file = check_output(output, form=form, overwrite=overwrite, formats=True)
    store = find_store(home, source)
    names = list(dict.fromkeys(map(store.spelled, tickers))) if tickers else store.ids
    if missing := [name for name in names if name not in store]:
        raise UsageError(
            f"{', '.join(missing[:5])}: not among the {len(store.ids)} series of {store.source}"
        )
    if not names:
        raise UsageError(f"no series are stored of {store.source}")
    columns = list(dict.fromkeys(column for name in names for column in store.read_delivered(name)))

    def parts() -> Iterator[pd.DataFrame]:
        for low in range(0, len(names), _AT_ONCE):
            frame = store.read(names[low : low + _AT_ONCE])
            frame = frame.reindex(columns=columns)
            yield _adjusted(frame) if adjusted else frame

    file.write_parts(parts())
    return sum(store.index.series[name].rows for name in names)


def _adjusted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return prices adjusted for dividends, if the table has close and ``adj_close``.

    As in panels, the first row decides whether a series is adjusted. An adjusted series gets no
    price on a day without ``adj_close``, since an unadjusted price would be a false jump.
    """
    if not {"close", "adj_close"} <= set(frame.columns):
        return frame
    priced = frame[frame[["adj_close", "close"]].notna().any(axis=1)]
    first = priced.drop_duplicates("unique_id").set_index("unique_id")
    is_adjusted = frame["unique_id"].map(first["adj_close"].notna())
    factor = (frame["adj_close"] / frame["close"]).where(is_adjusted, 1.0)
    prices = [name for name in ("open", "high", "low", "close") if name in frame]
    scaled = {name: frame[name] * factor for name in prices}
    return frame.assign(**scaled).drop(columns="adj_close")


def known_source(source: str, known: Container[str]) -> str:
    """Return a known source as it is; take any other text for the path of a file."""
    if source in known:
        return source
    return f"files:{as_text(Path(source.removeprefix('files:')).expanduser().resolve())}"


def find_store(home: Home, source: str | None) -> Store:
    """Return the store of a source; None: the store of the only source. Raises UsageError."""
    stores = {store.source: store for store in Store.all_of(home)}
    if not stores:
        raise UsageError(f"nothing is stored under {home}; run `forecaster ingest` first")
    if source is None and len(stores) > 1:
        raise UsageError(f"several sources are stored; add --source, one of {', '.join(stores)}")
    wanted = next(iter(stores)) if source is None else known_source(source, stores)
    if wanted not in stores:
        # A URL may contain a password.
        said = "of this URL" if "://" in str(source) else repr(source)
        raise UsageError(f"source {said} is not stored; there are {', '.join(stores)}")
    return stores[wanted]
