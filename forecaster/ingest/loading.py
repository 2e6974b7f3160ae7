"""Load a panel: from a frame, straight from a source, or from a store."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, Unpack

import pandas as pd

from forecaster.errors import (
    DataError,
    Kind,
    Skipped,
    StoreError,
    UsageError,
    check_names,
    check_whole,
    listed,
    name_reasons,
    warn_of_skipped,
)
from forecaster.ingest.review.quality import (
    WRONG,
    check_flags,
    find_flags,
    flags_of,
    without_flagged,
)
from forecaster.ingest.sources.opening import open_source
from forecaster.ingest.store.series_file import Arrays
from forecaster.ingest.store.store import Store
from forecaster.ingest.tables.cells import TableLocation
from forecaster.ingest.tables.file_reader import without_decimals
from forecaster.ingest.tables.layout import as_one_level, each_series, tidy
from forecaster.ingest.tables.options import INFERRED, ColumnOptions, Columns
from forecaster.ingest.tables.roles import canonical
from forecaster.ingest.tables.times import with_frequency
from forecaster.series import Date, Layout, Panel

_WHERE = "the frame"


class ArrowTable(Protocol):
    """A table that can be exported as Arrow, such as a polars DataFrame or a pyarrow Table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow batches."""
        ...


Table: TypeAlias = pd.DataFrame | pd.Series | ArrowTable
"""A table of pandas, polars, pyarrow, or another library with Arrow's interface."""


def as_panel(data: Panel | Table, **columns: Unpack[ColumnOptions]) -> Panel:
    """Return a panel unchanged, or a table as a panel, see :func:`panel_of_frame`.

    Warns of the series of a table that are skipped; those of a panel are in its ``skipped``.

    Raises UsageError for anything else, and for column options together with a panel, and TypeError
    for unknown options.
    """
    if isinstance(data, Panel) and not columns:
        return data
    options = Columns.from_options(columns)
    if isinstance(data, Panel):
        if given := [name for name, value in columns.items() if value is not None]:
            raise UsageError(f"{given[0]} is for reading a frame; leave it out with a panel")
        return data
    panel = panel_of_frame(data, columns=options)
    warn_of_skipped(panel.skipped)
    return panel


def panel_of_frame(
    data: Table, tickers: Sequence[str] | None = None, *, columns: Columns = INFERRED
) -> Panel:
    """Turn a table into a panel: long, wide, or with two levels of columns as from yfinance.

    - ``tickers``: the series to take; None: all
    - ``columns``: the columns with series, times and target, if their names do not show it

    Raises DataError as :func:`forecaster.ingest.tables.layout.tidy` does, and UsageError if
    ``data`` is not a table.
    """
    frame = as_one_level(_with_index(as_pandas(data), columns.named), _WHERE)
    if canonical(str(frame.columns.name)) == "unique_id" and columns.first_option is None:
        # The table may be yfinance.download(...)["Close"].
        columns = dataclasses.replace(columns, wide=True)
    location = TableLocation(_WHERE, counts_rows=True)
    table = tidy(frame, location, columns=columns)
    panel = Panel.from_arrays({name: Arrays.from_frame(part) for name, part in each_series(table)})
    panel = with_frequency(panel, columns.frequency)
    if tickers is None:
        return panel
    reason = Skipped(Kind.NOT_LOADED, detail=f"not in {_WHERE}")
    missing = {name: reason for name in tickers if name not in panel.ids}
    return panel.only([name for name in tickers if name not in missing], missing)


def as_pandas(data: Table) -> pd.DataFrame:
    """Return any table as a pandas frame. Raises UsageError if ``data`` is not a table."""
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, pd.Series):
        return data.to_frame("y" if data.name is None else data.name)
    if not hasattr(data, "__arrow_c_stream__"):
        lazy = "; call its .collect() first" if hasattr(data, "collect") else ""
        raise UsageError(
            f"expected a panel or a frame (pandas, polars, pyarrow); got {type(data).__name__}"
            f"{lazy or '. Files and other sources go through load_panel'}"
        )
    import pyarrow as pa

    return without_decimals(pa.table(data)).to_pandas(date_as_object=False)


