"""Turn the rows of a database into a frame, column by column and a chunk at a time."""

import datetime
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError
from forecaster.free_memory import free_memory
from forecaster.ingest.tables.currencies import may_be_currencies
from forecaster.ingest.tables.numbers import is_number_column
from forecaster.ingest.tables.roles import Columns, canonical, is_needed

if TYPE_CHECKING:
    import pyarrow as pa

_COPIES = 3  # number of copies of a table that are in memory at once
_MOST_COLUMNS = 10_000
_LONGEST_TEXT = 1_000
_NESTED = (bytes, bytearray, memoryview, list, dict, tuple, set)


def frame_of_rows(
    names: Sequence[str],
    chunks: Iterable[Sequence[Sequence[object]]],
    where: str,
    columns: Columns,
) -> pd.DataFrame:
    """Return rows as a frame; only one chunk of them is in memory as Python objects.

    Exact numbers become floats, and times with a time zone become UTC. A column that holds numbers
    and text, as SQLite allows, becomes text. Columns of text other than names, times, numbers and
    currencies, and columns of bytes or lists, are not kept; ``frame.attrs["unread"]`` lists them.

    - ``names``: the names of the columns
    - ``where``: the source, for error messages
    - ``columns``: the columns with series, times and target, if their names do not show it

    Raises DataError for too many columns, or if the rows do not fit into memory.
    """
    import pyarrow as pa

    if len(names) > _MOST_COLUMNS:
        raise DataError(f"{where}: {len(names)} columns; expected {_MOST_COLUMNS} at most")
    needed = [name in columns.named or is_needed(canonical(name)) for name in names]
    kept: list[list[pa.Array]] = [[] for _ in names]
    unread: set[int] = set()
    size = 0
    for rows in chunks:
        for number, cells in enumerate(zip(*rows, strict=True)):
            if number in unread:
                continue
            array = _array(cells)
            if array is None or (not needed[number] and _is_other_text(array)):
                unread.add(number)
                kept[number] = []
                continue
            _check_length(array, names[number], where)
            kept[number].append(array)
            size += array.nbytes
        _check_memory(size, where)
    read = [number for number in range(len(names)) if number not in unread]
    parts = [
        _joined(kept[number], as_names=_holds_names(names[number], columns)) for number in read
    ]
    table = pa.Table.from_arrays(parts, names=[names[number] for number in read])
    frame = table.to_pandas(date_as_object=False, self_destruct=True)
    frame.attrs["unread"] = [names[number] for number in sorted(unread)]
    return frame


def _holds_names(name: str, columns: Columns) -> bool:
    return canonical(name) in ("unique_id", "name") or name in columns.named


def _array(cells: Sequence[object]) -> "pa.Array | None":
    """Return a chunk of a column as numbers, times or text; None for bytes and nested values."""
    import pyarrow as pa

    kinds = set(map(type, cells)) - {type(None)}
    if any(issubclass(kind, _NESTED) for kind in kinds):
        return None
    try:
        if kinds <= {int}:
            return pa.array(cells, pa.int64() if kinds else pa.null())
        if kinds <= {int, float, Decimal}:
            return pa.array([None if x is None else float(x) for x in cells], pa.float64())  # type: ignore[arg-type]
    except (OverflowError, pa.ArrowInvalid):
        return _text(cells)  # the whole number is too large for a float
    if kinds == {bool}:
        return pa.array(cells, pa.bool_())
    if kinds == {datetime.date}:
        return pa.array(cells, pa.date32())
    if kinds == {datetime.datetime}:
        zoned = {isinstance(x, datetime.datetime) and x.tzinfo is not None for x in cells if x}
        if len(zoned) == 1:
            return pa.array(cells, pa.timestamp("us", "UTC" if zoned.pop() else None))
    return _text(cells)


def _text(cells: Sequence[object]) -> "pa.Array":
    import pyarrow as pa

    # Each text is stored only once, however often it repeats.
    texts = pa.array([None if x is None else str(x) for x in cells], pa.string())
    return texts.dictionary_encode()


def _is_other_text(array: "pa.Array") -> bool:
    """Return whether a chunk of a column holds text that is no number and no code of a currency."""
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        return False
    words = [word for word in array.dictionary.to_pylist() if word is not None]
    return not is_number_column(pd.Series(words, dtype=object)) and not may_be_currencies(words)


def _check_length(array: "pa.Array", name: str, where: str) -> None:
    """Raise DataError for a text that is too long for a name, a date or a number."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type) and any(
        len(text) > _LONGEST_TEXT for text in array.dictionary.to_pylist()
    ):
        raise DataError(
            f"{where}: column {name!r}: a text of more than {_LONGEST_TEXT:,} characters; expected "
            "names, dates and numbers"
        )


def _check_memory(size: int, where: str) -> None:
    """Raise DataError if rows of ``size`` bytes leave no memory for the frame made from them."""
    if size * (_COPIES - 1) > (free := free_memory()):
        raise DataError(
            f"{where}: the rows that the query returns do not fit into memory: "
            f"{size / 2**30:,.1f} GiB have come, and {free / 2**30:,.1f} GiB are free. Select "
            "fewer columns, series or years"
        )


def _joined(arrays: "list[pa.Array]", *, as_names: bool) -> "pa.ChunkedArray":
    """Return the chunks of a column in one type: text if the chunks hold both numbers and text."""
    import pyarrow as pa

    kinds = {array.type for array in arrays if not pa.types.is_null(array.type)}
    if not kinds:
        return pa.chunked_array(arrays, pa.null())
    kind = kinds.pop()
    if kinds:
        both = {kind, *kinds}
        if both == {pa.int64(), pa.float64()}:
            kind = pa.float64()
        elif both == {pa.date32(), pa.timestamp("us")}:
            kind = pa.timestamp("us")
        else:
            kind = pa.string()
    if pa.types.is_dictionary(kind) and not as_names:
        kind = pa.string()
    return pa.chunked_array([array.cast(kind) for array in arrays], kind)
