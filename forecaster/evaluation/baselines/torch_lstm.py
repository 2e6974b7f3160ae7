"""The same networks trained by PyTorch, one at a time in each process, one process per core.

Architecture, head, loss, data, batches, initial weights, optimizer, budget and early stopping are
those of :mod:`forecaster.forecasting.network_task`, and the same code forecasts with the result.
So the errors of both can be compared, and their times.
"""

import concurrent.futures
import dataclasses
import multiprocessing
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from forecaster import swarm
from forecaster.evaluation.baselines.runner import check_torch, reason_of
from forecaster.forecasting import (
    MODES,
    Config,
    Model,
    Series,
    Split,
    TrainingMode,
    Windows,
    fit_part,
    split_of,
    with_declared,
)
from forecaster.machine import cores, end_with_parent
from forecaster.series import Panel


def fit_by_torch(
    panel: Panel,
    config: Config,
    seed: int = 0,
    on_series: Callable[[int, int], None] | None = None,
) -> Model:
    """Fit as :func:`forecaster.fit` does, trained by PyTorch in processes of this machine.

    A series that PyTorch could not train is skipped and named in ``skipped``, with the error.

    - ``panel, config, seed``: as for :func:`forecaster.fit`
    - ``on_series(done, total)``: called after each series

    Raises UsageError for a model other than an LSTM.
    """
    check_torch(config)
    config = dataclasses.replace(
        config, start="independent", members=1, precision="float32", data_parallel=1
    )
    config, panel = with_declared(config, panel)

    def report(progress: swarm.Progress) -> None:
        if on_series and progress.stopped:
            on_series(progress.stopped, progress.members)

    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(cores(), context, end_with_parent) as pool:
        list(pool.map(_start_process, range(cores())))  # before the time is taken
        trainer = _Torch(config, pool)
        return fit_part(panel, config, seed, executor=trainer, on_progress=report).model


class Job(NamedTuple):
    """All that a process needs to train the network of one series.

    - ``config, split``: settings, and sizes of windows and spans
    - ``data``: its data
    - ``state``: the state before training, each array (1, ...)
    - ``windows``: the windows of every epoch's batches, (epoch, batch, window)
    - ``active``: which batches are not empty, (epoch, batch)
    """

    config: Config
    split: Split
    data: Series[np.ndarray]
    state: swarm.State
    windows: Windows
    active: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Torch:
    """Trains each network by PyTorch, in a process of the ``pool``: an executor of the swarm."""

    config: Config
    pool: concurrent.futures.Executor

    is_local = False
    members_per_shard = 1

    def lanes(self) -> Sequence[int]:
        return [1] * cores()

    def run(
        self, function: object, common: Any, parts: Iterable[Any], *, per_core: bool = False
    ) -> Generator[tuple[Any, Any], None, None]:
        """Yield each part, one member, when it is trained; ``function`` would train by JAX."""
        del function, per_core
        shards = list(parts)
        yield from zip(
            shards, self.pool.map(train_one, _jobs(self.config, common.task, shards)), strict=True
        )


def _jobs(config: Config, task: swarm.Task, shards: Sequence[Any]) -> list[Job]:
    """Make the jobs, with the batches that the swarm would draw."""
    data = [Series(*(part[0] for part in shard.data)) for shard in shards]
    states = [shard.settings.origin for shard in shards]

    def draw(key: jax.Array, first: jax.Array, boundary: jax.Array) -> tuple[Windows, jax.Array]:
        # Batches do not depend on features and targets.
        empty = Series(jnp.zeros((1, 1)), jnp.zeros((1, 1)), first, boundary, jnp.array(False))
        epochs = jnp.arange(1, config.limits("independent")[0] + 1)
        return jax.lax.map(lambda one: task.batches(empty, swarm.epoch_keys(key, one)[0]), epochs)

    windows, active = swarm.map_members(
        draw,
        np.concatenate([state.key for state in states]),
        np.array([own.first for own in data]),
        np.array([own.boundary for own in data]),
        members=len(data),
    )
    split = split_of(config, len(data[0].features))
    drawn = zip(windows.starts, windows.used, active, strict=True)
    return [
        Job(config, split, own, state, Windows(starts, used), some)
        for own, state, (starts, used, some) in zip(data, states, drawn, strict=True)
    ]


def _start_process(_: int) -> None:
    torch.set_num_threads(1)
    torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))[0].sum().backward()


def train_one(job: Job) -> swarm.Trained | swarm.Failed:
    """Train one network in this thread."""
    try:
        return _train(job)
    except Exception as error:
        return swarm.Failed(reason_of(error))


def _train(job: Job) -> swarm.Trained:
    torch.set_num_threads(1)
    network, hyperparams = _Network(job), job.config.hyperparams("independent")
    optimizer = torch.optim.AdamW(
        network.weights, lr=hyperparams["learning_rate"], weight_decay=hyperparams["weight_decay"],
        fused=True,
    )  # fmt: skip
    best, best_epoch, best_loss = network.exported(), 0, network.validation_loss()
    status, epoch = swarm.Status.FINISHED, 0
    epochs, patience = job.config.limits("independent")
    for epoch in range(1, epochs + 1):
        for starts, used, active in zip(
            job.windows.starts[epoch - 1], job.windows.used[epoch - 1], job.active[epoch - 1],
            strict=True,
        ):  # fmt: skip
            if active:
                optimizer.zero_grad(set_to_none=True)
                network.loss(starts, used, network.first, network.boundary).backward()
                torch.nn.utils.clip_grad_norm_(network.weights, hyperparams["clip"])
                optimizer.step()
        loss = network.validation_loss()
        if not np.isfinite(loss):
            status = swarm.Status.DIVERGED
            break
        if loss < best_loss:
            best, best_epoch, best_loss = network.exported(), epoch, loss
        if epoch - best_epoch >= patience and epoch < epochs:
            status = swarm.Status.STOPPED_EARLY
            break
    state = job.state._replace(
        best_params=jax.tree.map(lambda leaf: leaf[None], best), epoch=np.array([epoch]),
        status=np.array([status]), best_loss=np.array([best_loss]),
        best_epoch=np.array([best_epoch]),
    )  # fmt: skip
    unknown = np.full((1, epoch), np.nan, np.float32)
    return swarm.Trained(state, swarm.Losses(unknown, unknown))


