"""Compare forecasts over the validation span with outcomes, to calibrate bands and report errors.

The forecasts are made where networks train. Workers are sent only the steps that they need; the
bits are the same.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster import swarm
from forecaster.config import Config
from forecaster.forecasting.bands.counts import Counted, Units
from forecaster.forecasting.bands.distribution import Distribution
from forecaster.forecasting.bands.drift import Drift, Moves, usual_location, with_drift
from forecaster.forecasting.bands.experts import opinion_weights, with_common
from forecaster.forecasting.bands.heads import HEADS
from forecaster.forecasting.model import Networks, Params
from forecaster.forecasting.networks import OwnNetwork
from forecaster.forecasting.predicting.predicting import common_at, distribution_of, targets_at
from forecaster.forecasting.task import split_of, validation_of
from forecaster.series import OpinionWeights, Panel, Transform, Transformed, sampled_names
from forecaster.threads import by_parts

_LEARNED = 100  # series that weights of both opinions are learned from, at most
_COMPARED_AT_ONCE = 64  # series in the part of a thread
_ROUNDS, _MOST = 3, 256  # the fewest parts for each worker; the most series in a part


class Span(NamedTuple):
    """The data of some series that forecasts over the validation span are made from.

    - ``params``: their networks, each array (series, member, ...)
    - ``features`` (series, step, feature), ``first`` (series,): of the latest steps only
    - ``origins`` (series, origin): the steps to forecast from, counted in these
    - ``outcomes`` (series, origin, horizon): in standardised units, NaN where none is known or
      used
    - ``units``: the units of the series that are counts; None if there are no such series
    - ``moves``: the moves that prices are expected to make; None for other series
    - ``common`` (series, origin, horizon): the logarithm of the scale by the common model of
      volatility, see :class:`Transformed`; None without a model
    """

    params: Params
    features: np.ndarray
    first: np.ndarray
    origins: np.ndarray
    outcomes: np.ndarray
    units: Units | None
    moves: Moves | None
    common: np.ndarray | None


class Job(NamedTuple):
    """The data that all parts share."""

    config: Config
    network: OwnNetwork | None
    opinions: OpinionWeights
    weight: float  # of networks, see Transformed


class Part(NamedTuple):
    """Some series: their ``rows`` among all series, and their span."""

    rows: np.ndarray
    span: Span


class Validated(NamedTuple):
    """Each outcome's normal score, each forecast's median, and the networks' mean location."""

    scores: Float[np.ndarray, "series origin horizon"]
    median: Float[np.ndarray, "series origin horizon"]
    usual: Float[np.ndarray, "series horizon"]


def validated(
    networks: Networks,
    transform: Transform,
    transformed: Transformed,
    panel: Panel,
    held_back: Int[np.ndarray, " series"],
    executor: swarm.Executor | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray], Drift | None]:
    """Forecast over the validation span; return normal scores of outcomes, errors, and drift.

    - ``held_back``: the latest rows of each series whose outcomes count
    - ``executor``: where the forecasts are made, if not in this process
    """
    origins, inside, outcomes = _held_back(networks.config, transformed, held_back)
    units = Units.of(transformed, origins)
    made = _without_networks(networks, outcomes, inside, units)
    if len(rows := np.flatnonzero(networks.networked)):
        span = _span(networks, rows, transformed, origins, outcomes, units)
        job = Job(networks.config, networks.network, transformed.opinions, transformed.networks)
        if executor is None or executor.is_local:
            by_networks = _validate(job, span)
        else:
            by_networks = _validate_elsewhere(job, span, executor)
        if len(rows) == len(origins):
            made = by_networks
        else:
            for whole, part in zip(made, by_networks, strict=True):
                whole[rows] = part
    with np.errstate(over="ignore", invalid="ignore"):
        seasons = transform.basic_seasons(panel.ids)
        errors = _validation_errors(transformed, origins, inside, made.median, seasons)
    drift = networks.drift
    return made.scores, errors, None if drift is None else drift._replace(usual=made.usual)


