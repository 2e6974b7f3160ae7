"""Train the networks of all series, from random weights or from networks that all share."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.forecasting.config import Config, Stage
from forecaster.forecasting.fitting.pooled import Pooled, sample_of, train_pooled
from forecaster.forecasting.model import Networks, Params, merge_members, split_members
from forecaster.forecasting.networks import OwnNetwork, widen
from forecaster.forecasting.task import (
    Series,
    Started,
    cached_task,
    functions,
    param_shapes,
    series_data,
    split_of,
)
from forecaster.forecasting.windows import Split
from forecaster.series import Transformed


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
    - ``ids``: the series' names
    - ``seed``: determines every random draw, together with a series' name
    - ``tune``: first search the settings of each series among :func:`candidates`
    - ``network``: a user's own class, which the config's model names
    - ``pooled``: the networks to start from, if they are trained already; otherwise they are
      trained in this process
    - ``before``: networks of these series to train on from, see :func:`update`
    - ``checkpoint, executor, on_progress``: as for :func:`forecaster.swarm.fit`
    """
    features = transformed.features.shape[-1]
    split = split_of(config, transformed.z.shape[1])
    data = series_data(config, transformed)
    if checkpoint is not None:
        checkpoint = dataclasses.replace(checkpoint, precision=config.precision)
    options = _Options(seed, checkpoint, executor, on_progress)
    if before is not None:
        start = merge_members(before.params_of(before.rows_of(ids)))
        networks, seconds = _fine_tuned(
            config, split, network, data, ids, start, options, stage="update"
        )
        return dataclasses.replace(networks, start=before.start), seconds
    if tune:
        return _search(config, split, features, network, data, ids, options)
    if config.start == "independent":
        return _independent(config, split, network, data, ids, options)
    seconds = 0.0
    if pooled is None:
        sample = sample_of(ids, split.steps)
        some = data if len(sample) == len(ids) else Series(*(part[sample] for part in data))
        pooled = train_pooled(config, split, features, network, some, seed, on_progress=on_progress)
        seconds = pooled.seconds
    common = swarm.Shared(pooled.params, np.tile(np.arange(config.members), len(ids)))
    networks, more = _fine_tuned(config, split, network, data, ids, common, options)
    start = jax.tree.map(np.asarray, pooled.params)
    return dataclasses.replace(networks, start=start), seconds + more


def untrained(config: Config, features: int, network: OwnNetwork | None) -> Networks:
    """Return networks of no series, where none has rows enough.

    - ``features``: the number of features of a step
    - ``network``: a user's own class, which the config's model names
    """
    shapes = param_shapes(config, features, network)
    params = jax.tree.map(
        lambda leaf: np.zeros((0, config.members, *leaf.shape), leaf.dtype), shapes
    )
    report = pd.DataFrame(
        {
            "status": np.array([], object),
            "epochs": np.array([], int),
            "best_epoch": np.array([], int),
            "validation_loss": np.array([], float),
        },
        index=pd.Index([], name="unique_id", dtype=object),
    )
    return Networks(config, (), params, report, network)


def _independent(
    config: Config,
    split: Split,
    network: OwnNetwork | None,
    data: Series[np.ndarray],
    ids: Sequence[str],
    options: "_Options",
) -> tuple[Networks, float]:
    """Train the networks of each series from random weights; return them and the seconds."""
    task = cached_task(config, split, data.features.shape[-1], network, started=False)
    rows = np.repeat(np.arange(len(ids)), config.members)
    shared = data if config.members == 1 else swarm.Shared(data, rows)
    fitted = swarm.fit(
        task, shared, member_names(ids, config.members), **options.of(config, "independent")
    )
    networks = _networks(config, ids, fitted.params, _report(fitted), network)
    return dataclasses.replace(networks, computed=fitted.computed), fitted.seconds


def _fine_tuned(
    config: Config,
    split: Split,
    network: OwnNetwork | None,
    data: Series[np.ndarray],
    ids: Sequence[str],
    start: Params | swarm.Shared,
    options: "_Options",
    stage: Stage = "from pooled",
) -> tuple[Networks, float]:
    """Fine-tune networks on each series; return the networks and the seconds.

    ``start``: the weights of each series' networks at first, (series x member, ...), or those that
    all series share, one for each member
    """
    rows, names = np.repeat(np.arange(len(ids)), config.members), member_names(ids, config.members)
    task = cached_task(config, split, data.features.shape[-1], network, started=True)
    started = Started(cast(Any, swarm.Shared(data, rows)), cast(Any, start))
    fitted = swarm.fit(task, started, names, **options.of(config, stage))
    if isinstance(start, swarm.Shared):
        start = swarm.take_members(start.values, start.rows)
    params = jax.tree.map(np.add, fitted.params, start)
    networks = _networks(config, ids, params, _report(fitted), network)
    return dataclasses.replace(networks, computed=fitted.computed), fitted.seconds


