"""Write Excel workbooks: a table on one sheet, with dates as dates and text as text."""

import datetime
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import UsageError, printable

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 1_048_575  # of a sheet, without the headings
_MOST_TEXT = 32_767  # characters in a cell
_DAY, _MOMENT = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss"
_WIDTH = 21  # of columns, in characters: a date with a time fits


def write_excel(table: "pd.DataFrame", path: Path) -> None:
    """Write a table as an Excel workbook.

    Excel has no timezones: times are written as clocks in their zone show them, and the heading
    names the zone. Text that begins like a formula stays text.

    Raises UsageError when the table has more rows than a sheet.
    """
    from openpyxl import Workbook
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    if len(table) > _MOST_ROWS:
        raise UsageError(
            f"{path.name}: Excel holds {_MOST_ROWS:,} rows, and there are {len(table):,}; write "
            ".parquet or .csv"
        )
    book = Workbook(write_only=True)
    sheet = book.create_sheet("forecaster")
    sheet.freeze_panes = "A2"
    for number in range(len(table.columns)):
        sheet.column_dimensions[get_column_letter(number + 1)].width = _WIDTH
    columns = [_column(table.iloc[:, number]) for number in range(len(table.columns))]
    headings = [_text(sheet, heading) for heading, _, _ in columns]
    for cell in headings:
        cell.font = Font(bold=True)
    sheet.append(headings)
    for row in zip(*(values for _, values, _ in columns), strict=True):
        forms = (form for _, _, form in columns)
        sheet.append([_cell(sheet, value, form) for value, form in zip(row, forms, strict=True)])
    with path.open("wb") as file:
        book.save(file)


def _column(column: "pd.Series") -> tuple[str, Iterable[Any], str]:
    """Return the heading of a column, its values, and the format of its dates."""
    heading, form = str(column.name), _MOMENT
    if column.dtype.kind == "M":
        zone = getattr(column.dtype, "tz", None)
        if zone is not None:
            heading, column = f"{heading} [{zone}]", column.dt.tz_localize(None)
        there = column.dropna()
        form = _DAY if bool((there == there.dt.normalize()).all()) else _MOMENT
        return heading, _moments(column), form
    return heading, column.astype(object).tolist(), form


def _moments(column: "pd.Series") -> Iterable[datetime.datetime | None]:
    import pandas as pd

    return (None if pd.isna(time) else time.to_pydatetime(warn=False) for time in column)


def _cell(sheet: Any, value: Any, form: str) -> Any:
    from openpyxl.cell import WriteOnlyCell

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, datetime.datetime):
        if value.year < 1900:  # before Excel's first date
            return _text(sheet, value.isoformat(sep=" "))
        cell = WriteOnlyCell(sheet, value)
        cell.number_format = form
        return cell
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _text(sheet, value)


def _text(sheet: Any, value: object) -> Any:
    """Return a cell of text, never a formula; characters that no cell may hold are escaped."""
    from openpyxl.cell import WriteOnlyCell

    text = printable(value)[:_MOST_TEXT]
    cell = WriteOnlyCell(sheet, text)
    cell.data_type = "s"
    if text.startswith("="):
        cell.quotePrefix = True  # so that it stays text when it is edited
    return cell
