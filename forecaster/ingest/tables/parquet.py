"""Read the needed columns of Parquet files, if they fit into memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError
from forecaster.files import is_text, open_parquet, parquet_groups, schema_of
from forecaster.free_memory import free_memory
from forecaster.ingest.tables.currencies import may_be_currencies
from forecaster.ingest.tables.roles import (
    Columns,
    canonical,
    canonical_names,
    is_needed,
    may_be_wide,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_COPIES = 3  # number of copies of a table that are in memory at once
_MOST_COLUMNS = 10_000
_HEAD = 1_000  # rows that tell whether a column of text may hold currencies


def read_parquet(
    path: Path,
    columns: Columns | None = None,
    *,
    everything: bool = False,
    groups: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Read the columns of names, times and numbers of a file; names become categories.

    The frame's index counts the rows of the file. Columns that are not read are listed in
    ``frame.attrs["unread"]``. Of text columns without a known role, only those are read whose first
    rows hold currencies alone; all are read of a file without times, since one may hold dates. Of a
    wide table all columns are read, since each must be a series.

    - ``columns``: the columns with series, times and target, if their names do not show it
    - ``everything``: whether to read all other columns, too
    - ``groups``: the row groups to read; None: all

    Raises what :func:`forecaster.files.parquet_groups` raises, and DataError for too many columns,
    and for more data than fits into memory.
    """
    import pyarrow as pa

    columns = columns or Columns()
    with open_parquet(path) as file:
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        groups = range(len(sizes)) if groups is None else groups
        schema = schema_of(file.metadata)
        fields = [field for field in schema if not _is_unnamed_index(field)]
        if len(fields) > _MOST_COLUMNS:
            raise DataError(f"{path}: {len(fields)} columns; expected {_MOST_COLUMNS} at most")
        read = _needed(fields, columns, everything=everything)
        others = [f.name for f in fields if f.name not in read and is_text(f.type)]
        once = [name for name in others if schema.get_field_index(name) >= 0]
        guessed = _perhaps_currencies(file, once)
    chosen = read | guessed
    names = [field.name for field in fields if field.name in chosen]
    _check_memory(path, sum(sizes[group] for group in groups), max(1, len(names)))
    kept = {n for n in names if canonical(n) in ("unique_id", "name") or n in columns.named}
    tables = list(parquet_groups(path, names, groups, kept | guessed))
    table = _as_text(without_decimals(pa.concat_tables(tables)))
    frame = table.to_pandas(ignore_metadata=True, date_as_object=False, self_destruct=True)
    frame.attrs["unread"] = [field.name for field in fields if field.name not in chosen]
    before = sum(sizes[: min(groups, default=0)])
    frame.index = pd.RangeIndex(before, before + len(frame))
    return frame


def is_number(kind: "pa.DataType") -> bool:
    """Return whether a column type is numeric."""
    import pyarrow.types as types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_time(kind: "pa.DataType") -> bool:
    """Return whether a column type holds times or dates."""
    import pyarrow.types as types

    return types.is_timestamp(kind) or types.is_date(kind)


def _is_unnamed_index(field: "pa.Field") -> bool:
    """Return whether pandas stored an index without name, and without times, in a column."""
    return field.name.startswith("__index_level_") and not is_time(field.type)


def _needed(fields: "Sequence[pa.Field]", columns: Columns, *, everything: bool) -> set[str]:
    """Return the columns to read whatever they hold."""
    names = [field.name for field in fields]
    everything = everything or may_be_wide(names, columns)
    undated = (
        columns.time_col is None
        and not any(is_time(field.type) for field in fields)
        and "ds" not in canonical_names(names).values()
    )
    return {
        field.name
        for field in fields
        if everything
        or is_number(field.type)
        or is_time(field.type)
        or is_needed(canonical(field.name))
        or field.name in columns.named
        or (undated and is_text(field.type))
    }


def _perhaps_currencies(file: "pq.ParquetFile", texts: list[str]) -> set[str]:
    """Return the columns of text whose first rows hold currencies, or nothing."""
    first = range(min(1, file.num_row_groups))
    head = next(file.iter_batches(_HEAD, first, texts), None) if texts else None
    return {
        name
        for name in texts
        if head is not None and may_be_currencies(set(head.column(name).to_pylist()) - {None})
    }


def _check_memory(path: Path, rows: int, columns: int) -> None:
    need = 8 * rows * columns * _COPIES
    if need > (free := free_memory()):
        raise DataError(
            f"{path}: declares {rows:,} rows of {columns} columns, which need about "
            f"{need / 2**30:,.0f} GiB; {free / 2**30:,.1f} GiB are free. Split it, or leave "
            "columns out"
        )


def without_decimals(table: "pa.Table") -> "pa.Table":
    """Return a table with decimals as floats; they would arrive as objects in a frame."""
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            floats = table.column(position).cast(pa.float64())
            table = table.set_column(position, field.name, floats)
    return table


def _as_text(table: "pa.Table") -> "pa.Table":
    """Return a table with bytes as text. Raises ValueError for bytes that are not UTF-8."""
    import pyarrow as pa

    text = pa.string()
    for position, field in enumerate(table.schema):
        within = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_binary(within) or pa.types.is_large_binary(within):
            kind = text if within is field.type else pa.dictionary(field.type.index_type, text)
            try:
                texts = table.column(position).cast(kind)
            except pa.ArrowInvalid as error:
                raise ValueError(f"column {field.name!r}: bytes that are not UTF-8") from error
            table = table.set_column(position, field.name, texts)
    return table
