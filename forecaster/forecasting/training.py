"""From a Config to trained networks: windows, targets and losses of one series, and the swarm."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jaxtyping import Float, Int

from forecaster import swarm
from forecaster.config import Config
from forecaster.forecasting.heads import HEADS
from forecaster.forecasting.model import Networks, Params
from forecaster.forecasting.networks import OwnNetwork, network_functions, widen
from forecaster.forecasting.windows import (
    MODES,
    AnyArray,
    Split,
    Step,
    TrainingMode,
    Windows,
    gather,
)
from forecaster.series import Transformed


class Series(NamedTuple, Generic[AnyArray]):
    """What one member learns from. In a swarm each array has a leading member axis.

    - ``features``: of every step
    - ``targets``: of forecasts made at every step, NaN where unknown
    - ``first``: the first step that may be an input
    """

    features: Float[AnyArray, "*member step feature"]
    targets: Float[AnyArray, "*member step horizon"]
    first: Int[AnyArray, "*member"]


def series_data(transformed: Transformed) -> Series[np.ndarray]:
    """The data of all members, arrays (series, ...)."""
    return Series(transformed.features, transformed.targets(), transformed.first.astype(np.int32))


def split_of(config: Config, steps: int) -> Split:
    """Spans and windows of a config over histories of so many steps."""
    return Split(steps, config.lookback, config.burn_in, config.horizon, config.validation)


def functions(config: Config, features: int, network: OwnNetwork | None = None) -> swarm.Functions:
    """Pure ``init(key)`` and ``apply(params, inputs, valid, *, last_only)`` of a model."""
    return network_functions(config, features, HEADS[config.head](config.horizon), network)


def make_task(
    config: Config, split: Split, features: int, network: OwnNetwork | None = None
) -> swarm.Task:
    """The task of one series under a config; ``network``: a user's own."""
    init, apply, _ = functions(config, features, network)
    head = HEADS[config.head](config.horizon)
    mode = MODES[config.training_mode](split)

    def mean_loss(params: Params, examples: Examples, key: Array | None = None) -> Float[Array, ""]:
        inputs, valid, targets = examples
        outputs, constants = apply(params, inputs, valid, last_only=mode.last_only, key=key)
        outputs = outputs[:, -targets.shape[1] :]
        known = jnp.isfinite(targets)
        # A NaN target must not reach the gradient, not even times zero.
        losses = head.loss(outputs, constants, jnp.where(known, targets, 0.0))
        return jnp.where(known, losses, 0.0).sum() / jnp.maximum(known.sum(), 1)

    def take(data: Series[Array], windows: Windows) -> Examples:
        examples = cut(mode, data, windows.starts, data.first, split.boundary)
        used = windows.used[:, None, None]
        return examples._replace(targets=jnp.where(used, examples.targets, jnp.nan))

    def validate(params: Params, data: Series[Array]) -> Float[Array, ""]:
        starts = jnp.asarray(mode.validation_starts())
        earliest = jnp.maximum(data.first, split.boundary)
        return mean_loss(params, cut(mode, data, starts, earliest, split.steps - 1))

    return swarm.Task(
        init=init,
        loss=lambda params, batch, key, hyperparams: mean_loss(params, batch, key),
        batches=lambda data, key: mode.batches(key, data.first, config.batch_size),
        take=take,
        validate=validate,
        optimizer=swarm.inject_hyperparams(swarm.adamw),
    )


class Examples(NamedTuple):
    """Windows of one member, cut out.

    - ``inputs``: zero where there is nothing
    - ``valid``: 1.0 where there is an input
    - ``targets``: of the predicting steps, which are a window's last; NaN where none counts
    """

    inputs: Float[Array, "window lookback feature"]
    valid: Float[Array, "window lookback"]
    targets: Float[Array, "window predicting horizon"]


