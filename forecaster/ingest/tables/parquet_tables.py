"""Read Parquet files, if they fit into memory."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError
from forecaster.files import open_parquet, read_parquet_file
from forecaster.ingest.tables.options import INFERRED, Columns
from forecaster.ingest.tables.roles import canonical, is_needed
from forecaster.machine import free_memory

if TYPE_CHECKING:
    import pyarrow as pa

_COPIES = 3  # number of copies of a table that are in memory at once


def read_parquet(path: Path, columns: Columns = INFERRED) -> pd.DataFrame:
    """Read a file; names become categories, and a nested column that has no role is left out.

    ``columns``: the columns with series, times and target, if their names do not show it

    Raises what :func:`forecaster.files.parquet_groups` raises, and DataError for more data than
    fits into memory.
    """
    named = columns.named
    with open_parquet(path) as file:
        names = [field.name for field in file.schema_arrow if _is_read(field, named)]
        rows = file.metadata.num_rows
    need = 8 * rows * len(names) * _COPIES
    if need > (free := free_memory()):
        raise DataError(
            f"{path}: declares {rows:,} rows of {len(names)} columns, which need about "
            f"{need / 2**30:,.0f} GiB; {free / 2**30:,.1f} GiB are free. Split it, or leave "
            "columns out"
        )
    ids = [name for name in names if canonical(name) in ("unique_id", "name") or name in named]
    table = without_decimals(read_parquet_file(path, names, ids))
    return table.to_pandas(ignore_metadata=True, date_as_object=False, self_destruct=True)


def without_decimals(table: "pa.Table") -> "pa.Table":
    """Return a table with decimals as floats; they would arrive as objects in a frame."""
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            floats = table.column(position).cast(pa.float64())
            table = table.set_column(position, field.name, floats)
    return table


def _is_read(field: "pa.Field", named: list[str]) -> bool:
    """Return whether a column is read: not an index of pandas that only counts rows."""
    import pyarrow.types as types

    kind = field.type
    if is_needed(canonical(field.name)) or field.name in named:
        return True
    if field.name.startswith("__index_level_"):
        return types.is_timestamp(kind) or types.is_date(kind)
    return not (types.is_nested(kind) or types.is_fixed_size_binary(kind))
