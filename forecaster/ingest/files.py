"""Series from the user's own files: a CSV, a Parquet file, or a folder of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError
from forecaster.ingest.layout import tidy
from forecaster.ingest.source import Fetched

_CSV, _PARQUET = (".csv", ".txt", ".gz"), (".parquet", ".pq")


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
        files = sorted(f for f in self.path.iterdir() if f.suffix.lower() in (*_CSV, *_PARQUET))
        if not files:
            raise DataError(f"{self.path}: no .csv or .parquet file in this folder")
        frames: dict[str, pd.DataFrame] = {}
        for file in files:
            try:
                series = read_series(file)
            except DataError as error:
                self._failed[file.name.split(".")[0]] = str(error)
                continue
            for name in series.keys() & frames.keys():
                self._failed[name] = f"in more than one file, one of them {file.name}"
            frames |= series
        return {name: frame for name, frame in frames.items() if name not in self._failed}


def read_series(path: Path) -> dict[str, pd.DataFrame]:
    """All series of one file, by name. Raises DataError when it cannot be read or used."""
    try:
        if path.suffix.lower() in _PARQUET:
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, encoding="utf-8-sig", low_memory=False)
    except (OSError, ValueError, ArithmeticError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path}: cannot be read: {reason}") from error
    if table.empty:
        raise DataError(f"{path}: no rows in it")
    table = tidy(table, str(path), path.name.split(".")[0])
    return {str(name): part.reset_index(drop=True) for name, part in table.groupby("unique_id")}


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
