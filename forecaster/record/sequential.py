"""Test day after day whether forecasts are still calibrated and accurate; arrays only.

Each outcome gives an e-value: a number whose mean is at most 1 as long as the forecasts are sound.
The product of e-values grows beyond any bound once the forecasts are not sound. Nobody knows from
which day on. So a detector adds up the products of all latest days (Shiryaev and Roberts), or takes
the largest product (Page, CUSUM). The largest is later by a day, but does not grow by itself where
e-values stay near 1. The procedure of Benjamini and Hochberg for e-values reports detectors. The
mean time until a false report is at least ``1 / rate`` days, however the series depend on each
other: the sum of ``count`` detectors grows by at most ``count`` a day in the mean, and is at least
``count / rate`` when any detector is reported.

Sources: Shin, Ramdas and Rinaldo, "E-detectors" (New England Journal of Statistics in Data Science,
2024); Wang and Ramdas, "False discovery rate control with e-values" (JRSS B, 2022).
"""

import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

_FACTOR = 3.0  # by which moves may have grown; with more such factors each is found later
_FURTHER = (0.01, 0.002, 0.0004)  # tail probabilities beyond the widest band
# Degrees of freedom of the Student-t that says how likely misses are once moves have grown.
_DEGREES = 8.0
_BETS = (0.25, 0.5, 0.9)  # shares of the largest bet that cannot lose everything
# Detectors stop growing at this multiple of the threshold, so that they can return soon.
_REMEMBERED = 3.0


def tail_probabilities(
    outcome: Float[np.ndarray, " row"],
    middle: Float[np.ndarray, " row"],
    bounds: Sequence[tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]],
    levels: Sequence[float],
) -> Float[np.ndarray, " row"]:
    """Return upper bounds of the probability of outcomes at least as far out; NaN where unknown.

    Inside the narrowest band the bound is 1; between two bands it is the share that the narrower
    band leaves outside. Beyond the widest band it falls as a power of the distance from the median.
    The two widest bands imply the power; light tails fall faster.

    - ``bounds``: the lower and the upper bound of each band
    - ``levels``: the coverage of each band in percent, rising
    """
    outside = [1 - level / 100 for level in levels]
    distance = np.abs(outcome - middle)
    above = outcome >= middle
    half = [np.where(above, high - middle, middle - low) for low, high in bounds]
    tail = np.ones(len(outcome))
    for share, width in zip(outside, half, strict=True):
        tail[distance > width] = share
    widest = half[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.full(len(outcome), 2.0)
        if len(half) > 1:
            spread = np.log(widest / half[-2])
            power = np.log(outside[-2] / outside[-1]) / np.maximum(spread, 0.1)
        beyond = outside[-1] * (distance / widest) ** -power
    far = distance > widest
    tail[far] = np.where(widest[far] > 0, beyond[far], outside[-1])
    unknown = ~np.isfinite(distance) | ~np.all([np.isfinite(width) for width in half], axis=0)
    return np.where(unknown, np.nan, tail)


def e_values_of_tails(
    tail: Float[np.ndarray, "time series"], levels: Sequence[float]
) -> Float[np.ndarray, "time series"]:
    """Return the e-values of :func:`tail_probabilities`.

    Each says how much likelier the outcome is if moves have grown; it rises with the distance.
    """
    edges = _edges(tuple(levels))
    at = np.searchsorted(-np.array(edges), -np.nan_to_num(tail, nan=1.0), side="right") - 1
    return np.where(np.isnan(tail), np.nan, _weights(edges)[at])


def _edges(levels: tuple[float, ...]) -> tuple[float, ...]:
    """Return the upper ends of the ranges that tail probabilities are cut into, falling."""
    outside = [round(1 - level / 100, 12) for level in levels]
    return (1.0, *outside, *(share for share in _FURTHER if share < outside[-1] / 2))


@functools.cache
def _weights(edges: tuple[float, ...]) -> np.ndarray:
    """Return the e-value of each range; the mean over a uniform tail is 1."""
    from scipy.special import stdtr, stdtrit  # scipy.stats would take a second to import

    upper = np.array(edges)
    width = upper - np.append(upper[1:], 0.0)
    grown = 2 * stdtr(_DEGREES, stdtrit(_DEGREES, upper / 2) / _FACTOR)
    return (grown - np.append(grown[1:], 0.0)) / width


def e_values_of_bets(
    excess: Float[np.ndarray, "time series"], lowest: float
) -> list[Float[np.ndarray, "time series"]]:
    """Return e-values of numbers whose mean is at most 0, one array for each size of the bet.

    - ``excess``: these numbers, each at least ``lowest``, which is negative
    """
    return [1 + share / -lowest * excess for share in _BETS]


def detectors(
    e_values: Sequence[Float[np.ndarray, "time series"]], most: float, *, summed: bool
) -> Float[np.ndarray, "time series"]:
    """Return the detectors after each time, as means over alternatives.

    At times without an e-value (NaN) a detector does not change.

    - ``most``: the value at which detectors stop growing, see :func:`most_remembered`
    - ``summed``: whether products are summed; otherwise the largest is taken
    """
    out = np.zeros(e_values[0].shape)
    now = np.zeros((len(e_values), e_values[0].shape[1]))
    for row, each in enumerate(np.stack(e_values, axis=1)):
        known = ~np.isnan(each)
        begun = now + 1 if summed else np.maximum(now, 1)
        now = np.where(known, np.minimum(begun * np.where(known, each, 1.0), most), now)
        out[row] = now.mean(0)
    return out


def most_remembered(count: int, rate: float) -> float:
    """Return a value at which detectors of ``count`` series may stop growing.

    It is above the threshold of a report, and low enough for a detector to fall soon once outcomes
    are as they should be.
    """
    return _REMEMBERED * count / rate


def reported(
    detector: Float[np.ndarray, "time series"], rate: float
) -> Bool[np.ndarray, "time series"]:
    """Return which detectors are reported at each time.

    False reports come at most once in ``1 / rate`` times. The ``k`` largest detectors are reported
    if each of them is at least ``series / (k * rate)``.
    """
    count = detector.shape[1]
    if not count:
        return np.zeros(detector.shape, bool)
    ranked = -np.sort(-detector, axis=1)
    enough = ranked * np.arange(1, count + 1) >= count / rate
    most = np.where(enough.any(1), count - np.argmax(enough[:, ::-1], axis=1), 0)
    least = np.where(most > 0, ranked[np.arange(len(ranked)), np.maximum(most, 1) - 1], np.inf)
    return detector >= least[:, None]
