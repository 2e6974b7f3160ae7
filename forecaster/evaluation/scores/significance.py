"""Tests on the forecasts of one series: differences in loss, and coverage.

Where a test is impossible (too few forecasts, or nothing varies), its p-value is NaN.
"""

from typing import NamedTuple

import numpy as np

# scipy.stats would take a second to import
from scipy.special import chdtrc, stdtr, xlog1py, xlogy

FEWEST = 20
"""The fewest forecasts that give a meaningful p-value."""
ROUNDING = 1e-12
"""Losses that differ by less than this share of them differ by rounding alone."""
_INDEPENDENT = 10  # the fewest horizons without overlap


class Tested(NamedTuple):
    """A statistic and its p-value."""

    statistic: float
    p_value: float


_IMPOSSIBLE = Tested(np.nan, np.nan)


def fewest_cutoffs(lags: int = 0) -> int:
    """Return the number of cutoffs that a comparison of losses needs.

    ``lags``: number of further cutoffs whose forecasts overlap with those of a cutoff
    """
    return max(FEWEST, _INDEPENDENT * (lags + 1))


def degrees_of_freedom(cutoffs: int, lags: int = 0) -> int:
    """Return the degrees of freedom of a comparison of losses; 0 with too few cutoffs.

    They are the number of cosines of Lazarus et al. (2018), but hardly any is shorter than ten
    times the overlap: in shorter ones, losses that overlap vary less than their mean does.
    """
    if cutoffs < fewest_cutoffs(lags):
        return 0
    return min(int(0.41 * cutoffs ** (2 / 3)), -(-cutoffs // (5 * (lags + 1))))


def slowest_cosines(losses: np.ndarray, lags: int = 0) -> np.ndarray:
    """Return coefficients of losses on a constant and on the slowest cosines (type II, unit norm).

    ``losses`` (cutoff, ...); the result has the axes (cosine, ...), the constant first.

    With equal forecasts, all coefficients of a difference between losses have the mean zero and,
    nearly, the same variance: the number of cutoffs times the variance of the mean difference.
    """
    from scipy.fft import dct

    kept = degrees_of_freedom(len(losses), lags) + 1
    return np.asarray(dct(losses, norm="ortho", axis=0))[:kept]


def diebold_mariano(losses: np.ndarray, others: np.ndarray, lags: int = 0) -> Tested:
    """Test whether two forecasts of the same series differ in mean loss, two-sided.

    There is no p-value with fewer than :data:`FEWEST` cutoffs, with fewer than ten horizons that do
    not overlap, or where the losses differ by the same at each cutoff, but for their rounding.

    - ``losses``, ``others`` (cutoff,): in order of time; a negative statistic favours the first
    - ``lags``: number of further cutoffs whose forecasts overlap with those of a cutoff; if every
      step is a cutoff, the horizon minus one

    Diebold & Mariano (1995), Journal of Business & Economic Statistics 13, with the equal-weighted
    cosine variance and the t distribution of Lazarus, Lewis, Stock & Watson (2018), same journal
    36: with the variance of the papers before it, forecasts that overlap differ too often by
    chance.
    """
    losses, others = np.asarray(losses, float), np.asarray(others, float)
    difference = losses - others
    degrees = degrees_of_freedom(len(difference), lags)
    if not degrees or not np.isfinite(difference).all():
        return _IMPOSSIBLE
    if not np.ptp(difference) > ROUNDING * np.maximum(np.abs(losses), np.abs(others)).max():
        return _IMPOSSIBLE
    mean, *cosines = slowest_cosines(difference, lags)
    statistic = float(mean / np.sqrt(np.square(cosines).mean()))
    return Tested(statistic, float(2 * stdtr(degrees, -abs(statistic))))


def false_discovery(p_values: np.ndarray) -> np.ndarray:
    """Adjust the p-values of many series so that a level bounds the share of false discoveries.

    NaN stay NaN. Benjamini & Hochberg (1995), Journal of the Royal Statistical Society B 57.
    """
    from scipy.stats import false_discovery_control

    p_values = np.asarray(p_values, float)
    out = np.full(p_values.shape, np.nan)
    known = np.isfinite(p_values)
    if known.any():
        out[known] = false_discovery_control(p_values[known])
    return out


def kupiec(exceeded: np.ndarray, probability: float) -> Tested:
    """Test whether a value at risk is exceeded as often as it should be.

    ``exceeded`` (cutoff,) bool. Kupiec (1995), Journal of Derivatives 3.
    """
    exceeded = np.asarray(exceeded, bool)
    count, hits = len(exceeded), int(exceeded.sum())
    if count < FEWEST:
        return _IMPOSSIBLE
    nominal = _log_likelihood(hits, count - hits, probability)
    observed = _log_likelihood(hits, count - hits, hits / count)
    statistic = max(0.0, 2 * (observed - nominal))
    return Tested(statistic, float(chdtrc(1, statistic)))


def christoffersen(exceeded: np.ndarray) -> Tested:
    """Test whether exceedances come in clusters: whether one depends on the day before.

    ``exceeded`` (cutoff,) bool, in order of time. Christoffersen (1998), International Economic
    Review 39.
    """
    exceeded = np.asarray(exceeded, bool)
    if len(exceeded) < FEWEST or not exceeded.any() or exceeded.all():
        return _IMPOSSIBLE
    before, now = exceeded[:-1], exceeded[1:]
    counts = [[int(((before == a) & (now == b)).sum()) for b in (False, True)] for a in (0, 1)]
    (n00, n01), (n10, n11) = counts
    together = (n01 + n11) / (n00 + n01 + n10 + n11)
    apart = sum(
        _log_likelihood(hit, miss, hit / (hit + miss) if hit + miss else 0.0)
        for miss, hit in counts
    )
    statistic = max(0.0, 2 * (apart - _log_likelihood(n01 + n11, n00 + n10, together)))
    return Tested(statistic, float(chdtrc(1, statistic)))


def _log_likelihood(hits: int, misses: int, probability: float) -> float:
    """Return the log-likelihood of independent hits; 0 log 0 counts as 0."""
    return float(xlogy(hits, probability) + xlog1py(misses, -probability))
