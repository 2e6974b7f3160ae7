"""Record renamed tickers of a store, so that rows under either name belong to the new one.

prices/<source>/renames.json         the new name by the old one
prices/<source>/renamed_since.json   by new name, the first row that the source had under it
prices/<source>/renamed_until.json   by old name, the first row that the source ever had under the
                                     new one; later rows under the old name are another series
prices/<source>/renaming.json        the old and the new name while a ticker is being renamed
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from forecaster.errors import StoreError
from forecaster.files import atomic, read_plain

FILE, SINCE, UNTIL = "renames.json", "renamed_since.json", "renamed_until.json"
PENDING = "renaming.json"


def read_renames(folder: Path) -> dict[str, str]:
    """Read the new names of a store's tickers by the old names. Raises StoreError if damaged."""
    path = folder / FILE
    try:
        content = json.loads(read_plain(path))
        return {str(old): str(new) for old, new in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}; remove it, and rename again") from error


def write_renames(folder: Path, renames: Mapping[str, str]) -> None:
    """Write the new names of a store's tickers. Raises WriteError."""
    text = json.dumps(dict(renames))
    atomic.write_file(folder / FILE, lambda to: to.write_text(text, "utf-8"))


def with_rename(renames: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """Return the renames with one more; names that led to ``old`` lead to ``new``, too."""
    chained = {name: new if to == old else to for name, to in renames.items() if name != new}
    return {**chained, old: new}


def read_pending(folder: Path) -> tuple[str, str] | None:
    """Return the old and the new name of a renaming that was interrupted; None if none was."""
    try:
        old, new = json.loads(read_plain(folder / PENDING))
    except (OSError, ValueError, TypeError):
        return None
    return str(old), str(new)


def write_pending(folder: Path, old: str, new: str) -> None:
    """Keep that a ticker is being renamed, so that it is finished later. Raises WriteError."""
    text = json.dumps([old, new])
    atomic.write_file(folder / PENDING, lambda to: to.write_text(text, "utf-8"))


def read_until(folder: Path) -> dict[str, pd.Timestamp | int]:
    """Return by old name from which time on rows under it are another series, where it is known.

    Raises StoreError if the file is damaged.
    """
    path = folder / UNTIL
    try:
        content = json.loads(read_plain(path))
        return {
            str(name): time if isinstance(time, int) else pd.Timestamp(time)
            for name, time in content.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path}: cannot be read: {error}; remove it, and rows under old names belong to the "
            "new ones until these come again"
        ) from error


def write_until(folder: Path, until: Mapping[str, pd.Timestamp | int]) -> None:
    """Write from which times on rows under old names are other series. Raises WriteError."""
    times = {n: t.isoformat() if isinstance(t, pd.Timestamp) else int(t) for n, t in until.items()}
    if times or (folder / UNTIL).exists():
        text = json.dumps(times)
        atomic.write_file(folder / UNTIL, lambda to: to.write_text(text, "utf-8"))


def read_since(folder: Path) -> dict[str, pd.Timestamp]:
    """Return the times of the first rows under new names, where these are dates and are known.

    A source that has only later rows under such a name has lost some.
    """
    try:
        content = json.loads(read_plain(folder / SINCE))
        return {str(name): pd.Timestamp(time) for name, time in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # as after renamings by earlier versions


def write_since(folder: Path, name: str, rows: pd.DataFrame) -> None:
    """Keep the first of the rows that came under a new name. Raises WriteError."""
    if rows.empty or rows["ds"].dtype.kind != "M":
        return
    since = {**read_since(folder), name: rows["ds"].iloc[0]}
    text = json.dumps({name: time.isoformat() for name, time in since.items()})
    atomic.write_file(folder / SINCE, lambda to: to.write_text(text, "utf-8"))
