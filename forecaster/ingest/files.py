"""Series from the user's own files: a CSV, a Parquet file, or a folder of them."""

import csv
import hashlib
import itertools
import os
import urllib.parse
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError
from forecaster.ingest.layout import canonical, tidy
from forecaster.ingest.parquet import read_parquet
from forecaster.ingest.source import Fetched, Known

_BLANK = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"]
_PARQUET = (".parquet", ".pq")
_ENDS = (".csv", ".csv.gz", ".txt", *_PARQUET)


class Files:
    """A CSV or Parquet file with any number of series, or a folder of such files.

    In a folder, a file without a ticker column holds the series that the file is named after, or
    that its subfolder ``ticker=NAME`` names.
    """

    def __init__(self, path: str):
        self.path = Path(path).expanduser()
        # Where the data came from, for provenance, wherever a later command is started.
        self.name = f"files:{self.path.resolve()}"
        if not self.path.exists():
            raise UsageError(f"files:{path}: no such file or folder")
        self._frames: dict[str, pd.DataFrame] | None = None
        self._failed: dict[str, str] = {}

    def tickers(self) -> list[str]:
        """All series, those of unreadable files in a folder included."""
        return [*self._read(), *self._failed]

    def fetch(
        self, tickers: Sequence[str], start=None, known: Known | None = None
    ) -> Iterator[Fetched]:
        frames = self._read()
        for name in tickers:
            if name in self._failed:
                yield Fetched(name, None, self._failed[name])
            elif (found := self._spelled(name)) is None:
                yield Fetched(name, None, f"not in {self.path}")
            else:
                frame = frames[found]
                yield Fetched(name, frame.assign(unique_id=name) if found != name else frame)

    def fingerprint(self) -> str | None:
        """A hash over names and contents of all files."""
        digest = hashlib.sha256()
        for file in self._files():
            with file.open("rb") as opened:
                content = hashlib.file_digest(opened, "sha256").hexdigest()
            digest.update(f"{file.relative_to(self.path)}\n{content}\n".encode())
        return digest.hexdigest()

    def _spelled(self, name: str) -> str | None:
        """A ticker as the files write it: ``BRK-B`` may stand there as ``BRK.B``."""
        frames = self._read()
        return next((n for n in (name, name.replace("-", "."), name.lower()) if n in frames), None)

    def _read(self) -> dict[str, pd.DataFrame]:
        if self._frames is None:
            self._frames = self._read_folder() if self.path.is_dir() else read_series(self.path)
        return self._frames

    def _files(self) -> list[Path]:
        """The file itself, or those in the folder and in its ``key=value`` subfolders."""
        if not self.path.is_dir():
            return [self.path]
        files = sorted(
            file
            for file in self.path.rglob("*")
            if file.name.lower().endswith(_ENDS)
            and not file.name.startswith(".")
            and (file.suffix.lower() != ".txt" or _is_stooq(file))
            and all("=" in part for part in file.relative_to(self.path).parts[:-1])
        )
        if not files:
            raise DataError(f"{self.path}: no .csv or .parquet file in this folder")
        return files

    def _read_folder(self) -> dict[str, pd.DataFrame]:
        frames: dict[str, pd.DataFrame] = {}
        files = self._files()
        # Two threads more than cores: they wait for the disk as well.
        with ThreadPoolExecutor((os.cpu_count() or 1) + 2) as pool:
            for file, series in zip(files, pool.map(self._tried, files), strict=True):
                if isinstance(series, str):
                    self._failed[_name(file, self.path)] = series
                    continue
                for name in series.keys() & frames.keys():
                    self._failed[name] = f"in more than one file, one of them {file.name}"
                frames |= series
        return {name: frame for name, frame in frames.items() if name not in self._failed}

    def _tried(self, file: Path) -> dict[str, pd.DataFrame] | str:
        try:
            return read_series(file, _name(file, self.path))
        except DataError as error:
            return str(error)


def read_series(path: Path, name: str | None = None) -> dict[str, pd.DataFrame]:
    """All series of one file, by name; ``name``: of its one series where it does not say.

    Raises DataError when it cannot be read or used.
    """
    try:
        table = read_parquet(path) if path.name.lower().endswith(_PARQUET) else _read_csv(path)
    except (OSError, EOFError, zlib.error, ValueError, ArithmeticError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path}: cannot be read: {reason}") from error
    if table.empty:
        raise DataError(f"{path}: no rows in it")
    stooq = any(str(column).strip().lower() == "<ticker>" for column in table)
    table = tidy(table, str(path), name or _name(path, path.parent))
    ids = table["unique_id"].cat
    codes = ids.codes.to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1), len(codes)]
    table = table.drop(columns="unique_id")
    found = {}
    for low, high in itertools.pairwise(bounds):
        part = table.iloc[low:high].reset_index(drop=True)
        series = str(ids.categories[codes[low]])
        if stooq:  # it writes aapl.us
            series = series.upper().removesuffix(".US")
        part.insert(0, "unique_id", series)
        found[series] = part
    return found


def _read_csv(path: Path) -> pd.DataFrame:
    """The index keeps count of lines, so that errors can name them."""
    kind: Any = {"encoding": "utf-8-sig", "compression": "infer"}
    header = pd.read_csv(
        path, sep="\0", nrows=0, engine="python", quoting=csv.QUOTE_NONE, **kind
    ).columns
    text = str(header[0]) if len(header) else ""
    separator = max(",;\t", key=text.count)
    columns = next(csv.reader([text], delimiter=separator), [])
    # Names stay as they are written: 0005 is not 5, and NA is a ticker.
    names = [column for column in columns if canonical(column) == "unique_id"]
    table = pd.read_csv(
        path,
        sep=separator,
        dtype={name: str for name in names},  # noqa: C420
        na_values={column: _BLANK for column in columns if column not in names},
        keep_default_na=False,
        index_col=False,
        skip_blank_lines=False,
        low_memory=False,
        **kind,
    )
    others = [column for column in table if column not in names]
    return table.dropna(how="all", subset=others) if others else table


def _is_stooq(path: Path) -> bool:
    """Whether a text file is a table of Stooq's; others in a folder may be anything."""
    with path.open("rb") as file:
        return b"<date>" in file.read(200).lower()


def _name(path: Path, folder: Path) -> str:
    """The series that a file is named after: its name without what says its kind, or the folder
    ``ticker=NAME`` it lies in; a ticker may hold dots."""
    for part in path.relative_to(folder).parts[:-1]:
        key, _, value = part.partition("=")
        if canonical(key) == "unique_id":
            return urllib.parse.unquote(value)
    known = next(end for end in (*_ENDS, "") if path.name.lower().endswith(end))
    stem = path.name[: len(path.name) - len(known)]
    return stem[:-3].upper() if known == ".txt" and stem.lower().endswith(".us") else stem
