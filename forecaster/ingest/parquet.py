"""Parquet files from elsewhere: only the columns that are needed, if they fit into memory."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError
from forecaster.ingest.layout import canonical, is_needed

if TYPE_CHECKING:
    import pyarrow as pa

_COPIES = 3  # of a table, while it is brought into shape
_MOST_COLUMNS = 10_000


def read_parquet(path: Path) -> pd.DataFrame:
    """Names, times and numbers of a file; the names as categories.

    Raises DataError when the file would not fit into memory, by the size it declares, which is
    read first.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        if len(schema) > _MOST_COLUMNS:
            raise DataError(f"{path}: {len(schema)} columns; expected {_MOST_COLUMNS} at the most")
        wanted = [
            field.name
            for field in schema
            if _is_number(field.type) or is_needed(canonical(field.name))
        ]
        _check_size(path, rows, max(1, len(wanted)))
    texts = [n for n in wanted if canonical(n) in ("unique_id", "name")]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read(columns=wanted)
    if len(table) != rows:
        raise DataError(f"{path}: {len(table)} rows, but its footer declares {rows}")
    for index, field in enumerate(table.schema):  # 128-bit decimals would arrive as objects
        if pa.types.is_decimal(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.float64()))
    unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed).to_pandas(ignore_metadata=True, self_destruct=True)


def _is_number(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _check_size(path: Path, rows: int, columns: int) -> None:
    need = 8 * rows * columns * _COPIES
    free = _free_memory()
    if need > free:
        raise DataError(
            f"{path}: declares {rows:,} rows of {columns} columns, which need about "
            f"{need / 2**30:,.0f} GiB; {free / 2**30:,.1f} GiB are free here. Split it, or leave "
            "columns out"
        )


def _free_memory() -> int:
    """Bytes of memory that can be had; generous where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration, ValueError, IndexError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return 16 * 2**30
