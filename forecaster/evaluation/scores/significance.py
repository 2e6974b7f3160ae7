"""Tests on the forecasts of one series: differences in loss, coverage, direction.

Where a test is impossible (too few forecasts, or nothing varies), its p-value is NaN.
"""

from typing import NamedTuple

import numpy as np

# scipy.stats would take a second to import
from scipy.special import chdtrc, ndtr, stdtr, xlog1py, xlogy

FEWEST = 20
"""The fewest forecasts that give a meaningful p-value."""


class Tested(NamedTuple):
    """A statistic and its p-value."""

    statistic: float
    p_value: float


_IMPOSSIBLE = Tested(np.nan, np.nan)


def diebold_mariano(losses: np.ndarray, others: np.ndarray, lags: int = 0) -> Tested:
    """Test whether two forecasts of the same series differ in mean loss, two-sided.

    - ``losses``, ``others`` (cutoff,): in order of time; a negative statistic favours the first
    - ``lags``: number of autocorrelations to allow for; if every step is a cutoff, the horizon
      minus one

    Diebold & Mariano (1995), Journal of Business & Economic Statistics 13, corrected for small
    samples as by Harvey, Leybourne & Newbold (1997), International Journal of Forecasting 13.
    """
    difference = np.asarray(losses, float) - np.asarray(others, float)
    count, horizon = len(difference), lags + 1
    if count < max(FEWEST, 2 * horizon) or not np.isfinite(difference).all():
        return _IMPOSSIBLE
    mean, centred = difference.mean(), difference - difference.mean()
    variance = sum(
        (1 if lag == 0 else 2) * (centred[lag:] * centred[: count - lag]).sum() / count
        for lag in range(horizon)
    )
    if variance <= 0:  # possible with few cutoffs; then autocorrelations are left out
        variance = (centred**2).mean()
    if not variance > 0:
        return _IMPOSSIBLE
    correction = (count + 1 - 2 * horizon + horizon * (horizon - 1) / count) / count
    statistic = float(mean / np.sqrt(variance / count) * np.sqrt(correction))
    return Tested(statistic, float(2 * stdtr(count - 1, -abs(statistic))))


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


def pesaran_timmermann(actual: np.ndarray, forecast: np.ndarray) -> Tested:
    """Test whether forecast changes have the right sign more often than by chance, one-sided.

    Pesaran & Timmermann (1992), Journal of Business & Economic Statistics 10; as in statsmodels,
    without the variance's term of order 1 / n^2.
    """
    up, said = np.asarray(actual) > 0, np.asarray(forecast) > 0
    count = len(up)
    if count < FEWEST:
        return _IMPOSSIBLE
    hit, p, q = (up == said).mean(), up.mean(), said.mean()
    expected = p * q + (1 - p) * (1 - q)
    variance = expected * (1 - expected) / count
    of_expected = ((2 * p - 1) ** 2 * q * (1 - q) + (2 * q - 1) ** 2 * p * (1 - p)) / count
    if variance - of_expected <= 1e-15:
        return _IMPOSSIBLE
    statistic = float((hit - expected) / np.sqrt(variance - of_expected))
    return Tested(statistic, float(ndtr(-statistic)))


def echo(actual: np.ndarray, forecast: np.ndarray, latest: np.ndarray) -> tuple[float, float]:
    """Return the correlation of forecasts with actual values, and with the latest known values.

    If the second is higher, the forecast mostly repeats the latest value.
    """
    actual, forecast, latest = (np.asarray(part, float) for part in (actual, forecast, latest))
    if len(actual) < 3 or not (forecast.std() > 0 and actual.std() > 0 and latest.std() > 0):
        return np.nan, np.nan
    return (
        float(np.corrcoef(forecast, actual)[0, 1]),
        float(np.corrcoef(forecast, latest)[0, 1]),
    )


def _log_likelihood(hits: int, misses: int, probability: float) -> float:
    """Return the log-likelihood of independent hits; 0 log 0 counts as 0."""
    return float(xlogy(hits, probability) + xlog1py(misses, -probability))
