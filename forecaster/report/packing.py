"""Pack numbers into few characters, as data for the many small figures of a page."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | None"

LETTERS = np.array(
    list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), dtype="U1"
)


def pack(values: np.ndarray, low: float, high: float, width: int = 2) -> str:
    """Return values between ``low`` and ``high`` as text, ``width`` letters each.

    Values are rounded to one of 64**width - 1 evenly spaced values; a number that is not finite has
    a code of its own. ``unpack`` in ``charts.js`` reverses the packing.
    """
    values = np.asarray(values, float).ravel()
    most = 64**width - 1
    share = (values - low) / (high - low) if high > low else np.where(np.isnan(values), np.nan, 0.0)
    known = np.isfinite(share)
    codes = np.full(len(values), most)
    codes[known] = np.rint(np.clip(share[known], 0, 1) * (most - 1))
    digits = codes[:, None] // 64 ** np.arange(width)[::-1] % 64
    return "".join(LETTERS[digits].ravel())


def limits(values: np.ndarray, digits: int = 7) -> tuple[float, float]:
    """Return the lowest and the highest of some values, rounded, to :func:`pack` between them."""
    return float(f"{np.nanmin(values):.{digits}g}"), float(f"{np.nanmax(values):.{digits}g}")


def rounded(values: ArrayLike, digits: int = 5) -> list[Json]:
    """Round numbers to significant digits, as lists; None stands for NaN or infinity."""
    values = np.asarray(values, float)
    if values.ndim > 1:
        return [rounded(part, digits) for part in values]
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values]


def columns(table: pd.DataFrame) -> dict[str, Json]:
    """Return the columns of a table by name: numbers rounded, dates as numbers, others as text."""
    out: dict[str, Json] = {}
    for name in table:
        column = table[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            out[str(name)] = as_numbers(pd.Index(column))
        elif column.dtype.kind in "if":
            out[str(name)] = rounded(column)
        else:
            out[str(name)] = [str(value) for value in column]
    return out


def as_numbers(times: pd.Index) -> list[int]:
    """Return dates as seconds since 1970, and times that are already numbers unchanged."""
    if pd.api.types.is_datetime64_any_dtype(times):
        return (times.to_numpy().astype("datetime64[s]").astype(np.int64)).tolist()
    return [int(time) for time in times]


def positions(known: pd.Index, times: pd.Index) -> int | list[int]:
    """Return where some times are on an axis; only the first if no time is missing in between."""
    at = times.get_indexer(known)
    return int(at[0]) if (np.diff(at) == 1).all() else at.tolist()
