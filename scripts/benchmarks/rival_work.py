"""Define the tasks of ``rivals.py``, the same for all methods: networks, members, steps, data."""

import dataclasses

import numpy as np

# For each row of the sweep: approximate product of members and steps, and limits of the steps.
_MEMBER_STEPS, _MOST, _FEWEST = 8192, 300, 10


@dataclasses.dataclass(frozen=True)
class Work:
    """A task, trained with full batches by Adam.

    - ``sizes``: the sizes of layers; for an LSTM or a GRU: features, hidden units, outputs; for a
      transformer: features, width, outputs; for a convolutional network: channels of each layer,
      outputs
    - ``members``, ``steps``, ``examples``: the number of each
    - ``kind``: ``fit``; or single calls on new data, ``steps`` times: ``predict``, ``step``, and
      ``bound``, which is ``predict`` by the function that ``Swarm.bind`` returns
    - ``network``: ``mlp``, ``cnn``, ``transformer``, ``lstm`` or ``gru``
    - ``time``: number of steps in a sequence
    - ``digits``: whether a perceptron's data are the digits' pixels
    - ``sweep``: whether the task belongs to the sweep over numbers of members
    """

    sizes: tuple[int, ...]
    members: int
    steps: int
    examples: int
    kind: str = "fit"
    network: str = "mlp"
    time: int = 0
    digits: bool = False
    sweep: bool = False

    @property
    def classes(self) -> bool:
        """Whether targets are classes, as 0.0 and 1.0, and the loss is the cross-entropy."""
        return self.network == "cnn" or self.digits

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs (example, ...) and targets (example, output), the same for all methods."""
        if self.network == "cnn":
            return digits(self.examples)
        if self.digits:
            images, targets = digits(self.examples)
            return images.reshape(len(images), -1), targets
        random = np.random.default_rng(0)
        shape = (self.examples, *([self.time] if self.time else []), self.sizes[0])
        x = random.normal(size=shape).astype(np.float32)
        seen = x.mean(1) if self.time else x
        y = np.tanh(seen @ random.normal(size=(self.sizes[0], self.sizes[-1]))).astype(np.float32)
        return x, y


def digits(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits: images (example, 8, 8, 1) and classes (example, 10)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = found.images[:examples, :, :, None].astype(np.float32) / 16  # pyright: ignore
    return images, np.eye(10, dtype=np.float32)[found.target[:examples]]  # pyright: ignore


def _sweep() -> dict[str, Work]:
    rows = {}
    for members in (1, 4, 16, 64, 256, 1024):
        steps = min(_MOST, max(_FEWEST, _MEMBER_STEPS // members))
        rows[f"{members} of 8-32-1"] = Work((8, 32, 1), members, steps, 128, sweep=True)
    return rows


WORK = {
    "10 of 9-8-1": Work((9, 8, 1), 10, 2000, 10),
    "100 of 6-8-8-2": Work((6, 8, 8, 2), 100, 1000, 32),
    "10 of 2-10-10-10-10-1 (two spirals)": Work((2, 10, 10, 10, 10, 1), 10, 2000, 128),
    "1 of 2-256-256-1": Work((2, 256, 256, 1), 1, 256, 128),
    "16 of 2-256-256-1": Work((2, 256, 256, 1), 16, 64, 128),
    "64 of 2-256-256-1": Work((2, 256, 256, 1), 64, 32, 128),
    "predict, 16 of 8-64-64-4": Work((8, 64, 64, 4), 16, 200, 8, "predict"),
    "bound predict, 16 of 8-64-64-4": Work((8, 64, 64, 4), 16, 200, 8, "bound"),
    "step, 16 of 8-64-64-4": Work((8, 64, 64, 4), 16, 200, 8, "step"),
    "predict, 500 of 3-1": Work((3, 1), 500, 200, 4, "predict"),
    "step, 500 of 3-1": Work((3, 1), 500, 200, 4, "step"),
    "predict, 500 of 8-16-1": Work((8, 16, 1), 500, 100, 8, "predict"),
    "step, 500 of 8-16-1": Work((8, 16, 1), 500, 100, 8, "step"),
    "128 of 64-32-10 (digits)": Work((64, 32, 10), 128, 50, 1024),
    "1000 of 4-8-1": Work((4, 8, 1), 1000, 500, 64),
    "32 of 64-32-10 on digits": Work((64, 32, 10), 32, 50, 1024, digits=True),
    "1 CNN on digits": Work((8, 16, 10), 1, 10, 256, network="cnn"),
    "16 CNNs on digits": Work((8, 16, 10), 16, 2, 256, network="cnn"),
    "1 transformer": Work((4, 16, 1), 1, 100, 64, network="transformer", time=16),
    "16 transformers": Work((4, 16, 1), 16, 20, 64, network="transformer", time=16),
    "1 LSTM": Work((2, 32, 1), 1, 50, 64, network="lstm", time=30),
    "16 LSTMs": Work((2, 32, 1), 16, 10, 64, network="lstm", time=30),
    "1 GRU": Work((2, 32, 1), 1, 50, 64, network="gru", time=30),
    "16 GRUs": Work((2, 32, 1), 16, 10, 64, network="gru", time=30),
    **_sweep(),
}
