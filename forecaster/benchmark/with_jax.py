"""The job done by the swarm, and by the plain ``vmap`` over a scan that published work uses."""

import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from forecaster import swarm
from forecaster.benchmark.job import LEARNING_RATE, Job
from forecaster.swarm.recurrence import lstm


class Examples(NamedTuple):
    """One member's data."""

    inputs: Any  # (window, lookback, feature)
    targets: Any  # (window, 1)
    order: Any  # (step, batch)
    weights: Any  # the initial ones


class Ours:
    """The swarm: as many members at once as there are."""

    def __init__(self, job: Job):
        self._job, self._task = job, _task(job)
        x, y = zip(*(job.examples(member) for member in range(job.members)), strict=True)
        order = np.broadcast_to(job.order(), (job.members, *job.order().shape))
        self._data = Examples(np.stack(x), np.stack(y), order, _all_weights(job))
        keys = np.zeros((job.members, 2), np.uint32)
        hyper = swarm.per_member({"learning_rate": LEARNING_RATE}, job.members)
        state = swarm.map_members(_fresh(self._task), keys, hyper, members=job.members)
        state = swarm.State(*state)._replace(
            params=self._data.weights, best_params=self._data.weights
        )
        losses = np.zeros((job.members, 0), np.float32)
        ids = tuple(f"m{member}" for member in range(job.members))
        self._start = swarm.fitted_of(ids, state, swarm.Losses(losses, losses), 0.0)

    def run(self) -> tuple[float, np.ndarray]:
        """Train; seconds per member and epoch, and every member's loss in the last epoch."""
        began = time.perf_counter()
        epochs = self._job.epochs
        fitted = swarm.fit(
            self._task,
            self._data._replace(weights=()),
            self._start.ids,
            seed=0,
            hyper={"learning_rate": LEARNING_RATE, "epochs": epochs, "patience": epochs},
            previous=self._start,
            block=epochs,
        )
        seconds = time.perf_counter() - began
        return seconds / self._job.members / epochs, fitted.losses.train[:, -1]


class PlainVmap:
    """One ``vmap`` over all members, a scan over time that JAX differentiates, one jit."""

    def __init__(self, job: Job):
        self._job = job
        x, y = zip(*(job.examples(member) for member in range(job.members)), strict=True)
        self._x, self._y, self._order = (
            jnp.asarray(np.stack(x)),
            jnp.asarray(np.stack(y)),
            job.order(),
        )
        self._weights = jax.tree.map(jnp.asarray, _all_weights(job))
        adam = optax.adam(LEARNING_RATE)

        def epoch(carry, x, y):
            def step(carry, rows):
                params, state = carry
                loss, grads = jax.value_and_grad(_loss)(params, x[rows], y[rows], _scanned)
                updates, state = adam.update(grads, state, params)
                return (optax.apply_updates(params, updates), state), loss

            return jax.lax.scan(step, carry, self._order)

        self._epoch = jax.jit(jax.vmap(epoch))
        self._state = jax.vmap(adam.init)(self._weights)

    def run(self) -> tuple[float, np.ndarray]:
        """Train; seconds per member and epoch, and every member's loss in the last epoch."""
        carry, losses = (self._weights, self._state), None
        began = time.perf_counter()
        for _ in range(self._job.epochs):
            carry, losses = self._epoch(carry, self._x, self._y)
        losses = np.asarray(jax.block_until_ready(losses))
        seconds = time.perf_counter() - began
        return seconds / self._job.members / self._job.epochs, losses.mean(1)


def _loss(weights, x, y, recurrence):
    """Squared error of a linear readout of the last step."""
    hidden, layers = x.swapaxes(0, 1), sum(name.startswith("kernel") for name in weights)
    for layer in range(layers):
        last = layer == layers - 1
        hidden = recurrence(weights[f"kernel{layer}"], weights[f"bias{layer}"], hidden, last)
    return jnp.mean((hidden @ weights["out"] + weights["out_bias"] - y) ** 2)


def _ours(kernel, bias, inputs, last_only):
    return lstm(kernel, bias, inputs, jnp.ones(inputs.shape[:2]), last_only=last_only)


def _scanned(kernel, bias, inputs, last_only):
    """An LSTM as one would write it first."""
    size = bias.shape[0] // 4

    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ kernel + bias, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((inputs.shape[1], size))
    hidden = jax.lax.scan(step, (zero, zero), inputs)[1]
    return hidden[-1] if last_only else hidden


def _all_weights(job: Job) -> dict[str, np.ndarray]:
    each = [job.weights(member) for member in range(job.members)]
    return {name: np.stack([weights[name] for weights in each]) for name in each[0]}


@functools.lru_cache(maxsize=16)
def _task(job: Job) -> swarm.Task:
    shapes = {name: value.shape for name, value in job.weights(0).items()}
    return swarm.Task(
        init=lambda key: {name: jnp.zeros(shape) for name, shape in shapes.items()},
        loss=lambda params, batch, key, hyper: _loss(params, batch[0], batch[1], _ours),
        batches=lambda data, key: (data.order, jnp.ones(len(data.order), bool)),
        take=lambda data, rows: (data.inputs[rows], data.targets[rows]),
        validate=None,
        optimizer=swarm.by_name(optax.adam),
    )


@functools.lru_cache(maxsize=16)
def _fresh(task: swarm.Task):
    return lambda key, hyper: swarm.fresh(task, key, hyper)
