"""Patterns of several seasons and a smoothed level; nothing is learned but from the values before.

The trend is the mean of the longest season around each value. For each season, shortest first, what
is left is averaged at each phase, with weights that halve every six cycles into the past, and
shrunk by how much phases differ beyond chance (empirical Bayes). Simple exponential smoothing
forecasts what remains. Patterns are found anew with each short season.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

Row: TypeAlias = Float[np.ndarray, " time"]

_CYCLES = 6.0  # half-life of the weight of a cycle
_LONGEST = 12  # cycles of the longest season that are looked at
_WEIGHTS = np.array([0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0])  # of the latest value in the level


def patterns_ahead(
    rows: Sequence[Row], seasons: Sequence[int], horizon: int, since: Sequence[int]
) -> list[Float[np.ndarray, "time horizon"]]:
    """Return the forecasts made at each value of each series since a position; NaN before."""
    made = zip(rows, since, strict=True)
    return [_ahead(row, seasons, horizon, first) for row, first in made]


def _ahead(
    y: Row, seasons: Sequence[int], horizon: int, since: int
) -> Float[np.ndarray, "time horizon"]:
    steps, every = len(y), seasons[0]
    out = np.full((steps, horizon), np.nan)
    begins = range(every * max(2, since // every), steps, every)
    found = [decomposed(y[:begin], seasons, every + horizon) for begin in begins]
    if not found:
        return out
    level, best = _smoothed([rest for _, rest in found])
    for number, (begin, (ahead, _)) in enumerate(zip(begins, found, strict=True)):
        now, weight = level[number], _WEIGHTS[best[number]]
        for t in range(begin, min(begin + every, steps)):
            now = now + weight * (y[t] - ahead[t - begin] - now)
            out[t] = now + ahead[t - begin + 1 : t - begin + 1 + horizon]
    return out


def _smoothed(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return the smoothed level after the last value, with the weight of least absolute errors."""
    most = max(map(len, rows))
    y = np.full((len(rows), most), np.nan)
    for own, row in zip(y, rows, strict=True):
        own[most - len(row) :] = row
    unscored = np.array([most - len(row) + len(row) // 4 for row in rows])
    level, errors = (np.full((len(_WEIGHTS), len(rows)), fill) for fill in (np.nan, 0.0))
    for t in range(most):
        now = np.where(np.isnan(level), y[:, t], level)
        error = np.where(np.isfinite(y[:, t]), y[:, t] - now, 0)
        errors += np.abs(error) * (t > unscored)
        level = now + _WEIGHTS[:, None] * error
    best = errors.argmin(0)
    return level[best, np.arange(len(rows))], best


def decomposed(
    y: Row, seasons: Sequence[int], horizon: int
) -> tuple[Float[np.ndarray, " horizon"], Row]:
    """Return what seasons add ahead, and the values without them."""
    used = [season for season in seasons if len(y) >= 2 * season]
    if not used:
        return np.zeros(horizon), y
    width = used[-1]
    y = y[-_LONGEST * width :]
    n = len(y)
    total = np.cumsum(np.r_[0.0, y])
    begin = np.clip(np.arange(n) - width // 2, 0, max(n - width, 0))
    rest = y - (total[np.minimum(begin + width, n)] - total[begin]) / min(width, n)
    added, ahead, at = np.zeros(n), np.zeros(horizon), np.arange(n)
    for season in used:
        weight, phase = 0.5 ** ((n - 1 - at) // season / _CYCLES), at % season
        left = rest - added
        count = np.bincount(phase, weight, season)
        pattern = np.bincount(phase, weight * left, season) / count
        noise = np.mean((left - pattern[phase]) ** 2) * n / max(n - season, 1)
        chance = np.mean(noise * np.bincount(phase, weight**2, season) / count**2)
        beyond = max(float(np.mean(pattern**2) - chance), 0.0)
        pattern = pattern * beyond / (beyond + chance + 1e-12)
        pattern -= pattern.mean()
        added, ahead = added + pattern[phase], ahead + pattern[(n + np.arange(horizon)) % season]
    return ahead, y - added
