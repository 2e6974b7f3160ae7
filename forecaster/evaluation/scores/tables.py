"""The tables of an evaluation: scores, daily losses, and tests of each series.

Series are forecast in batches, since all forecasts together may not fit into memory. Each batch is
reduced to its tables, which are joined in the end (:mod:`forecaster.evaluation.backtest`).

Tests are of differences in loss, and of coverage. Where one is impossible (too few forecasts, or
nothing varies), its p-value is NaN.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Shaped
from scipy.special import chdtrc, stdtr, xlog1py, xlogy

from forecaster.evaluation.rolling_origin import NAIVE
from forecaster.evaluation.scores import metrics
from forecaster.evaluation.scores.returns import VALUE_AT_RISK
from forecaster.evaluation.scores.scores import evaluate, horizon_of
from forecaster.forecasting import HORIZON, models_of, quantile_columns
from forecaster.series import Panel, Time

FEWEST = 20
"""The fewest forecasts that give a meaningful p-value."""
ROUNDING = 1e-12
"""Losses that differ by less than this share of them differ by rounding alone."""
_INDEPENDENT = 10  # the fewest horizons without overlap
ALL = 0
"""The horizon in rows that are means over all horizons, each in its own units."""
TOGETHER = ("horizon", "test", "model")
"""P-values are adjusted together, over series, for tests that agree in these columns."""

Losses: TypeAlias = Mapping[tuple[str, str], np.ndarray]
"""The loss of each forecast (row,), by score and model."""


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


class SeriesTest(NamedTuple):
    """One test of one series.

    - ``value``: the observed quantity, such as the share of exceedances
    - ``difference``: between two mean losses, as a share of the second
    - ``degrees``: degrees of freedom of the statistic of a difference
    """

    unique_id: str
    horizon: int
    test: str
    model: str
    value: float
    statistic: float = np.nan
    p_value: float = np.nan
    difference: float = np.nan
    degrees: float = np.nan


class Tables(NamedTuple):
    """Scores, tests and daily losses; columns as of :class:`Evaluation`.

    In the tables of a batch, ``daily`` holds sums, with the number of summed forecasts in
    ``series``, and ``tests`` has no ``p_adjusted`` yet.
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
        """Make the tables of a batch of series.

        - ``frame``: keys and forecasts of all models
        - ``panel``: the history of the series
        - ``model``: the model that is tested against the others
        - ``step_size``: times between two cutoffs
        - ``first_cutoff``, ``season``: those of the evaluation; by default those of the batch
        """
        scores = evaluate(
            frame, by_horizon=True, panel=panel, first_cutoff=first_cutoff, season=season
        ).dropna(subset="mae")
        losses = losses_of(frame)
        frame = frame.assign(**{HORIZON: horizon_of(frame)})
        tests = pd.DataFrame(
            series_tests(frame, losses, model, step_size), columns=SeriesTest._fields
        )
        return Tables(scores, tests, daily_losses(frame, losses, scores))


def losses_of(forecasts: pd.DataFrame) -> Losses:
    """Return the absolute error and the CRPS of each forecast, by score and model."""
    losses = {}
    for model in models_of(forecasts):
        losses["mae", model] = metrics.absolute_error(forecasts["y"], forecasts[model])
        if columns := quantile_columns(forecasts, model):
            values = forecasts[list(columns.values())].to_numpy()
            losses["crps", model] = metrics.crps(forecasts["y"], values, list(columns))
    return losses


def daily_losses(frame: pd.DataFrame, losses: Losses, scores: pd.DataFrame) -> pd.DataFrame:
    """Sum losses by cutoff and model over all horizons, in units of the naive's errors.

    The unit is the naive's root mean squared error of the same series and horizon, so that neither
    high prices nor long horizons dominate. Columns: ``cutoff, model, series`` (the number of summed
    forecasts) and the scores.
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


def means_of_sums(sums: pd.DataFrame) -> pd.DataFrame:
    """Return daily losses as means over all series; ``sums``: rows of :func:`daily_losses`."""
    keyed = sums.groupby(["cutoff", "model"], sort=False).sum()
    return keyed.div(keyed.pop("series"), axis=0).reset_index()


def series_tests(
    frame: pd.DataFrame, losses: Losses, model: str, step_size: int
) -> Iterator[SeriesTest]:
    """Yield all tests of every series.

    They test ``model`` against the others by absolute error and CRPS, at each horizon and over all
    horizons; and the value at risk of every model, one step ahead.
    """
    quantiles = {
        name: quantile_columns(frame, name) for name in dict.fromkeys(m for _, m in losses)
    }
    groups = frame.groupby(["unique_id", HORIZON], sort=False).indices
    for (series, horizon), indices in groups.items():  # pyright: ignore[reportGeneralTypeIssues]
        rows = np.asarray(indices)[None, :]
        yield from _comparisons(series, horizon, losses, rows, model, lags_of(horizon, step_size))
        if horizon == 1:
            yield from _tests_of_one_step(series, frame.iloc[rows[0]], quantiles)
    for series, rows in _whole_cutoffs(frame):
        yield from _comparisons(series, ALL, losses, rows, model, lags_of(len(rows), step_size))


def lags_of(horizon: int, step_size: int) -> int:
    """Return the number of further cutoffs whose errors overlap at this horizon."""
    return -(-int(horizon) // step_size) - 1


def _whole_cutoffs(frame: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each series with the rows (horizon, cutoff) of cutoffs observed at all horizons."""
    most = int(frame[HORIZON].max())
    steps = frame.groupby(["unique_id", "cutoff"], sort=False)[HORIZON].transform("size")
    whole = frame[steps == most]
    for series, indices in whole.groupby("unique_id", sort=False).indices.items():
        yield str(series), np.flatnonzero(steps == most)[indices].reshape(-1, most).T


def _comparisons(
    series: str, horizon: int, losses: Losses, rows: np.ndarray, model: str, lags: int
) -> Iterator[SeriesTest]:
    """Compare one series' losses with those of the other models.

    ``rows`` (horizon, cutoff): the rows of the losses. Losses are taken relative to the other
    model's mean at the same horizon, and averaged over horizons.
    """
    for score, other in losses:
        if other == model:
            continue
        ours, others = losses[score, model][rows], losses[score, other][rows]
        size = others.mean(1, keepdims=True)
        unit = np.where(size > 0, size, 1.0)  # zero errors allow no relative difference
        ours, others = (ours / unit).mean(0), (others / unit).mean(0)
        tested = diebold_mariano(ours, others, lags)
        degrees = degrees_of_freedom(len(ours), lags)
        difference = float(ours.mean() - others.mean())
        better = float(difference < 0) if np.isfinite(difference) else np.nan
        difference = difference if (size > 0).all() else np.nan
        test = f"{score}_against"
        yield SeriesTest(series, horizon, test, other, better, *tested, difference, degrees)


def _tests_of_one_step(
    series: str, frame: pd.DataFrame, quantiles: Mapping[str, Mapping[float, str]]
) -> Iterator[SeriesTest]:
    """Test the value at risk of every model on one series, one step ahead."""
    for model, columns in quantiles.items():
        for probability in (each for each in VALUE_AT_RISK if each in columns):
            bound = frame[columns[probability]].to_numpy()
            if not np.isfinite(bound).all():
                continue
            exceeded = frame["y"].to_numpy() < bound
            for name, tested in (
                ("kupiec", kupiec(exceeded, probability)),
                ("christoffersen", christoffersen(exceeded)),
            ):
                test, share = f"{name}-{probability:g}", float(exceeded.mean())
                yield SeriesTest(series, 1, test, model, share, *tested)
