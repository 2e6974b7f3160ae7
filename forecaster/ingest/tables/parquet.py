"""Read the needed columns of Parquet files, if they fit into memory."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from forecaster.errors import DataError
from forecaster.files import Footer, check_parquet, open_for_arrow
from forecaster.free_memory import free_memory
from forecaster.ingest.tables.currencies import are_currencies, may_be_currencies
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
_LONGEST_TEXT = 1_000
# A code of a currency, or a word for an empty cell, has four letters at most, and four bytes state
# its length.
_MOST_BYTES = 8
_LONGEST_CODE = 100  # bytes, with spaces around it
_OVERHEAD = 10_000  # bytes of a column's headers and dictionary


def read_parquet(
    path: Path,
    columns: Columns | None = None,
    *,
    everything: bool = False,
    groups: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Read the columns of names, times and numbers of a file; names become categories.

    The frame's index counts the rows of the file. Columns that are not read are listed in
    ``frame.attrs["unread"]``. Of text columns without a known role, only those are read that hold
    currencies alone, whatever statistics the file has of them; all are read of a file without
    times, since one may hold dates. Of a wide table all columns are read, since each must be a
    series.

    - ``columns``: the columns with series, times and target, if their names do not show it
    - ``everything``: whether to read all other columns, too
    - ``groups``: the row groups to read; None: all

    Raises DataError if the file declares more data than fits into memory.
    """
    import pyarrow.parquet as pq

    columns = columns or Columns()
    with open_for_arrow(path) as opened, pq.ParquetFile(opened) as file:
        schema = file.schema_arrow
        groups = range(file.metadata.num_row_groups) if groups is None else groups
        rows, before = _count_rows(file.metadata, groups)
        if len(schema) > _MOST_COLUMNS:
            raise DataError(f"{path}: {len(schema)} columns; expected {_MOST_COLUMNS} at most")
        everything = everything or may_be_wide(schema.names, columns)
        needed = _needed(schema, columns.named, everything=everything)
        if _is_undated(schema, columns):
            needed |= {field.name for field in schema if _is_plain_text(field.type)}
        chosen = _Chosen.of(path, schema, needed, _guessed(file, needed, groups))
        _check_size(path, rows, max(1, len(chosen.names)))
        chosen = _checked(path, opened, chosen, groups)
    # Dictionaries keep a repeated text once, so that a small file stays small in memory.
    with (
        open_for_arrow(path) as opened,
        pq.ParquetFile(opened, read_dictionary=chosen.texts) as file,
    ):
        table = file.read_row_groups(list(groups), columns=chosen.names)
    others = {name for name in chosen.guessed if not _are_currencies(table.column(name))}
    table, chosen = table.drop_columns(list(others)), chosen.without(others)
    table = _with_plain_texts(path, table, chosen, schema, columns.named)
    if len(table) != rows:
        raise DataError(f"{path}: {len(table)} rows, but its footer declares {rows}")
    table = _without_index_and_decimals(table)
    frame = table.to_pandas(ignore_metadata=True, date_as_object=False, self_destruct=True)
    frame.attrs["unread"] = [name for name in schema.names if name not in chosen.names]
    frame.index = pd.RangeIndex(before, before + len(frame))
    return frame


class _Chosen(NamedTuple):
    """The columns to read, in the order of the file.

    - ``names``: all of them
    - ``texts``: the columns among them that hold text
    - ``guessed``: the columns of text that are read only if they hold currencies alone
    """

    names: list[str]
    texts: list[str]
    guessed: set[str]

    @staticmethod
    def of(path: Path, schema: "pa.Schema", needed: set[str], guessed: set[str]) -> "_Chosen":
        """Choose the needed and the guessed columns; raise DataError for a nested type."""
        names = [name for name in schema.names if name in needed or name in guessed]
        texts = [name for name in names if is_text(path, schema.field(name))]
        return _Chosen(names, texts, guessed)

    @property
    def needed_texts(self) -> list[str]:
        """The columns of text that are read whatever they hold."""
        return [name for name in self.texts if name not in self.guessed]

    def without(self, others: set[str]) -> "_Chosen":
        """Return all but some columns."""
        names = [name for name in self.names if name not in others]
        texts = [name for name in self.texts if name not in others]
        return _Chosen(names, texts, self.guessed - others)


