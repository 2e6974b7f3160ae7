"""Series from the user's own files: a CSV, a Parquet file, or a folder of them."""

import csv
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster.errors import DataError, UsageError
from forecaster.ingest.layout import canonical, tidy
from forecaster.ingest.source import Fetched

_BLANK = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"]
_CSV, _PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")


class Files:
    """A CSV or Parquet file with any number of series, or a folder of such files.

    In a folder, a file without a ticker column holds the series that the file is named after.
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

    def fetch(self, tickers: Sequence[str], start=None, end=None) -> Iterator[Fetched]:
        frames = self._read()
        for name in tickers:
            if name in self._failed:
                yield Fetched(name, None, self._failed[name])
            elif (found := self._spelled(name)) is None:
                yield Fetched(name, None, f"not in {self.path}")
            else:
                frame = _between(frames[found], start, end)
                none = f"no rows in that span in {self.path}"
                named = frame.assign(unique_id=name) if found != name else frame
                yield Fetched(name, named if len(frame) else None, None if len(frame) else none)

    def _spelled(self, name: str) -> str | None:
        """A ticker as the files write it: ``BRK-B`` may stand there as ``BRK.B``."""
        frames = self._read()
        return next((n for n in (name, name.replace("-", "."), name.lower()) if n in frames), None)

    def _read(self) -> dict[str, pd.DataFrame]:
        if self._frames is None:
            self._frames = self._read_folder() if self.path.is_dir() else read_series(self.path)
        return self._frames

    def _read_folder(self) -> dict[str, pd.DataFrame]:
        files = sorted(
            file
            for file in self.path.iterdir()
            if file.name.lower().endswith((*_CSV, *_PARQUET)) and not file.name.startswith(".")
        )
        if not files:
            raise DataError(f"{self.path}: no .csv or .parquet file in this folder")
        frames: dict[str, pd.DataFrame] = {}
        for file in files:
            try:
                series = read_series(file)
            except DataError as error:
                self._failed[_stem(file)] = str(error)
                continue
            for name in series.keys() & frames.keys():
                self._failed[name] = f"in more than one file, one of them {file.name}"
            frames |= series
        return {name: frame for name, frame in frames.items() if name not in self._failed}


def read_series(path: Path) -> dict[str, pd.DataFrame]:
    """All series of one file, by name. Raises DataError when it cannot be read or used."""
    try:
        table = _read_parquet(path) if path.name.lower().endswith(_PARQUET) else _read_csv(path)
    except (OSError, EOFError, zlib.error, ValueError, ArithmeticError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path}: cannot be read: {reason}") from error
    if table.empty:
        raise DataError(f"{path}: no rows in it")
    table = tidy(table, str(path), _stem(path))
    return {str(name): part.reset_index(drop=True) for name, part in table.groupby("unique_id")}


def _read_parquet(path: Path) -> pd.DataFrame:
    table = pd.read_parquet(path)
    named = any(name is not None for name in table.index.names)
    return table.reset_index() if named else table


def _read_csv(path: Path) -> pd.DataFrame:
    """The index keeps count of lines, so that errors can name them."""
    kind: Any = {"encoding": "utf-8-sig", "compression": "infer"}
    header = pd.read_csv(path, sep="\0", nrows=0, engine="python", **kind).columns
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


def _stem(path: Path) -> str:
    """A file's name without what says its kind; a ticker may hold dots."""
    known = next(end for end in (*_CSV, *_PARQUET, "") if path.name.lower().endswith(end))
    return path.name[: len(path.name) - len(known)]


def _between(frame: pd.DataFrame, start, end) -> pd.DataFrame:
    if pd.api.types.is_integer_dtype(frame["ds"]):
        if start is not None or end is not None:
            raise UsageError("--start and --end are dates, but these series count in whole numbers")
        return frame
    if start is not None:
        frame = frame[frame["ds"] >= pd.Timestamp(start)]
    if end is not None:
        frame = frame[frame["ds"] < pd.Timestamp(end) + pd.Timedelta(days=1)]
    return frame
