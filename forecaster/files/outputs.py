"""Write the files that a user asks for, by one set of rules.

The ending of a file gives its format. Files are replaced only on request, and folders are not made.
All this is checked before the work begins; files then appear whole or not at all. Pipes and devices
(``/dev/stdout``) are written to directly, whatever their ending.
"""

import dataclasses
import datetime
import io
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from forecaster.errors import UsageError, has, pip_command, printable
from forecaster.files import atomic
from forecaster.files.reading import open_for_arrow

if TYPE_CHECKING:
    import pandas as pd

TABLES = {
    ".csv": "csv", ".json": "json", ".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel",
}  # fmt: skip
"""Formats of tables by ending."""
PICTURES = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
PAGES = {".html": "html", ".htm": "html"}
DATABASE = "sql:"
"""The prefix of an output that is a table of a database."""
_URL = re.compile(r"[a-zA-Z][\w+.:-]*://")
_OWN = Path("/dev/fd")
FORMATS = tuple(dict.fromkeys(TABLES.values()))
# A formula begins with one of these signs, also in full width. Spreadsheets may split cells at
# signs other than commas, so a formula may begin after such a sign, too.
_SIGN = "[=+@\uff1d\uff0b\uff0d\uff20-]"
# Spaces and invisible characters; some programs strip them from the beginning of a cell.
_UNSEEN = (
    "[\\s\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)
_FORMULA = re.compile(
    rf"^(?={_UNSEEN}{_SIGN}|{_UNSEEN}[\t\r\n])|(?<=[;|\t\r\n])(?={_UNSEEN}{_SIGN})"
)
_MOST_ROWS, _MOST_COLUMNS = 1_048_575, 16_384  # of a sheet, without the headings
_EXACT = 10**15  # Excel keeps 15 digits of a number
_MOST_TEXT = 32_767  # characters in a cell
_WIDTH = 21  # width of columns in characters; a date with a time fits
_AS_THEY_ARE = {"strings_to_formulas": False, "strings_to_urls": False, "constant_memory": True}


@dataclasses.dataclass(frozen=True)
class Output:
    """A file that may be written, as returned by :func:`check_output`.

    - ``path``: as the user gave it
    - ``form``: the format, one of the values of :data:`TABLES`, :data:`PICTURES`, :data:`PAGES`
    - ``streamed``: whether it is a pipe or a device, which is written to instead of replaced
    """

    path: Path
    form: str
    streamed: bool = False

    @property
    def shown(self) -> str:
        """Its name for messages."""
        return str(self.path)

    def write(self, write: Callable[[Path], object]) -> None:
        """Write the file by ``write(path)``, whole or not at all. Raises WriteError.

        For a pipe or a device, ``path`` is a temporary file, since some formats need to seek.
        """
        if not self.streamed:
            return atomic.write_file(self.path.resolve(), write)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"output.{self.form}"
            write(file)
            with file.open("rb") as source, self.path.open("wb") as stream:
                shutil.copyfileobj(source, stream)

    def write_table(self, table: "pd.DataFrame") -> None:
        """Write a table in the format of the file. Raises UsageError when Excel cannot hold it."""
        self.write_parts([table])

    def write_parts(self, parts: "Iterable[pd.DataFrame]") -> None:
        """Write a table in parts; CSV and Parquet hold one part in memory at a time."""
        self.write(lambda path: _WRITERS[self.form](path, parts))


def check_output(
    path: Path,
    endings: Mapping[str, str] = TABLES,
    *,
    form: str | None = None,
    overwrite: bool = False,
    option: str = "--output",
    formats: bool = False,
) -> Output:
    """Check that a file can be written, and return it; call this before the work begins.

    - ``endings``: formats by ending
    - ``form``: the format; by default the format of the ending
    - ``overwrite``: whether the file may exist
    - ``option``: the command-line option, for error messages
    - ``formats``: whether the command has the option --format, which messages then propose

    Raises UsageError when the file exists, its folder does not exist, the format is unknown or does
    not match the ending, or a library is missing.
    """
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; expected the name of a file")
    # Standard output may be a file that the shell has just made; it must not be replaced.
    streamed = path.exists() and (not path.is_file() or path.parent in (Path("/dev"), _OWN))
    form = format_of(str(path), endings, form, option, streamed=streamed, formats=formats)
    check_parent(path, option)
    if path.exists() and not streamed and not overwrite:
        raise UsageError(f"{option} {path} exists; choose another file, or add --overwrite")
    return Output(path, form, streamed)


def is_database(name: str) -> bool:
    """Return whether the name of an output is that of a table in a database, not of a file."""
    return name.lower().startswith(DATABASE)


def is_url(name: str) -> bool:
    """Return whether the name of a file is a URL, not a path."""
    return _URL.match(name) is not None and not is_database(name)


def check_parent(path: Path, option: str = "--output") -> None:
    """Raise UsageError unless the folder in which a path would be made exists."""
    if not path.parent.is_dir():
        raise UsageError(
            f"{option} {path}: there is no folder {path.parent}; make it first, or choose another"
        )


def format_of(
    name: str,
    endings: Mapping[str, str],
    form: str | None,
    option: str,
    *,
    streamed: bool = False,
    formats: bool = False,
) -> str:
    """Return the format of an output by its ending, or the one that was asked for.

    - ``name``: a path or a URL
    - ``streamed``: whether its ending does not count; other arguments as for :func:`check_output`

    Raises UsageError when the format is unknown or does not match the ending, or a library is
    missing.
    """
    known = endings.get(ending := Path(name).suffix.lower())
    if not streamed and form is not None and known not in (None, form):
        raise UsageError(
            f"{option} {name}: its ending says {known}, --format says {form}; leave one of them out"
        )
    form = form or known or (next(iter(endings.values())) if streamed else None)
    if form is None:
        usual = {kind: end for end, kind in reversed(list(endings.items()))}
        expected = ", ".join(usual[kind] for kind in dict.fromkeys(endings.values()))
        what = repr(ending) if ending else "a file without an ending"
        raise UsageError(
            f"{option} {name}: cannot write {what}; expected {expected}"
            f"{', or add --format' if formats else ''}"
        )
    if form == "excel" and not has("xlsxwriter"):
        raise UsageError(
            f"{option} {name}: Excel needs XlsxWriter: {pip_command('excel')}; or choose .csv"
        )
    return form


def _write_csv(path: Path, parts: "Iterable[pd.DataFrame]") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for number, frame in enumerate(parts):
            write_csv(frame, file, header=number == 0)


def as_json(table: "pd.DataFrame") -> str:
    """Return a table as JSON: a list with an object for each row, dates in ISO 8601."""
    return table.to_json(orient="records", date_format="iso", indent=1) + "\n"


def _write_parquet(path: Path, parts: "Iterable[pd.DataFrame]") -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    with open_for_arrow(path, "wb") as file:
        try:
            for frame in parts:
                table = pa.Table.from_pandas(frame, preserve_index=False)
                writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
                writer.write_table(table.cast(writer.schema))
        finally:
            if writer is not None:
                writer.close()


def _joined(parts: "Iterable[pd.DataFrame]") -> "pd.DataFrame":
    import pandas as pd

    frames = list(parts)
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def write_csv(
    table: "pd.DataFrame", to: "Path | IO[str] | None" = None, *, header: bool = True
) -> str:
    """Write a table as CSV, with a quote before each text or heading that would be a formula.

    - ``to``: a path or an open file; None: return the text
    - ``header``: whether to write the column names; for a table in parts, only with the first part
    """
    out = table.rename(columns=_unformulated)
    for position, kind in enumerate(out.dtypes):
        if kind.kind not in "biufcmM":  # numbers and times are not text
            column = out.iloc[:, position]
            quoted = {text: _unformulated(text) for text in column.dropna().unique()}
            out.isetitem(position, column.astype(object).map(quoted).to_numpy())
    return out.to_csv(to, index=False, header=header) or ""


def _unformulated(text: object) -> object:
    if not isinstance(text, str):
        return text
    # Python before 3.13 does not quote a lone carriage return, which would end the row.
    return _FORMULA.sub("'", text).replace("\r\n", "\n").replace("\r", "\n")


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


_WRITERS: Mapping[str, Callable[[Path, "Iterable[pd.DataFrame]"], object]] = {
    "csv": _write_csv,
    "json": lambda path, parts: path.write_text(as_json(_joined(parts)), encoding="utf-8"),
    "parquet": _write_parquet,
    "excel": lambda path, parts: write_excel(_joined(parts), path),
}  # fmt: skip
