"""Scores of the log returns that forecasts of prices imply, and what prices really did.

Prices are forecast by quantiles. The logarithms of these, minus the logarithm of the price at the
cutoff, are the quantiles of the log return. A Student-t logarithm has no finite mean as a price,
but a variance as a return.

Forecasts are kept as quantiles, so all models are read by one rule, whatever they were made from.
Between two neighbouring quantiles the distribution is a piece of a normal one: its quantile
function is a straight line in normal scores. Beyond the outermost quantile it is the tail of a
Student-t around the median that goes through this quantile and the one nearest to the quartile of
the same side, with three degrees of freedom or more. A normal distribution is read exactly, and so
are the tails of a Student-t.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtri, stdtr, stdtrit

from forecaster.evaluation.rolling_origin import NAIVE
from forecaster.evaluation.scores import metrics
from forecaster.series import Panel, Time

HEAVIEST = 3.0
"""The fewest degrees of freedom of a tail; with two its variance would be infinite."""
_LIGHTEST = 1e5  # degrees of freedom that count as a normal distribution
_GRID = 400  # degrees of freedom in the table of tails
_ROOT = np.sqrt(2 * np.pi)
COLUMNS = ("open", "high", "low", "close")
"""The columns that a session's variance is computed from."""

Row = Float[np.ndarray, " step"]
VALUE_AT_RISK = (0.05, 0.025)
"""The probabilities at which values at risk are tested and scored."""
RETURN_SCORES: Mapping[str, str] = {
    "qlike": "QLIKE",
    "qlike_range": "QLIKE by ranges",
    "fz0-0.05": "VaR and ES of 5 %",
    "fz0-0.025": "VaR and ES of 2.5 %",
    "log_score": "log score",
}
"""The columns of these scores, with a heading for each."""


