"""What is trained: sizes, data, initial weights and batches, the same for every method."""

import dataclasses

import numpy as np

LEARNING_RATE = 1e-3


@dataclasses.dataclass(frozen=True)
class Job:
    """LSTMs with a linear readout of the last step, squared error, Adam.

    ``windows``: examples of each member, in batches of ``batch`` in a fixed random order; those
    that do not fill a batch are left out.
    """

    hidden: int = 32
    layers: int = 1
    lookback: int = 20
    batch: int = 32
    features: int = 1
    windows: int = 352
    members: int = 32
    epochs: int = 3

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.windows // self.batch

    @property
    def flops(self) -> float:
        """Floating-point operations of one member's epoch: the matrix products of the layers,
        forward once and backward twice."""
        inputs = [self.features] + [self.hidden] * (self.layers - 1)
        each = sum(2 * 4 * self.hidden * (size + self.hidden) for size in inputs)
        return 3.0 * each * self.lookback * self.batch * self.steps

    def examples(self, member: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (window, lookback, feature) and targets (window, 1) of a member."""
        random = np.random.default_rng([member, self.features])
        x = random.normal(size=(self.windows, self.lookback, self.features)).astype(np.float32)
        return x, x[:, -5:].mean((1, 2))[:, None]

    def order(self) -> np.ndarray:
        """Which windows make each batch, (step, batch)."""
        order = np.random.default_rng(0).permutation(self.windows)[: self.steps * self.batch]
        return order.reshape(self.steps, self.batch)

    def weights(self, member: int) -> dict[str, np.ndarray]:
        """Initial weights, uniform between plus and minus 1 / sqrt(hidden) as PyTorch's are; the
        layout is that of :func:`forecaster.swarm.recurrence.lstm`."""
        random = np.random.default_rng([member, self.hidden, 7])
        bound = self.hidden**-0.5
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.layers):
            inputs = self.hidden if layer else self.features
            shapes[f"kernel{layer}"] = (inputs + self.hidden, 4 * self.hidden)
            shapes[f"bias{layer}"] = (4 * self.hidden,)
        shapes |= {"out": (self.hidden, 1), "out_bias": (1,)}
        return {n: random.uniform(-bound, bound, s).astype(np.float32) for n, s in shapes.items()}


SUITE = (
    Job(hidden=16, lookback=30, batch=32, features=1, windows=1024, members=64),
    Job(hidden=32, lookback=20, batch=32, features=1, windows=352, members=64),
    Job(hidden=32, lookback=60, batch=32, features=5, windows=1024, members=16),
    Job(hidden=64, lookback=60, batch=64, features=5, windows=1024, members=8),
    Job(hidden=128, lookback=60, batch=32, features=5, windows=1024, members=4, epochs=2),
)
"""Sizes from small to large, one-layer LSTMs."""
