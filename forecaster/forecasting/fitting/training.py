"""Train networks: those that all series start from, and those of each series.

One network is trained on all series for a short time; the networks of each series start from it, or
from random weights. Early stopping of the common one uses the latest span of all series, which is
later than all training data. Without it the network memorises the dates that series share, and
forecasts worse than no network.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.forecasting.config import Config, Stage
from forecaster.forecasting.model import Networks, Params, merge_members, split_members
from forecaster.forecasting.network_task import Series, Started, make_task, series_data, split_of
from forecaster.forecasting.networks import OwnNetwork, param_shapes
from forecaster.forecasting.windows import Split
from forecaster.series import Transformed

_LARGEST_BATCH = 256  # windows
_STAGE = "a start for all series"  # in reports of progress
_STEPS = 20  # fewest steps per epoch, unless batches would be smaller than those of a single series


class Pooled(NamedTuple):
    """Networks trained on all series.

    - ``params``: their weights, each array (member, ...)
    - ``seconds``: the time of their training
    - ``alone``: their training, where they learned from one series: they are its own networks
    """

    params: Params
    seconds: float
    alone: swarm.FitResult | None = None


def train_pooled(
    config: Config,
    network: OwnNetwork | None,
    transformed: Transformed,
    seed: int,
    *,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Pooled:
    """Train ``config.members`` networks, each on all series.

    - ``config, network``: as for the networks of single series
    - ``transformed``: what they learn from, a row per series
    - ``seed``: determines the initial weights and the batches
    """
    devices = swarm.lane_mesh().size
    if config.data_parallel > devices:
        raise UsageError(
            f"data_parallel: expected at most the number of devices, {devices}; got "
            f"{config.data_parallel}. Take {devices}, or leave it out"
        )
    split = split_of(config, transformed.z.shape[1])
    data = series_data(config, transformed)
    covered = max(1, split.lookback - split.burn_in)
    lengths = np.maximum(data.boundary - data.first, covered)
    windows = int(np.round(lengths / covered).sum())  # that cover all training spans once
    batch = min(_LARGEST_BATCH, max(config.batch_size, windows // _STEPS))
    batches = max(1, math.ceil(windows / batch))
    features = transformed.features.shape[-1]
    task = make_task(config, split, features, network, pooled=(batches, batch))
    epochs, patience = config.limits("pooled")
    # The names, and so the random draws, do not depend on the series.
    names = [f"all series\x1f{k}" for k in range(config.members)]
    fitted = swarm.fit(
        task,
        swarm.Shared(data),
        names,
        seed=seed,
        epochs=epochs,
        patience=patience,
        hyperparams=config.hyperparams("pooled"),
        data_parallel=config.data_parallel,
        on_progress=on_progress
        and (lambda progress: on_progress(dataclasses.replace(progress, stage=_STAGE))),
    )
    return Pooled(fitted.params, fitted.seconds, fitted if len(lengths) == 1 else None)


def train(
    config: Config,
    transformed: Transformed,
    ids: Sequence[str],
    seed: int,
    *,
    tune: bool = False,
    network: OwnNetwork | None = None,
    pooled: Pooled | None = None,
    before: Networks | None = None,
    checkpoint: swarm.Checkpoint | None = None,
    executor: swarm.Executor | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> tuple[Networks, float]:
    """Train the networks of all series; return them, and the seconds that it took.

    - ``config``: the settings, which are also the first candidate of a search
    - ``transformed``: what the networks learn from, a row per series
    - ``ids``: the series' names; there may be none
    - ``seed``: determines every random draw, together with a series' name
    - ``tune``: first search the settings of each series among :func:`candidates`
    - ``network``: a user's own class, which the config's model names
    - ``pooled``: the networks to start from; None: random weights
    - ``before``: networks of these series to train on from, see :func:`update`
    - ``checkpoint, executor, on_progress``: as for :func:`forecaster.swarm.fit`
    """
    if not ids:
        return _untrained(config, transformed.features.shape[-1], network, pooled), 0.0
    split = split_of(config, transformed.z.shape[1])
    data = series_data(config, transformed)
    if pooled is not None and pooled.alone is not None:
        networks = _networks(config, ids, pooled.alone.params, [pooled.alone], network)
        return dataclasses.replace(networks, start=pooled.params), 0.0
    start: Params | swarm.Shared | None = None
    if before is not None:
        start = merge_members(before.params_of(before.rows_of(ids)))
    elif pooled is not None:
        start = swarm.Shared(pooled.params, np.tile(np.arange(config.members), len(ids)))
    stage: Stage = "independent" if start is None else "from pooled"
    epochs, patience = config.limits(stage)
    options = {
        "seed": seed, "executor": executor, "on_progress": on_progress, "epochs": epochs,
        "patience": patience, "hyperparams": config.hyperparams(stage),
        "checkpoint": checkpoint
        and dataclasses.replace(checkpoint, precision=config.precision),
    }  # fmt: skip
    if tune:
        return _search(config, split, network, data, ids, options)
    rows, started = np.repeat(np.arange(len(ids)), config.members), start is not None
    # Names determine random draws; the first network has that of the series.
    names = [f"{name}\x1f{k}" if k else name for name in ids for k in range(config.members)]
    task = make_task(config, split, data.features.shape[-1], network, started=started)
    given: Any = data if config.members == 1 and not started else swarm.Shared(data, rows)
    given = Started(given, cast(Any, start)) if started else given
    fitted = swarm.fit(task, given, names, **options)
    params = fitted.params
    if isinstance(start, swarm.Shared):
        start = swarm.take_members(start.values, start.rows)
    if started:
        params = jax.tree.map(np.add, params, start)
    networks = _networks(config, ids, params, [fitted], network)
    common = None if pooled is None else pooled.params
    return dataclasses.replace(networks, start=common), fitted.seconds


def _untrained(
    config: Config, features: int, network: OwnNetwork | None, pooled: Pooled | None
) -> Networks:
    """Return networks of no series, for a panel without a series that is long enough.

    - ``features``: the number of features of a step
    - ``network``: a user's own class, which the config's model names
    - ``pooled``: the common start of the networks
    """
    shapes = param_shapes(config, features, network)
    params = jax.tree.map(
        lambda leaf: np.zeros((0, config.members, *leaf.shape), leaf.dtype), shapes
    )
    kinds = {
        "why_not": object, "status": object, "epochs": int, "best_epoch": int,
        "validation_loss": float,
    }  # fmt: skip
    none = {name: np.array([], kind) for name, kind in kinds.items()}
    report = pd.DataFrame(none, index=pd.Index([], name="unique_id", dtype=object))
    start = None if pooled is None else pooled.params
    return Networks(config, (), params, report, network, start)


def _search(
    config: Config,
    split: Split,
    network: OwnNetwork | None,
    data: Series[np.ndarray],
    ids: Sequence[str],
    options: dict[str, Any],
) -> tuple[Networks, float]:
    """Train one network per series, independent of the others, with settings searched for it."""
    config = dataclasses.replace(config, start="independent", members=1, data_parallel=1)
    features = data.features.shape[-1]

    def make(hidden):
        return make_task(
            dataclasses.replace(config, hidden=hidden), split, features, network, started=False
        )

    tuned = swarm.tune(make, data, ids, candidates(config), **options)
    # The widest size that was tried, not the widest that won: otherwise other series would decide
    # on the compiled program of a network, and so on the last bits of its forecasts.
    widest = max(_hidden_sizes(config))
    config = dataclasses.replace(config, hidden=widest)
    shapes = param_shapes(config, features, network)
    params = [widen(w.result.params, shapes, w.size["hidden"], widest) for w in tuned.winners]
    order = np.argsort(np.concatenate([winners.rows for winners in tuned.winners]))
    params = jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *params)
    networks = _networks(config, ids, params, [w.result for w in tuned.winners], network)
    report = networks.report.join(tuned.summary().drop(columns="best_loss"))
    return dataclasses.replace(networks, report=report), tuned.seconds


def widen(params: Params, shapes: Params, hidden: int, to: int) -> Params:
    """Widen the hidden layers of networks with units whose weights are zero; outputs stay equal.

    - ``params``: a nested dict of arrays (series, ...) of networks with ``hidden`` units
    - ``shapes``: the same tree for one network with ``to`` units
    - ``hidden``, ``to``: units of a layer before and after

    In every network a unit without weights is zero (in an LSTM its candidate is tanh 0), and no
    normalisation takes a mean over units. An axis that grows begins with inputs, whose number
    stays, followed by blocks of ``hidden`` units (states, gates).
    """

    def grow(leaf: np.ndarray, wide: jax.ShapeDtypeStruct) -> np.ndarray:
        for axis, (old, new) in enumerate(zip(leaf.shape[1:], wide.shape, strict=True), start=1):
            blocks = (new - old) // (to - hidden) if to > hidden else 0
            inputs = old - blocks * hidden
            units = [inputs + block * to + np.arange(hidden) for block in range(blocks)]
            grown = np.zeros((*leaf.shape[:axis], new, *leaf.shape[axis + 1 :]), leaf.dtype)
            index: list[slice | np.ndarray] = [slice(None)] * leaf.ndim
            index[axis] = np.concatenate([np.arange(inputs), *units]).astype(int)
            grown[tuple(index)] = leaf
            leaf = grown
        return leaf

    return jax.tree.map(grow, params, shapes)


def _networks(
    config: Config,
    ids: Sequence[str],
    params: Params,
    fitted: Sequence[swarm.FitResult],
    network: OwnNetwork | None,
) -> Networks:
    """Make networks from weights (series x member, ...) and from their training.

    In the report of a series losses become means, epochs the largest, the status the worst.
    """
    each = jax.tree.leaves(params)[0].shape[0] // len(ids)
    params = jax.tree.map(lambda leaf: split_members(np.asarray(leaf), each), params)
    table = pd.concat([_report(one) for one in fitted])
    if each > 1:
        worst = table.groupby(np.arange(len(table)) // each)
        status = worst["status"].agg(lambda of: max(of, key=_STATUSES.index))
        loss = worst["validation_loss"].mean()
        table = worst.max(numeric_only=False).assign(status=status, validation_loss=loss)
    elif len(fitted) > 1:  # by the sizes that a search chose
        table = table.loc[list(ids)]
    table = table.set_axis(pd.Index(ids, name="unique_id"))
    return Networks(config, tuple(ids), params, table, network, computed=fitted[0].computed)


_STATUSES = ("stopped_early", "finished", "training", "diverged", "failed")  # the worst last


def candidates(config: Config) -> list[swarm.Candidate]:
    """Return the settings that a search tries: those of the config, and others around them."""
    hyperparams = config.hyperparams("independent")
    rate, decay = hyperparams["learning_rate"], hyperparams["weight_decay"]
    return swarm.grid_candidates(
        learning_rate=[rate * factor for factor in (1 / 3, 1, 3)],
        weight_decay=[decay, 100 * decay],
        hidden=_hidden_sizes(config),
    )


def _hidden_sizes(config: Config) -> list[int]:
    if config.is_own:  # which may lack them
        return [config.hidden]
    return sorted({max(1, config.hidden // 2), config.hidden, 2 * config.hidden})


def _report(fitted: swarm.FitResult) -> pd.DataFrame:
    """Report the training, a row per network; ``why_not``: why none was trained, or empty."""
    names = {status.value: status.name.lower() for status in swarm.Status}
    columns = {
        "why_not": np.array([fitted.failed.get(name, "") for name in fitted.ids], object),
        "status": np.array([names[int(status)] for status in fitted.status], object),
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "validation_loss": fitted.best_loss,
    }
    return pd.DataFrame(columns, index=list(fitted.ids))
