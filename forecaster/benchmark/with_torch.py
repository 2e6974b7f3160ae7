"""Run a job in PyTorch: one model after another, on one thread or in a process per core."""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from forecaster.benchmark.job import BENCHMARK_LEARNING_RATE, Job

if TYPE_CHECKING:
    import torch

    _Weights: TypeAlias = dict[str, torch.Tensor]
    _Model: TypeAlias = tuple[Callable[[torch.Tensor], torch.Tensor], list[torch.nn.Parameter]]


def train_one(job: Job, member: int, device: str = "cpu") -> float:
    """Train one model on this thread, or by cuDNN; return its mean loss in the last epoch."""
    import torch

    torch.set_num_threads(1)
    weights, (x, y) = _prepared(job, member, device)
    weights = {name: value.clone() for name, value in weights.items()}
    predict, parameters = _lstm(job, weights) if job.network == "lstm" else _mlp(job, weights)
    optimizer = torch.optim.Adam(parameters, lr=BENCHMARK_LEARNING_RATE, fused=True)
    order = torch.tensor(job.order(), device=device)
    losses, half = [], job.precision == "bfloat16"
    for _ in range(job.epochs):
        losses = []
        for rows in order:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=half):
                predicted = predict(x[rows])
            loss = ((predicted.float() - y[rows]) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return float(torch.stack(losses).mean())


@functools.cache
def _prepared(job: Job, member: int, device: str) -> "tuple[_Weights, tuple[torch.Tensor, ...]]":
    """Return a member's initial weights and examples, cached so that they are not timed."""
    import torch

    def to_device(array: np.ndarray) -> torch.Tensor:
        return torch.tensor(array, device=device)

    weights = {name: to_device(value) for name, value in job.weights(member).items()}
    return weights, tuple(map(to_device, job.examples(member)))


def _prepare(job: Job, members: range, device: str = "cpu") -> None:
    for member in members:
        _prepared(job, member, device)


def _lstm(job: Job, weights: "_Weights") -> "_Model":
    """Return PyTorch's LSTM with these weights, and its trainable parameters."""
    import torch

    state = {}
    for layer in range(job.layers):
        kernel, bias = weights[f"kernel{layer}"], weights[f"bias{layer}"]
        inputs = len(kernel) - job.hidden
        state[f"weight_ih_l{layer}"] = kernel[:inputs].T
        state[f"weight_hh_l{layer}"] = kernel[inputs:].T
        state[f"bias_ih_l{layer}"] = bias
        state[f"bias_hh_l{layer}"] = torch.zeros_like(bias)
    cell = torch.nn.LSTM(job.features, job.hidden, job.layers, batch_first=True)
    cell.to(weights["out"].device)
    cell.load_state_dict(state)
    for layer in range(job.layers):
        getattr(cell, f"bias_hh_l{layer}").requires_grad_(False)  # our LSTM has a single bias
    out = _linear(weights["out"], weights["out_bias"])
    used = [p for p in [*cell.parameters(), *out.parameters()] if p.requires_grad]
    return lambda x: out(cell(x)[0][:, -1]), used


def _mlp(job: Job, weights: "_Weights") -> "_Model":
    import torch

    parts = [torch.nn.Flatten()]
    for layer in range(job.layers):
        parts += [_linear(weights[f"kernel{layer}"], weights[f"bias{layer}"]), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts, _linear(weights["out"], weights["out_bias"]))
    return model, list(model.parameters())


def _linear(kernel: "torch.Tensor", bias: "torch.Tensor") -> "torch.nn.Linear":
    import torch

    layer = torch.nn.Linear(kernel.shape[0], kernel.shape[1], device=kernel.device)
    layer.load_state_dict({"weight": kernel.T, "bias": bias})
    return layer


@contextlib.contextmanager
def by_torch(
    job: Job, *, workers: int = 0, device: str = "cpu"
) -> Iterator[Callable[[], tuple[float, np.ndarray]]]:
    """Yield a function that trains one model after another, by a number of processes or by none.

    It returns seconds per model and epoch, and the models' losses in the last epoch. Two models of
    each process are timed, since all take alike. Each process trains once before.
    """
    members = range(min(2 * (workers or 1), max(job.members, workers)))
    jobs, devices = [job] * len(members), [device] * len(members)
    with contextlib.ExitStack() as stack:
        apply: Callable[..., Iterable[float]] = map
        if workers:
            pool = concurrent.futures.ProcessPoolExecutor(
                workers, multiprocessing.get_context("spawn"), _prepare, (job, members)
            )
            apply = stack.enter_context(pool).map
            list(apply(train_one, jobs, members))
        else:
            _prepare(job, members, device)

        def run() -> tuple[float, np.ndarray]:
            began = time.perf_counter()
            losses = list(apply(train_one, jobs, members, devices))
            seconds = time.perf_counter() - began
            return seconds / len(members) / job.epochs, np.array(losses)

        yield run
