"""The cost of training a swarm: arithmetic counted by XLA, memory and time measured."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Shaped, UInt32

from forecaster.swarm.arrays.data import Held, Rows, Streamed, total_bytes, with_shared
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.arrays.variables import count_weights
from forecaster.swarm.checks import broadcast_limits
from forecaster.swarm.devices.lanes import Layout, lane_mesh, packed_chunks, replicate
from forecaster.swarm.execution.memory import (
    chunk_size,
    first_batch,
    members_at_once,
    saved_bytes,
    state_bytes,
)
from forecaster.swarm.execution.schedule import compiled
from forecaster.swarm.task import Data, Hyperparams, Member, Params, Task, Tree
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import Block, State, init_state, train_step

_HostHyperparams: TypeAlias = Mapping[str, Shaped[np.ndarray, " member"]]


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of training a swarm.

    XLA counts the arithmetic of one member's step, the body of a loop once. Time and rate are
    measured with full lanes.
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
    temporary_bytes: int  # of one lane, while it trains
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
            "memory of a lane": f"shared data {size(self.shared_bytes, 'B')}, temporary "
            f"{size(self.temporary_bytes, 'B')}",
            "time to compile": f"{self.seconds_to_compile:.1f} s",
            "time": f"{1e3 * self.seconds_per_member_epoch:.3g} ms per member and epoch",
            "rate": f"{size(self.flops_per_second, 'FLOP')}/s, "
            f"{size(self.flops_per_second_per_lane, 'FLOP')}/s per lane",
        }
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


class _Measured(NamedTuple):
    """Measurements of an epoch with full lanes."""

    seconds_to_compile: float
    seconds: float  # of an epoch of all members on the devices
    temporary_bytes: int


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
    repeats: int = 5,
) -> Cost:
    """Count and measure the cost of training.

    - ``task``, ``data``: as for :func:`fit`.
    - ``hyperparams``: by name, arrays (member,).
    - ``members``: the number of members.
    - ``lanes``, ``chunk``, ``memory``, ``data_parallel``: as for :func:`fit`.
    - ``repeats``: epochs to time; the median is reported.
    """
    held = Held(data, members)
    mesh = lane_mesh(lanes, data_parallel)
    width = mesh.shape["lane"]
    chunk = chunk or chunk_size(task, held, hyperparams)
    room = members_at_once(memory, task, held, hyperparams, mesh.size) // data_parallel
    layout = Layout.of(max(1, min(members, room, width * chunk)), width, chunk)
    measured = _measure(task, held, hyperparams, layout, mesh, repeats)
    each = measured.seconds / layout.capacity
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
        temporary_bytes=measured.temporary_bytes,
        seconds_to_compile=measured.seconds_to_compile,
        seconds_per_member_epoch=each,
        flops_per_second=flops * steps / each,
    )


def _measure(
    task: Task,
    held: Held,
    hyperparams: _HostHyperparams,
    layout: Layout,
    mesh: Mesh,
    repeats: int,
) -> _Measured:
    """Compile and time an epoch of a full layout; members repeat where there are too few."""
    rows = np.arange(layout.capacity) % held.members

    def put(load: Callable[[Rows], Tree]) -> Tree:
        placed = packed_chunks(load, rows, layout)
        return jax.device_put(placed, NamedSharding(mesh, PartitionSpec("lane")))

    keys = np.zeros((held.members, 2), np.uint32)
    limits = broadcast_limits(2**30, None, held.members)
    placed = Member(
        put(held.rows),
        put(lambda rows: take_members(dict(hyperparams), rows)),
        put(lambda rows: take_members(limits, rows)),
    )
    common, epochs = (replicate(held.shared, mesh),), np.ones((layout.lanes, 1), np.int32)
    begin, train = compiled(task, mesh, 1)
    state = begin(common, epochs, put(lambda rows: keys[rows]), placed)
    began = time.perf_counter()
    program = train.compile(common, epochs, state, placed)
    to_compile = time.perf_counter() - began
    seconds: list[float] = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        block: Block = program(common, epochs, state, placed)
        jax.block_until_ready(block)
        state = block.state
        seconds.append(time.perf_counter() - began)
    analysis = program.memory_analysis()
    temporary_bytes = analysis.temp_size_in_bytes if analysis else 0
    return _Measured(to_compile, statistics.median(seconds[1:]), temporary_bytes)


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
