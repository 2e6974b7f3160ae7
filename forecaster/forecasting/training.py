"""From a Config to trained networks: windows, targets and losses of one series, and the swarm."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.forecasting.heads import HEADS
from forecaster.forecasting.model import Networks, Params
from forecaster.forecasting.networks import builder, widen
from forecaster.forecasting.windows import Split, gather
from forecaster.series import Transformed


class Series(NamedTuple):
    """What one member learns from. In a swarm each array has a leading member axis."""

    features: Any  # (step, feature)
    targets: Any  # (step, horizon), NaN where unknown
    first: Any  # the first step that may be an input


def series_data(transformed: Transformed) -> Series:
    """The data of all members, arrays (series, ...)."""
    return Series(transformed.features, transformed.targets(), transformed.first.astype(np.int32))


def split_of(config: Config, steps: int) -> Split:
    """Spans and windows of a config over histories of so many steps."""
    return Split(steps, config.lookback, config.warm_up, config.horizon, config.validation)


def functions(config: Config, features: int):
    """Pure ``init(key)`` and ``apply(params, inputs, valid, *, last_only)`` of a model."""
    head = HEADS[config.head](config.horizon)
    return swarm.module_functions(
        builder(config.model, features, config.lookback, config.hidden, config.layers, head)
    )


def make_task(config: Config, split: Split, features: int) -> swarm.Task:
    """The task of one series under a config."""
    init, apply, _ = functions(config, features)
    head = HEADS[config.head](config.horizon)

    def mean_loss(params, batch):
        inputs, valid, targets = batch
        last_only = config.way == "windowed"
        outputs, constants = apply(params, inputs, valid, last_only=last_only)
        outputs = outputs[:, -targets.shape[1] :]
        known = jnp.isfinite(targets)
        # A NaN target must not reach the gradient, not even times zero.
        losses = head.loss(outputs, constants, jnp.where(known, targets, 0.0))
        return jnp.where(known, losses, 0.0).sum() / jnp.maximum(known.sum(), 1)

    def cut(data: Series, starts, origins, earliest, latest):
        """Windows and their targets, NaN unless the origin and target step are in the span."""
        inputs, valid = gather(data.features, data.first, starts, config.lookback)
        ahead = split.target_steps(origins)  # (B, S, horizon)
        inside = (origins >= earliest)[..., None] & (ahead <= latest)
        targets = data.targets[jnp.clip(origins, 0, split.steps - 1)]
        return inputs, valid, jnp.where(inside, targets, jnp.nan)

    windowed = config.way == "windowed"

    def starts_and_origins(at):
        if windowed:  # at: the window's last step
            return at - config.lookback + 1, at[:, None]
        return at, split.window_origins(at)

    def batches(data: Series, key):
        if windowed:
            origins, weights, active = split.training_origins(key, data.first, config.batch_size)
            return (origins, weights), active
        starts, active = split.random_starts(key, data.first, config.batch_size)
        return (starts, jnp.ones(starts.shape, bool)), active

    def take(data: Series, index):
        at, used = index
        inputs, valid, targets = cut(data, *starts_and_origins(at), data.first, split.boundary)
        return inputs, valid, jnp.where(used[:, None, None], targets, jnp.nan)

    def validate(params, data: Series):
        at = jnp.asarray(split.validation_origins) if windowed else split.validation_starts()
        earliest = jnp.maximum(data.first, split.boundary)
        return mean_loss(params, cut(data, *starts_and_origins(at), earliest, split.steps - 1))

    return swarm.Task(
        init=init,
        loss=lambda params, batch, key, hyperparams: mean_loss(params, batch),
        batches=batches,
        take=take,
        validate=validate,
        optimizer=swarm.inject_hyperparams(swarm.adamw),
    )


def train(
    config: Config,
    transformed: Transformed,
    ids: Sequence[str],
    seed: int,
    *,
    tune: bool = False,
    checkpoint: swarm.Checkpoint | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> tuple[Networks, float]:
    """Train one network per series; returns the networks, and the seconds that it took.

    - ``config``: the settings; those searched are the first candidate
    - ``transformed``: what the networks learn from, a row per series
    - ``ids``: the series' names
    - ``seed``: with a series' name it determines every random draw
    - ``tune``: search each series' own settings first, among :func:`candidates`
    - ``checkpoint, on_progress``: as for :func:`forecaster.swarm.fit`
    """
    split = split_of(config, transformed.z.shape[1])
    features = transformed.features.shape[-1]
    data = series_data(transformed)
    hyperparams = {
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "clip": config.clip,
        "epochs": config.epochs,
        "patience": config.patience,
    }
    options: Any = {
        "hyperparams": hyperparams,
        "checkpoint": checkpoint,
        "on_progress": on_progress,
    }
    if not tune:
        fitted = swarm.fit(_task(config, split, features), data, ids, seed=seed, **options)
        return _networks(config, ids, fitted.params, _report(fitted)), fitted.seconds

    def make(hidden):
        return _task(dataclasses.replace(config, hidden=hidden), split, features)

    tuned = swarm.tune(make, data, ids, candidates(config), seed=seed, **options)
    widest = max(winners.size["hidden"] for winners in tuned.winners)
    config = dataclasses.replace(config, hidden=widest)
    shapes = jax.eval_shape(functions(config, features).init, jax.random.key(0))
    order = np.argsort(np.concatenate([winners.rows for winners in tuned.winners]))

    def together(parts):
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)

    params = [widen(w.fitted.params, shapes, w.size["hidden"], widest) for w in tuned.winners]
    chosen = tuned.summary().drop(columns="best_loss")
    report = together([_report(winners.fitted) for winners in tuned.winners])
    report |= {name: column.to_numpy() for name, column in chosen.items()}
    return _networks(config, ids, together(params), report), tuned.seconds


def _networks(
    config: Config, ids: Sequence[str], params: Params, report: Mapping[str, np.ndarray]
) -> Networks:
    index = pd.Index(ids, name="unique_id")
    return Networks(config, tuple(ids), params, pd.DataFrame(dict(report), index=index))


def candidates(config: Config) -> list[swarm.Candidate]:
    """What a search tries: the settings of the config, and around them."""
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
def _task(config: Config, split: Split, features: int) -> swarm.Task:
    """Cached, so that fitting again with the same sizes compiles nothing."""
    return make_task(config, split, features)
