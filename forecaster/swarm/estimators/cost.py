"""The cost of training a swarm: arithmetic counted by XLA, memory and time measured."""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Shaped, UInt32

from forecaster.swarm.arrays.data import (
    Held,
    Rows,
    Streamed,
    members_data,
    total_bytes,
    with_shared,
)
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.arrays.variables import count_weights
from forecaster.swarm.devices.lanes import lane_mesh
from forecaster.swarm.execution.fitting import fit
from forecaster.swarm.execution.memory import chunk_size, first_batch, saved_bytes, state_bytes
from forecaster.swarm.task import Data, Hyperparams, Params, Task, Tree
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import State, init_state, train_step

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
        size = _unit
        rows = {
            "members": f"{self.members} on {self.lanes} lane(s), {self.chunk} at a time on each",
            "parameters": f"{self.parameters:,} each",
            "arithmetic": f"{size(self.flops_per_step, 'FLOP')} a step, "
            f"{self.steps_per_epoch} steps an epoch",
            "memory of a member": f"data {size(self.data_bytes, 'B')}, state "
            f"{size(self.state_bytes, 'B')}, saved for the backward pass "
            f"{size(self.saved_bytes, 'B')}",
            "memory of a lane": f"shared data {size(self.shared_bytes, 'B')}",
            "time to compile": f"{self.seconds_to_compile:.1f} s",
            "time": f"{1e3 * self.seconds_per_member_epoch:.3g} ms per member and epoch",
            "rate": f"{size(self.flops_per_second, 'FLOP')}/s, "
            f"{size(self.flops_per_second_per_lane, 'FLOP')}/s per lane",
        }
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def cost_of(
    task: Task,
    data: Data | Streamed,
    hyperparams: _HostHyperparams,
    members: int,
    *,
    lanes: int | None = None,
    chunk: int | None = None,
    memory: int | None = None,
    data_parallel: int = 1,
) -> Cost:
    """Count and measure the cost of training.

    - ``task``, ``data``: as for :func:`fit`.
    - ``hyperparams``: by name, arrays (member,).
    - ``members``: the number of members.
    - ``lanes``, ``chunk``, ``memory``, ``data_parallel``: as for :func:`fit`.
    """
    held = Held(data, members)
    width: int = lane_mesh(lanes, data_parallel).shape["lane"]
    chunk = chunk or chunk_size(task, held, hyperparams)
    rows: Rows = (
        np.arange(width * chunk) % members
    )  # fill all lanes; members repeat if they are few

    def seconds() -> float:
        return fit(
            task,
            members_data(data, rows),
            [str(number) for number in range(len(rows))],
            seed=0,
            epochs=_EPOCHS,
            hyperparams=take_members(dict(hyperparams), rows),
            chunk=chunk,
            lanes=lanes,
            memory=memory,
            data_parallel=data_parallel,
        ).seconds

    first, again = seconds(), min(seconds() for _ in range(_REPEATS))
    each = again / (_EPOCHS * len(rows))
    steps, flops, parameters = _step(task, held, hyperparams)
    return Cost(
        members=members,
        lanes=width,
        chunk=chunk,
        parameters=parameters,
        steps_per_epoch=steps,
        flops_per_step=flops,
        data_bytes=held.bytes_each,
        shared_bytes=total_bytes(held.shared),
        state_bytes=state_bytes(task, held, hyperparams),
        saved_bytes=saved_bytes(task, held, hyperparams),
        seconds_to_compile=max(0.0, first - again),  # nothing is compiled that was before
        seconds_per_member_epoch=each,
        flops_per_second=flops * steps / each,
    )


def _step(task: Task, held: Held, hyperparams: _HostHyperparams) -> tuple[int, float, int]:
    """Return steps per epoch, operations per step, and weights of one member."""
    one = {name: jax.ShapeDtypeStruct((), values.dtype) for name, values in hyperparams.items()}
    key_data = jax.ShapeDtypeStruct((2,), np.uint32)

    def begin(key_data: UInt32[jax.Array, "2"], hyperparams: Hyperparams) -> State:
        return init_state(task, key_data, hyperparams)

    def batch_and_active(
        key_data: UInt32[jax.Array, "2"], by_member: Data, shared: tuple[Tree, ...]
    ) -> tuple[Tree, Bool[jax.Array, " step"]]:
        data: Data = with_shared(by_member, shared)
        key = typed_key(key_data)
        return first_batch(task, data, key), task.batches(data, key)[1]

    def step(
        params: Params,
        opt_state: Tree,
        batch: Tree,
        key_data: UInt32[jax.Array, "2"],
        hyperparams: Hyperparams,
    ) -> tuple[jax.Array, Params, Tree]:
        key = typed_key(key_data)
        optimizer = task.optimizer(hyperparams)
        params, opt_state, loss = train_step(
            task, optimizer, params, opt_state, batch, key, hyperparams
        )
        return loss, params, opt_state

    state = jax.eval_shape(begin, key_data, one)
    batch, active = jax.eval_shape(batch_and_active, key_data, held.example, held.shared)
    lowered = jax.jit(step).lower(state.params, state.opt_state, batch, key_data, one)
    analysis: Mapping[str, float] = lowered.cost_analysis() or {}
    return active.shape[0], float(analysis.get("flops", 0.0)), count_weights(state.params)


def _unit(number: float, unit: str) -> str:
    """Return a number with a unit prefix, such as 12.3 MB."""
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} T{unit}"
