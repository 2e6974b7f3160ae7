"""Features and targets of histories, as a transform makes them, and the way back into values."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.series.causal import Ahead, Rows, by_target_step, shift
from forecaster.series.prices.common_volatility import CommonVolatility, ScaleWeights

# A scale up to this share of a series' level, or up to this number, is that of no change at all.
_NO_CHANGE, _LEAST_CHANGE = 1e-9, 2e-12
_ANOTHER_SCALE = 100.0  # growth of a scale by which an outcome belongs to another time


@dataclasses.dataclass(frozen=True)
class Transformed:
    """The features and targets of histories, aligned like :class:`~forecaster.series.Histories`.

    - ``features``: a network's inputs, float32
    - ``z``: the series or its logarithm
    - ``base``: the value that the future is counted from
    - ``scale``: the volatility, by horizon
    - ``first``: the first step of each series that may be an input
    - ``positions``: positions of the steps on the panel's time axis; -1 in the padding
    - ``logarithmic``: whether ``z`` is the logarithm, for each series
    - ``least``: the value that no forecast of a series lies below; minus infinity for most
    - ``counted``: which series are counts, whose base and scale are their mean and deviation
    - ``common``: for prices, the logarithm of the scale by the common model of volatility, in units
      of ``scale`` without its factor of events; NaN where unknown. None: there is no such model
    - ``scale_weights``: how it is combined with networks
    - ``networks``: the weight of what networks forecast, beside the base: one half where the base
      is a forecast itself
    """

    features: Float[np.ndarray, "series step feature"]
    z: Rows
    base: Ahead
    scale: Ahead
    first: Int[np.ndarray, " series"]
    positions: Int[np.ndarray, "series step"]
    logarithmic: Bool[np.ndarray, " series"]
    least: Float[np.ndarray, " series"]
    counted: Bool[np.ndarray, " series"]
    common: Ahead | None = None
    scale_weights: ScaleWeights = ()
    networks: float = 1.0

    def only(self, rows: Int[np.ndarray, " some"]) -> "Transformed":
        """Return some of the series, by their rows."""
        parts: dict[str, Any] = {
            name: part[rows] for name, part in vars(self).items() if isinstance(part, np.ndarray)
        }
        return dataclasses.replace(self, **parts)

    def beside_networks(self, model: CommonVolatility | None) -> "Transformed":
        """Return the same with new weights of the common model of volatility, or without it."""
        if model is None:
            return dataclasses.replace(self, common=None, scale_weights=())
        return dataclasses.replace(self, scale_weights=model.scale_weights)

    def targets(self) -> Ahead:
        """Return the standardised targets, float32; NaN where unknown.

        Before a series first moves, its errors have no unit. After it has hardly moved for long, an
        error may be so large that the scale known with it is a hundred times the one before. Such
        targets count as unknown: they say nothing about forecasts that are made when it moves.
        """
        # A scale may be zero; such targets count as unknown, or are reported after the fit.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            targets = (self._at_outcomes(self.z[..., None]) - self.base) / self.scale
            level = np.fmax.accumulate(np.abs(self.z), axis=1)
            level = np.where(self.logarithmic[:, None], 1.0, level)[..., None]
            still = self.scale <= _NO_CHANGE * level + _LEAST_CHANGE
            unlike = still | (self._at_outcomes(self.scale) > _ANOTHER_SCALE * self.scale)
            return np.where(unlike, np.nan, targets).astype(np.float32)

    def largest_errors(self) -> Ahead:
        """Return the largest absolute error of the base whose outcome is known at each step.

        It is in the units that networks see, also before the series first moved; NaN where no
        outcome is known.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.abs(self._at_outcomes(self.z[..., None]) - self.base)
        return np.fmax.accumulate(by_target_step(errors), axis=1)

    def _at_outcomes(self, values: np.ndarray) -> Ahead:
        """Return values, by step ahead or the same for all, at the steps that are forecast."""
        values = np.broadcast_to(values, self.base.shape)
        steps = range(self.base.shape[-1])
        return np.stack([shift(values[..., h], -h - 1) for h in steps], axis=-1)

    def invert(self, z: np.ndarray) -> np.ndarray:
        """Return values (series, ...) in the series' own units."""
        if self.logarithmic.all():
            return np.exp(z)
        each = (slice(None), *[None] * (z.ndim - 1))
        rows = self.logarithmic[each]
        z = np.where(rows, z, np.maximum(z, self.least[each]))
        z = np.where(self.counted[each], np.rint(z), z)
        return np.where(rows, np.exp(np.where(rows, z, 0.0)), z)


def stacked(features: Iterable[Rows]) -> Float[np.ndarray, "series step feature"]:
    """Stack features as inputs of networks, float32; 0 where unknown."""
    known = [  # one at a time, to save memory
        np.nan_to_num(each, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32) for each in features
    ]
    return np.stack(known, axis=-1)