class Implied(NamedTuple):
    """Distributions (...) that quantiles imply, see the module's docstring.

    - ``values`` (..., quantile): ascending in the last axis
    - ``quantiles`` (quantile,): ascending probabilities, with 0.5 and a quantile between it and the
      outermost of either side (:func:`enough`)
    """

    values: np.ndarray
    quantiles: np.ndarray

    def second_moment(self) -> np.ndarray:
        """Return the expected squares (...), the variance where the mean is zero."""
        slope, base, mass, first = self._pieces()
        scores = ndtri(self.quantiles)
        second = mass - np.diff(scores * (np.exp(-(scores**2) / 2) / _ROOT))
        inside = _sum(base**2 * mass + 2 * base * slope * first + slope**2 * second)
        return inside + self._tail(lower=True).second() + self._tail(lower=False).second()

    def shortfall(self, probability: float) -> np.ndarray:
        """Return the mean below the quantile of a probability (...), one of ``quantiles``."""
        at = int(np.abs(self.quantiles - probability).argmin())
        slope, base, mass, first = self._pieces()
        inside = _sum((base * mass + slope * first)[..., :at])
        return (inside + self._tail(lower=True).first()) / self.quantiles[at]

    def log_density(self, outcomes: ArrayLike) -> np.ndarray:
        """Return the logarithm of the density at outcomes (...).

        It is infinite where an outcome lies between two quantiles that are equal.
        """
        outcomes, scores = np.asarray(outcomes, float), ndtri(self.quantiles)
        position = (self.values < outcomes[..., None]).sum(-1)
        last = len(scores) - 1
        piece = np.clip(position - 1, 0, last - 1)
        low, high = (
            np.take_along_axis(self.values, part[..., None], -1)[..., 0]
            for part in (piece, piece + 1)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (high - low) / (scores[piece + 1] - scores[piece])
            score = np.where(slope > 0, scores[piece] + (outcomes - low) / slope, scores[piece])
            inside = -(score**2) / 2 - np.log(_ROOT) - np.log(slope)
            below = self._tail(lower=True).log_density(outcomes)
            above = self._tail(lower=False).log_density(outcomes)
        beyond = np.where(position > last, above, inside)
        known = np.isfinite(self.values).all(-1) & np.isfinite(outcomes)
        return np.where(known, np.where(outcomes < self.values[..., 0], below, beyond), np.nan)

    def _pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return slopes and levels in normal scores (..., piece), probabilities and mean scores."""
        scores = ndtri(self.quantiles)
        slope = np.diff(self.values) / np.diff(scores)
        base = self.values[..., :-1] - slope * scores[:-1]
        density = np.exp(-(scores**2) / 2) / _ROOT
        return slope, base, np.diff(self.quantiles), -np.diff(density)

    def _tail(self, *, lower: bool) -> "_Tail":
        """Return the tails beyond the outermost quantile of one side."""
        quarter = 0.25 if lower else 0.75
        outer = 0 if lower else len(self.quantiles) - 1
        middle = int(np.abs(self.quantiles - 0.5).argmin())
        between = np.arange(1, middle) if lower else np.arange(middle + 1, outer)
        inner = int(between[np.abs(self.quantiles[between] - quarter).argmin()])
        probabilities = self.quantiles if lower else 1 - self.quantiles
        centre = self.values[..., middle]
        distance = self.values[..., outer] - centre
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(distance / (self.values[..., inner] - centre), posinf=np.inf)
        outermost = round(float(probabilities[outer]), 9)
        ratios, *columns = _table(outermost, round(float(probabilities[inner]), 9))
        # Ratios outside the table count as its first or last.
        found = (np.interp(ratio, ratios, column) for column in columns)
        return _Tail(centre, distance, float(probabilities[outer]), *found)


class _Tail(NamedTuple):
    """Tails beyond an outer quantile, ``distance`` from the ``centre`` (below zero: lower ones).

    - ``probability``: of the tail
    - ``inverse``: one over the degrees of freedom
    - ``quantile``: the outer one of the Student-t distribution, below zero
    - ``beyond``, ``beyond_squared``: E[u; u > 1] and E[u^2; u > 1] of the side's outcome ``u``, in
      units of the outer quantile
    """

    centre: np.ndarray
    distance: np.ndarray
    probability: float
    inverse: np.ndarray
    quantile: np.ndarray
    beyond: np.ndarray
    beyond_squared: np.ndarray

    def first(self) -> np.ndarray:
        """Return E[x; x in the tail]."""
        return self.centre * self.probability + self.distance * self.beyond

    def second(self) -> np.ndarray:
        """Return E[x^2; x in the tail]."""
        mixed = 2 * self.centre * self.distance * self.beyond
        return self.centre**2 * self.probability + mixed + self.distance**2 * self.beyond_squared

    def log_density(self, outcomes: np.ndarray) -> np.ndarray:
        """Return the logarithm of the density at outcomes in the tail."""
        dof, unit = 1 / self.inverse, self.distance / self.quantile
        scaled = (outcomes - self.centre) / unit
        return _log_density(scaled, dof) - np.log(np.abs(unit))


def enough(quantiles: ArrayLike) -> bool:
    """Return whether a distribution can be read from quantiles of these probabilities.

    The median and one of 5 % or less on either side are needed, and another between them.
    """
    known = np.asarray(quantiles, float)
    if len(known) < 5 or not np.isclose(known, 0.5).any():
        return False
    tails = known[0] <= 0.05 + 1e-9 and known[-1] >= 0.95 - 1e-9
    return bool(tails and (known < 0.5 - 1e-9).sum() > 1 and (known > 0.5 + 1e-9).sum() > 1)


@lru_cache(maxsize=64)
def _table(outer: float, inner: float) -> tuple[np.ndarray, ...]:
    """Tabulate Student-t distributions by the ratio of two quantiles, both in the lower tail.

    Returns the ratios of the outer to the inner quantile, ascending, and for each the last four
    fields of a :class:`_Tail`.

    The moments are those of McNeil, Frey & Embrechts (2015), Quantitative Risk Management, section
    2.3, and by integration by parts.
    """
    inverse = np.linspace(1 / _LIGHTEST, 1 / HEAVIEST, _GRID)
    dof = 1 / inverse
    quantile, ratio = stdtrit(dof, outer), stdtrit(dof, outer) / stdtrit(dof, inner)
    density = np.exp(_log_density(quantile, dof))
    first = -density * (dof + quantile**2) / (dof - 1)
    heavier = stdtr(dof - 2, quantile * np.sqrt((dof - 2) / dof))
    second = dof * ((dof - 1) / (dof - 2) * heavier - outer)
    return ratio, inverse, quantile, first / quantile, second / quantile**2


def _log_density(x: np.ndarray, dof: np.ndarray) -> np.ndarray:
    """Return the logarithm of the density of Student-t distributions."""
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof * np.pi)
    return constant - (dof + 1) / 2 * np.log1p(x**2 / dof)


def _sum(parts: np.ndarray) -> np.ndarray:
    """Sum over the last axis, with the same bits for any number of rows."""
    return np.ascontiguousarray(parts).sum(-1)


class Realized(NamedTuple):
    """What prices did from the cutoff of each forecast to its time, (row,).

    - ``latest``: the price at the cutoff
    - ``change``: the log return; NaN where the outcome is not known, minus infinity where it, or
      the price at the cutoff, is zero or below
    - ``variance``: the sum of the sessions' variances by their ranges, in units of squared returns;
      NaN where it is not known, None without the columns for it
    """

    latest: np.ndarray
    change: np.ndarray
    variance: np.ndarray | None

    @staticmethod
    def from_panel(
        frame: pd.DataFrame, panel: Panel, first_cutoff: Time | Shaped[np.ndarray, ""]
    ) -> "Realized":
        """Return what the prices of a panel did.

        - ``frame``: forecasts with the column ``Naive``, the price at the cutoff
        - ``first_cutoff``: the time up to which the variances of sessions are compared with squared
          returns
        """
        latest, y = frame[NAIVE].to_numpy(float), frame["y"].to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.log(y / latest)
        change = np.where((y <= 0) | (latest <= 0), -np.inf, change)  # not to be left out of a mean
        ranges = set(COLUMNS) <= set(panel.channels)
        variance = _summed(frame, panel, first_cutoff) if ranges else None
        return Realized(latest, change, variance)


def session_variance(y: Row, bars: Float[np.ndarray, "4 step"]) -> Row:
    """Return the variance of each session: by its range, plus the squared move of the night before.

    The variance by the range is the estimator of Garman & Klass (1980), Journal of Business 53.
    Where a column is missing, or makes no sense, the result is the squared change of ``y``.

    - ``y``: the series that is forecast, above zero; its changes allow for splits and dividends
    - ``bars``: the columns of :data:`COLUMNS`
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.diff(np.log(y), prepend=np.log(y[:1]))
        open_, high, low, close = bars
        within, span = np.log(close / open_), np.log(high / low)
        inside = np.maximum(0.5 * span**2 - (2 * np.log(2) - 1) * within**2, 0.0)
        variance = inside + (change - within) ** 2
    return np.where(np.isfinite(variance), variance, change**2)


def _summed(
    frame: pd.DataFrame, panel: Panel, first_cutoff: Time | Shaped[np.ndarray, ""]
) -> np.ndarray:
    """Return the summed variance of the sessions after each cutoff up to ``ds``, (row,)."""
    early = panel.times <= np.asarray(first_cutoff, panel.times.dtype)
    learned = panel.masked(first_cutoff, forecasting=True).mask & early
    begin, end = (frame[name].to_numpy(panel.times.dtype) for name in ("cutoff", "ds"))
    out = np.full(len(frame), np.nan)
    for name, rows in frame.groupby("unique_id", sort=False).indices.items():
        if name in panel.ids:
            running = _running_variance(panel, panel.ids.index(str(name)), learned)
            sums = pd.Series(running, panel.times)  # NaN at a time that is none of the panel's
            out[rows] = sums.reindex(end[rows]).to_numpy() - sums.reindex(begin[rows]).to_numpy()
    return np.where(out > 0, out, np.nan)


def _running_variance(panel: Panel, row: int, learned: np.ndarray) -> np.ndarray:
    """Return the sum of a series' variances up to each time, in units of its squared changes.

    The variance of ranges is not the variance of returns: ranges miss what happens between ticks,
    and prices move in steps. So it is multiplied by the ratio of both in the rows that are
    ``learned`` from (series, time), as by Hansen & Lunde (2005), Journal of Financial Econometrics
    3.
    """
    observed = panel.mask[row]
    values = panel.values[row, observed]
    y = values[:, panel.channels.index(panel.target)]
    out = np.full(len(panel.times), np.nan)
    if not (y > 0).all():
        return out
    bars = values[:, [panel.channels.index(name) for name in COLUMNS]].T
    variance = session_variance(y, bars)
    squares = np.diff(np.log(y), prepend=np.log(y[:1])) ** 2
    before = learned[row, observed]
    total = float(variance[before].sum())
    if total > 0:
        out[observed] = np.cumsum(variance) * float(squares[before].sum()) / total
    return out


def return_scores(
    values: np.ndarray, quantiles: Sequence[float], realized: Realized
) -> Mapping[str, np.ndarray]:
    """Return the scores of forecast log returns by column, each (row,); see :func:`evaluate`.

    - ``values`` (row, quantile): forecast prices
    - ``quantiles``: their probabilities, ascending

    Empty where the variance cannot be computed from the quantiles. A score is NaN where the outcome
    is not known, and infinite where the forecast has no such score: where the price at the cutoff,
    the outcome or a quantile is not above zero, or, for the logarithmic one, where the outcome lies
    between two equal quantiles.
    """
    if not enough(quantiles):
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):
        returns = np.log(values / realized.latest[:, None])
    returns = np.where(np.isfinite(returns), returns, np.nan)
    implied = Implied(returns, np.asarray(quantiles, float))
    variance = implied.second_moment()
    change, ranges = realized.change, realized.variance
    scores = {"qlike": (change, metrics.qlike(change**2, variance))}
    if ranges is not None:
        scores["qlike_range"] = ranges, metrics.qlike(ranges, variance)
    for probability in VALUE_AT_RISK:
        if probability in quantiles:
            bound = returns[:, list(quantiles).index(probability)]
            fz0 = metrics.fz0(change, bound, implied.shortfall(probability), probability)
            scores[f"fz0-{probability:g}"] = change, fz0
    with np.errstate(invalid="ignore"):  # a return of minus infinity
        scores["log_score"] = change, -implied.log_density(change)
    return {
        name: np.where(np.isnan(outcome), np.nan, np.where(np.isfinite(score), score, np.inf))
        for name, (outcome, score) in scores.items()
    }