def _with_index(frame: pd.DataFrame, named: Sequence[str]) -> pd.DataFrame:
    """Return the frame with its index as columns, unless it counts rows or repeats a column.

    ``named``: columns that the caller names.
    """
    index, names = frame.index, list[Any]()
    dropped: list[Any] = []
    for level, name in enumerate(index.names):
        values = index.get_level_values(level)
        has_role = name in named or canonical(str(name)) in ("unique_id", "ds")
        # Rows that are counted were perhaps filtered or concatenated.
        counts = pd.api.types.is_integer_dtype(values.dtype) and not has_role
        column = frame.get(name)  # a table where several have this name
        if counts or (isinstance(column, pd.Series) and pd.Index(column).equals(values)):
            dropped.append(level)
            continue
        times = isinstance(values, (pd.DatetimeIndex, pd.PeriodIndex))
        unnamed = "date" if times or index.nlevels == 1 else "unique_id"
        names.append(unnamed if name is None else name)
    if not names:
        return frame.reset_index(drop=True)
    frame = frame.droplevel(dropped).rename_axis(index=names)
    try:
        return frame.reset_index()
    except ValueError as error:
        raise DataError(
            f"{_WHERE}: a column and a level of the index are both called one of "
            f"{listed(list(map(repr, names)))}; keep one (reset_index(drop=True) drops the index)"
        ) from error


def load_panel(
    source: str | Table = "simulated",
    tickers: Sequence[str] | None = None,
    *,
    start: Date | None = None,
    end: Date | None = None,
    seed: int = 0,
    mask: Sequence[str] = WRONG,
    query: str | None = None,
    **columns: Unpack[ColumnOptions],
) -> Panel:
    """Load a panel straight from a source, without storing it.

    - ``source``: ``yahoo``, ``simulated``, ``files:PATH``, ``files:URL``, ``sql:URL``, or a frame
      of pandas, polars or pyarrow: with a row per series and time, with a column per series and
      the times in the index or a column, or as ``yfinance.download`` returns it
    - ``tickers``: the series to load; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included
    - ``seed``: of the simulated market
    - ``mask``: flags whose rows are left out of training, see
      :mod:`forecaster.ingest.review.quality`. The panel still holds these rows, with their flags;
      see :meth:`Panel.masked`. A frame is not reviewed
    - ``query``: of a database: one SELECT, or the name of a table
    - ``id_col, time_col, target_col, wide, date_format, missing, decimal``: how a table is read, as
      far as it does not show it; see :class:`forecaster.ingest.ColumnOptions`

    Series that cannot be loaded are named in the panel's ``skipped``.

    Raises DataError if no series can be loaded, UsageError if the source is unknown.
    """
    check_flags(mask)
    if tickers is not None:
        check_names("tickers", tickers, "a list of texts")
    check_whole("seed", seed)
    roles = Columns.from_options(columns)
    if not isinstance(source, str):
        if query is not None:
            raise UsageError("query is for a database; leave it out with a frame")
        panel = panel_of_frame(source, tickers, columns=roles)
        return panel.between(start, end)
    opened = open_source(source, seed=seed, columns=roles, query=query)
    series, skipped = {}, {}
    for item in opened.fetch(
        opened.tickers() if tickers is None else list(dict.fromkeys(tickers)), start
    ):
        if item.frame is None:
            skipped[item.unique_id] = Skipped(
                Kind.NOT_LOADED, detail=item.reason or "no reason given"
            )
        else:
            series[item.unique_id] = Arrays.from_frame(item.frame)
    if not series:
        raise DataError(f"{opened.name}: no series could be loaded:\n{name_reasons(skipped)}")
    panel = Panel.from_arrays(series, skipped).between(None, end)
    if mask and panel.times.dtype.kind == "M":
        panel = panel.with_flags(flags_of(find_flags(panel), mask))
    return with_frequency(panel.between(start, None), roles.frequency)


def panel_from_store(
    store: Store,
    ids: Sequence[str],
    skipped: Mapping[str, Skipped] | None = None,
    *,
    start: Date | None = None,
    end: Date | None = None,
    layout: Layout | None = None,
    flagged: pd.DataFrame | None = None,
    channels: Collection[str] | None = None,
) -> Panel:
    """Read series from the store as a panel.

    Prices are those of their day, adjusted for splits only. The target is ``adj_close`` if there is
    one.

    - ``skipped``: other series to name as skipped, with the reason; damaged ones are added
    - ``start``, ``end``: the first and the last day, both included
    - ``layout``: of the panel that these series are a part of
    - ``flagged``: the rows to leave out, from :func:`masked_rows`
    - ``channels``: those that are wanted; all by default. The target must be among them

    Raises StoreError if the files of all series are damaged.
    """
    series, damaged = store.read_arrays(ids, channels)
    if not series:
        raise StoreError(name_reasons(damaged))
    unreadable = {name: Skipped(Kind.UNREADABLE, detail=why) for name, why in damaged.items()}
    panel = Panel.from_arrays(series, {**(skipped or {}), **unreadable}, layout)
    if flagged is not None:
        panel = without_flagged(panel, flagged)
    return with_frequency(panel.between(start, end), store.index.frequency)
