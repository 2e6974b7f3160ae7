"""Sample paths of all series together, from the forecast distributions and past errors.

The dependence between series and between steps is a t copula (Demarta & McNeil 2005, International
Statistical Review 73) with the correlations of past errors: a path is a sum of the errors of all
past times, each with a random weight that is the same for all series and steps. Of prices, how much
of the errors all series share is a forecast, not the average of the past (:func:`scaled_to_now`).
Every path has its mirror image, so that the paths of a basket lean to neither side, and each series
and step keeps its own distribution.

Sums of series, such as sectors, portfolios, stores or regions, are forecast from these paths.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.errors import (
    Kind,
    ModelError,
    Skipped,
    UsageError,
    check_whole,
    listed,
    name_reasons,
    spelled,
    spellings,
    wrong_argument,
)
from forecaster.forecasting.bands import FARTHEST, Distribution, ndtri
from forecaster.forecasting.columns import check_levels, check_quantiles, shares_of
from forecaster.forecasting.model import Model
from forecaster.forecasting.predicting.forecast import RISE, finite_rows, latest_of, price_factor
from forecaster.forecasting.predicting.predicting import prepared
from forecaster.ingest import ColumnOptions, Table
from forecaster.machine import free_memory
from forecaster.series import Panel, findings_of, next_times, say_findings, show_time

_KNOTS = np.linspace(-FARTHEST, FARTHEST, 161)  # scores between which quantiles are interpolated
_DOF = 10.0  # degrees of freedom of the copula: large errors come together
_LARGEST_ERROR = 4.0  # one past day counts no more in correlations
_BYTES_OF_NUMBER = 24  # a number of a path, with temporary arrays


class Paths(NamedTuple):
    """Joint futures of all series of a panel.

    - ``panel``: the series that are forecast, with the rows until now
    - ``times``: of the steps of each series
    - ``values``: in the units of :func:`predict`
    - ``origins``: number of past times whose errors the paths are drawn from
    """

    panel: Panel
    times: Shaped[np.ndarray, "series horizon"]
    values: Float[np.ndarray, "series path horizon"]
    origins: int

    def frame(self, name: str) -> pd.DataFrame:
        """Return the frame of :func:`simulate`; ``name``: of the column of values."""
        series, count, horizon = self.values.shape
        return pd.DataFrame(
            {
                "unique_id": np.repeat(np.array(self.panel.ids, object), count * horizon),
                "ds": np.repeat(self.times[:, None], count, axis=1).ravel(),
                "sample_id": np.tile(np.repeat(np.arange(count), horizon), series),
                name: self.values.ravel(),
            }
        )


def simulate(
    model: Model,
    panel: Panel | Table,
    n_paths: int = 1000,
    seed: int = 0,
    **columns: Unpack[ColumnOptions],
) -> pd.DataFrame:
    """Draw paths over the horizon from every series' own latest row, all series together.

    Returns a long frame ``unique_id, ds, sample_id`` and the value under the model's name
    (``LSTM``), in the units of :func:`predict`. A ``sample_id`` is one future of all series: the
    value of a basket is the sum of its series' values with that ``sample_id``. Each series and time
    by itself has the distribution of :func:`predict`.

    The dependence between series and between steps is that of the errors of past forecasts, over as
    many steps as the model holds back. Of prices, how much of these errors is common to all series
    is forecast from the latest ones. A series without errors is independent of the others.

    - ``model, panel, columns``: as for :func:`predict`, which leaves out the same series and rows
    - ``n_paths``: the number of paths
    - ``seed``: of the random draws

    Raises UsageError for less than one path, and ModelError as :func:`predict` does.
    """
    model, panel = prepared(model, panel, **columns)
    say_findings(findings_of(panel, forecasting=True), len(panel.ids))
    return draw_paths(model, panel, n_paths, seed).frame(model.config.column)


def draw_paths(
    model: Model,
    panel: Panel,
    n_paths: int,
    seed: int = 0,
    steps: Sequence[int] | None = None,
) -> Paths:
    """Draw the paths of :func:`simulate` from what :func:`prepared` returns.

    ``steps``: the steps ahead to draw, 1 is the next one; None: all. Each takes its time.
    """
    check_whole("n_paths", n_paths, 1)
    check_whole("seed", seed, 0)
    horizon = model.config.horizon
    transformed = model.transform.apply(panel, horizon)
    latest = latest_of(model, panel, transformed, 1)
    memory = model.config.longest_validation + horizon
    scores, spread = latest.errors
    rows = min(memory, spread.shape[1], transformed.positions.shape[1])
    units, positions = (scores / spread)[:, -rows:], transformed.positions[:, -rows:]
    closed = (transformed.scale[:, -1] == 0)[:, None]
    units = np.where(closed, 0.0, units)  # steps without an error need no past one
    if not model.transform.takes_any:
        units = scaled_to_now(units, positions)
    known = len(np.unique(positions[np.isfinite(units[:, :, 0])]))
    times = np.stack(panel.of_times(lambda times: next_times(times, horizon, model.frequency)))
    if steps is not None:
        chosen = [step - 1 for step in steps]
        latest, units, times = latest.ahead(chosen), units[:, :, chosen], times[:, chosen]
    series, wanted = len(panel.ids), units.shape[2]
    size, free = _BYTES_OF_NUMBER * n_paths * series * wanted, free_memory()
    if size > free:
        raise UsageError(
            f"n_paths: {n_paths:,} paths of {series:,} series take {size / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB are free; expected {max(1, free * n_paths // size):,} at most"
        )
    usual = _draw(units, positions, n_paths, np.random.default_rng(seed))
    standardised = _values(latest.distribution, latest.calibrated.scores(usual))
    paths = latest.in_units(standardised)  # (series, path, horizon)
    panel, finite = finite_rows(panel, {model.config.column: paths})
    paths = paths[finite] * price_factor(panel)[:, None, None]
    return Paths(panel, times[finite], paths, known)


def _draw(
    errors: Float[np.ndarray, "series origin horizon"],
    positions: Int[np.ndarray, "series origin"],
    n_paths: int,
    random: np.random.Generator,
) -> Float[np.ndarray, "series path horizon"]:
    """Draw standard normal scores of all series jointly.

    - ``errors``: past scores, in order of time, NaN where unknown
    - ``positions``: of their origins on the panel's time axis
    """
    times, time = np.unique(positions, return_inverse=True)
    known, half = np.asarray(np.isfinite(errors).all(axis=2)), -(-n_paths // 2)
    weights = random.standard_normal((half, len(times)))
    weights *= np.sqrt(_DOF / random.chisquare(_DOF, (half, 1)))
    low = (np.arange(half) + random.uniform(size=half)) / n_paths
    usual = ndtri(np.concatenate([low, (1 - low[: n_paths - half])[::-1]]))
    # One product of all series takes a tenth of the time of one each.
    series, horizon = len(errors), errors.shape[2]
    past, at = np.zeros((len(times), series, horizon)), np.nonzero(known)
    past[time.reshape(positions.shape)[at], at[0]] = errors[at]
    past = np.clip(past, -_LARGEST_ERROR, _LARGEST_ERROR).reshape(len(times), -1)
    sums = (weights @ past).reshape(half, series, horizon)
    scores = np.empty((series, n_paths, horizon))
    for row in range(series):
        # The order of a series without errors is random.
        drawn = sums[:, row] + 1e-9 * random.standard_normal((half, horizon))
        ranks = np.concatenate([drawn, -drawn])[:n_paths].argsort(axis=0).argsort(axis=0)
        scores[row] = usual[ranks]
    return scores


def _values(
    distribution: Distribution, scores: Float[np.ndarray, "series path horizon"]
) -> Float[np.ndarray, "series path horizon"]:
    """Return the values with these normal scores; ``distribution``: (series, 1, horizon)."""
    if distribution.counts is not None:  # between whole numbers there is nothing to interpolate
        return distribution.at(np.zeros(scores.shape[1], int)).quantiles(scores)
    shape = (scores.shape[0], len(_KNOTS), scores.shape[2])
    every = distribution.at(np.zeros(len(_KNOTS), int))
    knots = every.quantiles(np.broadcast_to(_KNOTS[:, None], shape))
    values = np.empty_like(scores)
    for row in range(shape[0]):
        for h in range(shape[2]):
            values[row, :, h] = np.interp(scores[row, :, h], _KNOTS, knots[row, :, h])
    return values


_HALF_LIFE = 10.0  # number of times after which the weight of a square has halved
_PRIOR = 10.0  # weight of the mean of all squares, as a number of times
_MOST = 0.95  # largest share of the factor in the variance of errors
_ENOUGH = 0.5  # share of the series that must have an error, for a time to have a factor


def scaled_to_now(
    units: Float[np.ndarray, "series origin horizon"], positions: Int[np.ndarray, "series origin"]
) -> Float[np.ndarray, "series origin horizon"]:
    """Return past errors with the variance of their common factor that is forecast for now.

    The forecast is made from errors one step ahead, which are known first, and holds for all steps.
    Errors of a single series, and of series that move independently, stay as they are.

    - ``units``: errors in units of their spread, NaN where unknown
    - ``positions``: positions of their origins on the panel's time axis, in order of time
    """
    errors = units[:, :, 0][np.isfinite(units[:, :, 0])]
    if not len(errors):
        return units
    # The common factor at each time is the mean error of the series there.
    times, time = np.unique(positions, return_inverse=True)
    known = np.isfinite(units)
    sums, count = np.zeros((2, len(times), units.shape[2]))
    np.add.at(sums, time := time.reshape(positions.shape), np.where(known, units, 0.0))
    np.add.at(count, time, known)
    enough = count >= np.maximum(_ENOUGH * count.max(), 1)
    factor = np.where(enough, sums / np.maximum(count, 1), np.nan)
    squares = factor[:, 0] ** 2
    squares = squares[np.isfinite(squares)]
    total = float((errors**2).mean())
    usual = min(float(squares.mean()), _MOST * total)
    # If series were independent, a part of the mean square would remain; it does not change.
    alone = total / float(count[enough[:, 0], 0].mean())
    weights = 0.5 ** (np.arange(len(squares))[::-1] / _HALF_LIFE)
    recent = (_PRIOR * usual + weights @ squares) / (_PRIOR + weights.sum())
    shared = max(0.0, 1 - alone / usual) if usual > 0 else 0.0
    now = min(usual + shared * (recent - usual), _MOST * total)
    if now == usual:
        return units
    common = np.nan_to_num(factor)[time]
    own = np.sqrt((total - now) / (total - usual))
    return own * (units - common) + np.sqrt(now / usual) * common


GroupWeights: TypeAlias = Mapping[str, Mapping[str, float]]
"""By group, the weight of each of its series."""
USUAL_PATHS = 2000
SERIES = "series"
"""The column with the number of series in a group."""
_BEYOND = 5  # number of paths that a quantile needs beyond it


def predict_sums(
    model: Model,
    panel: Panel | Table,
    groups: GroupWeights | pd.DataFrame,
    level: Sequence[float] = (80, 95),
    quantiles: Sequence[float] = (),
    *,
    n_paths: int = USUAL_PATHS,
    seed: int = 0,
    **columns: Unpack[ColumnOptions],
) -> pd.DataFrame:
    """Forecast the sums of groups of series, with bands that know how series move together.

    Returns a long frame with the columns of :func:`predict`, where ``unique_id`` is the group, and
    ``mean`` and ``series``, the number of series in the group. Sums are taken over the same futures
    that :func:`simulate` draws with this seed, so groups and their parts agree: the ``mean`` of a
    group is the sum of the means of its parts.

    - ``model, panel, level, quantiles, columns``: as for :func:`predict`
    - ``groups``: by group, the weight of each of its series, such as the shares held; or a frame
      with the columns ``unique_id``, ``group``, and optionally ``weight``, which is 1 by default
    - ``n_paths``, ``seed``: as for :func:`simulate`

    Raises UsageError for groups that cannot be read, for a band that so few paths cannot show, and
    ModelError where a series of a group has no forecast, or no time has forecasts of all.
    """
    weights = _weights_of(groups)
    level, quantiles = check_levels(level), check_quantiles(quantiles)
    check_paths(n_paths, level, quantiles)
    model, panel = prepared(model, panel, **columns)
    say_findings(findings_of(panel, forecasting=True), len(panel.ids))
    paths = draw_paths(model, panel, n_paths, seed)
    weights, missing = possible_sums(paths, weights)
    if missing:
        raise ModelError(f"groups that cannot be summed:\n{name_reasons(missing)}")
    return sums_of(paths, weights, model.config.column, level, quantiles)


def possible_sums(
    paths: Paths, groups: GroupWeights
) -> tuple[dict[str, dict[str, float]], dict[str, Skipped]]:
    """Return the groups that have a forecast of each series, and why the others have none.

    In the groups returned, series are named as in the paths.
    """
    known = spellings(paths.panel.ids)
    rows = {name: row for row, name in enumerate(paths.panel.ids)}
    possible: dict[str, dict[str, float]] = {}
    missing: dict[str, Skipped] = {}
    for group, weights in groups.items():
        names = {name: spelled(known, name) for name in weights}
        lacking = [name for name, found in names.items() if found is None]
        if lacking:
            detail = f"{len(lacking)} of its {len(names)} series have no forecast: "
            missing[group] = Skipped(Kind.OTHER, detail=detail + listed(lacking))
            continue
        its = {str(found): weights[name] for name, found in names.items()}
        times = paths.times[[rows[name] for name in its]]
        if not len(functools.reduce(np.intersect1d, times)):
            first, last = (show_time(pick(times[:, 0])) for pick in (np.min, np.max))
            detail = (
                "its series end at different times, so no time has a forecast of all of them: the "
                f"forecasts begin between {first} and {last}"
            )
            missing[group] = Skipped(Kind.OTHER, detail=detail)
            continue
        possible[group] = its
    return possible, missing


def sums_of(
    paths: Paths,
    groups: GroupWeights,
    name: str,
    level: Sequence[float],
    quantiles: Sequence[float],
) -> pd.DataFrame:
    """Return the sums of groups over paths, as :func:`predict_sums` does.

    - ``groups``: from :func:`possible_sums`
    - ``name``: the name of the column of medians
    """
    rows = {series: row for row, series in enumerate(paths.panel.ids)}
    shares = shares_of(name, level, quantiles)
    # Prices as quoted.
    latest = np.array([values[-1] for values, _ in paths.panel.rows()]) * price_factor(paths.panel)
    parts: list[pd.DataFrame] = []
    for group, weights in groups.items():
        its = [rows[series] for series in weights]
        amounts = np.array(list(weights.values()), float)
        shared = functools.reduce(np.intersect1d, paths.times[its])  # that all of them have
        steps = np.stack([np.flatnonzero(np.isin(times, shared)) for times in paths.times[its]])
        values = np.take_along_axis(paths.values[its], steps[:, None, :], axis=2)
        total = np.einsum("s,sph->ph", amounts, values)
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": group,
                    "ds": shared,
                    **dict(zip(shares, np.quantile(total, [*shares.values()], 0), strict=True)),
                    RISE: (total > amounts @ latest[its]).mean(0),
                    "mean": total.mean(0),
                    SERIES: len(its),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def check_paths(n_paths: int, level: Sequence[float], quantiles: Sequence[float]) -> None:
    """Raise UsageError for a band or a quantile that lies beyond the outermost paths."""
    tails = [(1 - percent / 100) / 2 for percent in level]
    tails += [min(share, 1 - share) for share in quantiles]
    needed = int(np.ceil(round(_BEYOND / min(tails, default=1.0), 6)))
    if isinstance(n_paths, int | np.integer) and 0 < n_paths < needed:
        raise UsageError(
            f"paths: expected {needed:,} or more, of which {_BEYOND} lie beyond the outermost "
            f"quantile; got {n_paths:,}. Draw more paths, or ask for narrower bands"
        )


def _weights_of(groups: GroupWeights | pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the weights by group. Raises UsageError for anything else."""
    given: Any = groups
    if isinstance(groups, pd.DataFrame) and {"unique_id", "group"}.issubset(groups):
        frame = groups if "weight" in groups else groups.assign(weight=1.0)
        frame = frame.assign(group=frame["group"].map(str))  # also of a group without a name
        twice = frame.duplicated(["unique_id", "group"])
        if twice.any():
            name, group = frame.loc[twice, ["unique_id", "group"]].iloc[0]
            raise UsageError(f"groups: {name} is twice in {group}; add up its weights")
        given = {
            group: its.set_index("unique_id")["weight"].to_dict()
            for group, its in frame.groupby("group", sort=False)
        }
    if not (
        isinstance(given, Mapping)
        and given
        and all(isinstance(its, Mapping) and its for its in given.values())
    ):
        expected = (
            "the weights of series by group, such as {'tech': {'AAPL': 10, 'MSFT': 5}}, or a frame "
            "with the columns unique_id, group and perhaps weight"
        )
        raise wrong_argument("groups", groups, expected)
    return {
        str(group): {str(name): _weight(group, name, weight) for name, weight in its.items()}
        for group, its in given.items()
    }


def _weight(group: object, name: object, weight: Any) -> float:
    try:
        if np.isfinite(float(weight)) and weight:
            return float(weight)
    except (TypeError, ValueError):
        pass
    raise wrong_argument(f"groups: {group}: weight of {name}", weight, "a number other than 0")
