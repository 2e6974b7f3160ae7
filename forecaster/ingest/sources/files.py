"""Read series from the user's own files: a CSV, a Parquet file, or a folder of them."""

import contextlib
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError, listed, warn
from forecaster.files import Home, as_bytes, as_text, check_plain, from_text
from forecaster.ingest.sources.source import Lost, Whole
from forecaster.ingest.store.store import is_store
from forecaster.ingest.tables.file_reader import (
    ENDINGS,
    TABLES,
    join,
    keys_of,
    read_series,
    series_name,
)
from forecaster.ingest.tables.options import INFERRED, Columns

_READER = 12  # raise it when files are read differently


class Files(Whole):
    """A CSV or Parquet file with any number of series, or a folder of such files.

    In a folder, a file without a ticker column holds the series that the file, or a folder
    ``ticker=NAME`` or ``store=A`` above it, is named after. Parts of one series in several files
    are joined, and a key that holds dates (``date=2026-10-01``) is the time of files without one.

    - ``columns``: which columns hold series, times and target, if their names do not show it
    - ``lost``: what becomes of a series that lacks stored rows: ``suspect``, the stored series is
      kept and the file's rejected; ``keep``, the file's rows are added to the stored ones, as from
      a file with only the latest day; ``replace``, the file's rows take the place of all stored
    """

    def __init__(self, path: str, columns: Columns = INFERRED, *, lost: Lost = "suspect"):
        self.path = self.where = from_text(path).expanduser()
        self._columns = columns
        self.lost, self.frequency = lost, columns.frequency
        self._content = ""
        # The full path, since later commands may be started in another folder.
        self.name = f"files:{as_text(self.path.resolve())}"
        if not self.path.exists():
            raise UsageError(f"files:{path}: no such file or folder")

    def fingerprint(self) -> str:
        """Return a hash of the names and contents of all files and the version of their reader.

        It is that of the files when it was first asked for.
        """
        self._content = self._content or self._hash()
        return self._content

    def _hash(self) -> str:
        reader = f"reader {_READER}{self._columns if self._columns.first_option else ''}\n"
        digest = hashlib.sha256(reader.encode("utf-8", "surrogateescape"))
        for file in self._files():
            try:
                check_plain(file)
                with file.open("rb") as opened:
                    content = hashlib.file_digest(opened, "sha256").hexdigest()
            except OSError as error:
                content = f"cannot be read: {error.strerror}"
            name = as_text(file.relative_to(self.path))
            digest.update(as_bytes(f"{name}\n{content}\n"))
        return digest.hexdigest()

    def read(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Read all series by name, and why others cannot be used."""
        before = self.fingerprint()
        if self.path.is_dir():
            series = self._read_folder()
        else:
            series = read_series(self.path, columns=self._columns), dict[str, str]()
        if self._hash() != before:
            raise DataError(f"{self.path}: changed while it was read; run the same again")
        return series

    def _files(self) -> list[Path]:
        """Return the file itself, or all files of the folder that are read, by name."""
        if not self.path.is_dir():
            return [self.path]
        files = list(filter(_is_read, self._visible()))
        if not files:
            raise DataError(f"{self.path}: no .csv, .tsv or .parquet file in this folder")
        return files

    def _visible(self) -> list[Path]:
        """Return what is in the folder and those below it, except hidden files and our own.

        A broken link is there, too, so that it is named.
        """
        kept = _kept_by_homes(self.path)
        return sorted(
            file
            for file in self.path.rglob("*")
            if not file.is_dir()
            and kept.isdisjoint(file.parents)
            and not any(part.startswith(".") for part in file.relative_to(self.path).parts)
        )

    def _read_folder(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Read all series of all files; join the parts of a series in several files."""
        parts: dict[str, list[pd.DataFrame]] = {}
        frames, failed = dict[str, pd.DataFrame](), dict[str, str]()
        files = self._files()
        others = [
            as_text(file.relative_to(self.path))
            for file in self._visible()
            if file.name.lower().endswith(TABLES)
            and not _is_read(file)
            and not file.name.lower().startswith(("readme", "license"))
        ]
        if others:
            warn(
                f"{self.path}: not read: {listed(others)}. In a folder .csv and .tsv (also packed, "
                "as .csv.gz), .parquet, and .txt from Stooq are read; rename or convert them, or "
                "move them elsewhere"
            )
        # Two threads more than cores, since some wait for the disk.
        with ThreadPoolExecutor((os.cpu_count() or 1) + 2) as pool:
            for file, series in zip(files, pool.map(self._try_file, files), strict=True):
                if isinstance(series, str):
                    failed[series_name(file, self.path)] = series
                    self.unreadable = True
                    continue
                for name, frame in series.items():
                    parts.setdefault(name, []).append(frame)
        for name in [name for name in parts if name not in failed]:
            try:
                frames[name] = join(parts[name])
            except DataError as error:
                failed[name] = str(error)
        return frames, failed

    def _try_file(self, file: Path) -> dict[str, pd.DataFrame] | str:
        """Return the series of a file, or the reason why it cannot be read."""
        try:
            name = series_name(file, self.path)
            keys = keys_of(file, self.path)
            return read_series(file, name, columns=self._columns, keys=keys)
        except DataError as error:
            return str(error)


def _kept_by_homes(folder: Path) -> set[Path]:
    """Return the folders below a folder that belong to homes of this program."""
    homes = (Home(prices.parent) for prices in folder.rglob("prices"))
    return {kept for home in homes if any(map(is_store, home.stores())) for kept in home.folders}


def _is_read(path: Path) -> bool:
    """Return whether a file of a folder is read, by its ending; of text files those from Stooq."""
    if path.suffix.lower() != ".txt" or not path.is_file():  # a pipe would be waited for
        return path.name.lower().endswith(ENDINGS)
    with contextlib.suppress(OSError), path.open("rb") as file:
        return b"<date>" in file.read(200).lower()
    return False
