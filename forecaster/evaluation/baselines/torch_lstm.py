"""The same networks trained by PyTorch, one after another, a process a core.

Architecture, head, loss, data, batches, initial weights, optimiser, budget and early stopping are
those of :mod:`forecaster.forecasting.training`; what comes out is forecast with by the same code. So two
distributions of errors can be laid over each other, and the times set beside each other.
"""

import concurrent.futures
import functools
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.evaluation.baselines.running import check_torch, cores, memory_used
from forecaster.forecasting import (
    Model,
    Networks,
    Series,
    Split,
    fit_with,
    make_task,
    series_data,
    split_of,
)
from forecaster.series import Panel, Transformed
from forecaster.swarm import epoch_keys, init_state

COLUMN = "PyTorch"


def fit_by_torch(
    panel: Panel,
    config: Config,
    seed: int = 0,
    *,
    workers: int | None = None,
    on_series: Callable[[int, int], None] | None = None,
) -> Model:
    """As :func:`forecaster.fit`, trained by PyTorch. A series that PyTorch did not train is
    left out and named in ``skipped``, with the error.

    Raises UsageError for a model other than an LSTM, or when PyTorch is not installed.
    """
    check_torch(config)
    train = functools.partial(_train_all, workers=workers or cores(), on_series=on_series)
    return fit_with(train, panel, config, seed)


class Job(NamedTuple):
    """One series: its data, initial weights, and the windows of every epoch's batches.

    ``at`` (epoch, step, batch): starts of windows, or their last steps when windowed; ``used``
    likewise: 0 where there is no window; ``active`` (epoch, step): which batches count.
    """

    config: Config
    split: Split
    features: np.ndarray
    targets: np.ndarray
    first: int
    params: Any
    at: np.ndarray
    used: np.ndarray
    active: np.ndarray


class Outcome(NamedTuple):
    """A trained network. ``error``: why there is none; then weights are the initial ones."""

    params: Any
    status: str
    epochs: int
    best_epoch: int
    best_loss: float
    error: str
    memory: tuple[int, int] = (0, 0)  # of its process: number and peak, KiB


def _train_all(
    config: Config,
    transformed: Transformed,
    ids: Sequence[str],
    seed: int,
    *,
    workers: int,
    on_series: Callable[[int, int], None] | None,
) -> tuple[Networks, float]:
    jobs = _jobs(config, transformed, ids, seed)
    context = multiprocessing.get_context("spawn")
    workers = min(workers, len(jobs))
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        list(pool.map(_warm_up, range(workers)))  # starting processes is not training
        began = time.perf_counter()
        outcomes = []
        for done, outcome in enumerate(pool.map(train_one, jobs), start=1):
            outcomes.append(outcome)
            if on_series:
                on_series(done, len(jobs))
        seconds = time.perf_counter() - began
    report = {
        "status": np.array([o.status for o in outcomes], object),
        "epochs": np.array([o.epochs for o in outcomes], np.int32),
        "best_epoch": np.array([o.best_epoch for o in outcomes], np.int32),
        "validation_loss": np.array([o.best_loss for o in outcomes]),
        "process": np.array([o.memory[0] for o in outcomes]),
        "process_memory": np.array([o.memory[1] for o in outcomes]),
        "why_not": np.array([o.error for o in outcomes], object),
    }
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *(o.params for o in outcomes))
    report = pd.DataFrame(report, index=pd.Index(ids, name="unique_id"))
    return Networks(config, tuple(ids), params, report), seconds


def _jobs(config: Config, transformed: Transformed, ids: Sequence[str], seed: int) -> list[Job]:
    """What the swarm would start from, and the batches it would draw."""
    split = split_of(config, transformed.z.shape[1])
    task = make_task(config, split, transformed.features.shape[-1])
    data, keys = series_data(transformed), swarm.member_keys(seed, ids)
    rates = {"learning_rate": config.learning_rate, "weight_decay": config.weight_decay}
    hyperparams = {
        name: jnp.float32(value) for name, value in (rates | {"clip": config.clip}).items()
    }

    def begin(key, first):
        own = Series(jnp.zeros((1, 1)), jnp.zeros((1, 1)), first)  # batches need no more
        epochs = jnp.arange(1, config.epochs + 1)
        drawn = jax.lax.map(lambda epoch: task.batches(own, epoch_keys(key, epoch)[0]), epochs)
        return init_state(task, key, hyperparams).params, drawn

    params, ((at, used), active) = swarm.map_members(begin, keys, data.first, members=len(ids))
    return [
        Job(
            config, split, data.features[row], data.targets[row], int(data.first[row]),
            jax.tree.map(lambda leaf, row=row: np.array(leaf[row]), params),
            at[row], used[row], active[row],
        )
        for row in range(len(ids))
    ]  # fmt: skip


def _warm_up(_: int) -> None:
    import torch

    torch.set_num_threads(1)
    torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))[0].sum().backward()


def train_one(job: Job) -> Outcome:
    """Train one network on this thread."""
    try:
        return _train(job)._replace(memory=memory_used())
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return Outcome(job.params, "diverged", 0, 0, np.inf, reason)


