"""What a network sees of any series: its errors against a combination of simple forecasts."""

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
_FEWEST, _MOST = 8, 60  # series that it is chosen by
_TO_DEVIATION = 1.2533  # a normal distribution's standard deviation over its mean absolute value


@dataclasses.dataclass(frozen=True)
class Nature:
    """What was seen of one series when it was fitted.

    - ``logarithmic``: whether its logarithm is looked at
    - ``seasons``: the steps in each season, shortest first; empty where it has none
    """

    logarithmic: bool = False
    seasons: tuple[int, ...] = ()

    @staticmethod
    def of(times: np.ndarray, values: np.ndarray, seasons: Sequence[int] | None) -> "Nature":
        """Look at one series; ``seasons``: where they are given and need not be sought."""
        logarithmic = bool((values > 0).all())
        z = np.log(values) if logarithmic else values
        return Nature(logarithmic, tuple(seasons_of(times, z) if seasons is None else seasons))


def combined(
    z: Float[np.ndarray, " step"], seasons: Sequence[int], horizon: int, doubt: float = DOUBT
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base and scale by horizon, and features, of one series under the combined transform."""
    basic = seasons[0] if seasons else 1
    base = combine(z, seasons, horizon, doubt).base
    floor = 1e-12 + 1e-4 * smoothed(np.abs(z - smoothed(z, 0.999)), 0.999)[:, None]
    fast, slow = (
        _TO_DEVIATION * decayed_errors(base, z, 1 - 1 / max(steps, cycles * basic)) + floor
        for steps, cycles in ((16, 2), (66, 7))
    )
    scale = np.sqrt((fast**2 + slow**2) / 2)

    def surprise(column: int) -> np.ndarray:
        """The error of the forecast made for each step, in units of its own scale."""
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
    """The doubt about the combination that would have served the past of all series best.

    The default, unless another was better by more than the standard error of the difference.

    - ``rows``: the values of each series, without gaps, as they are combined
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
    """The nature of each series of a panel, by name."""
    values = panel.channel(panel.target)
    return {
        name: Nature.of(panel.times[seen], values[row, seen], seasons)
        for row, (name, seen) in enumerate(zip(panel.ids, panel.mask, strict=True))
    }


def _later(values: Float[np.ndarray, " step"], steps: int) -> Float[np.ndarray, " step"]:
    """Values as they were ``steps`` ago."""
    return shift(values[None], steps)[0]
