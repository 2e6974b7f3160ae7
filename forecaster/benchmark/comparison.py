"""Run a job by several methods in turn, and compare their times.

Those in JAX are here: the swarm, and the plain ``vmap`` that published work uses. PyTorch's are in
:mod:`forecaster.benchmark.with_torch`, which a process without JAX can load.
"""

import contextlib
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from forecaster import swarm
from forecaster.benchmark.job import BENCHMARK_LEARNING_RATE, SUITE, Job
from forecaster.errors import UsageError, has, pip_command
from forecaster.machine import cores
from forecaster.swarm.recurrence import check_precision, jax_lstm, lstm

METHODS = ("ours", "ours-float32", "ours-no-kernel", "torch-pool", "torch", "vmap")
"""Names of methods: the swarm with the compiled kernel (if there is one); the same in float32
whatever the job's precision; the swarm without the kernel; PyTorch with a process per core; PyTorch
on one thread; a plain ``vmap``, in float32."""
_ALWAYS_FLOAT32 = ("ours-float32", "vmap")

_Weights: TypeAlias = dict[str, Any]  # arrays by name
_Recurrence: TypeAlias = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True)
class Result:
    """The time a method took for a job, the median of the repeats.

    - ``precision``: the precision of the matrix products
    - ``seconds_per_model_epoch``, ``gflops``: time and speed
    - ``ratio_to_ours``: the time of this method over that of our method
    - ``loss_difference``: largest relative difference from our losses after the last epoch
    """

    method: str
    members: int
    hidden: int
    lookback: int
    batch: int
    features: int
    precision: str
    seconds_per_model_epoch: float
    gflops: float
    ratio_to_ours: float
    loss_difference: float


Run: TypeAlias = Callable[[], tuple[float, np.ndarray]]
"""Trains; returns seconds per member and epoch, and each member's loss in the last epoch."""


def available(methods: Sequence[str]) -> tuple[list[str], str]:
    """Return the methods that can run here, and a message on how to install the others.

    On a GPU, methods for CPUs are left out, and PyTorch's loop runs on the GPU, too, by cuDNN.
    """
    if _on_gpu():
        methods = [name for name in methods if name not in ("ours-no-kernel", "torch-pool")]
    if has("torch"):
        import torch

        if not _on_gpu() or torch.cuda.is_available():
            return list(methods), ""
    kept = [name for name in methods if not name.startswith("torch")]
    missing = (
        f"PyTorch {'for this GPU ' if _on_gpu() else ''}is not installed; "
        f"to compare with it: {pip_command('torch')}"
    )
    return kept, missing if len(kept) < len(methods) else ""


def suite() -> list[Job]:
    """Return the jobs of :data:`SUITE`; on a GPU each has 500 members."""
    return [dataclasses.replace(job, members=500) if _on_gpu() else job for job in SUITE]


def compare(
    job: Job,
    against: Sequence[str] = METHODS[1:],
    repeats: int = 3,
    *,
    on_run: Callable[[str, int], None] | None = None,
) -> list[Result]:
    """Time our method and others in turn; reverse the order in every second repeat.

    All methods start from the same weights and see the same batches, and their final losses are
    compared.

    - ``job``: the networks to train
    - ``against``: the other methods
    - ``repeats``: number of runs of each method; the median counts
    - ``on_run(method, repeat)``: called before each run

    Raises UsageError for an unknown method.
    """
    for name in against:
        if name not in METHODS:
            raise UsageError(f"no method {name!r}; there are {', '.join(METHODS)}")
    names = ["ours", *(name for name in dict.fromkeys(against) if name != "ours")]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    losses: dict[str, np.ndarray] = {}
    with contextlib.ExitStack() as stack:
        runs = {name: stack.enter_context(_prepared(name, job)) for name in names}
        for name in names:  # compile, and warm up
            losses[name] = runs[name]()[1]
        for repeat in range(repeats):
            for name in names if repeat % 2 == 0 else names[::-1]:
                if on_run:
                    on_run(name, repeat)
                seconds[name].append(runs[name]()[0])
    ours = seconds["ours"]
    return [
        Result(
            name, job.members, job.hidden, job.lookback, job.batch, job.features,
            "float32" if name in _ALWAYS_FLOAT32 else job.precision,
            statistics.median(taken), job.flops / statistics.median(taken) / 1e9,
            statistics.median(a / b for a, b in zip(taken, ours, strict=True)),
            _difference(losses["ours"], losses[name]),
        )
        for name, taken in seconds.items()
    ]  # fmt: skip


def _prepared(name: str, job: Job) -> contextlib.AbstractContextManager[Run]:
    """Return a context with a job prepared for one method, which can be run any number of times."""
    if name.startswith("torch"):
        from forecaster.benchmark.with_torch import by_torch

        if name == "torch-pool":
            return by_torch(job, workers=cores())
        return by_torch(job, device="cuda" if _on_gpu() else "cpu")
    if name == "ours-float32":
        job = dataclasses.replace(job, precision="float32")
    run = by_vmap(job) if name == "vmap" else by_swarm(job, kernel=name != "ours-no-kernel")
    return contextlib.nullcontext(run)


def _on_gpu() -> bool:
    import jax

    from forecaster import swarm

    swarm.use_all_cores()  # before this starts JAX
    return jax.default_backend() == "gpu"


def _difference(ours: np.ndarray, other: np.ndarray) -> float:
    """Return the largest relative difference of two methods' losses over their common members."""
    both = min(len(ours), len(other))
    return float(np.max(np.abs(other[:both] / ours[:both] - 1)))


class Examples(NamedTuple):
    """One member's data."""

    inputs: Any  # (window, lookback, feature)
    targets: Any  # (window, 1)
    order: Any  # (step, batch)


def by_swarm(job: Job, *, kernel: bool = True) -> Run:
    """Return a function that trains by the swarm, with the compiled kernel (if any) or without."""
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


def by_vmap(job: Job) -> Run:
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
