"""States of all members on the host, before any has trained."""

from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import UInt32

from forecaster.swarm.data import Held, with_shared
from forecaster.swarm.members import take_members
from forecaster.swarm.task import Data, Hyperparams, Limits, Task
from forecaster.swarm.training import State, start

Origin: TypeAlias = State | UInt32[np.ndarray, "member 2"]
"""States (member, ...) that members continue from, or raw keys of members that start anew."""


def member_state(
    task: Task, held: Held, origin: Origin, hyperparams: Hyperparams, limits: Limits
) -> State:
    """The shapes of one member's state; arguments as of a fit, arrays (member,)."""

    def first_state(
        key: jax.Array, hyperparams: Hyperparams, limits: Limits, unshared: Data, shared: Data
    ) -> State:
        return start(task, key, with_shared(unshared, shared), hyperparams, limits)

    if isinstance(origin, State):
        return take_members(origin, 0)
    one = take_members((origin, hyperparams, limits), 0)
    return jax.eval_shape(first_state, *one, held.example, held.shared)


def blank_state(member: State, members: int) -> State:
    """Room for the states of so many members like this one, zero."""

    def room(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return np.zeros((members, *leaf.shape), leaf.dtype)

    return jax.tree.map(room, member)
