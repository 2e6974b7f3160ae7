"""The training task of one series, or of all, under a Config: data, windows, targets and loss."""

import functools
import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from forecaster import swarm
from forecaster.forecasting.bands import loss_of
from forecaster.forecasting.config import Config
from forecaster.forecasting.model import Params
from forecaster.forecasting.networks import OwnNetwork, functions
from forecaster.forecasting.windows import MODES, AnyArray, Split, TrainingMode, Windows
from forecaster.series import Transformed


class Series(NamedTuple, Generic[AnyArray]):
    """The data of one series, or of several: arrays (series, ...).

    In a swarm each array has a leading member axis.

    - ``features``: features of every step
    - ``targets``: targets of the forecasts made at every step, NaN where unknown
    - ``first``: the first step that may be an input
    - ``boundary``: the last step that may be a target in training
    - ``counted``: whether the series is one of counts
    """

    features: Float[AnyArray, "*member step feature"]
    targets: Float[AnyArray, "*member step horizon"]
    first: Int[AnyArray, "*member"]
    boundary: Int[AnyArray, "*member"]
    counted: Bool[AnyArray, "*member"]


def series_data(config: Config, transformed: Transformed) -> Series[np.ndarray]:
    """Return the data of all members, arrays (series, ...)."""
    steps = transformed.z.shape[1]
    held_back = validation_of(config, (transformed.positions >= 0).sum(1))
    return Series(
        transformed.features,
        transformed.targets(),
        transformed.first.astype(np.int32),
        (steps - held_back - 1).astype(np.int32),
        transformed.counted,
    )