def with_opinions(
    transform: Transform,
    config: Config,
    network: OwnNetwork | None,
    start: Params | None,
    transformed: Transformed,
    panel: Panel,
    own: Bool[np.ndarray, " series"],
) -> Transform:
    """Return the transform with the weights by which networks and the common model are combined.

    - ``start``: the networks that all series start from, (member, ...); None: there are none, and
      so no common model either
    - ``transformed``, ``panel``: the series
    - ``own``: which of them have networks; the weights are learned from a sample of these
    """
    common = transform.common_volatility
    if common is None:
        return transform
    if start is None:
        return dataclasses.replace(transform, common_volatility=None)
    rows = np.flatnonzero(own)
    rows = rows[sampled_names([panel.ids[int(row)] for row in rows], _LEARNED)]
    transformed = transformed.only(rows)
    held_back = validation_of(config, panel.mask[rows].sum(1))
    origins, _, outcomes = _held_back(config, transformed, held_back)
    params = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(origins), 0), start)
    forecast = distribution_of(
        config, network, params, transformed.features, transformed.first, origins
    )
    of_common = common_at(transformed, origins)
    assert of_common is not None
    opinions = opinion_weights(forecast, of_common, outcomes)
    return dataclasses.replace(transform, common_volatility=common._replace(opinions=opinions))


def _held_back(
    config: Config, transformed: Transformed, held_back: Int[np.ndarray, " series"]
) -> tuple[
    Int[np.ndarray, "series origin"],
    Bool[np.ndarray, "series origin"],
    Float[np.ndarray, "series origin horizon"],
]:
    """Return the origins of the validation span, which of them count, and the outcomes of these."""
    split = split_of(config, transformed.z.shape[1])
    origins = np.tile(split.validation_origins, (len(held_back), 1))
    inside = origins >= transformed.z.shape[1] - 1 - held_back[:, None]
    # The earliest origins of short histories lie before the first step; they do not count.
    origins = np.maximum(origins, 0)
    outcomes = np.where(inside[:, :, None], targets_at(transformed, origins), np.nan)
    return origins, inside, outcomes


def _without_networks(
    networks: Networks,
    outcomes: np.ndarray,
    inside: Bool[np.ndarray, "series origin"],
    units: Units | None,
) -> Validated:
    """Compare the base alone with the outcomes, for the series without a network.

    ``inside``: the origins whose outcomes count; short series have few of them
    """
    usual = np.zeros((len(outcomes), outcomes.shape[-1]))
    made = Validated(np.full(outcomes.shape, np.nan), np.zeros(outcomes.shape), usual)
    rows = np.flatnonzero(~networks.networked)
    if not len(rows):
        return made
    first = int(np.argmax(inside[rows].any(0)))
    config, latest = networks.config, outcomes[rows, first:]
    dof = HEADS[config.head](config.horizon).degrees_at_start
    alone = Distribution.unit(latest.shape, dof)
    if units is not None:
        alone = Counted.of(alone, units.only(rows, first))
    made.scores[rows, first:], made.median[rows, first:] = _compared(alone, latest)
    return made


