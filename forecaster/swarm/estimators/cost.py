"""The cost of training a swarm: arithmetic counted by XLA, memory and time measured."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import jax
import numpy as np
from jaxtyping import Shaped, UInt32

from forecaster.swarm.arrays import Held, Rows, Streamed, shared_rows, take_members, total_bytes
from forecaster.swarm.devices.lanes import lane_mesh
from forecaster.swarm.execution.fitting import fit
from forecaster.swarm.execution.memory import KEY, Shapes, chunk_size, scalars_of, shapes_of
from forecaster.swarm.task import Data, Hyperparams, Params, Task, Tree
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import State, train_step

_EPOCHS, _REPEATS = 8, 3  # of each fit that is timed, and such fits

_HostHyperparams: TypeAlias = Mapping[str, Shaped[np.ndarray, " member"]]


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of training a swarm.

    XLA counts the arithmetic of one member's step, the body of a loop once. Time and rate are
    those of short fits with full lanes.
    """

    members: int
    lanes: int
    chunk: int
    parameters: int  # of one member
    steps_per_epoch: int
    flops_per_step: float  # of one member: loss, gradient and update
    data_bytes: int  # of one member
    shared_bytes: int  # on every lane
    state_bytes: int  # of one member: weights, best weights, optimiser
    saved_bytes: int  # of one member: what a step keeps for its backward pass
    seconds_to_compile: float
    seconds_per_member_epoch: float  # with all lanes busy
    flops_per_second: float  # of all lanes

    @property
    def flops_per_second_per_lane(self) -> float:
        """Achieved rate of one lane."""
        return self.flops_per_second / self.lanes

    def __str__(self) -> str:
        rows = dataclasses.asdict(self) | {
            "flops_per_second_per_lane": self.flops_per_second_per_lane
        }
        return "\n".join(
            f"{name.replace('_', ' '):<28}{_short(value)}" for name, value in rows.items()
        )


def cost_of(
    task: Task,
    data: Data | Streamed,
    hyperparams: _HostHyperparams,
    members: int,
    machine: dict[str, Any],
) -> Cost:
    """Count and measure the cost of training.

    - ``task``, ``data``: as for :func:`fit`.
    - ``hyperparams``: by name, arrays (member,).
    - ``members``: the number of members.
    - ``machine``: ``lanes``, ``chunk``, ``memory`` and ``data_parallel`` of :func:`fit`.
    """
    held = Held(data, members)
    width: int = lane_mesh(machine["lanes"], machine["data_parallel"]).shape["lane"]
    chunk: int = machine["chunk"] or chunk_size(task, held, hyperparams)
    # Fill all lanes; members repeat if they are few.
    rows: Rows = np.arange(width * chunk) % members

    def seconds() -> float:
        return fit(
            task,
            shared_rows(data, rows),
            [str(number) for number in range(len(rows))],
            seed=0,
            epochs=_EPOCHS,
            hyperparams=take_members(dict(hyperparams), rows),
            **cast(Any, machine | {"chunk": chunk}),
        ).seconds

    first, again = seconds(), min(seconds() for _ in range(_REPEATS))
    each = again / (_EPOCHS * len(rows))
    shapes = shapes_of(task, held, hyperparams)
    flops = _flops(task, shapes, hyperparams)
    return Cost(
        members=members,
        lanes=width,
        chunk=chunk,
        parameters=shapes.weights,
        steps_per_epoch=shapes.steps,
        flops_per_step=flops,
        data_bytes=held.bytes_each,
        shared_bytes=total_bytes(held.shared),
        state_bytes=shapes.state_bytes,
        saved_bytes=shapes.saved_bytes,
        seconds_to_compile=max(0.0, first - again),  # nothing is compiled that was before
        seconds_per_member_epoch=each,
        flops_per_second=flops * shapes.steps / each,
    )


def _flops(task: Task, shapes: Shapes, hyperparams: _HostHyperparams) -> float:
    """Return the operations of one member's step, as XLA counts them."""

    def step(
        state: State, batch: Tree, key_data: UInt32[jax.Array, "2"], hyperparams: Hyperparams
    ) -> tuple[Params, Tree, jax.Array]:
        key, before = typed_key(key_data), (state.params, state.opt_state)
        return train_step(task, task.optimizer(hyperparams), *before, batch, key, hyperparams)

    lowered = jax.jit(step).lower(shapes.state, shapes.batch, KEY, scalars_of(hyperparams))
    analysis: Mapping[str, float] = lowered.cost_analysis() or {}
    return float(analysis.get("flops", 0.0))


def _short(number: float) -> str:
    """Return a number with a prefix of its unit, such as 12.3 M."""
    for prefix in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.3g}{prefix}"
        number /= 1000
    return f"{number:.3g} T"
