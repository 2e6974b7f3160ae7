"""A small transformer for each of 24 series, each with a period of its own.

One block of causal attention in ordinary Flax NNX; each member stops early by its own validation
windows. The end of every series is forecast one step ahead, and compared with the last value.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from forecaster.swarm import Swarm

quick = "--quick" in sys.argv
count, epochs, window, width = (4, 3, 16, 8) if quick else (24, 60, 32, 16)


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(1, width, rngs=rngs)
        self.position = nnx.Param(0.1 * rngs.normal((window, width)))
        self.norm, self.last = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        """Predict the next value after each step of windows (example, step)."""
        h = self.inner(x[..., None]) + self.position[...]
        h += self.attention(self.norm(h), mask=nnx.make_causal_mask(x))
        h += self.down(nnx.gelu(self.up(self.last(h))))
        return x + self.out(h)[..., 0]


random = np.random.default_rng(0)
t, period = np.arange(600), random.uniform(5, 20, (count, 1))
wave = np.sin(2 * np.pi * t / period) + 0.5 * np.sin(4 * np.pi * t / period + 1)
series = (wave + random.normal(0, 0.2, wave.shape)).astype(np.float32)
windows = np.lib.stride_tricks.sliding_window_view(series, window + 1, axis=1)
x, y = windows[..., :-1], windows[..., 1:]
old, held_back, new = slice(0, 400, 4), slice(432, 480, 4), slice(512, None)  # share no value

models = Swarm(Transformer, [f"series {i}" for i in range(count)], loss=optax.squared_error,
               optimizer=optax.adam, hyperparams={"learning_rate": 0.005})  # fmt: skip
models = models.fit(
    x[:, old],
    y[:, old],
    validation_data=(x[:, held_back], y[:, held_back]),
    epochs=epochs,
    patience=15,
)
forecast, truth = models.predict(x[:, new])[..., -1], y[:, new, -1]
error = np.sqrt(((forecast - truth) ** 2).mean(1))
before = np.sqrt(((x[:, new, -1] - truth) ** 2).mean(1))
print(f"median error {np.median(error):.3f}, of the value before {np.median(before):.3f}; "
      f"the noise alone makes 0.2")  # fmt: skip

figure, (left, right) = plt.subplots(1, 2, width_ratios=[2, 1])
for row in range(3):
    left.plot(truth[row] + 4 * row, "k.", ms=3)
    left.plot(forecast[row] + 4 * row, color=f"C{row}")
left.set(title="three series, dots, and the forecast a step ahead", xlabel="step", yticks=[])
right.plot(period[:, 0], before, ".", color="C5", label="the value before")
right.plot(period[:, 0], error, ".", label="transformer")
right.axhline(0.2, color="black", lw=0.8)
right.set(title="error of each series", xlabel="its period", ylim=(0, None))
right.legend(fontsize=8)
figure.savefig("transformers.png")
