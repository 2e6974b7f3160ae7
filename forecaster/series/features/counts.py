"""Forecast counts, such as pieces sold or patients: the mean of what comes, and its deviation.

Most anchors aim at the median, which is zero for a series that is zero more often than not. The
distribution of a count (:mod:`forecaster.forecasting.bands.counts`) needs its mean. It is an
exponentially weighted mean, as Teunter, Syntetos & Babai (2011, European Journal of Operational
Research 214) update the demand of every period, or the combination of anchors, or half of each. A
series of a few rows is shrunk to the mean of its panel, and its variance to the panel's ratio of
variance to mean; the weight of the panel's mean is that of the conjugate (gamma) prior of a Poisson
rate, estimated by moments. So a series that was always zero is not expected to be so for ever.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from forecaster.series.features.anchors import by_target_step, decayed

Steps: TypeAlias = Float[np.ndarray, "*series step"]
Ahead: TypeAlias = Float[np.ndarray, "*series step horizon"]

_LARGEST_MEAN = 100.0  # of counts; beyond it whole numbers are as good as any
_DECAYS = (0.05, 0.1, 0.2)
_SHARES = (0.0, 0.5, 1.0)
_LEAST_OF_LEVEL = 0.25  # minimum of the combination, as a share of the running mean
_MOST_WEIGHT = 5.0  # largest weight of the panel's mean, in rows
_ROWS_OF_DISPERSION = 10.0  # weight of the panel's ratio of variance to mean, in rows
_FEWEST = 8  # series and rows from which a panel's properties are learned


class CountPrior(NamedTuple):
    """What the counts of a panel have in common.

    - ``decay``: weight of the latest count in the running mean
    - ``share``: weight of the combination of anchors in the forecast mean
    - ``mean``: the mean of all series, which counts as much as ``weight`` rows
    - ``dispersion``: ratio of variance to mean
    """

    decay: float = 0.1
    share: float = 0.5
    mean: float = 0.0
    weight: float = 0.0
    dispersion: float = 1.5

    @staticmethod
    def from_json(fields: Sequence[Any]) -> "CountPrior":
        """Read a list of numbers. Raises TypeError or ValueError for anything else."""
        prior = CountPrior(*map(float, fields))
        sound = 0 < prior.decay < 1 and 0 <= prior.share <= 1 and prior.dispersion > 0
        if not (sound and np.isfinite(prior).all() and prior.mean >= 0 and prior.weight >= 0):
            raise ValueError(f"transform: counts: {list(fields)!r:.100}")
        return prior


NO_PRIOR = CountPrior()


def are_counts(values: Steps) -> bool:
    """Return whether values are counts: whole numbers, zero among them, none below it."""
    return may_be_counts(values) and bool(values.min() == 0)


def may_be_counts(values: Steps) -> bool:
    """Return whether values are small whole numbers, none below zero."""
    if not len(values) or values.min() < 0 or values.mean() > _LARGEST_MEAN:
        return False
    return bool((values == np.rint(values)).all())


def count_forecasts(z: Steps, combination: Ahead, prior: CountPrior) -> tuple[Ahead, Ahead]:
    """Return mean and standard deviation of each count ahead, as forecast at every step.

    - ``z``: the counts, of one series or of several
    - ``combination``: forecasts made at every step; those far below the running mean are raised
    """
    known = _effective(z.shape[-1], prior.decay)
    own = _own_mean(z, combination, prior.decay, prior.share)
    mean = (known * own + prior.weight * prior.mean) / (known + prior.weight)
    # By the rule of succession: after n zeros, the next is zero with probability (n + 1) / (n + 2).
    mean = np.maximum(mean, 1 / (np.arange(int(z.shape[-1])) + 3)[:, None] / known)
    squares = np.square(by_target_step(mean) - z[..., None])
    errors, variance = _variance_of_errors(squares, prior.decay)
    usual = _ROWS_OF_DISPERSION * prior.dispersion * mean
    return mean, np.sqrt((errors * variance + usual) / (errors + _ROWS_OF_DISPERSION))


def learn_counts(rows: Sequence[Steps], combinations: Sequence[Ahead]) -> CountPrior:
    """Return the settings whose forecasts had the smallest squared errors in a panel's past.

    - ``rows``: the counts of each series
    - ``combinations``: forecasts made at every step of each series
    """
    long = [(z, c) for z, c in zip(rows, combinations, strict=True) if len(z) >= _FEWEST]
    if not long:
        return NO_PRIOR
    best = min(
        ((decay, share) for decay in _DECAYS for share in _SHARES),
        key=lambda one: float(np.mean([_error(z, c, *one) for z, c in long])),
    )
    prior = CountPrior(*best)
    if len(long) < _FEWEST:
        return prior
    means, variances = np.array([_moments(z, prior.decay) for z, _ in long]).T
    noise = (variances / [_effective(len(z), prior.decay)[-1, 0] for z, _ in long]).mean()
    mean, between = means.mean(), max(means.var() - noise, 1e-12)
    dispersion = max(variances.sum() / max(means.sum(), 1e-12), 1.0)
    weight = min(dispersion * mean / between, _MOST_WEIGHT)
    return prior._replace(
        mean=float(mean), weight=float(weight), dispersion=float(min(dispersion, 1e6))
    )


def _own_mean(z: Steps, combination: Ahead, decay: float, share: float) -> Ahead:
    level = decayed(z[..., None], 1 - decay)
    # A trend that leads below zero says little about the next counts.
    combination = np.maximum(combination, _LEAST_OF_LEVEL * level)
    return (1 - share) * level + share * combination


def _error(z: Steps, combination: Ahead, decay: float, share: float) -> float:
    """Return the mean squared error of forecasts made in the later half, over the variance.

    The classical models know the earlier half. Forecasts made there would favour models that were
    fitted to these rows, and would rest on running means of one or two counts.
    """
    forecasts = _own_mean(z, combination, decay, share)
    forecasts[: len(z) // 2 - 1] = np.nan
    squares = np.square(by_target_step(forecasts) - z[:, None])
    return float(np.nanmean(squares)) / (z.var() + 0.1)


def _moments(z: Steps, decay: float) -> tuple[float, float]:
    """Return the latest running mean of a series, and the variance around it."""
    mean = float(decayed(z[:, None], 1 - decay)[-1, 0])
    return mean, float(decayed(np.square(z - mean)[:, None], 1 - decay)[-1, 0])


def _variance_of_errors(squares: Ahead, decay: float) -> tuple[Float[np.ndarray, "step 1"], Ahead]:
    """Return the number of known errors one step ahead, at each step, and the mean squared errors.

    Of errors further ahead fewer are known. Those that are missing count as on average those one
    step nearer, so that bands do not get narrower because a horizon has no error yet.

    ``squares``: squared errors, known at each step
    """
    steps, horizon = map(int, squares.shape[-2:])
    variance = decayed(squares, 1 - decay)
    errors = np.zeros((steps, horizon))
    for column in range(min(horizon, steps - 1)):
        errors[column + 1 :, column] = _effective(steps - column - 1, decay)[:, 0]
    variance[..., 0] = np.nan_to_num(variance[..., 0])
    for column in range(1, horizon):
        share = errors[:, column] / np.maximum(errors[:, 0], 1.0)
        own = np.nan_to_num(variance[..., column])
        variance[..., column] = share * own + (1 - share) * variance[..., column - 1]
    return errors[:, :1], variance


def _effective(steps: int, decay: float) -> Float[np.ndarray, "step 1"]:
    """Return the number of rows that a running mean rests on, at each step."""
    return ((1 - (1 - decay) ** np.arange(1, steps + 1)) / decay)[:, None]
