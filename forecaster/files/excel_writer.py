"""Write Excel workbooks: a table on one sheet, with dates as dates and text as text."""

import datetime
import io
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.errors import UsageError, printable

if TYPE_CHECKING:
    import pandas as pd
    from xlsxwriter import Workbook

_MOST_ROWS = 1_048_575  # rows of a sheet, without the headings
_MOST_COLUMNS = 16_384
_EXACT = 10**15  # Excel keeps 15 digits of a number
_MOST_TEXT = 32_767  # characters in a cell
_DAY, _MOMENT = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss"
_WIDTH = 21  # width of columns in characters; a date with a time fits


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

    if len(table) > _MOST_ROWS:
        raise UsageError(
            f"{path.name}: Excel holds {_MOST_ROWS:,} rows, and there are {len(table):,}; write "
            ".parquet or .csv"
        )
    if len(table.columns) > _MOST_COLUMNS:
        raise UsageError(
            f"{path.name}: Excel holds {_MOST_COLUMNS:,} columns, and there are "
            f"{len(table.columns):,}; write .parquet or .csv"
        )
    # In memory, since an interrupted ZipFile tries to write again when Python drops it.
    packed = io.BytesIO()
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            xlsxwriter.Workbook(packed, {"constant_memory": True, "tmpdir": folder}) as book,
        ):
            book.use_zip64()  # this affects only workbooks of more than 4 GB
            _fill(book, table)
    except FileCreateError as error:
        raise error.args[0] from error  # the OSError
    path.write_bytes(packed.getbuffer())


def _fill(book: "Workbook", table: "pd.DataFrame") -> None:
    """Write a table to the only sheet of a workbook, by calls that guess no types."""
    sheet = book.add_worksheet("forecaster")
    sheet.freeze_panes(1, 0)
    sheet.set_column(0, max(0, len(table.columns) - 1), _WIDTH)
    quoted = book.add_format({"quote_prefix": True})  # stays text when it is edited
    bold = book.add_format({"bold": True, "quote_prefix": True})
    columns = [_column(table.iloc[:, number]) for number in range(len(table.columns))]
    for number, (heading, _, _) in enumerate(columns):
        sheet.write_string(0, number, _text(heading), bold)
    forms = [book.add_format({"num_format": form}) for _, _, form in columns]
    for row, values in enumerate(zip(*(values for _, values, _ in columns), strict=True), 1):
        for number, value in enumerate(values):
            if value is None:
                continue
            if isinstance(value, bool):
                sheet.write_boolean(row, number, value)
            elif _is_number(value):
                sheet.write_number(row, number, value)
            elif _is_date(value):
                sheet.write_datetime(row, number, value, forms[number])
            else:
                text = _text(value)
                formula = text.startswith(("=", "+", "-", "@"))
                sheet.write_string(row, number, text, quoted if formula else None)


def _is_number(value: object) -> bool:
    """Return whether Excel can hold a value as a number."""
    if isinstance(value, int):
        return abs(value) < _EXACT
    return isinstance(value, float) and math.isfinite(value)


def _is_date(value: object) -> bool:
    """Return whether Excel can hold a value as a date: its dates begin in 1900, without zones.

    Excel counts 29 February 1900, which never was, so days of 1900 are written as text.
    """
    return isinstance(value, datetime.datetime) and value.year > 1900 and value.tzinfo is None


def _column(column: "pd.Series") -> tuple[str, list[Any], str]:
    """Return the heading of a column, its values, and the format of its dates."""
    heading, form = str(column.name), _MOMENT
    if column.dtype.kind == "M":
        zone = getattr(column.dtype, "tz", None)
        if zone is not None:
            heading, column = f"{heading} [{zone}]", column.dt.tz_localize(None)
        there = column.dropna()
        form = _DAY if bool((there == there.dt.normalize()).all()) else _MOMENT
    values = column.astype(object).where(column.notna(), None).tolist()
    return heading, [v.item() if isinstance(v, np.generic) else v for v in values], form


def _text(value: object) -> str:
    """Return the text of a cell; characters that no cell may hold are escaped."""
    return printable(value)[:_MOST_TEXT]