def validation_of(config: Config, rows: Int[np.ndarray, " series"]) -> Int[np.ndarray, " series"]:
    """Return how many latest rows each series holds back, from its number of ``rows``."""
    if config.validation is not None:
        return np.full(len(rows), config.validation)
    return np.clip(rows // 4, config.shortest_validation, config.longest_validation)


def split_of(config: Config, steps: int) -> Split:
    """Return the sizes of windows and spans of a config; ``steps``: of the longest history."""
    return Split(
        steps, config.lookback, config.burn_in, config.horizon,
        config.longest_validation, config.shortest_validation,
    )  # fmt: skip


@functools.lru_cache(maxsize=8)  # so that another fit of these sizes compiles nothing
def make_task(
    config: Config,
    split: Split,
    features: int,
    network: OwnNetwork | None = None,
    *,
    started: bool = False,
    pooled: tuple[int, int] | None = None,
) -> swarm.Task:
    """Return the task of the network of one series, or of all series, under a config.

    - ``split``: sizes of windows and spans
    - ``features``: the number of features of a step
    - ``network``: a user's own class in place of the config's model
    - ``started``: whether the data are :class:`Started`: the difference from a common start is
      learned, so that weight decay pulls the weights to that start
    - ``pooled``: of a network of all series, whose data are arrays (series, ...): the number of
      batches of an epoch, and of windows in each
    """
    init = functions(config, features, network).init
    mode = MODES[config.training_mode](split)
    mean_loss = make_loss(config, mode, features, network)

    def parts(data: Any) -> tuple[Series[Array], Params | None]:
        series, start = (data.series, data.start) if started else (data, None)
        return series if pooled else Series(*(part[None] for part in series)), start

    def whole(params: Params, start: Params | None) -> Params:
        return params if start is None else jax.tree.map(jnp.add, params, start)

    def draw(data: Any, key: Array) -> tuple[Any, Bool[Array, " batch"]]:
        series, _ = parts(data)
        if pooled:
            return _all_in_turn(key, split, series, *pooled), jnp.ones(pooled[0], bool)
        return mode.batches(key, series.first[0], series.boundary[0], config.batch_size)

    def take(data: Any, index: Any) -> tuple[Params | None, Examples]:
        series, start = parts(data)
        rows, windows = index if pooled else (jnp.zeros_like(index.starts), index)
        first, boundary = series.first[rows], series.boundary[rows]
        examples = cut(mode, series, rows, windows.starts, first, boundary)
        used = windows.used[:, None, None]
        return start, examples._replace(targets=jnp.where(used, examples.targets, jnp.nan))

    def validate(params: Params, data: Any, hyperparams: swarm.Hyperparams) -> Float[Array, ""]:
        series, start = parts(data)
        starts, count = mode.validation_starts(), len(series.first)
        rows = np.repeat(np.arange(count), len(starts))
        earliest = jnp.maximum(series.first, series.boundary)[rows]
        last = jnp.full(len(rows), split.steps - 1)
        examples = cut(mode, series, rows, jnp.tile(starts, count), earliest, last)
        return mean_loss(whole(params, start), swarm.shard_batch(examples))

    return swarm.Task(
        init=(lambda key: jax.tree.map(jnp.zeros_like, init(key))) if started else init,
        loss=lambda params, batch, key, hyperparams: mean_loss(
            whole(params, batch[0]), batch[1], key
        ),
        batches=draw,
        take=take,
        validate=validate,
        optimizer=swarm.inject_hyperparams(swarm.adamw),
    )


def _all_in_turn(
    key: Array, split: Split, data: Series[Array], batches: int, batch: int
) -> tuple[Int[Array, "batch window"], Windows]:
    """Draw windows of all series in turn, in random order, so that each appears equally often.

    Also return the series of each window.
    """
    of_series, of_window = jax.random.split(key)
    series, shape = data.first.shape[0], (batches, batch)
    rounds = jax.random.split(of_series, math.ceil(batches * batch / series))
    orders = jax.vmap(lambda k: jax.random.permutation(k, series))(rounds)
    rows = orders.reshape(-1)[: batches * batch].reshape(shape)
    part = jax.random.uniform(of_window, (batches * batch,)).reshape(shape)
    starts = split.starts(part, data.first[rows], data.boundary[rows])
    return rows, Windows(starts, jnp.ones(shape, bool))


def make_loss(
    config: Config, mode: TrainingMode, features: int, network: OwnNetwork | None = None
) -> Callable[..., Float[Array, ""]]:
    """Return a function for the mean loss of one network over all known targets.

    Its arguments are the weights, :class:`Examples`, and in training a key for dropout.
    """
    apply = functions(config, features, network).apply

    def mean_loss(params: Params, examples: Examples, key: Array | None = None) -> Float[Array, ""]:
        inputs, valid, targets, counted = examples
        outputs, constants = apply(params, inputs, valid, last_only=mode.last_only, key=key)
        outputs = outputs[:, -targets.shape[1] :]
        known = jnp.isfinite(targets)
        # A NaN must not reach the gradient, as zero times NaN is NaN.
        targets = jnp.where(known, targets, 0.0)
        losses = loss_of(outputs, constants, targets, counted=counted[:, None, None])
        return jnp.where(known, losses, 0.0).sum() / jnp.maximum(known.sum(), 1)

    return mean_loss


class Started(NamedTuple):
    """The data of a member whose weights are learned as a difference from a common start."""

    series: Series[Array]
    start: Params


class Examples(NamedTuple):
    """The contents of one member's windows.

    - ``inputs``: zero in the padding
    - ``valid``: 1.0 for an input, 0.0 in the padding
    - ``targets``: targets of the predicting steps, which end a window; NaN for those left out
    - ``counted``: whether they are counts
    """

    inputs: Float[Array, "window lookback feature"]
    valid: Float[Array, "window lookback"]
    targets: Float[Array, "window predicting horizon"]
    counted: Bool[Array, " window"]


def cut(
    mode: TrainingMode,
    data: Series[Array],
    rows: Int[Array, " window"] | np.ndarray,
    starts: Int[Array, " window"],
    earliest: Int[Array, " window"],
    latest: Int[Array, " window"],
) -> Examples:
    """Cut windows and their targets out of histories.

    - ``mode``: which steps of a window predict
    - ``data``: the data of some series, arrays (series, ...)
    - ``rows``: the series of each window
    - ``starts``: the first step of each window
    - ``earliest``: the first step whose forecasts have targets
    - ``latest``: the last step that may be a target
    """
    split, row = mode.split, rows[:, None]
    steps = starts[:, None] + np.arange(split.lookback)
    valid = (steps >= data.first[row]).astype(data.features.dtype)
    inputs = data.features.at[row, steps].get(mode="clip") * valid[..., None]
    origins = mode.origins(starts)
    inside = split.targets_within(origins, earliest[:, None], latest[:, None, None])
    targets = data.targets.at[row, origins].get(mode="clip")
    return Examples(inputs, valid, jnp.where(inside, targets, jnp.nan), data.counted[rows])
