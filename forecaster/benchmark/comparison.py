"""Run a job by several methods in turn, and compare their times."""

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from forecaster.benchmark.job import SUITE, Job
from forecaster.errors import UsageError, has, pip_command
from forecaster.machine import cores

METHODS = ("ours", "ours-float32", "ours-no-kernel", "torch-pool", "torch", "vmap")
"""Names of methods: the swarm with the compiled kernel (if there is one); the same in float32
whatever the job's precision; the swarm without the kernel; PyTorch with a process per core; PyTorch
on one thread; a plain ``vmap``, in float32."""
_ALWAYS_FLOAT32 = ("ours-float32", "vmap")


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
    from forecaster.benchmark.with_jax import by_swarm, by_vmap

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
