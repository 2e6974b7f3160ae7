"""Run a job by the swarm, and by the plain ``vmap`` that published work uses."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from forecaster import swarm
from forecaster.benchmark.job import BENCHMARK_LEARNING_RATE, Job
from forecaster.swarm.recurrence import check_precision, jax_lstm, lstm

_Weights: TypeAlias = dict[str, Any]  # arrays by name
_Recurrence: TypeAlias = Callable[..., jax.Array]


class Examples(NamedTuple):
    """One member's data."""

    inputs: Any  # (window, lookback, feature)
    targets: Any  # (window, 1)
    order: Any  # (step, batch)
    weights: Any  # initial weights by name


class Ours:
    """The swarm, with the compiled kernel (if there is one) or without."""

    def __init__(self, job: Job, *, kernel: bool = True):
        self._job, self._task = job, _task(job, kernel=kernel)
        x, y = zip(*(job.examples(member) for member in range(job.members)), strict=True)
        order = np.broadcast_to(job.order(), (job.members, *job.order().shape))
        self._data = Examples(np.stack(x), np.stack(y), order, _all_weights(job))
        keys = np.zeros((job.members, 2), np.uint32)
        hyperparams = swarm.broadcast_hyperparams(
            {"learning_rate": BENCHMARK_LEARNING_RATE}, job.members
        )
        state = swarm.map_members(_init_of(self._task), keys, hyperparams, members=job.members)
        state = swarm.State(*state)._replace(
            params=self._data.weights, best_params=self._data.weights
        )
        losses = np.zeros((job.members, 0), np.float32)
        ids = tuple(f"m{member}" for member in range(job.members))
        self._start = swarm.FitResult(ids, state, swarm.Losses(losses, losses), 0.0)

    def run(self) -> tuple[float, np.ndarray]:
        """Train; return seconds per member and epoch, and each member's loss in the last epoch."""
        began = time.perf_counter()
        epochs = self._job.epochs
        fitted = swarm.fit(
            self._task,
            self._data._replace(weights=()),
            self._start.ids,
            seed=0,
            epochs=epochs,
            hyperparams={"learning_rate": BENCHMARK_LEARNING_RATE},
            previous=self._start,
            block=epochs,
        )
        seconds = time.perf_counter() - began
        return seconds / self._job.members / epochs, np.asarray(fitted.losses.train[:, -1])

    def close(self) -> None:
        """Do nothing, since no process was started."""


class PlainVmap:
    """One ``vmap`` over all members in one ``jit``, differentiated by JAX."""

    def __init__(self, job: Job):
        self._job = job
        x, y = zip(*(job.examples(member) for member in range(job.members)), strict=True)
        self._x, self._y, self._order = (
            jnp.asarray(np.stack(x)),
            jnp.asarray(np.stack(y)),
            job.order(),
        )
        self._weights = jax.tree.map(jnp.asarray, _all_weights(job))
        adam, error = optax.adam(BENCHMARK_LEARNING_RATE), _loss(job, _scanned)

        def epoch(carry, x, y):
            def step(carry, rows):
                params, state = carry
                loss, grads = jax.value_and_grad(error)(params, x[rows], y[rows])
                updates, state = adam.update(grads, state, params)
                return (optax.apply_updates(params, updates), state), loss

            return jax.lax.scan(step, carry, self._order)

        self._epoch = jax.jit(jax.vmap(epoch))
        self._state = jax.vmap(adam.init)(self._weights)

    def run(self) -> tuple[float, np.ndarray]:
        """Train; return seconds per member and epoch, and each member's loss in the last epoch."""
        carry, losses = (self._weights, self._state), None
        began = time.perf_counter()
        for _ in range(self._job.epochs):
            carry, losses = self._epoch(carry, self._x, self._y)
        losses = np.asarray(jax.block_until_ready(losses))
        seconds = time.perf_counter() - began
        return seconds / self._job.members / self._job.epochs, losses.mean(1)

    def close(self) -> None:
        """Do nothing, since no process was started."""


def _loss(job: Job, recurrence: _Recurrence) -> Callable[[_Weights, Any, Any], jax.Array]:
    """Return the squared error of a linear readout, as a function of weights, inputs, targets."""

    def hidden(weights: _Weights, x: jax.Array) -> jax.Array:
        kernels = [(weights[f"kernel{n}"], weights[f"bias{n}"]) for n in range(job.layers)]
        if job.network == "mlp":
            x = x.reshape(len(x), -1)
            for kernel, bias in kernels:
                x = jax.nn.relu(x @ kernel + bias)
            return x
        x = x.swapaxes(0, 1)
        for layer, (kernel, bias) in enumerate(kernels):
            last_only = layer == job.layers - 1
            x = recurrence(kernel, bias, x, last_only=last_only, precision=job.precision)
        return x

    def loss(weights: _Weights, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((hidden(weights, x) @ weights["out"] + weights["out_bias"] - y) ** 2)

    return loss


def _with_kernel(
    kernel: jax.Array, bias: jax.Array, inputs: jax.Array, *, last_only: bool, precision: str
) -> jax.Array:
    valid = jnp.ones(inputs.shape[:2])
    return lstm(kernel, bias, inputs, valid, last_only=last_only, precision=precision)


def _without_kernel(
    kernel: jax.Array, bias: jax.Array, inputs: jax.Array, *, last_only: bool, precision: str
) -> jax.Array:
    valid, precision = jnp.ones(inputs.shape[:2]), check_precision(precision)
    hidden = jax_lstm(kernel, bias, inputs, valid, precision=precision)
    return hidden[-1] if last_only else hidden


def _scanned(
    kernel: jax.Array, bias: jax.Array, inputs: jax.Array, *, last_only: bool, precision: str
) -> jax.Array:
    """Run an LSTM written in the plainest way, in float32."""
    del precision
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
def _task(job: Job, *, kernel: bool) -> swarm.Task:
    loss = _loss(job, _with_kernel if kernel else _without_kernel)
    shapes = {name: value.shape for name, value in job.weights(0).items()}
    return swarm.Task(
        init=lambda key: {name: jnp.zeros(shape) for name, shape in shapes.items()},
        loss=lambda params, batch, key, hyperparams: loss(params, batch[0], batch[1]),
        batches=lambda data, key: (data.order, jnp.ones(len(data.order), bool)),
        take=lambda data, rows: (data.inputs[rows], data.targets[rows]),
        validate=None,
        optimizer=swarm.inject_hyperparams(optax.adam),
    )


@functools.lru_cache(maxsize=16)
def _init_of(task: swarm.Task) -> Callable[..., swarm.State]:
    """Return the initial function of a task, the same object each time: it is compiled once."""
    return lambda key, hyperparams: swarm.init_state(task, key, hyperparams)