def _count_rows(footer: "pq.FileMetaData", groups: Sequence[int]) -> tuple[int, int]:
    """Return the number of rows in row groups, and of those before the first of them."""
    sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    rows = sum(sizes[group] for group in groups)
    before = sum(sizes[: min(groups, default=0)])
    return rows if len(groups) < len(sizes) else footer.num_rows, before


def _is_undated(schema: "pa.Schema", columns: Columns) -> bool:
    """Return whether no column holds times by its type, by its name, or as the caller says."""
    return (
        columns.time_col is None
        and not any(is_time(field.type) for field in schema)
        and "ds" not in canonical_names(schema.names).values()
    )


def _is_plain_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _needed(schema: "pa.Schema", named: Collection[str], *, everything: bool) -> set[str]:
    """Return the columns to read whatever they hold: those of numbers or times, or with a role."""
    return {
        field.name
        for field in schema
        if everything
        or is_number(field.type)
        or is_time(field.type)
        or is_needed(canonical(field.name))
        or field.name in named
    }


def _guessed(file: "pq.ParquetFile", needed: set[str], groups: Sequence[int]) -> set[str]:
    """Return the other columns that hold currencies alone as far as the footer tells."""
    schema = file.schema_arrow
    return {
        field.name
        for field in schema
        if field.name not in needed
        and schema.get_field_index(field.name) >= 0  # no other column has its name
        and _may_be_currencies(file.metadata, field, groups)
    }


def _checked(
    path: Path, opened: "pa.NativeFile", chosen: _Chosen, groups: Sequence[int]
) -> _Chosen:
    """Return the columns without guessed ones whose texts are too long for currencies.

    Raises DataError if the file is damaged, or if the columns do not fit into memory.
    """
    try:
        footer = check_parquet(opened, chosen.names)
    except ValueError as error:
        raise DataError(f"{path}: {error}. Check that its content is what you expect") from error
    chosen = chosen.without(_too_large(footer, chosen.guessed, groups))
    check_content(path, footer, chosen.names, chosen.needed_texts, groups)
    return chosen


def _with_plain_texts(
    path: Path, table: "pa.Table", chosen: _Chosen, schema: "pa.Schema", named: Collection[str]
) -> "pa.Table":
    """Return a table in which only names, and columns that the caller names, are categories.

    Raises DataError for a text that is too long for a name or a date.
    """
    for name in chosen.texts:
        if name not in chosen.guessed:
            _check_length(path, name, table.column(name))
        if canonical(name) not in ("unique_id", "name") and name not in named:
            position, kind = table.column_names.index(name), schema.field(name).type
            table = table.set_column(position, name, table.column(name).cast(kind))
    return table


def _without_index_and_decimals(table: "pa.Table") -> "pa.Table":
    """Return a table without pandas' unnamed index, and with decimals as floats.

    128-bit decimals would arrive as objects in a frame.
    """
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            floats = table.column(position).cast(pa.float64())
            table = table.set_column(position, field.name, floats)
    return table.drop_columns(_unnamed(table.schema))


def _unnamed(schema: "pa.Schema") -> list[str]:
    """Return the columns in which pandas stored an index without name and without times."""
    return [
        field.name
        for field in schema
        if field.name.startswith("__index_level_") and not is_time(field.type)
    ]


