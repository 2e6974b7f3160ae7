"""Scores of the log returns that forecasts of prices imply.

Prices are forecast by quantiles; their logarithms, less that of the price at the cutoff, are those
of the log return. A Student-t logarithm has no finite mean as a price, but a variance as a return.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from forecaster.evaluation.scores import metrics
from forecaster.evaluation.scores.implied import Implied, enough
from forecaster.evaluation.scores.realized import Realized

VALUE_AT_RISK = (0.05, 0.025)
"""The probabilities at which values at risk are tested and scored."""
QLIKE, QLIKE_RANGE, LOG_SCORE = "qlike", "qlike_range", "log_score"
"""The columns of these scores."""


def column_of(probability: float) -> str:
    """Return the column of the joint score of value at risk and expected shortfall."""
    return f"fz0-{probability:g}"


def return_scores(
    values: np.ndarray, quantiles: Sequence[float], realized: Realized
) -> Mapping[str, np.ndarray]:
    """Return the scores of forecast log returns by column, each (row,); see :func:`evaluate`.

    - ``values`` (row, quantile): forecast prices
    - ``quantiles``: their probabilities, ascending

    Empty where the quantiles do not tell the variance. A score is NaN where the outcome is not
    known, and infinite where the forecast has no such score: where a quantile of the price is not
    above zero, or, for the logarithmic one, where the outcome lies between two equal quantiles.
    """
    if not enough(quantiles):
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):
        returns = np.log(values / realized.latest[:, None])
    implied = Implied.of(np.where(np.isfinite(returns), returns, np.nan), quantiles)
    variance = implied.second_moment()
    scores = {QLIKE: metrics.qlike(realized.change**2, variance)}
    outcomes = {QLIKE: realized.change}
    if realized.variance is not None:
        scores[QLIKE_RANGE] = metrics.qlike(realized.variance, variance)
        outcomes[QLIKE_RANGE] = realized.variance
    for probability in VALUE_AT_RISK:
        if probability in quantiles:
            bound = implied.values[:, list(quantiles).index(probability)]
            shortfall = implied.shortfall(probability)
            name = column_of(probability)
            scores[name] = metrics.fz0(realized.change, bound, shortfall, probability)
    scores[LOG_SCORE] = -implied.log_density(realized.change)
    return {
        name: np.where(np.isnan(outcomes.get(name, realized.change)), np.nan, _or_infinite(score))
        for name, score in scores.items()
    }


def _or_infinite(score: np.ndarray) -> np.ndarray:
    """Return a score, infinite where the forecast has none."""
    return np.where(np.isfinite(score), score, np.inf)
