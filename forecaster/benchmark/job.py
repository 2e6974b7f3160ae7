"""The job to be timed: sizes, data, initial weights and batches, the same for every method."""

import dataclasses
import math
from typing import Literal

import numpy as np

# The same for every method; the learning rate of a forecast is in Config.
BENCHMARK_LEARNING_RATE = 1e-3


@dataclasses.dataclass(frozen=True)
class Job:
    """LSTMs with a linear readout of the last step, or MLPs ("mlp"), squared error, Adam.

    An MLP sees all steps of a window at once and has a ReLU after each of its layers.

    - ``hidden``, ``layers``: number of units in a layer, and number of layers
    - ``lookback``, ``features``: number of steps in a window, and number of values in each step
    - ``windows``, ``batch``: number of examples per member and per batch; the order is random but
      fixed, and the last examples are dropped if they do not fill a batch
    - ``members``, ``epochs``: number of networks, and number of epochs
    - ``precision``: ``float32``, or ``bfloat16`` for the matrix products of LSTMs (PyTorch: by
      autocast)
    """

    network: Literal["lstm", "mlp"] = "lstm"
    hidden: int = 32
    layers: int = 1
    lookback: int = 20
    batch: int = 32
    features: int = 1
    windows: int = 352
    members: int = 32
    epochs: int = 3
    precision: str = "float32"

    def __str__(self) -> str:
        return (
            f"{self.network.upper()}, hidden {self.hidden}, layers {self.layers}, lookback "
            f"{self.lookback}, batch {self.batch}, inputs {self.features}, {self.precision}"
        )

    @property
    def steps(self) -> int:
        """The number of steps in an epoch."""
        return self.windows // self.batch

    @property
    def flops(self) -> float:
        """The number of floating-point operations of one member in one epoch.

        Matrix products of the layers count once for the forward pass and twice for the backward
        pass.
        """
        kernels = [shape for name, shape in self._shapes.items() if name.startswith("kernel")]
        times = self.lookback if self.network == "lstm" else 1
        each = sum(2 * math.prod(shape) for shape in kernels)
        return 3.0 * each * times * self.batch * self.steps

    def examples(self, member: int) -> tuple[np.ndarray, np.ndarray]:
        """Make a member's inputs (window, lookback, feature) and targets (window, 1)."""
        random = np.random.default_rng([member, self.features])
        x = random.normal(size=(self.windows, self.lookback, self.features)).astype(np.float32)
        return x, x[:, -5:].mean((1, 2))[:, None]

    def order(self) -> np.ndarray:
        """Return the windows of each batch, (step, batch)."""
        order = np.random.default_rng(0).permutation(self.windows)[: self.steps * self.batch]
        return order.reshape(self.steps, self.batch)

    def weights(self, member: int) -> dict[str, np.ndarray]:
        """Draw a member's initial weights, uniform within 1 / sqrt(hidden) of zero, as in PyTorch.

        LSTMs have the layout of :func:`forecaster.swarm.recurrence.lstm`, MLPs (inputs, outputs).
        """
        random = np.random.default_rng([member, self.hidden, 7])
        bound = self.hidden**-0.5
        shapes = self._shapes.items()
        return {name: random.uniform(-bound, bound, s).astype(np.float32) for name, s in shapes}

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, shapes = self.hidden, {}
        for layer in range(self.layers):
            if self.network == "lstm":
                inputs = hidden if layer else self.features
                shapes[f"kernel{layer}"] = (inputs + hidden, 4 * hidden)
                shapes[f"bias{layer}"] = (4 * hidden,)
            else:
                inputs = hidden if layer else self.lookback * self.features
                shapes[f"kernel{layer}"] = (inputs, hidden)
                shapes[f"bias{layer}"] = (hidden,)
        return shapes | {"out": (hidden, 1), "out_bias": (1,)}


SUITE = (
    Job("lstm", 16, 1, lookback=30, batch=32, features=1, windows=1024, members=64, epochs=10),
    Job("lstm", 32, 1, lookback=20, batch=32, features=1, windows=352, members=64, epochs=10),
    Job("lstm", 32, 1, lookback=60, batch=32, features=5, windows=1024, members=16, epochs=5),
    Job("lstm", 64, 1, lookback=60, batch=64, features=5, windows=1024, members=8, epochs=5),
    Job("lstm", 128, 1, lookback=60, batch=32, features=5, windows=1024, members=4, epochs=3),
    Job("mlp", 256, 2, lookback=1, batch=128, features=2, windows=1024, members=128, epochs=10),
)
"""LSTMs from small to large, and the large MLP of published sweeps. Members and epochs are few, so
that PyTorch and the plain ``vmap`` take minutes and not hours."""