def is_number(kind: "pa.DataType") -> bool:
    """Return whether a column type is numeric."""
    import pyarrow as pa

    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_time(kind: "pa.DataType") -> bool:
    """Return whether a column type holds times or dates."""
    import pyarrow as pa

    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def is_text(path: Path, field: "pa.Field") -> bool:
    """Return whether a column holds text. Raises DataError for lists and other nested types."""
    import pyarrow as pa

    if pa.types.is_nested(field.type):
        raise DataError(
            f"{path}: column {field.name!r}: expected numbers, dates or text; got {field.type}"
        )
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def check_content(
    path: Path,
    footer: Footer,
    wanted: list[str],
    texts: list[str],
    groups: Sequence[int],
) -> None:
    """Raise DataError if columns do not fit into memory, or if texts are too long.

    - ``footer``: the contents as :func:`forecaster.files.check_parquet` reads them; pyarrow's own
      reader ends the process at some damaged files
    - ``wanted``: the columns to read; ``texts``: the columns among them that hold text
    - ``groups``: the row groups to read
    """
    unpacked = _unpacked(footer, wanted, groups)
    if (total := sum(unpacked.values())) > (free := free_memory()):
        raise DataError(
            f"{path}: its columns need {total / 2**30:,.1f} GiB unpacked; {free / 2**30:,.1f} GiB "
            "are free. Split it, or leave columns out"
        )
    for name in texts:
        if unpacked[name] > _LONGEST_TEXT * (footer.rows + _LONGEST_TEXT):
            raise _too_long(path, name)


def _unpacked(footer: Footer, wanted: Iterable[str], groups: Sequence[int]) -> dict[str, int]:
    """Return the bytes of columns in row groups, unpacked."""
    unpacked, read = dict.fromkeys(wanted, 0), set(groups)
    for chunk in footer.chunks:
        if chunk.group in read and chunk.path in unpacked:
            unpacked[chunk.path] += max(0, chunk.unpacked)
    return unpacked


def _too_large(footer: Footer, guessed: set[str], groups: Sequence[int]) -> set[str]:
    """Return the columns whose texts are too long on average for codes of currencies."""
    most = _LONGEST_CODE * footer.rows + _OVERHEAD * max(1, len(groups))
    return {name for name, size in _unpacked(footer, guessed, groups).items() if size > most}


def _are_currencies(column: "pa.ChunkedArray") -> bool:
    """Return whether a column of dictionaries holds currencies alone."""
    words = {word for chunk in column.chunks for word in chunk.unique().to_pylist()}
    return are_currencies(words - {None})


def _check_length(path: Path, name: str, column: "pa.ChunkedArray") -> None:
    """Raise DataError for a text that is too long for a name or a date."""
    for chunk in column.chunks:
        if any(text and len(text) > _LONGEST_TEXT for text in chunk.dictionary.to_pylist()):
            raise _too_long(path, name)


def _too_long(path: Path, name: str) -> DataError:
    return DataError(
        f"{path}: column {name!r}: a text of more than {_LONGEST_TEXT:,} characters; expected "
        "names and dates"
    )


def _may_be_currencies(footer: "pq.FileMetaData", field: "pa.Field", groups: Sequence[int]) -> bool:
    """Return whether the footer allows that a column of text holds codes of currencies alone.

    Its least and greatest text are codes, or stand for empty cells. Where a group lacks these
    statistics, its cells are short enough for codes.
    """
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        return False
    for group in map(footer.row_group, groups):
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema != field.name:
                continue
            known = column.statistics
            if known is not None and known.has_min_max:
                if not may_be_currencies((known.min, known.max)):
                    return False
            elif column.total_uncompressed_size > _MOST_BYTES * column.num_values + _OVERHEAD:
                return False
    return True


def _check_size(path: Path, rows: int, columns: int) -> None:
    need = 8 * rows * columns * _COPIES
    free = free_memory()
    if need > free:
        raise DataError(
            f"{path}: declares {rows:,} rows of {columns} columns, which need about "
            f"{need / 2**30:,.0f} GiB; {free / 2**30:,.1f} GiB are free. Split it, or leave "
            "columns out"
        )
