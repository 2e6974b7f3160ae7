"""Errors and scores, elementwise; the caller takes the mean."""

import numpy as np
from numpy.typing import ArrayLike


def absolute_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """Return |actual - forecast|, in the units of the series."""
    return np.abs(np.asarray(actual) - np.asarray(forecast))


def squared_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """Return (actual - forecast)^2."""
    return (np.asarray(actual) - np.asarray(forecast)) ** 2


def symmetric_error(actual: ArrayLike, forecast: ArrayLike) -> np.ndarray:
    """Return 200 |actual - forecast| / (|actual| + |forecast|), the terms of M4's sMAPE in %."""
    actual, forecast = np.asarray(actual), np.asarray(forecast)
    size = np.abs(actual) + np.abs(forecast)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, 200 * np.abs(actual - forecast) / size, 0.0 * size)


def probabilities_around(
    actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of less than each outcome, and of at most as much, both (...).

    Between two quantiles they are the probabilities of these quantiles. An outcome that equals
    quantiles, as counts often do, has a probability of its own, from halfway to the next lower
    quantile to halfway to the next higher one; it begins at zero for an outcome of zero, below
    which nothing is forecast, and is one if all quantiles equal the outcome.

    - ``actual`` (...), ``forecasts`` (..., quantile): known
    - ``quantiles``: ascending probabilities
    """
    actual, forecasts = np.asarray(actual)[..., None], np.asarray(forecasts)
    quantiles = np.asarray(quantiles)
    below = np.where(forecasts < actual, quantiles, 0.0).max(-1)
    above = np.where(forecasts > actual, quantiles, 1.0).min(-1)
    first = np.where(forecasts >= actual, quantiles, 1.0).min(-1)
    last = np.where(forecasts <= actual, quantiles, 0.0).max(-1)
    sure = (below == 0) & (above == 1)
    from_zero = sure | ((below == 0) & (actual[..., 0] == 0))
    equal = first <= last
    return (
        np.where(equal & ~from_zero, (below + first) / 2, below),
        np.where(equal & ~sure, (last + above) / 2, above),
    )


def held(
    actual: ArrayLike,
    forecasts: ArrayLike,
    quantiles: ArrayLike,
    level: float,
    around: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Return the share of each outcome that lies in a band (...); NaN without a forecast.

    It is 1 inside the band and 0 outside. If the outcome equals quantiles, as counts often do, the
    forecast gives the outcome a probability, and the share is the part of this probability that
    lies in the band. This is the mean of the randomised probability
    integral transform (Czado, Gneiting & Held 2009, Biometrics 65).

    - ``actual`` (...), ``forecasts`` (..., quantile)
    - ``quantiles``: ascending probabilities, those of the band's bounds among them
    - ``level``: level of the band, in percent
    - ``around``: the probabilities of less than each outcome, and of at most as much; by default
      as far as the quantiles tell (:func:`probabilities_around`)
    """
    actual, forecasts, quantiles = map(np.asarray, (actual, forecasts, quantiles))
    below, at_most = around or probabilities_around(actual, forecasts, quantiles)
    outside = round((1 - level / 100) / 2, 9)  # as the quantile is written
    inside = np.clip(at_most, outside, 1 - outside) - np.clip(below, outside, 1 - outside)
    bounds = [int(np.abs(quantiles - edge).argmin()) for edge in (outside, 1 - outside)]
    known = np.isfinite(forecasts[..., bounds]).all(-1) & ~np.isnan(actual)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(inside / (at_most - below), 0.0, 1.0)
    share = np.where(at_most > below, share, 0.0)  # so far away that it has no probability
    return np.where(known, share, np.nan)


def winkler(actual: ArrayLike, low: ArrayLike, high: ArrayLike, level: float) -> np.ndarray:
    """Return the Winkler score: the band's width plus 2 / alpha times the distance outside it.

    ``level`` is in percent; alpha is 1 minus the level.

    Winkler (1972), Journal of the American Statistical Association 67.
    """
    actual, low, high = np.asarray(actual), np.asarray(low), np.asarray(high)
    missed = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
    return high - low + 2 / (1 - level / 100) * missed


def pinball(actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Return quantile losses (..., quantile).

    ``actual`` has shape (...), ``forecasts`` (..., quantile).
    """
    error = np.asarray(actual)[..., None] - np.asarray(forecasts)
    quantiles = np.asarray(quantiles)
    return np.maximum(quantiles * error, (quantiles - 1) * error)


def crps(actual: ArrayLike, forecasts: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
    """Return the continuous ranked probability score from quantiles, in the units of the series.

    It is twice the integral of the quantile loss over the probabilities, where each quantile
    represents the probabilities nearest to it. Arguments as for :func:`pinball`.

    Gneiting & Raftery (2007), Journal of the American Statistical Association 102.
    """
    quantiles = np.asarray(quantiles)
    edges = np.concatenate([[0.0], (quantiles[1:] + quantiles[:-1]) / 2, [1.0]])
    # A matrix product would round a row differently for another number of rows.
    losses = np.ascontiguousarray(pinball(actual, forecasts, quantiles) * np.diff(edges))
    return 2 * losses.sum(-1)


def qlike(realized: ArrayLike, variance: ArrayLike) -> np.ndarray:
    """Return log(variance) + realized / variance, a loss of forecast variances; lower is better.

    Its mean is smallest where the forecast is the mean of ``realized``, an unbiased proxy of the
    variance, such as the squared return or a variance from ranges. This form is finite where the
    proxy is zero. A factor common to both arguments adds its logarithm, so only differences between
    forecasts mean something. NaN for a variance that is not above zero.

    Patton (2011), Journal of Econometrics 160.
    """
    realized, variance = np.asarray(realized, float), np.asarray(variance, float)
    positive = np.where(variance > 0, variance, np.nan)
    return np.log(positive) + realized / positive


def fz0(
    actual: ArrayLike, value_at_risk: ArrayLike, shortfall: ArrayLike, probability: float
) -> np.ndarray:
    """Return the joint loss of a value at risk and an expected shortfall; lower is better.

    Its mean is smallest where both are right. Only differences between forecasts mean something: a
    factor common to all arguments adds its logarithm.

    - ``actual``, ``value_at_risk``, ``shortfall``: returns, so that both forecasts are below zero;
      NaN where the shortfall is not
    - ``probability``: the probability of a return below the value at risk

    Fissler & Ziegel (2016), Annals of Statistics 44, in the form of Patton, Ziegel & Chen (2019),
    Journal of Econometrics 211: the one whose differences do not depend on the unit.
    """
    actual, bound = np.asarray(actual, float), np.asarray(value_at_risk, float)
    shortfall = np.asarray(shortfall, float)
    below = np.where(shortfall < 0, shortfall, np.nan)
    excess = np.where(np.isnan(actual), np.nan, np.maximum(bound - actual, 0.0))
    return -excess / (probability * below) + bound / below + np.log(-below) - 1
