"""Compare errors across series: relative to "unchanged", in volatilities, or in pairs of models.

A horizon of :data:`ALL` means the mean over all horizons. All functions raise UsageError for a
score or a horizon that the evaluation does not have.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from forecaster.evaluation.backtest.evaluation import Evaluation, check_asked
from forecaster.evaluation.origins.rolling_origin import NAIVE
from forecaster.evaluation.scores.tables import ALL


class Together(NamedTuple):
    """Scores relative to those of another model, for all series together, by model.

    - ``ratio``: the mean over series of the ratio at each horizon; where errors are summed
      (:attr:`.Evaluation.summed`), the ratio of the sums over series and horizons
    - ``series``: the number of series it rests on
    """

    ratio: pd.Series
    series: pd.Series


def relative(
    evaluation: Evaluation, score: str, horizon: int = ALL, other: str = NAIVE
) -> pd.DataFrame:
    """Return a score relative to that of another model, "unchanged", at the same horizon.

    The table has a row per series and a column per model.
    """
    table = _by_horizon(evaluation, score, horizon)
    return _over_horizons("mean", table.div(table[other], axis=0), evaluation)


def in_volatility(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return a score in units of each series' volatility, see :func:`volatility`.

    The table has a row per series and a column per model.
    """
    table = _by_horizon(evaluation, score, horizon)
    unit = volatility(evaluation).reindex(table.index.get_level_values("unique_id")).to_numpy()
    return _over_horizons("mean", table.div(unit, axis=0), evaluation)


def excess(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return a score less that of "unchanged" at the same horizon.

    It is for scores of which only differences say something, such as ``qlike``. The table has a row
    per series and a column per model.
    """
    table = _by_horizon(evaluation, score, horizon)
    return _over_horizons("mean", table.sub(table[NAIVE], axis=0), evaluation)


MEASURES: Mapping[str, Callable[[Evaluation, str, int], pd.DataFrame]] = {
    "relative": relative,
    "volatility": in_volatility,
}


def volatility(evaluation: Evaluation) -> pd.Series:
    """Return the root mean squared one-step change of each series at the evaluation's cutoffs."""
    scores = evaluation.scores
    naive = scores[(scores["model"] == NAIVE) & (scores["horizon"] == 1)]
    size = naive.set_index("unique_id")["rmse"]
    return size.where(size > 0)


def totals(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return the sum of a score over the horizons, in the units of each series.

    The table has a row per series and a column per model; NaN where a score is missing.
    """
    return _over_horizons("sum", _by_horizon(evaluation, score, horizon), evaluation)


def together(
    evaluation: Evaluation, score: str, other: str = NAIVE, horizon: int = ALL
) -> Together:
    """Return each model's score relative to that of ``other``, for all series together."""
    return pooled(comparable(evaluation, score, other, horizon), other)


def comparable(
    evaluation: Evaluation, score: str, other: str = NAIVE, horizon: int = ALL
) -> pd.DataFrame:
    """Return the rows of series that :func:`pooled` takes: sums of a score, or ratios of it."""
    if evaluation.summed:
        return totals(evaluation, score, horizon)
    return relative(evaluation, score, horizon, other)


def pooled(table: pd.DataFrame, other: str = NAIVE) -> Together:
    """Return scores relative to those of ``other``; ``table``: rows of :func:`comparable`.

    A model is compared on the series for which both scores are known. The sums are those of errors
    or, as all ratios of ``other`` to itself are 1, give the mean ratio. The result is NaN where the
    sum of ``other`` is zero, or there is no such series.
    """
    both = table.notna() & table[[other]].notna().to_numpy()
    sums = both.mul(table[other].fillna(0), axis=0).sum()
    return Together(table.where(both).sum() / sums.where(sums > 0), both.sum())


def differences(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return how much lower or higher our score is than each other model's, with a 95 % interval.

    Columns: ``unique_id, model, difference`` (as a share of the other's score), ``low, high`` (NaN
    where there are too few cutoffs for a test), ``p_adjusted``.

    The interval is that of the Diebold-Mariano test, which allows for overlapping errors.
    """
    check_asked(evaluation, horizon, score)
    tests = tests_at(evaluation, horizon)
    tests = tests[tests["test"] == f"{score}_against"]
    quantile = stdtrit(tests["degrees"], 0.975)
    known = np.isfinite(tests["statistic"]) & (tests["statistic"] != 0)
    half = quantile * (tests["difference"] / tests["statistic"].where(known)).abs()
    return tests.assign(low=tests["difference"] - half, high=tests["difference"] + half)[
        ["unique_id", "model", "difference", "low", "high", "p_adjusted"]
    ].reset_index(drop=True)


def tests_at(evaluation: Evaluation, horizon: int) -> pd.DataFrame:
    """Return the tests of our model against the others at a horizon."""
    tests = evaluation.tests
    return tests[tests["test"].str.endswith("_against") & (tests["horizon"] == horizon)]


def _by_horizon(evaluation: Evaluation, score: str, horizon: int) -> pd.DataFrame:
    check_asked(evaluation, horizon, score)
    scores = evaluation.scores
    if horizon != ALL:
        scores = scores[scores["horizon"] == horizon]
    return scores.pivot(index=["unique_id", "horizon"], columns="model", values=score)


def _over_horizons(how: str, table: pd.DataFrame, evaluation: Evaluation) -> pd.DataFrame:
    """Return means or sums over horizons, a row per series in the evaluation's order.

    NaN where a score is missing at any horizon.
    """
    groups = table.replace([np.inf, -np.inf], np.nan).groupby(level="unique_id")
    whole = groups.count() == groups.size().to_numpy()[:, None]
    return groups.agg(how).where(whole).reindex(evaluation.ids)