def cut(
    mode: TrainingMode,
    data: Series[Array],
    starts: Int[Array, " window"],
    earliest: Step,
    latest: Step,
) -> Examples:
    """Windows and their targets.

    - ``mode``: which steps of a window predict
    - ``data``: of one member
    - ``starts``: the first step of each window
    - ``earliest``: forecasts made before this step have no target
    - ``latest``: the last step that may be a target
    """
    split = mode.split
    inputs, valid = gather(data.features, data.first, starts, split.lookback)
    origins = mode.origins(starts)
    inside = split.targets_within(origins, earliest, latest)
    targets = data.targets[jnp.clip(origins, 0, split.steps - 1)]
    return Examples(inputs, valid, jnp.where(inside, targets, jnp.nan))


def train(
    config: Config,
    transformed: Transformed,
    ids: Sequence[str],
    seed: int,
    *,
    tune: bool = False,
    network: OwnNetwork | None = None,
    checkpoint: swarm.Checkpoint | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> tuple[Networks, float]:
    """Train one network per series; returns the networks, and the seconds that it took.

    - ``config``: the settings; those searched are the first candidate
    - ``transformed``: what the networks learn from, a row per series
    - ``ids``: the series' names
    - ``seed``: with a series' name it determines every random draw
    - ``tune``: search each series' own settings first, among :func:`candidates`
    - ``network``: a user's own, which the config's model is the import path of
    - ``checkpoint, on_progress``: as for :func:`forecaster.swarm.fit`
    """
    split = split_of(config, transformed.z.shape[1])
    features = transformed.features.shape[-1]
    data = series_data(transformed)
    hyperparams = {
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "clip": config.clip,
    }
    options: Any = {
        "epochs": config.epochs,
        "patience": config.patience,
        "hyperparams": hyperparams,
        "checkpoint": checkpoint,
        "on_progress": on_progress,
    }
    if not tune:
        task = _task(config, split, features, network)
        fitted = swarm.fit(task, data, ids, seed=seed, **options)
        networks = _networks(config, ids, fitted.params, _report(fitted), network)
        return networks, fitted.seconds

    def make(hidden):
        return _task(dataclasses.replace(config, hidden=hidden), split, features, network)

    tuned = swarm.tune(make, data, ids, candidates(config), seed=seed, **options)
    widest = max(winners.size["hidden"] for winners in tuned.winners)
    config = dataclasses.replace(config, hidden=widest)
    shapes = jax.eval_shape(functions(config, features, network).init, jax.random.key(0))
    order = np.argsort(np.concatenate([winners.rows for winners in tuned.winners]))

    def together(parts):
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)

    params = [widen(w.result.params, shapes, w.size["hidden"], widest) for w in tuned.winners]
    chosen = tuned.summary().drop(columns="best_loss")
    report = together([_report(winners.result) for winners in tuned.winners])
    report |= {name: column.to_numpy() for name, column in chosen.items()}
    return _networks(config, ids, together(params), report, network), tuned.seconds


def _networks(
    config: Config,
    ids: Sequence[str],
    params: Params,
    report: Mapping[str, np.ndarray],
    network: OwnNetwork | None,
) -> Networks:
    index = pd.Index(ids, name="unique_id")
    return Networks(config, tuple(ids), params, pd.DataFrame(dict(report), index=index), network)


def candidates(config: Config) -> list[swarm.Candidate]:
    """What a search tries: the settings of the config, and around them."""
    hidden = [config.hidden]
    if config.has_hidden_units:
        hidden = sorted({max(1, config.hidden // 2), config.hidden, 2 * config.hidden})
    return swarm.grid_candidates(
        learning_rate=[config.learning_rate * factor for factor in (1 / 3, 1, 3)],
        weight_decay=[config.weight_decay, 100 * config.weight_decay],
        hidden=hidden,
    )


def _report(fitted: swarm.FitResult) -> dict[str, np.ndarray]:
    names = {status.value: status.name.lower() for status in swarm.Status}
    return {
        "status": np.array([names[int(status)] for status in fitted.status], object),
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "validation_loss": fitted.best_loss,
    }


@functools.lru_cache(maxsize=8)
def _task(config: Config, split: Split, features: int, network: OwnNetwork | None) -> swarm.Task:
    """Cached, so that fitting again with the same sizes compiles nothing."""
    return make_task(config, split, features, network)
