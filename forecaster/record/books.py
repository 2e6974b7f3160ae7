"""Keep what was said of the risk of books, in one file for each source.

    record/books/<source>.parquet

Rows with a ``horizon`` (sessions) and a ``level`` (percent) are of a whole book, with its ``var``
and ``es``; the others are of its positions, with their ``value`` at the ``origin``. ``made`` is the
time in UTC, ``run`` the model's folder.
"""

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa

from forecaster.errors import DataError
from forecaster.files import Home, atomic, file_name, make_folder, read_parquet_file
from forecaster.record.keeping import write_table

_NUMBERS = ("value", "horizon", "level", "var", "es")
_COLUMNS = ("run", "book", "origin", "unique_id", *_NUMBERS)


def keep_books(home: Home, source: str, said: pd.DataFrame) -> None:
    """Add what was said of books at their latest session, whole or not at all.

    It replaces what was said of the same session before. Of a session before one that is recorded
    nothing is added, since its outcome was known. Raises WriteError.

    ``said``: all columns but ``made``
    """
    whole = past = recorded_books(home, source)
    for _, its in said[[*_COLUMNS]].groupby("book", sort=False):
        whole = _with(whole, its.reset_index(drop=True))
    if whole is not past:
        path, table = _file(home, source), pa.Table.from_pandas(whole, preserve_index=False)
        make_folder(path.parent)
        atomic.write_file(path, lambda to: write_table(table, to))


def recorded_books(home: Home, source: str) -> pd.DataFrame:
    """Read what was said of the books of a source. Raises DataError for a damaged file."""
    path = _file(home, source)
    try:
        return read_parquet_file(path).to_pandas()
    except FileNotFoundError:
        return pd.DataFrame(columns=[*_COLUMNS, "made"])
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read; move it away: {error}") from error


def _with(past: pd.DataFrame, its: pd.DataFrame) -> pd.DataFrame:
    """Return the record with what is said of one book, or as it is where that adds nothing."""
    origin, of_book = its["origin"].iloc[0], past["book"] == its["book"].iloc[0]
    if any(order_of(origin) < order_of(time) for time in past["origin"][of_book].unique()):
        return past
    same = past[of_book & (past["origin"] == origin)]
    if same[its.columns].reset_index(drop=True).equals(its):
        return past
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return pd.concat([past.drop(same.index), its.assign(made=made)], ignore_index=True)


def order_of(time: str) -> tuple[int, str]:
    """Return what sorts times as they are shown: dates, with or without hours, or whole numbers."""
    return (len(time) if time.isdigit() else 0), time


def _file(home: Home, source: str) -> Path:
    return home.record / "books" / f"{file_name(source)}.parquet"