class _Network:
    """The LSTM that networks of series are, and its loss on a series.

    The loss is that of :func:`forecaster.forecasting.network_task.make_task`.
    """

    def __init__(self, job: Job):
        config, data = job.config, job.data
        params: Any = jax.tree.map(lambda leaf: np.array(leaf[0]), job.state.params)
        layers = [params["layers"][number] for number in range(config.layers)]
        self._cell = _lstm(layers, config.hidden)
        self._out = torch.nn.Linear(*params["out"]["kernel"].shape)
        weight, bias = params["out"]["kernel"], params["out"]["bias"]
        self._out.load_state_dict({"weight": torch.tensor(weight).T, "bias": torch.tensor(bias)})
        self._constants = torch.nn.Parameter(torch.tensor(params["constants"]))
        parameters = [*self._cell.parameters(), *self._out.parameters(), self._constants]
        self.weights = [p for p in parameters if p.requires_grad and p.numel()]
        self._split, self._horizon = job.split, config.horizon
        self.first, self.boundary = int(data.first), int(data.boundary)
        self._mode: TrainingMode = MODES[config.training_mode](job.split)
        self._features, self._targets = torch.tensor(data.features), torch.tensor(data.targets)
        self._counted = bool(data.counted)

    def validation_loss(self) -> float:
        """Return the loss over the validation span."""
        starts, earliest = self._mode.validation_starts(), max(self.first, self.boundary)
        with torch.no_grad():
            every = np.ones(len(starts), bool)
            return float(self.loss(starts, every, earliest, self._split.steps - 1))

    def loss(
        self, starts: np.ndarray, used: np.ndarray, earliest: int, latest: int
    ) -> torch.Tensor:
        """Return the loss of one batch, of targets between two steps.

        ``used`` is False where the batch has no window.
        """
        split = self._split
        whole = self.boundary - split.lookback + 1  # for padding: any complete window
        starts = np.where(used, starts, whole)
        if starts.min() < self.first:
            raise ValueError("its history is shorter than a window; torch.nn.LSTM has no masks")
        inputs = self._features[torch.tensor(starts[:, None] + np.arange(split.lookback))]
        origins = self._mode.origins(starts)
        inside = split.targets_within(origins, earliest, latest) & used[:, None, None]
        targets = self._targets[torch.tensor(np.clip(origins, 0, split.steps - 1))]
        known = torch.tensor(inside) & torch.isfinite(targets)
        outputs = self._out(self._cell(inputs)[0])[:, -origins.shape[1] :]
        location, log_scale = outputs.split(self._horizon, dim=-1)
        dof = 2.1 + torch.nn.functional.softplus(self._constants + 3.0)
        if self._counted:
            dof = torch.full_like(dof, 1e4)
        scale = log_scale.clamp(-5, 5).exp()
        student = torch.distributions.StudentT(dof, location, scale, validate_args=False)
        losses = -student.log_prob(torch.where(known, targets, 0.0))
        return torch.where(known, losses, 0.0).sum() / known.sum().clamp(min=1)

    def exported(self) -> dict[str, Any]:
        """Return the weights in the layout of :class:`forecaster.forecasting.Model`."""
        layers = {}
        for number in range(self._cell.num_layers):
            kernel = [getattr(self._cell, f"weight_{part}_l{number}").T for part in ("ih", "hh")]
            layers[number] = {
                "kernel": np.concatenate([_copy(part) for part in kernel]),
                "bias": _copy(getattr(self._cell, f"bias_ih_l{number}")),
            }
        out = {"kernel": _copy(self._out.weight.T), "bias": _copy(self._out.bias)}
        return {"constants": _copy(self._constants), "layers": layers, "out": out}


def _lstm(layers: Sequence[Mapping[str, np.ndarray]], hidden: int) -> torch.nn.LSTM:
    """Make PyTorch's LSTM with these weights, a ``kernel`` and a ``bias`` per layer."""
    inputs = len(layers[0]["kernel"]) - hidden
    cell = torch.nn.LSTM(inputs, hidden, len(layers), batch_first=True)
    state = {}
    for number, layer in enumerate(layers):
        kernel, bias = torch.tensor(layer["kernel"]).T, torch.tensor(layer["bias"])
        own = {"weight_ih": kernel[:, :-hidden], "weight_hh": kernel[:, -hidden:],
               "bias_ih": bias, "bias_hh": 0 * bias}  # fmt: skip
        state |= {f"{name}_l{number}": value for name, value in own.items()}
        getattr(cell, f"bias_hh_l{number}").requires_grad_(False)  # ours has one bias
    cell.load_state_dict(state)
    return cell


def _copy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()
