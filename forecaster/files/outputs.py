"""Write the files that a user asks for, by one set of rules.

The ending of a file gives its format. Files are replaced only on request, and folders are not made.
All this is checked before the work begins; files then appear whole or not at all. Pipes and devices
(``/dev/stdout``) are written to directly, whatever their ending.
"""

import dataclasses
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.errors import UsageError, has, pip_command
from forecaster.files import atomic
from forecaster.files.csv_writer import write_csv
from forecaster.files.paths import open_for_arrow

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


def _write_json(path: Path, parts: "Iterable[pd.DataFrame]") -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(as_json(_joined(parts)))


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


def _write_excel(path: Path, parts: "Iterable[pd.DataFrame]") -> None:
    from forecaster.files.excel_writer import write_excel

    write_excel(_joined(parts), path)


def _joined(parts: "Iterable[pd.DataFrame]") -> "pd.DataFrame":
    import pandas as pd

    frames = list(parts)
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


_WRITERS: Mapping[str, Callable[[Path, "Iterable[pd.DataFrame]"], None]] = {
    "csv": _write_csv, "json": _write_json, "parquet": _write_parquet, "excel": _write_excel,
}  # fmt: skip
