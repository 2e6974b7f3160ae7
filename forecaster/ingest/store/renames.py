"""Record renamed tickers of a store, so that rows under either name belong to the new one.

prices/<source>/renames.json   the new name by the old one
"""

import json
from collections.abc import Mapping
from pathlib import Path

from forecaster.errors import StoreError
from forecaster.files import atomic, read_plain

FILE = "renames.json"


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
