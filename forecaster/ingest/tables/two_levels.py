"""Tables with two levels of columns, prices and tickers, as yfinance makes them."""

from typing import cast

import numpy as np
import pandas as pd

from forecaster.errors import DataError, listed
from forecaster.ingest.tables.roles import TARGETS, canonical


def as_one_level(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return a frame with two levels of columns, fields and tickers, as a long frame.

    A frame with one level is returned unchanged. Raises DataError for more levels, or without a
    column or index of dates.
    """
    if not isinstance(frame.columns, pd.MultiIndex):
        return frame
    if frame.columns.nlevels != 2:
        raise DataError(f"{where}: columns of {frame.columns.nlevels} levels; expected one or two")
    alone = [label for label in frame.columns if "" in label]  # columns from the index
    if not alone:
        raise DataError(f"{where}: no column with dates, nor an index of them")
    keys = frame[alone].set_axis([str(label[0] or label[1]) for label in alone], axis=1)
    fields = frame.drop(columns=alone)
    level = _level_of_tickers(cast(pd.MultiIndex, fields.columns), where)
    parts = []
    for name in fields.columns.get_level_values(level).unique():
        part = pd.DataFrame(fields.xs(name, axis=1, level=level))
        seen = np.any(part.notna().to_numpy(), axis=1)
        # A series without a number keeps a row, so that it is skipped by name.
        seen[:1] |= not seen.any()
        part = pd.concat([keys, part], axis=1)[seen]
        part.insert(0, "ticker", str(name))
        parts.append(part)
    return pd.concat(parts).rename_axis(columns=None)


def _level_of_tickers(columns: pd.MultiIndex, where: str) -> int:
    """Return which of two levels holds tickers: by its name, or because the other holds prices.

    Raises DataError if neither decides.
    """
    by_name = [n for n in (0, 1) if canonical(str(columns.names[n])) == "unique_id"]
    words = [{canonical(str(value)) for value in columns.get_level_values(n)} for n in (0, 1)]
    fields = [n for n in (0, 1) if words[n] & set(TARGETS)]
    found = by_name or [1 - n for n in fields]
    if len(found) == 1:
        return found[0]
    shown = (listed(columns.get_level_values(n).unique()[:10].map(str)) for n in (0, 1))
    raise DataError(
        f"{where}: columns of two levels, but {'both' if found else 'none'} may hold prices; "
        f"expected one with Close, the other with tickers; got {' and '.join(shown)}. Name the "
        "level of tickers: frame.columns.names = ['Price', 'Ticker']"
    )
