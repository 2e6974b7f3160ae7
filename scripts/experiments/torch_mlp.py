"""Train small classifiers in ordinary PyTorch, one after another or in a process per core."""

import concurrent.futures
import itertools
import multiprocessing
import os
from typing import Any

import numpy as np


def train(
    x: np.ndarray, y: np.ndarray, hidden: tuple[int, ...], classes: int, epochs: int,
    batch: int, rate: float, seed: int, test: np.ndarray | None = None,
) -> Any:  # fmt: skip
    """Train one MLP with ReLU by Adam on one thread.

    Returns probabilities (example, class) for ``test``, or otherwise for ``x``. Two classes take
    one output and the logistic loss.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    sizes = [x.shape[1], *hidden, 1 if classes == 2 else classes]
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(*sizes[-2:]))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    inputs = torch.tensor(x)
    if classes == 2:
        loss_of, targets = torch.nn.BCEWithLogitsLoss(), torch.tensor(y, dtype=torch.float32)
    else:
        loss_of, targets = torch.nn.CrossEntropyLoss(), torch.tensor(y)
    random = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=random) if batch < len(x) else None
        for low in range(0, len(x), batch):
            rows = slice(None) if order is None else order[low : low + batch]
            optimizer.zero_grad(set_to_none=True)
            output = model(inputs[rows])
            loss_of(output[:, 0] if classes == 2 else output, targets[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        output = model(torch.tensor(x if test is None else test))
        if classes == 2:
            one = torch.sigmoid(output[:, 0])
            return torch.stack([1 - one, one], 1).numpy()
        return torch.softmax(output, 1).numpy()


def _train(arguments: tuple) -> Any:
    return train(*arguments)


class Pool:
    """A process per core, started and warmed up."""

    def __init__(self):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        context = multiprocessing.get_context("spawn")
        self._pool = concurrent.futures.ProcessPoolExecutor(cores, mp_context=context)
        x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
        list(self._pool.map(_train, [(x, y, (2,), 2, 1, 4, 1e-3, 0)] * 2 * (cores or 1)))

    def train(self, jobs: list[tuple]) -> list[Any]:
        """Train all jobs, which are arguments of :func:`train`."""
        return list(self._pool.map(_train, jobs))

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()
