"""The job done by PyTorch: one model after the other on one thread, or a process a core."""

import concurrent.futures
import multiprocessing
import os
import time

import numpy as np

from forecaster.benchmark.job import LEARNING_RATE, Job


def train_one(job: Job, member: int) -> float:
    """Train one model on this thread; returns its mean loss in the last epoch."""
    import torch

    torch.set_num_threads(1)
    weights = job.weights(member)
    cell = torch.nn.LSTM(job.features, job.hidden, job.layers, batch_first=True)
    out = torch.nn.Linear(job.hidden, 1)
    cell.load_state_dict(_cell_state(weights, job))
    out.load_state_dict(
        {"weight": torch.tensor(weights["out"].T.copy()), "bias": torch.tensor(weights["out_bias"])}
    )
    for layer in range(job.layers):
        getattr(cell, f"bias_hh_l{layer}").requires_grad_(False)  # ours has one bias
    used = [p for p in [*cell.parameters(), *out.parameters()] if p.requires_grad]
    optimizer = torch.optim.Adam(used, lr=LEARNING_RATE)
    x, y = map(torch.tensor, job.examples(member))
    order = torch.tensor(job.order())
    losses = []
    for _ in range(job.epochs):
        losses = []
        for rows in order:
            optimizer.zero_grad(set_to_none=True)
            loss = ((out(cell(x[rows])[0][:, -1]) - y[rows]) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def _cell_state(weights: dict[str, np.ndarray], job: Job):
    import torch

    state = {}
    for layer in range(job.layers):
        kernel, bias = weights[f"kernel{layer}"], weights[f"bias{layer}"]
        inputs = len(kernel) - job.hidden
        state[f"weight_ih_l{layer}"] = torch.tensor(kernel[:inputs].T.copy())
        state[f"weight_hh_l{layer}"] = torch.tensor(kernel[inputs:].T.copy())
        state[f"bias_ih_l{layer}"] = torch.tensor(bias)
        state[f"bias_hh_l{layer}"] = torch.zeros(len(bias))
    return state


class TorchLoop:
    """One thread, one model after the other; two models are timed unless ``whole``."""

    def __init__(self, job: Job, whole: bool = False):
        self._job, self._members = job, range(job.members if whole else min(2, job.members))

    def run(self) -> tuple[float, np.ndarray]:
        """Train; seconds per model and epoch, and the models' losses in the last epoch."""
        began = time.perf_counter()
        losses = [train_one(self._job, member) for member in self._members]
        seconds = time.perf_counter() - began
        return seconds / len(self._members) / self._job.epochs, np.array(losses)


class TorchPool:
    """A process a core, each with one thread and one model after the other; two models a core are
    timed unless ``whole``. The processes have started and trained once before."""

    def __init__(self, job: Job, whole: bool = False):
        self._job = job
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        few = min(2 * (cores or 1), max(job.members, cores or 1))
        self._members = range(job.members if whole else few)
        context = multiprocessing.get_context("spawn")
        self._pool = concurrent.futures.ProcessPoolExecutor(cores, mp_context=context)
        list(self._pool.map(train_one, [job] * len(self._members), self._members))

    def run(self) -> tuple[float, np.ndarray]:
        """Train; seconds per model and epoch, and the models' losses in the last epoch."""
        began = time.perf_counter()
        losses = list(self._pool.map(train_one, [self._job] * len(self._members), self._members))
        seconds = time.perf_counter() - began
        return seconds / len(self._members) / self._job.epochs, np.array(losses)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()
