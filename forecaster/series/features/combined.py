"""The combined transform: features are the errors of a combination of simple forecasts."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from forecaster.series.calendar.seasons import seasons_of
from forecaster.series.causal import shift, squash
from forecaster.series.features.anchors import (
    DOUBT,
    combine,
    decayed_errors,
    errors_by_doubt,
    smoothed,
)
from forecaster.series.panel.panel import Panel

FEATURES = 10
_DOUBTS = (0.0, DOUBT, 1.0, 3.0)
_FEWEST, _MOST = 8, 60  # series from which the doubt is chosen
_TO_DEVIATION = 1.2533  # standard deviation over mean absolute value, of a normal distribution


@dataclasses.dataclass(frozen=True)
class Nature:
    """Properties of one series, found when it was fitted.

    - ``logarithmic``: whether networks see its logarithm
    - ``seasons``: the steps in each season, shortest first; empty where it has none
    """

    logarithmic: bool = False
    seasons: tuple[int, ...] = ()

    @staticmethod
    def of(times: np.ndarray, values: np.ndarray, seasons: Sequence[int] | None) -> "Nature":
        """Find the properties of one series; ``seasons``: given by the user, or None to find."""
        logarithmic = bool((values > 0).all())
        z = np.log(values) if logarithmic else values
        return Nature(logarithmic, tuple(seasons_of(times, z) if seasons is None else seasons))


def combined(
    z: Float[np.ndarray, " step"], seasons: Sequence[int], horizon: int, doubt: float = DOUBT
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return base and scale by horizon, and the features, of one series.

    Arguments as of :func:`forecaster.series.features.anchors.combine`.
    """
    basic = seasons[0] if seasons else 1
    base = combine(z, seasons, horizon, doubt).base
    floor = 1e-12 + 1e-4 * smoothed(np.abs(z - smoothed(z, 0.999)), 0.999)[:, None]
    fast, slow = (
        _TO_DEVIATION * decayed_errors(base, z, 1 - 1 / max(steps, cycles * basic)) + floor
        for steps, cycles in ((16, 2), (66, 7))
    )
    scale = np.sqrt((fast**2 + slow**2) / 2)

    def surprise(column: int) -> np.ndarray:
        """Return the error of the forecast for each step, in units of that forecast's scale."""
        made, unit = (_later(part[:, column], column + 1) for part in (base, scale))
        return (z - made) / unit

    def change(season: int) -> np.ndarray:
        return (z - _later(z, season)) / scale[:, 0]

    level, trend = smoothed(z, 0.95), smoothed(z, 0.7)
    farthest, unit = horizon - 1, scale[:, -1]
    features = [
        squash(surprise(0)),
        np.log(np.abs(surprise(0)) + 0.1),
        squash(np.log(fast[:, 0] / slow[:, 0])),
        squash(surprise(farthest // 2)),
        squash(surprise(farthest)),
        squash((z - level) / unit),
        squash((trend - level) / unit),
        squash(change(basic)),
        squash(change(seasons[-1])) if seasons else np.zeros(len(z)),
        squash((z - base[:, -1]) / unit),
    ]
    return base, scale, np.stack(features, axis=-1)


def choose_doubt(
    rows: Sequence[Float[np.ndarray, " step"]], seasons: Sequence[Sequence[int]], horizon: int
) -> float:
    """Return the doubt with the smallest mean error in the past of all series.

    It is the default, unless another is better by more than the standard error of the difference.

    - ``rows``: the values of each series, without gaps
    - ``seasons``: of each series
    """
    every = max(1, len(rows) // _MOST)
    both = list(zip(rows, seasons, strict=True))[::every]
    errors = np.array([errors_by_doubt(z, season, horizon, _DOUBTS) for z, season in both])
    errors = errors[np.isfinite(errors).all(1)]
    if len(errors) < _FEWEST:
        return DOUBT
    best = int(np.argmin(errors.mean(0)))
    better = errors[:, _DOUBTS.index(DOUBT)] - errors[:, best]
    sure = better.mean() > better.std(ddof=1) / np.sqrt(len(better))
    return _DOUBTS[best] if sure else DOUBT


def natures_of(panel: Panel, seasons: Sequence[int] | None) -> dict[str, Nature]:
    """Return the :class:`Nature` of each series of a panel, by name."""
    values = panel.channel(panel.target)
    return {
        name: Nature.of(panel.times[seen], values[row, seen], seasons)
        for row, (name, seen) in enumerate(zip(panel.ids, panel.mask, strict=True))
    }


def _later(values: Float[np.ndarray, " step"], steps: int) -> Float[np.ndarray, " step"]:
    return shift(values[None], steps)[0]