def member_names(ids: Sequence[str], members: int) -> list[str]:
    """Return the names of each series' networks, which determine their random draws.

    The first network has the name of the series.
    """
    return [name if k == 0 else f"{name}\x1f{k}" for name in ids for k in range(members)]


class _Options(NamedTuple):
    """Arguments of :func:`forecaster.swarm.fit` that do not depend on the settings."""

    seed: int
    checkpoint: swarm.Checkpoint | None
    executor: swarm.Executor | None
    on_progress: Callable[[swarm.Progress], None] | None

    def of(self, config: Config, stage: Stage) -> dict[str, Any]:
        """Return the arguments of :func:`forecaster.swarm.fit` in a stage of training."""
        epochs, patience = config.limits(stage)
        return {
            **self._asdict(),
            "epochs": epochs,
            "patience": patience,
            "hyperparams": config.hyperparams(stage),
        }


def _search(
    config: Config,
    split: Split,
    features: int,
    network: OwnNetwork | None,
    data: Series[np.ndarray],
    ids: Sequence[str],
    options: _Options,
) -> tuple[Networks, float]:
    """Train one network per series, independent of the others, with settings searched for it."""
    config = dataclasses.replace(config, start="independent", members=1, data_parallel=1)

    def make(hidden):
        return cached_task(
            dataclasses.replace(config, hidden=hidden), split, features, network, started=False
        )

    tuned = swarm.tune(make, data, ids, candidates(config), **options.of(config, "independent"))
    # The widest size that was tried, not the widest that won: otherwise other series would decide
    # on the compiled program of a network, and so on the last bits of its forecasts.
    widest = max(_hidden_sizes(config))
    config = dataclasses.replace(config, hidden=widest)
    shapes = jax.eval_shape(functions(config, features, network).init, jax.random.key(0))
    order = np.argsort(np.concatenate([winners.rows for winners in tuned.winners]))

    def together(parts):
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)

    params = [widen(w.result.params, shapes, w.size["hidden"], widest) for w in tuned.winners]
    chosen = tuned.summary().drop(columns="best_loss")
    lost = any(winners.result.failed for winners in tuned.winners)
    report = together([_report(winners.result, lost=lost) for winners in tuned.winners])
    report |= {name: column.to_numpy() for name, column in chosen.items()}
    networks = _networks(config, ids, together(params), report, network)
    computed = tuned.winners[0].result.computed
    return dataclasses.replace(networks, computed=computed), tuned.seconds


def _networks(
    config: Config,
    ids: Sequence[str],
    params: Params,
    report: Mapping[str, np.ndarray],
    network: OwnNetwork | None,
) -> Networks:
    """Make networks from weights (series x member, ...) and a report of each network."""
    each = jax.tree.leaves(params)[0].shape[0] // len(ids)
    params = jax.tree.map(lambda leaf: split_members(np.asarray(leaf), each), params)
    index = pd.Index(ids, name="unique_id")
    table = pd.DataFrame(dict(report))
    return Networks(config, tuple(ids), params, _of_series(table, each).set_axis(index), network)


def _of_series(report: pd.DataFrame, each: int) -> pd.DataFrame:
    """Reduce a report of each network to one of each series.

    Losses become means, epochs the largest, the status the worst.
    """
    if each == 1:
        return report
    group = np.arange(len(report)) // each
    rank = {name: number for number, name in enumerate(_STATUSES)}
    worst = {"why_not": report.groupby(group)["why_not"].max()} if "why_not" in report else {}
    return pd.DataFrame(
        {
            "status": report.groupby(group)["status"].agg(lambda s: max(s, key=rank.__getitem__)),
            "epochs": report.groupby(group)["epochs"].max(),
            "best_epoch": report.groupby(group)["best_epoch"].max(),
            "validation_loss": report.groupby(group)["validation_loss"].mean(),
            **worst,
        }
    )


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
    if not config.has_hidden_units:
        return [config.hidden]
    return sorted({max(1, config.hidden // 2), config.hidden, 2 * config.hidden})


def _report(fitted: swarm.FitResult, *, lost: bool = False) -> dict[str, np.ndarray]:
    """Report the training, a row per network.

    ``lost``: include the column of reasons even where all were trained.
    """
    names = {status.value: status.name.lower() for status in swarm.Status}
    reasons = np.array([fitted.failed.get(name, "") for name in fitted.ids], object)
    return {
        **({"why_not": reasons} if lost or fitted.failed else {}),
        "status": np.array([names[int(status)] for status in fitted.status], object),
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "validation_loss": fitted.best_loss,
    }
