"""What became of forecasts over the validation span: bands are calibrated on it, networks judged.

The forecasts are made wherever networks train; of a series only the steps go there that they are
made from. Bits are the same.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster import swarm
from forecaster.config import Config
from forecaster.forecasting.model import Networks, Params
from forecaster.forecasting.networks import OwnNetwork
from forecaster.forecasting.predicting.predicting import mixture_of, targets_at
from forecaster.forecasting.task import split_of, validation_of
from forecaster.series import Panel, Transform, Transformed

_ROUNDS, _MOST = 3, 256  # parts for each worker at the least; series in a part at most


class Span(NamedTuple):
    """What forecasts over the validation span are made from, of some series.

    - ``params``: their networks, each array (series, member, ...)
    - ``features`` (series, step, feature), ``first`` (series,): of the latest steps alone
    - ``origins`` (series, origin): the steps that forecasts are made at, counted in these
    - ``outcomes`` (series, origin, horizon): in standardised units, NaN where none counts
    """

    params: Params
    features: np.ndarray
    first: np.ndarray
    origins: np.ndarray
    outcomes: np.ndarray


class Job(NamedTuple):
    """What all parts have in common."""

    config: Config
    network: OwnNetwork | None


class Part(NamedTuple):
    """Some series: their ``rows`` among all, and their span."""

    rows: np.ndarray
    span: Span


class Validated(NamedTuple):
    """Of each forecast, the normal score of its outcome, and its median."""

    scores: Float[np.ndarray, "series origin horizon"]
    median: Float[np.ndarray, "series origin horizon"]


def validated(
    networks: Networks,
    transform: Transform,
    transformed: Transformed,
    panel: Panel,
    executor: swarm.Executor | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Of forecasts over the validation span: normal scores of their outcomes, and errors.

    ``executor``: where they are made, if not in this process.
    """
    split = split_of(networks.config, transformed.z.shape[1])
    origins = np.tile(split.validation_origins, (len(panel.ids), 1))
    held_back = validation_of(networks.config, panel.mask.sum(1))
    inside = origins >= transformed.z.shape[1] - 1 - held_back[:, None]
    # Of short histories the earliest origins lie before the first step; they count for none.
    origins = np.maximum(origins, 0)
    outcomes = np.where(inside[:, :, None], targets_at(transformed, origins), np.nan)
    span = _span(networks, transformed, origins, outcomes)
    job = Job(networks.config, networks.network)
    made = _of(job, span) if executor is None or executor.is_local else _away(job, span, executor)
    with np.errstate(over="ignore", invalid="ignore"):
        seasons = transform.basic_seasons(panel.ids)
        errors = _validation_errors(transformed, origins, inside, made.median, seasons)
    return made.scores, errors


def _span(
    networks: Networks, transformed: Transformed, origins: np.ndarray, outcomes: np.ndarray
) -> Span:
    """What the forecasts are made from: of the features the steps that a network sees for them."""
    begin = max(0, int(origins.min()) - networks.config.lookback + 1)
    first = np.maximum(transformed.first - begin, 0)
    features = transformed.features[:, begin:]
    return Span(networks.params, features, first, origins - begin, outcomes)


def _of(job: Job, span: Span) -> Validated:
    """The forecasts of some series beside their outcomes."""
    mixture = mixture_of(
        job.config, job.network, span.params, span.features, span.first, span.origins
    )
    with np.errstate(over="ignore", invalid="ignore"):
        return Validated(mixture.scores(span.outcomes), mixture.quantiles(np.zeros(mixture.shape)))


def validate_part(job: Job, part: Part) -> Validated:
    """The same for a part, on a worker."""
    return _of(job, part.span)


def _away(job: Job, span: Span, executor: swarm.Executor) -> Validated:
    """The same by an executor; what it could not do is done here."""
    made: dict[int, Validated] = {}
    with contextlib.closing(executor.run(validate_part, job, _parts(span, executor))) as results:
        for part, result in results:
            its = _of(job, part.span) if isinstance(result, swarm.Failed) else result
            made[int(part.rows[0])] = its
    in_order = [made[first] for first in sorted(made)]
    # Of the type that they have here, too: sums of them must round as they do here.
    return Validated(*(np.concatenate(each) for each in zip(*in_order, strict=True)))


def _parts(span: Span, executor: swarm.Executor) -> Iterator[Part]:
    """Some series at a time, as many as keep all workers busy."""
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
    """Mean absolute errors over the validation span and all horizons.

    ``mae`` in the series' own units; ``mae_relative_to_naive`` over that of the last value,
    ``mae_relative_to_seasonal_naive`` over that of the season before, NaN without a season.
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
