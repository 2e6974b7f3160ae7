"""Turn tables of pandas, or of any library with Arrow's interface, into panels."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, Unpack

import pandas as pd

from forecaster.errors import DataError, Kind, Skipped, UsageError, listed, warn_of_skipped
from forecaster.ingest.store.series_file import Arrays
from forecaster.ingest.tables.layout import each_series, tidy
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.options import INFERRED, ColumnOptions, Columns
from forecaster.ingest.tables.parquet_tables import without_decimals
from forecaster.ingest.tables.roles import canonical
from forecaster.ingest.tables.steps import with_frequency
from forecaster.ingest.tables.two_levels import as_one_level
from forecaster.series import Panel

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
    options = Columns.of(columns)
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
    panel = Panel.from_arrays({name: Arrays.of(part) for name, part in each_series(table)})
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
