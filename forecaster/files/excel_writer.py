"""Write Excel workbooks: a table on one sheet, with dates as dates and text as text."""

import datetime
import io
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import UsageError, printable

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS, _MOST_COLUMNS = 1_048_575, 16_384  # of a sheet, without the headings
_EXACT = 10**15  # Excel keeps 15 digits of a number
_MOST_TEXT = 32_767  # characters in a cell
_WIDTH = 21  # width of columns in characters; a date with a time fits
_AS_THEY_ARE = {"strings_to_formulas": False, "strings_to_urls": False, "constant_memory": True}


def write_excel(table: "pd.DataFrame", path: Path) -> None:
    """Write a table as an Excel workbook.

    Excel has no timezones: times are written as clocks in their zone show them, and the heading
    names the zone. Text that begins like a formula stays text. Whole numbers of more than 15 digits
    are written as text, since Excel would round them.

    Raises UsageError when the table has more rows or columns than a sheet can hold, OSError when
    the file cannot be written.
    """
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    if len(table) > _MOST_ROWS or len(table.columns) > _MOST_COLUMNS:
        raise UsageError(
            f"the table has {len(table):,} rows and {len(table.columns):,} columns; Excel holds "
            f"{_MOST_ROWS:,} and {_MOST_COLUMNS:,} at most. Write .parquet or .csv"
        )
    # In memory, since an interrupted ZipFile tries to write again when Python drops it.
    packed = io.BytesIO()
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            xlsxwriter.Workbook(packed, {**_AS_THEY_ARE, "tmpdir": folder}) as book,
        ):
            book.use_zip64()  # this affects only workbooks of more than 4 GB
            sheet = book.add_worksheet("forecaster")
            sheet.freeze_panes(1, 0)
            columns = [_column(table.iloc[:, number]) for number in range(len(table.columns))]
            for number, (_, _, form) in enumerate(columns):
                sheet.set_column(number, number, _WIDTH, book.add_format(form))
            bold = book.add_format({"bold": True, "quote_prefix": True})
            sheet.write_row(0, 0, [heading for heading, _, _ in columns], bold)
            for row, values in enumerate(zip(*(v for _, v, _ in columns), strict=True), 1):
                sheet.write_row(row, 0, values)
    except FileCreateError as error:
        raise error.args[0] from error  # the OSError
    path.write_bytes(packed.getbuffer())


def _column(column: "pd.Series") -> tuple[str, list[Any], dict[str, Any]]:
    """Return the heading of a column, its cells and their format."""
    heading = printable(column.name)[:_MOST_TEXT]
    form: dict[str, Any] = {"quote_prefix": True}  # text stays text when it is edited
    if column.dtype.kind == "M":
        zone = getattr(column.dtype, "tz", None)
        if zone is not None:
            heading, column = f"{heading} [{zone}]", column.dt.tz_localize(None)
        there = column.dropna()
        days = bool((there == there.dt.normalize()).all())
        form = {"num_format": "yyyy-mm-dd" if days else "yyyy-mm-dd hh:mm:ss"}
    values = column.astype(object).where(column.notna(), None).tolist()
    return heading, [_cell(value, dates="num_format" in form) for value in values], form


def _cell(value: Any, *, dates: bool) -> object:
    """Return what Excel can hold of a value; the rest is text, without control characters.

    Its dates begin in 1900, and it counts 29 February 1900, which never was.

    ``dates``: whether the column is one of dates
    """
    value = value.item() if hasattr(value, "item") else value  # a number of NumPy
    if isinstance(value, datetime.datetime):
        held = dates and value.year > 1900
    elif isinstance(value, int):
        held = abs(value) < _EXACT
    else:
        held = value is None or (isinstance(value, float) and math.isfinite(value))
    return value if held else printable(value)[:_MOST_TEXT]
