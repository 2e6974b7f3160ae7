"""Adjust stored prices before a session for a split or a change of unit, now and later.

        prices/<source>/adjustments.json   by series, a list of time, factor, and whether it is a
        split

A source that has not applied a split to its earlier rows sends them unadjusted again with each
update. So adjustments are kept, and applied to new rows as long as these show the jump.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.errors import StoreError
from forecaster.files import atomic, read_plain

FILE = "adjustments.json"
_PRICES = ("open", "high", "low", "close", "adj_close")


class Adjustment(NamedTuple):
    """Rows before ``time`` are multiplied by ``factor``; for a split, volumes are divided by it.

    A factor of 1 stands for a jump that is not to be adjusted.
    """

    time: str
    factor: float
    split: bool

    def applied(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a series adjusted; unchanged if they no longer show the jump."""
        before = (frame["ds"] < pd.Timestamp(self.time)).to_numpy()
        column = next((name for name in ("close", *_PRICES) if name in frame), None)
        if column is None or not before.any() or before.all():
            return frame
        prices = frame[column].to_numpy(float)
        earlier, later = prices[before], prices[~before]
        earlier, later = earlier[np.isfinite(earlier)], later[np.isfinite(later)]
        if not len(earlier) or not len(later):
            return frame
        left = np.log(later[0] / earlier[-1]) - np.log(self.factor)
        if abs(left) > abs(np.log(self.factor)) / 2:
            return frame  # the source has adjusted them itself
        frame = frame.copy()
        for name in _PRICES:
            if name in frame:
                frame[name] = frame[name].where(~before, frame[name] * self.factor)
        if self.split and "volume" in frame:
            frame["volume"] = frame["volume"].where(~before, frame["volume"] / self.factor)
        return frame


def read_adjustments(folder: Path) -> dict[str, list[Adjustment]]:
    """Read the adjustments of a store, by series. Raises StoreError when the file is damaged."""
    path = folder / FILE
    try:
        content = json.loads(read_plain(path))
        return {
            str(name): [Adjustment(str(t), float(f), bool(s)) for t, f, s in each]
            for name, each in content.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}; remove it, and adjust again") from error


def write_adjustments(folder: Path, adjustments: Mapping[str, list[Adjustment]]) -> None:
    """Write the adjustments of a store; without any, remove the file. Raises WriteError."""
    path = folder / FILE
    if adjustments:
        text = json.dumps({name: [list(one) for one in each] for name, each in adjustments.items()})
        atomic.write_file(path, lambda to: to.write_text(text, "utf-8"))
        return
    atomic.remove_file(path)


def adjusted(frame: pd.DataFrame, adjustments: list[Adjustment]) -> pd.DataFrame:
    """Return the rows of a series with all its adjustments, the latest applied first."""
    for one in sorted(adjustments, reverse=True):
        frame = one.applied(frame)
    return frame