def _compared(made: Distribution, outcomes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal scores of outcomes, and the medians."""
    with np.errstate(over="ignore", invalid="ignore"):
        return made.scores(outcomes), made.quantiles(np.zeros(made.shape))


def _span(
    networks: Networks,
    rows: Int[np.ndarray, " some"],
    transformed: Transformed,
    origins: np.ndarray,
    outcomes: np.ndarray,
    units: Units | None,
) -> Span:
    """Cut the features of some series down to the steps that the networks see."""
    whole = len(rows) == len(origins)
    some = (part if whole else part[rows] for part in (origins, transformed.first, outcomes))
    origins, first, outcomes = some
    begin = max(0, int(origins.min()) - networks.config.lookback + 1)
    features = transformed.features if whole else transformed.features[rows]
    some_units = None if units is None else units.only(rows)
    some = transformed if whole else transformed.only(rows)
    moves = None if networks.drift is None else networks.drift.only(rows).moves(some, origins)
    return Span(
        networks.params_of(rows), features[:, begin:], np.maximum(first - begin, 0),
        origins - begin, outcomes, some_units, moves, common_at(some, origins),
    )  # fmt: skip


def _validate(job: Job, span: Span, threads: int | None = None) -> Validated:
    """Forecast some series, and compare with the outcomes.

    ``threads``: number of threads that compare; by default one for each core
    """
    forecast = distribution_of(
        job.config, job.network, span.params, span.features, span.first, span.origins
    ).beside_base(job.weight)

    def compared(some: slice) -> Validated:
        outcomes, units, moves, common = jax.tree.map(
            lambda part: part[some], (span.outcomes, span.units, span.moves, span.common)
        )
        made = with_common(forecast.only(some), common, job.opinions)
        usual = usual_location(made, outcomes)
        if moves is not None:
            made = with_drift(made, usual, moves)
        return Validated(*_compared(Counted.of(made, units), outcomes), usual)

    return _joined(by_parts(compared, len(span.features), _COMPARED_AT_ONCE, threads))


def _joined(parts: Sequence[Validated]) -> Validated:
    """Join the results of parts of the series, in order."""
    # The types are those of a whole computation, so that later sums round in the same way.
    return Validated(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def validate_part(job: Job, part: Part) -> Validated:
    """Validate a part, on a worker, which may only use the cores that it was given."""
    return _validate(job, part.span, threads=1)


def _validate_elsewhere(job: Job, span: Span, executor: swarm.Executor) -> Validated:
    """Validate all parts by an executor, and in this process those that it could not do."""
    made: dict[int, Validated] = {}
    with contextlib.closing(executor.run(validate_part, job, _parts(span, executor))) as results:
        for part, result in results:
            its = _validate(job, part.span) if isinstance(result, swarm.Failed) else result
            made[int(part.rows[0])] = its
    return _joined([made[first] for first in sorted(made)])


def _parts(span: Span, executor: swarm.Executor) -> Iterator[Part]:
    """Yield parts of the series, sized to keep all workers busy."""
    series, workers = len(span.features), max(1, len(executor.lanes()))
    size = min(_MOST, math.ceil(series / (_ROUNDS * workers)))
    for low in range(0, series, size):
        rows = np.arange(low, min(low + size, series))
        yield Part(rows, swarm.take_members(span, rows))


def _validation_errors(
    transformed: Transformed,
    origins: Int[np.ndarray, "series origin"],
    validated: Bool[np.ndarray, "series origin"],
    location: Float[np.ndarray, "series origin horizon"],
    seasons: Int[np.ndarray, " series"],
) -> dict[str, Float[np.ndarray, " series"]]:
    """Return mean absolute errors over the validation span and all horizons.

    - ``mae``: in the units of the series
    - ``mae_relative_to_naive``: divided by that of the last value
    - ``mae_relative_to_seasonal_naive``: divided by that of the season before; NaN without a season
    """
    last_step = transformed.z.shape[1] - 1
    ahead = origins[:, :, None] + 1 + np.arange(location.shape[-1])
    inside = (ahead <= last_step) & validated[:, :, None]
    rows = np.arange(len(origins))[:, None, None]
    actual = transformed.invert(transformed.z[rows, np.minimum(ahead, last_step)])
    forecast = transformed.invert(
        transformed.base[rows[:, :, 0], origins]
        + transformed.scale[rows[:, :, 0], origins] * location
    )
    naive = transformed.invert(np.take_along_axis(transformed.z, origins, axis=1))[:, :, None]

    back = np.maximum(seasons, 1)[:, None]
    steps_ahead = np.arange(1, location.shape[-1] + 1)
    back = -(-steps_ahead // back) * back - steps_ahead  # from the origin, (series, horizon)
    before = np.maximum(origins[:, :, None] - back[:, None], 0)
    seasonal = transformed.invert(transformed.z[rows, before])

    def mae(guess: np.ndarray) -> np.ndarray:
        return np.where(inside, np.abs(actual - guess), 0).sum((1, 2)) / inside.sum((1, 2))

    with np.errstate(divide="ignore", invalid="ignore"):
        error = mae(forecast)
        by_season = np.where(seasons > 0, error / mae(seasonal), np.nan)
        return {
            "mae": error,
            "mae_relative_to_naive": error / mae(naive),
            "mae_relative_to_seasonal_naive": by_season,
        }
