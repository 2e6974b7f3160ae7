"""Pack numbers into few characters, as data for the many small figures of a page."""

import numpy as np

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
