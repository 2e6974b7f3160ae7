"""A hundred Gaussian processes: the hyperparameters of each series, by its marginal likelihood.

There is no network: a member's params are three logarithms (amplitude, length scale, noise), and
its loss is the negative log marginal likelihood of its series (Rasmussen & Williams 2006, eq.
2.30).
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from forecaster.swarm import Shared, Swarm

quick = "--quick" in sys.argv
count, epochs = (10, 40) if quick else (100, 150)


def init(key):
    return {"amplitude": jnp.float32(0), "scale": jnp.float32(-1), "noise": jnp.float32(-1)}


def covariance(params, x):
    """Return the covariance (x, x) of the function behind a noisy series, between all inputs."""
    distance = (x[:, None] - x) / jnp.exp(params["scale"])
    return jnp.exp(2 * params["amplitude"] - distance**2 / 2)


def likelihood(params, batch, key):
    noise = (jnp.exp(2 * params["noise"]) + 1e-5) * jnp.eye(len(batch.inputs))
    lower = jnp.linalg.cholesky(covariance(params, batch.inputs) + noise)
    white = jax.scipy.linalg.solve_triangular(lower, batch.targets, lower=True)
    return (white**2).mean() / 2 + jnp.log(jnp.diagonal(lower)).mean()


random = np.random.default_rng(0)
x = np.sort(random.uniform(0, 5, 30)).astype(np.float32)
truth = {
    "amplitude": random.uniform(-0.5, 0.7, count), "scale": random.uniform(-1.6, 0.2, count),
    "noise": random.uniform(-2.5, -0.7, count),
}  # fmt: skip
square = (x[:, None] - x) ** 2
y = np.empty((count, len(x)), np.float32)
for row, (amplitude, scale, noise) in enumerate(np.exp(np.stack([*truth.values()], 1))):
    prior = amplitude**2 * np.exp(-square / scale**2 / 2) + noise**2 * np.eye(len(x))
    y[row] = np.linalg.cholesky(prior) @ random.normal(size=len(x))

processes = Swarm((init, covariance), [f"series {i}" for i in range(count)], loss_fn=likelihood,
                  optimizer=optax.adam, hyperparams={"learning_rate": 0.1})  # fmt: skip
processes = processes.fit(Shared(x), y, epochs=epochs, batch_size=None)

names, grid = [*truth], np.linspace(0, 5, 120, dtype=np.float32)
prior = processes.predict(Shared(np.concatenate([x, grid])))[0].astype(float)  # of the first series
known = prior[:30, :30] + np.exp(2 * processes.params["noise"][0]) * np.eye(30)
gain = np.linalg.solve(known, prior[:30, 30:]).T
mean, variance = gain @ y[0], np.diagonal(prior)[30:] - (gain * prior[30:, :30]).sum(1)
figure, (left, *right) = plt.subplots(1, 4, width_ratios=[2, 1, 1, 1])
band = 2 * np.sqrt(np.maximum(variance, 0))
left.fill_between(grid, mean - band, mean + band, alpha=0.25, lw=0)
left.plot(grid, mean)
left.plot(x, y[0], "k.", ms=4)
left.set(title="one of them", xlabel="input")
for place, name in zip(right, names, strict=True):
    found, true = processes.params[name], truth[name]
    place.plot(true, found, ".", ms=3, alpha=0.5)
    place.plot([true.min(), true.max()], [true.min(), true.max()], color="black", lw=0.8)
    place.set(title=f"log {name}", xlabel="true")
    print(f"log {name}: correlation with the truth {np.corrcoef(found, true)[0, 1]:.2f}")
right[0].set(ylabel="found")
figure.savefig("gaussian_processes.png")
