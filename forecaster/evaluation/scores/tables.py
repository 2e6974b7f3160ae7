"""The tables of an evaluation: scores, tests and daily losses of some series, and of all.

Series are forecast in batches, as all forecasts at once need not fit into memory; each batch is
reduced to its tables, and those are combined in the end.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.evaluation.origins.rolling_origin import NAIVE
from forecaster.evaluation.scores import metrics, significance
from forecaster.evaluation.scores.scores import evaluate, horizon_of
from forecaster.forecasting import HORIZON, models_of, quantile_columns
from forecaster.series import Panel, Time

LATEST = "latest"
"""The column of the values that were known at the cutoffs."""
ALL = 0
"""The horizon that stands for all of them: means over the horizons, each in its own units."""
TOGETHER = ("horizon", "test", "model")
"""Of tests whose p-values are adjusted together, over series."""
VALUE_AT_RISK = (0.05, 0.025)
"""Probabilities at which values at risk are tested."""

Losses: TypeAlias = Mapping[tuple[str, str], np.ndarray]
"""By score and model, the loss of each forecast, (row,)."""


class SeriesTest(NamedTuple):
    """One test of one series.

    - ``value``: what was observed, e.g. the share of exceedances
    - ``difference``: of two mean losses, as a share of the second
    """

    unique_id: str
    horizon: int
    test: str
    model: str
    value: float
    statistic: float = np.nan
    p_value: float = np.nan
    difference: float = np.nan


class Tables(NamedTuple):
    """Scores, tests and daily losses; columns as of :class:`Evaluation`.

    Of a batch, ``daily`` holds sums over ``series``, how many they are, and ``tests`` have no
    ``p_adjusted`` yet.
    """

    scores: pd.DataFrame
    tests: pd.DataFrame
    daily: pd.DataFrame

    @staticmethod
    def of_batch(
        frame: pd.DataFrame,
        panel: Panel,
        model: str,
        step_size: int,
        first_cutoff: Time | Shaped[np.ndarray, ""] | None = None,
        season: int | None = None,
    ) -> "Tables":
        """The tables of some series.

        ``frame``: keys and forecasts of all models, and ``latest``. ``panel``: with the history of
        the series. ``model``: the one that is tested against the others. ``step_size``: times
        between two cutoffs. ``first_cutoff``, ``season``: of the evaluation; by default the frame's
        and these series'.
        """
        forecasts = frame.drop(columns=LATEST)
        scores = evaluate(
            forecasts, by_horizon=True, panel=panel, first_cutoff=first_cutoff, season=season
        )
        scores = scores.dropna(subset="mae")
        losses = losses_of(forecasts)
        frame = frame.assign(**{HORIZON: horizon_of(frame)})
        tests = pd.DataFrame(
            series_tests(frame, losses, model, step_size), columns=SeriesTest._fields
        )
        return Tables(scores, tests, daily_losses(frame, losses, scores))


def losses_of(forecasts: pd.DataFrame) -> Losses:
    """Absolute error and CRPS of each forecast, by score and model."""
    losses = {}
    for model in models_of(forecasts):
        losses["mae", model] = metrics.absolute_error(forecasts["y"], forecasts[model])
        if columns := quantile_columns(forecasts, model):
            values = forecasts[list(columns.values())].to_numpy()
            losses["crps", model] = metrics.crps(forecasts["y"], values, list(columns))
    return losses


def daily_losses(frame: pd.DataFrame, losses: Losses, scores: pd.DataFrame) -> pd.DataFrame:
    """Losses by cutoff and model over all horizons, in units of the naive's errors, summed.

    The unit is the root of the naive's mean squared error of the same series and horizon, so that
    neither a high price nor a far horizon weighs more. Columns: ``cutoff, model, series`` (how
    many forecasts were summed) and the scores.
    """
    naive = scores[scores["model"] == NAIVE].set_index(["unique_id", HORIZON])["rmse"]
    keys = pd.MultiIndex.from_frame(frame[["unique_id", HORIZON]])
    unit = naive.reindex(keys).to_numpy()
    usable = np.isfinite(unit) & (unit > 0)
    parts = []
    for model in dict.fromkeys(name for _, name in losses):
        part = {
            score: loss[usable] / unit[usable]
            for (score, name), loss in losses.items()
            if name == model
        }
        parts.append(frame.loc[usable, ["cutoff"]].assign(model=model, series=1, **part))
    together = pd.concat(parts).dropna(subset="mae")
    return together.groupby(["cutoff", "model"], sort=False).sum().reset_index()


def added(sums: pd.DataFrame, batch: pd.DataFrame) -> pd.DataFrame:
    """The sums of a further batch added: one after the other, so that it is the same in parts."""
    together = pd.concat([sums, batch])
    return together.groupby(["cutoff", "model"], sort=False).sum().reset_index()


def means_of_sums(sums: pd.DataFrame) -> pd.DataFrame:
    """Daily losses as means over all series."""
    keyed = sums.set_index(["cutoff", "model"])
    return keyed.div(keyed.pop("series"), axis=0).reset_index()


def series_tests(
    frame: pd.DataFrame, losses: Losses, model: str, step_size: int
) -> Iterator[SeriesTest]:
    """All tests of every series.

    ``model`` against the others, by absolute error and CRPS, at each horizon and over all of them;
    value at risk and direction of every model, one step ahead.
    """
    quantiles = {
        name: quantile_columns(frame, name) for name in dict.fromkeys(m for _, m in losses)
    }
    groups = frame.groupby(["unique_id", HORIZON], sort=False).indices
    for (series, horizon), indices in groups.items():  # pyright: ignore[reportGeneralTypeIssues]
        rows = np.asarray(indices)[None, :]
        yield from _comparisons(series, horizon, losses, rows, model, _lags(horizon, step_size))
        if horizon == 1:
            yield from _tests_of_one_step(series, frame.iloc[rows[0]], quantiles)
    for series, rows in _whole_cutoffs(frame):
        yield from _comparisons(series, ALL, losses, rows, model, _lags(len(rows), step_size))


def _lags(horizon: int, step_size: int) -> int:
    """Over how many cutoffs the errors of a horizon overlap."""
    return -(-int(horizon) // step_size) - 1


def _whole_cutoffs(frame: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """By series, the rows of the cutoffs that were observed at all horizons, (horizon, cutoff)."""
    most = int(frame[HORIZON].max())
    steps = frame.groupby(["unique_id", "cutoff"], sort=False)[HORIZON].transform("size")
    whole = frame[steps == most]
    for series, indices in whole.groupby("unique_id", sort=False).indices.items():
        yield str(series), np.flatnonzero(steps == most)[indices].reshape(-1, most).T


def _comparisons(
    series: str, horizon: int, losses: Losses, rows: np.ndarray, model: str, lags: int
) -> Iterator[SeriesTest]:
    """One series' losses against those of the other models, ``rows`` (horizon, cutoff).

    Losses are relative to the mean of the other's at the same horizon, and means over horizons.
    """
    for score, other in losses:
        if other == model:
            continue
        ours, others = losses[score, model][rows], losses[score, other][rows]
        size = others.mean(1, keepdims=True)
        unit = np.where(size > 0, size, 1.0)  # an error of nothing has no shares
        ours, others = (ours / unit).mean(0), (others / unit).mean(0)
        tested = significance.diebold_mariano(ours, others, lags)
        difference = float(ours.mean() - others.mean())
        better = float(difference < 0) if np.isfinite(difference) else np.nan
        difference = difference if (size > 0).all() else np.nan
        yield SeriesTest(series, horizon, f"{score}_against", other, better, *tested, difference)


def _tests_of_one_step(
    series: str, frame: pd.DataFrame, quantiles: Mapping[str, Mapping[float, str]]
) -> Iterator[SeriesTest]:
    """Value at risk and direction of every model for one series, its rows one step ahead."""
    for model, columns in quantiles.items():
        for probability in VALUE_AT_RISK:
            if probability in columns and np.isfinite(frame[columns[probability]]).all():
                bound = frame[columns[probability]].to_numpy()
                exceeded = frame["y"].to_numpy() < bound
                yield from _value_at_risk(series, model, exceeded, probability)
        if np.isfinite(frame[model].to_numpy(float)).all():
            yield from _direction(series, model, frame)


def _value_at_risk(
    series: str, model: str, exceeded: np.ndarray, probability: float
) -> Iterator[SeriesTest]:
    share, label = float(exceeded.mean()), f"{probability:g}"
    kupiec = significance.kupiec(exceeded, probability)
    yield SeriesTest(series, 1, f"kupiec-{label}", model, share, *kupiec)
    clusters = significance.christoffersen(exceeded)
    yield SeriesTest(series, 1, f"christoffersen-{label}", model, share, *clusters)


def _direction(series: str, model: str, frame: pd.DataFrame) -> Iterator[SeriesTest]:
    y, latest = frame["y"].to_numpy(), frame[LATEST].to_numpy()
    forecast = frame[model].to_numpy(float)
    direction = significance.pesaran_timmermann(y - latest, forecast - latest)
    hits = float(((y > latest) == (forecast > latest)).mean())
    yield SeriesTest(series, 1, "direction", model, hits, *direction)
    with_actual, with_latest = significance.echo(y, forecast, latest)
    yield SeriesTest(series, 1, "echo", model, with_latest - with_actual)
