"""Series as long frames."""

from collections.abc import Mapping
from typing import Any

import pandas as pd


def long(rows: Mapping[str, Any], times: Any, column: str = "y") -> pd.DataFrame:
    """Return series by name as a long frame; a shorter one has the latest times."""
    parts = [
        pd.DataFrame({"unique_id": name, "ds": times[len(times) - len(row) :], column: row})
        for name, row in rows.items()
    ]
    return pd.concat(parts, ignore_index=True)
