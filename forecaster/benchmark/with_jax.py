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


def by_swarm(job: Job, *, kernel: bool = True) -> Callable[[], tuple[float, np.ndarray]]:
    """Return a function that trains by the swarm, with the compiled kernel (if any) or without.

    It returns seconds per member and epoch, and each member's loss in the last epoch.
    """
    task, (x, y), members = _task(job, kernel=kernel), _all_examples(job), job.members
    data = Examples(x, y, swarm.Shared(job.order()))
    ids = tuple(f"m{member}" for member in range(members))
    hyperparams = {"learning_rate": BENCHMARK_LEARNING_RATE}
    begin, keys = functools.partial(swarm.init_state, task), swarm.member_keys(0, ids)
    own = swarm.broadcast_hyperparams(hyperparams, members), _all_weights(job)
    state = swarm.State(*swarm.map_members(begin, keys, *own, members=members))
    none = np.zeros((members, 0), np.float32)
    start = swarm.FitResult(ids, state, swarm.Losses(none, none), 0.0)

    def run() -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        fitted = swarm.fit(
            task, data, ids, seed=0, epochs=job.epochs, hyperparams=hyperparams, previous=start,
            block=job.epochs,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        return seconds / job.members / job.epochs, np.asarray(fitted.losses.train[:, -1])

    return run


def by_vmap(job: Job) -> Callable[[], tuple[float, np.ndarray]]:
    """Return such a function for one ``vmap`` over all members in one ``jit``."""
    (x, y), order = map(jnp.asarray, _all_examples(job)), job.order()
    weights = jax.tree.map(jnp.asarray, _all_weights(job))
    adam, error = optax.adam(BENCHMARK_LEARNING_RATE), _loss(job, _scanned)

    def epoch(carry, x, y):
        def step(carry, rows):
            params, state = carry
            loss, grads = jax.value_and_grad(error)(params, x[rows], y[rows])
            updates, state = adam.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), loss

        return jax.lax.scan(step, carry, order)

    compiled, state = jax.jit(jax.vmap(epoch)), jax.vmap(adam.init)(weights)

    def run() -> tuple[float, np.ndarray]:
        carry, losses = (weights, state), None
        began = time.perf_counter()
        for _ in range(job.epochs):
            carry, losses = compiled(carry, x, y)
        losses = np.asarray(jax.block_until_ready(losses))
        return (time.perf_counter() - began) / job.members / job.epochs, losses.mean(1)

    return run


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


def _ours(
    kernel: jax.Array,
    bias: jax.Array,
    inputs: jax.Array,
    *,
    last_only: bool,
    precision: str,
    compiled: bool,
) -> jax.Array:
    """Run an LSTM of the swarm, by the compiled kernel if there is one, or by JAX alone."""
    valid = jnp.ones(inputs.shape[:2])
    if compiled:
        return lstm(kernel, bias, inputs, valid, last_only=last_only, precision=precision)
    hidden = jax_lstm(kernel, bias, inputs, valid, precision=check_precision(precision))
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


def _all_examples(job: Job) -> tuple[np.ndarray, np.ndarray]:
    x, y = zip(*(job.examples(member) for member in range(job.members)), strict=True)
    return np.stack(x), np.stack(y)


def _all_weights(job: Job) -> dict[str, np.ndarray]:
    each = [job.weights(member) for member in range(job.members)]
    return {name: np.stack([weights[name] for weights in each]) for name in each[0]}


def _task(job: Job, *, kernel: bool) -> swarm.Task:
    loss = _loss(job, functools.partial(_ours, compiled=kernel))
    shapes = {name: value.shape for name, value in job.weights(0).items()}
    return swarm.Task(
        init=lambda key: {name: jnp.zeros(shape) for name, shape in shapes.items()},
        loss=lambda params, batch, key, hyperparams: loss(params, batch[0], batch[1]),
        batches=lambda data, key: (data.order, jnp.ones(len(data.order), bool)),
        take=lambda data, rows: (data.inputs[rows], data.targets[rows]),
        validate=None,
        optimizer=swarm.inject_hyperparams(optax.adam),
    )