def _train(job: Job) -> Outcome:
    import torch

    torch.set_num_threads(1)
    config, split = job.config, job.split
    network = _Network(job.params, config)
    optimizer = torch.optim.AdamW(
        network.weights, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    features, targets = torch.tensor(job.features), torch.tensor(job.targets)
    windowed = config.way == "windowed"
    if windowed:
        held_back = np.asarray(split.validation_origins)
    else:
        held_back = np.asarray(split.validation_starts())

    def loss_of(at: np.ndarray, used: Any, earliest: int, latest: int):
        at = np.where(used > 0, at, split.boundary)  # in place of no window, any that is whole
        starts = at - config.lookback + 1 if windowed else at
        if starts.min() < job.first:
            raise ValueError("its history is shorter than a window; torch.nn.LSTM has no masks")
        inputs = features[torch.tensor(starts[:, None] + np.arange(config.lookback))]
        origins = at[:, None] if windowed else np.asarray(split.window_origins(jnp.asarray(at)))
        ahead = origins[..., None] + 1 + np.arange(config.horizon)
        inside = (origins >= earliest)[..., None] & (ahead <= latest) & (used > 0)[:, None, None]
        wanted = targets[torch.tensor(np.clip(origins, 0, split.steps - 1))]
        known = torch.tensor(inside) & torch.isfinite(wanted)
        outputs = network(inputs)[:, -origins.shape[1] :]
        losses = network.loss(outputs, torch.where(known, wanted, 0.0))
        return torch.where(known, losses, 0.0).sum() / known.sum().clamp(min=1)

    def validate() -> float:
        with torch.no_grad():
            everything, earliest = np.ones(len(held_back)), max(job.first, split.boundary)
            return float(loss_of(held_back, everything, earliest, split.steps - 1))

    best, best_epoch, best_loss, status, epoch = network.exported(), 0, validate(), "finished", 0
    for epoch in range(1, config.epochs + 1):
        for at, used, active in zip(
            job.at[epoch - 1], job.used[epoch - 1], job.active[epoch - 1], strict=True
        ):
            if active:
                optimizer.zero_grad(set_to_none=True)
                loss_of(at, used, job.first, split.boundary).backward()
                network.clip(config.clip)
                optimizer.step()
        loss = validate()
        if not np.isfinite(loss):
            status = "diverged"
            break
        if loss < best_loss:
            best, best_epoch, best_loss = network.exported(), epoch, loss
        if epoch - best_epoch >= config.patience and epoch < config.epochs:
            status = "stopped_early"
            break
    return Outcome(best, status, epoch, best_epoch, best_loss, "")


class _Network:
    """:class:`forecaster.forecasting.networks.Recurrent` of LSTM layers, and its head's loss."""

    def __init__(self, params: Any, config: Config):
        import torch

        self._head, self._horizon, self._like = config.head, config.horizon, params
        kernels = [params["layers"][layer] for layer in range(config.layers)]
        inputs = [len(layer["kernel"]) - config.hidden for layer in kernels]
        self._inputs = inputs
        self._cell = torch.nn.LSTM(inputs[0], config.hidden, config.layers, batch_first=True)
        state = {}
        for number, (layer, width) in enumerate(zip(kernels, inputs, strict=True)):
            kernel = torch.tensor(layer["kernel"])
            state[f"weight_ih_l{number}"] = kernel[:width].T
            state[f"weight_hh_l{number}"] = kernel[width:].T
            state[f"bias_ih_l{number}"] = torch.tensor(layer["bias"])
            state[f"bias_hh_l{number}"] = torch.zeros(len(layer["bias"]))
        self._cell.load_state_dict(state)
        for number in range(config.layers):
            getattr(self._cell, f"bias_hh_l{number}").requires_grad_(False)  # ours has one bias
        self._out = torch.nn.Linear(*params["out"]["kernel"].shape)
        self._out.load_state_dict(
            {
                "weight": torch.tensor(params["out"]["kernel"]).T,
                "bias": torch.tensor(params["out"]["bias"]),
            }
        )
        self._constants = torch.nn.Parameter(torch.tensor(params["constants"]))
        parameters = [*self._cell.parameters(), *self._out.parameters(), self._constants]
        self.weights = [p for p in parameters if p.requires_grad and p.numel()]

    def __call__(self, inputs):
        """(B, T, F) to (B, T, outputs)."""
        return self._out(self._cell(inputs)[0])

    def loss(self, outputs, targets):
        """As of :mod:`forecaster.forecasting.heads`, elementwise."""
        import torch

        if self._head == "point":
            return (outputs - targets) ** 2
        location, log_scale = outputs.split(self._horizon, dim=-1)
        log_scale = log_scale.clamp(-5, 5)
        dof = 2.1 + torch.nn.functional.softplus(self._constants + 3.0)
        normalise = torch.lgamma((dof + 1) / 2) - torch.lgamma(dof / 2)
        normalise = normalise - 0.5 * torch.log(dof * torch.pi)
        z = (targets - location) * torch.exp(-log_scale)
        return log_scale - normalise + 0.5 * (dof + 1) * torch.log1p(z * z / dof)

    def clip(self, most: float) -> None:
        """Scale the gradient down to a norm, as ``optax.clip_by_global_norm`` does."""
        import torch

        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = torch.sqrt(torch.stack([(g * g).sum() for g in gradients]).sum())
        if norm >= most:
            for gradient in gradients:
                gradient.mul_(most / norm)

    def exported(self) -> Any:
        """The weights in our layout."""
        copy = lambda tensor: tensor.detach().numpy().copy()  # noqa: E731
        layers = {}
        for number in range(len(self._inputs)):
            kernel = [getattr(self._cell, f"weight_{part}_l{number}").T for part in ("ih", "hh")]
            layers[number] = {
                "kernel": np.concatenate([copy(part) for part in kernel]),
                "bias": copy(getattr(self._cell, f"bias_ih_l{number}")),
            }
        out = {"kernel": copy(self._out.weight.T), "bias": copy(self._out.bias)}
        return {"constants": copy(self._constants), "layers": layers, "out": out}
