"""Scores of the log returns that forecasts of prices imply.

Prices are forecast by quantiles. The logarithms of these, minus the logarithm of the price at the
cutoff, are the quantiles of the log return. A Student-t logarithm has no finite mean as a price,
but a variance as a return.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from forecaster.evaluation.scores import metrics
from forecaster.evaluation.scores.implied import Implied, enough
from forecaster.evaluation.scores.realized import Realized

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
