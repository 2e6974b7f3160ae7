"""What a swarm's training costs, counted and measured."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend import core

from forecaster.swarm import memory as _memory
from forecaster.swarm.checks import broadcast_limits
from forecaster.swarm.data import Held, total_bytes, with_shared
from forecaster.swarm.lanes import Layout, lane_mesh, place, replicate
from forecaster.swarm.schedule import compiled
from forecaster.swarm.task import Task
from forecaster.swarm.training import init_state, update


@dataclasses.dataclass(frozen=True)
class Cost:
    """Costs of a swarm's training. Arithmetic is counted by XLA, operations of one member's step;
    time and rate are measured on full lanes."""

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
    seconds_per_member_epoch: float  # with all lanes at work
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


def cost_of(
    task: Task,
    data: Any,
    hyperparams: Mapping[str, np.ndarray],
    members: int,
    *,
    lanes: int | None = None,
    chunk: int | None = None,
    memory: int | None = None,
    repeats: int = 5,
) -> Cost:
    """Count and measure what training takes. ``hyperparams``: arrays (member,)."""
    held = Held(data, members)
    mesh = lane_mesh(lanes)
    chunk = chunk or _memory.chunk_size(task, held, hyperparams)
    room = _memory.members_at_once(memory, task, held, hyperparams, mesh.size)
    layout = Layout.of(min(members, room, 4 * mesh.size * chunk), mesh.size, chunk)
    rows = np.arange(layout.capacity) % members

    def put(tree):
        load = lambda rows: jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)  # noqa: E731
        return place(load, rows, layout, mesh)

    common = replicate(held.shared, mesh), np.int32(1)
    own, placed = place(held.rows, rows, layout, mesh), put(dict(hyperparams))
    limits = put(broadcast_limits(2**30, None, members))
    begin, train = compiled(task, mesh, 1)
    keys = np.zeros((members, 2), np.uint32)
    state = begin(layout.groups, common, put(keys), own, placed, limits)
    began = time.perf_counter()
    program = train.lower(layout.groups, common, state, own, placed, limits).compile()
    to_compile = time.perf_counter() - began
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        state, losses = program(layout.groups, common, state, own, placed, limits)
        jax.block_until_ready((state, losses))
        seconds.append(time.perf_counter() - began)
    each = statistics.median(seconds[1:]) / layout.capacity
    steps, flops, parameters = _step(task, held, hyperparams)
    analysis = program.memory_analysis()
    return Cost(
        members=members,
        lanes=mesh.size,
        chunk=chunk,
        parameters=parameters,
        steps_per_epoch=steps,
        flops_per_step=flops,
        data_bytes=held.bytes_each,
        shared_bytes=total_bytes(held.shared),
        state_bytes=_memory.state_bytes(task, held, hyperparams),
        saved_bytes=_memory.saved_bytes(task, held, hyperparams),
        temporary_bytes=analysis.temp_size_in_bytes if analysis else 0,
        seconds_to_compile=to_compile,
        seconds_per_member_epoch=each,
        flops_per_second=flops * steps / each,
    )


def _step(task: Task, held: Held, hyperparams: Mapping[str, np.ndarray]) -> tuple[int, float, int]:
    """Steps of an epoch, arithmetic of one, and weights of one member."""
    one = {name: jax.ShapeDtypeStruct((), values.dtype) for name, values in hyperparams.items()}
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    state = jax.eval_shape(lambda key, hyperparams: init_state(task, key, hyperparams), key, one)

    def first_batch(key, own, shared):
        data = with_shared(own, shared)
        index, active = task.batches(data, jax.random.wrap_key_data(key))
        return task.take(data, jax.tree.map(lambda leaf: leaf[0], index)), active

    batch, active = jax.eval_shape(first_batch, key, held.example, held.shared)

    def step(params, opt_state, batch, key, hyperparams):
        key, optimizer = jax.random.wrap_key_data(key), task.optimizer(hyperparams)
        loss, grads = jax.value_and_grad(task.loss)(params, batch, key, hyperparams)
        updates, opt_state = update(
            task, optimizer, grads, opt_state, params, loss, batch, key, hyperparams
        )
        return loss, jax.tree.map(lambda p, u: p + u, params, updates), opt_state

    flops = count_flops(step, state.params, state.opt_state, batch, key, one)
    return active.shape[0], flops, sum(math.prod(p.shape) for p in jax.tree.leaves(state.params))


def count_flops(function: Callable[..., Any], *shapes: Any) -> float:
    """Floating-point operations of a function, by XLA's cost analysis.

    XLA counts the body of a loop once; that of a ``scan`` is counted here as often as it runs.
    Loops of unknown length still count once.
    """
    return _flops(jax.make_jaxpr(function)(*shapes))


def _flops(closed: Any) -> float:
    total = _once(closed)
    for body, length in _scans(closed.jaxpr):
        total += length * _flops(body) - _once(body)
    return total


def _once(closed: Any) -> float:
    """What XLA counts, every loop once."""
    function: Any = jax.jit(core.jaxpr_as_fun(closed))
    lowered = function.lower(*closed.in_avals)
    analysis: Any = lowered.cost_analysis() or {}
    return max(0.0, float(analysis.get("flops", 0.0)))


def _scans(jaxpr: Any) -> Iterator[tuple[Any, int]]:
    """The outermost scans of a program, body and length."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
            continue
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, core.ClosedJaxpr):
                    yield from _scans(inner.jaxpr)
                elif isinstance(inner, core.Jaxpr):
                    yield from _scans(inner)


def _unit(number: float, unit: str) -> str:
    """A number with a prefix: 12.3 MB."""
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} T{unit}"
