"""Members that diverged in a block of epochs: where it happened, and what they were before.

While members train without validation nobody looks at single epochs, which would cost a small
network as much as its training. Afterwards the losses tell, and the same program, run for fewer
epochs, gives the last sound weights, to the bit.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.swarm.blocks import Trained
from forecaster.swarm.flat import Form
from forecaster.swarm.training import State, Status


def first_bad(
    losses: Float[np.ndarray, "row epoch"],
    sound: Bool[np.ndarray, " row"],
    trained: Int[np.ndarray, " row"],
) -> Int[np.ndarray, " row"]:
    """The first epoch of a block that went wrong, counted from 0; -1 where nothing did.

    That is one whose loss is not finite, or the last, where only the weights at the end are not
    finite.

    - ``losses``: of the block's epochs
    - ``sound``: whether the weights at the end are finite
    - ``trained``: how many epochs each member trained
    """
    bad = np.array(~np.isfinite(losses), bool)
    bad[np.arange(bad.shape[1]) >= trained[:, None]] = False
    at_the_end = np.array(trained - 1, int)
    at_the_end[np.asarray(sound | (trained == 0))] = -1
    return np.where(bad.any(1), bad.argmax(1), at_the_end)


def last_sound(train: Callable[[int], Trained], form: Form, row: int, bad: int) -> State:
    """The state (1, ...) of a member that diverged, with its last finite weights.

    - ``train``: the block of the member's group, for so many epochs
    - ``form``: of a state
    - ``row``: the member's position in the group
    - ``bad``: the epoch that went wrong, see :func:`first_bad`. Where its loss was not finite, the
      weights after the epoch before may not have been either
    """
    while True:
        block = train(bad)
        if not bad or np.asarray(block.sound).reshape(-1)[row]:
            break
        bad -= 1

    def of_member(leaf: jax.Array) -> np.ndarray:
        return np.asarray(leaf).reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])[
            row : row + 1
        ]

    state: State = form.tree_of_rows(jax.tree.map(of_member, block.state))
    diverged = np.array([Status.DIVERGED], np.int32)
    return state._replace(epoch=state.epoch + np.int32(1), status=diverged)
