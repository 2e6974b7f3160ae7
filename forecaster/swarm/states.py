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


def blank_state(
    task: Task, held: Held, origin: Origin, hyperparams: Hyperparams, limits: Limits
) -> State:
    """Room for the states of all members, zero; arguments as of a fit, arrays (member,)."""
    if isinstance(origin, State):
        return jax.tree.map(np.zeros_like, origin)

    def first_state(
        key: jax.Array, hyperparams: Hyperparams, limits: Limits, unshared: Data, shared: Data
    ) -> State:
        return start(task, key, with_shared(unshared, shared), hyperparams, limits)

    def room(shape: jax.ShapeDtypeStruct) -> np.ndarray:
        return np.zeros((held.members, *shape.shape), shape.dtype)

    one = take_members((origin, hyperparams, limits), 0)
    return jax.tree.map(room, jax.eval_shape(first_state, *one, held.example, held.shared))
