"""The same networks trained by PyTorch, one at a time in each process, one process per core.

Architecture, head, loss, data, batches, initial weights, optimizer, budget and early stopping are
those of :mod:`forecaster.forecasting.network_task`, and the same code forecasts with the result.
So the errors of both can be compared, and their times.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.evaluation.baselines.runner import check_torch, reason_of
from forecaster.forecasting import (
    MODES,
    Config,
    Model,
    Networks,
    Series,
    Split,
    TrainingMode,
    Windows,
    fit_with,
    make_task,
    series_data,
    split_of,
)
from forecaster.machine import cores, end_with_parent
from forecaster.series import Panel, Transformed
from forecaster.swarm import epoch_keys, init_state

if TYPE_CHECKING:
    import torch


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

    Raises UsageError for a model other than an LSTM, or when PyTorch is not installed.
    """
    check_torch(config)
    config = dataclasses.replace(
        config, start="independent", members=1, precision="float32", data_parallel=1
    )
    return fit_with(functools.partial(_train_all, on_series), panel, config, seed)


class Job(NamedTuple):
    """All that a process needs to train the network of one series.

    - ``config, split``: settings, and sizes of windows and spans
    - ``data``: its data
    - ``params``: the initial weights
    - ``windows``: the windows of every epoch's batches, (epoch, batch, window)
    - ``active``: which batches are not empty, (epoch, batch)
    """

    config: Config
    split: Split
    data: Series[np.ndarray]
    params: Mapping[Any, Any]
    windows: Windows
    active: np.ndarray


Outcome: TypeAlias = tuple[Mapping[Any, Any], tuple[str, int, int, float, str]]
"""The best weights, and a row of the report; the initial weights where training failed."""


def _train_all(
    on_series: Callable[[int, int], None] | None,
    config: Config,
    transformed: Transformed,
    ids: Sequence[str],
    seed: int,
) -> tuple[Networks, float]:
    """Return the networks, and the seconds without those in which the processes started."""
    jobs, outcomes = _jobs(config, transformed, ids, seed), list[Outcome]()
    workers, context = min(cores(), len(jobs)), multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context, end_with_parent) as pool:
        list(pool.map(_start_process, range(workers)))
        began = time.perf_counter()
        for outcome in pool.map(train_one, jobs):
            outcomes.append(outcome)
            if on_series:
                on_series(len(outcomes), len(jobs))
        seconds = time.perf_counter() - began
    params, rows = zip(*outcomes, strict=True)
    params = jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *params)  # one for each series
    names = ["status", "epochs", "best_epoch", "validation_loss", "why_not"]
    report = pd.DataFrame(rows, columns=names, index=pd.Index(ids, name="unique_id"))
    report = report.astype({"epochs": np.int32, "best_epoch": np.int32})
    return Networks(config, tuple(ids), params, report), seconds


def _jobs(config: Config, transformed: Transformed, ids: Sequence[str], seed: int) -> list[Job]:
    """Make the jobs, with the initial weights and batches that the swarm would draw."""
    split = split_of(config, transformed.z.shape[1])
    task = make_task(config, split, transformed.features.shape[-1])
    data, keys = series_data(config, transformed), swarm.member_keys(seed, ids)
    hyperparams = {
        name: jnp.float32(value) for name, value in config.hyperparams("independent").items()
    }

    def begin(
        key: jax.Array, first: jax.Array, boundary: jax.Array
    ) -> tuple[Any, tuple[Windows, jax.Array]]:
        # Batches do not depend on features and targets.
        empty = Series(jnp.zeros((1, 1)), jnp.zeros((1, 1)), first, boundary, jnp.array(False))
        epochs = jnp.arange(1, config.limits("independent")[0] + 1)
        drawn = jax.lax.map(lambda epoch: task.batches(empty, epoch_keys(key, epoch)[0]), epochs)
        return init_state(task, key, hyperparams).params, drawn

    params, (windows, active) = swarm.map_members(
        begin, keys, data.first, data.boundary, members=len(ids)
    )
    return [
        Job(
            config, split, Series(*(np.asarray(part[row]) for part in data)),
            jax.tree.map(lambda leaf, row=row: np.array(leaf[row]), params),
            Windows(windows.starts[row], windows.used[row]), active[row],
        )
        for row in range(len(ids))
    ]  # fmt: skip


def _start_process(_: int) -> None:
    import torch

    torch.set_num_threads(1)
    torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))[0].sum().backward()


def train_one(job: Job) -> Outcome:
    """Train one network in this thread."""
    try:
        return _train(job)
    except Exception as error:
        return job.params, ("diverged", 0, 0, np.inf, reason_of(error))


def _train(job: Job) -> Outcome:
    import torch

    torch.set_num_threads(1)
    network, hyperparams = _Network(job), job.config.hyperparams("independent")
    optimizer = torch.optim.AdamW(
        network.weights, lr=hyperparams["learning_rate"], weight_decay=hyperparams["weight_decay"],
        fused=True,
    )  # fmt: skip
    best, best_epoch, best_loss = network.exported(), 0, network.validation_loss()
    status, epoch = "finished", 0
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
            status = "diverged"
            break
        if loss < best_loss:
            best, best_epoch, best_loss = network.exported(), epoch, loss
        if epoch - best_epoch >= patience and epoch < epochs:
            status = "stopped_early"
            break
    return best, (status, epoch, best_epoch, best_loss, "")


class _Network:
    """The LSTM that networks of series are, and its loss on a series.

    The loss is that of :func:`forecaster.forecasting.network_task.make_task`.
    """

    def __init__(self, job: Job):
        import torch

        config, params, data = job.config, job.params, job.data
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
        import torch

        starts, earliest = self._mode.validation_starts(), max(self.first, self.boundary)
        with torch.no_grad():
            every = np.ones(len(starts), bool)
            return float(self.loss(starts, every, earliest, self._split.steps - 1))

    def loss(
        self, starts: np.ndarray, used: np.ndarray, earliest: int, latest: int
    ) -> "torch.Tensor":
        """Return the loss of one batch, of targets between two steps.

        ``used`` is False where the batch has no window.
        """
        import torch

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


def _lstm(layers: Sequence[Mapping[str, np.ndarray]], hidden: int) -> "torch.nn.LSTM":
    """Make PyTorch's LSTM with these weights, a ``kernel`` and a ``bias`` per layer."""
    import torch

    inputs = [len(layer["kernel"]) - hidden for layer in layers]
    cell = torch.nn.LSTM(inputs[0], hidden, len(layers), batch_first=True)
    state = {}
    for number, (layer, width) in enumerate(zip(layers, inputs, strict=True)):
        kernel = torch.tensor(layer["kernel"])
        state[f"weight_ih_l{number}"] = kernel[:width].T
        state[f"weight_hh_l{number}"] = kernel[width:].T
        state[f"bias_ih_l{number}"] = torch.tensor(layer["bias"])
        state[f"bias_hh_l{number}"] = torch.zeros(len(layer["bias"]))
    cell.load_state_dict(state)
    for number in range(len(layers)):
        getattr(cell, f"bias_hh_l{number}").requires_grad_(False)  # ours has one bias
    return cell


def _copy(tensor: "torch.Tensor") -> np.ndarray:
    return tensor.detach().numpy().copy()
