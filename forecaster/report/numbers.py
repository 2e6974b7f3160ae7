"""The numbers that the figures of an evaluation show."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.evaluation import ALPHA, Evaluation, comparison, horizon_of, scaled
from forecaster.forecasting import forecast_columns, quantile_columns

SMOOTHED = 21
"""Cutoffs that a mean by date is taken over."""


class Pairs(NamedTuple):
    """Two models' scaled scores of the same series, (series,); ``significant``: they differ."""

    other: str
    ours: np.ndarray
    others: np.ndarray
    significant: np.ndarray

    @staticmethod
    def of(evaluation: Evaluation, other: str) -> "Pairs":
        """Our scores beside another model's."""
        table = scaled(evaluation, evaluation.sharpest_score)
        tests = comparison_tests(evaluation)
        p = tests[tests["model"] == other].set_index("unique_id")["p_adjusted"]
        significant = p.reindex(table.index).to_numpy() < ALPHA
        ours, others = table[evaluation.model].to_numpy(), table[other].to_numpy()
        return Pairs(other, ours, others, significant)


def comparison_tests(evaluation: Evaluation) -> pd.DataFrame:
    """The Diebold-Mariano tests one step ahead: by CRPS where there are any, else by error."""
    tests = evaluation.tests
    test = "crps_against" if "crps_against" in set(tests["test"]) else "mae_against"
    return tests[(tests["test"] == test) & (tests["horizon"] == 1)]


def strongest(evaluation: Evaluation) -> str:
    """The model that ours has the hardest time with; PyTorch's networks only if there is no other.

    The one with the highest median ratio of our score to its, one step ahead.
    """
    table = comparison(evaluation, 1)
    rows = table[table["score"] == ("crps" if "crps" in set(table["score"]) else "mae")]
    rows = rows[rows["model"] != "PyTorch"] if len(rows) > 1 else rows
    return str(rows.sort_values("median_ratio")["model"].iloc[-1])


def pit(evaluation: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Probability integral transform of our model one step ahead.

    Returns edges, which are its quantiles, 0 and 1, and the share of outcomes between each two of
    them; both are empty without bands.
    """
    columns = forecast_columns(evaluation.model, evaluation.summary.levels)
    quantiles = quantile_columns(columns, evaluation.model)
    if not quantiles:
        return np.zeros(0), np.zeros(0)
    frame = evaluation.forecasts(columns)
    frame = frame[horizon_of(frame) == 1]
    below = (frame["y"].to_numpy()[:, None] > frame[list(quantiles.values())].to_numpy()).sum(1)
    shares = np.bincount(below, minlength=len(quantiles) + 1) / max(1, len(below))
    return np.array([0.0, *quantiles, 1.0]), shares


def median_widths(evaluation: Evaluation, model: str) -> pd.Series:
    """The median over series of the scaled width of a model's bands, by level as a share."""
    scores = evaluation.scores
    scores = scores[(scores["model"] == model) & (scores["horizon"] == 1)]
    unit = scores["mase"] / scores["mae"]
    columns = [str(name) for name in scores if str(name).startswith("width-")]
    levels = [float(name.removeprefix("width-")) / 100 for name in columns]
    widths = [(scores[name] * unit).median() for name in columns]
    return pd.Series(widths, index=levels, dtype=float).sort_index()


def scaled_by_horizon(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """As :func:`~forecaster.evaluation.scaled`, a row per series and horizon."""
    scores = evaluation.scores
    with np.errstate(divide="ignore", invalid="ignore"):
        values = scores.assign(scaled=scores[score] * scores["mase"] / scores["mae"])
    return values.pivot(index=["unique_id", "horizon"], columns="model", values="scaled")


def relative_by_horizon(evaluation: Evaluation) -> pd.DataFrame:
    """Each model's score relative to the naive's, by horizon; means over series."""
    table = scaled_by_horizon(evaluation, evaluation.sharpest_score)
    return _relative_to_naive(table).groupby(level="horizon").mean()


def relative_by_date(evaluation: Evaluation) -> pd.DataFrame:
    """Each model's score relative to the naive's, by cutoff; means of the latest 21 cutoffs."""
    score = evaluation.sharpest_score
    days = evaluation.daily.pivot(index="cutoff", columns="model", values=score)
    return _relative_to_naive(days.rolling(SMOOTHED, 1).mean())


def relative_by_volatility(evaluation: Evaluation) -> pd.DataFrame:
    """Each model's score relative to the naive's, by decile of volatility, from 1; means.

    With fewer than ten series there are as many groups as series; with one, none.
    """
    ranks = volatility(evaluation).rank(method="first")
    count = min(10, len(ranks))
    if count < 2:
        return pd.DataFrame()
    table = scaled(evaluation, evaluation.sharpest_score)
    deciles = pd.qcut(ranks, count, labels=False).reindex(table.index)
    means = _relative_to_naive(table).groupby(deciles).mean()
    return means.set_index(means.index + 1)


def _relative_to_naive(table: pd.DataFrame) -> pd.DataFrame:
    """A table of scores, a column per model, each divided by the naive's."""
    return table.div(table["Naive"], axis=0)


def volatility(evaluation: Evaluation) -> pd.Series:
    """Mean absolute change of each series before the first cutoff, relative to its size."""
    scores = evaluation.scores
    first = scores[scores["model"] == evaluation.model].drop_duplicates("unique_id")
    first = first.set_index("unique_id")
    outcomes = evaluation.forecasts([])
    size = outcomes.assign(y=outcomes["y"].abs()).groupby("unique_id")["y"].mean()
    relative = first["mae"] / first["mase"] / size
    return relative.replace([np.inf, -np.inf], np.nan).dropna()
