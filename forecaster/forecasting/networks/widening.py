"""Widen the hidden layers of networks without changing what they compute."""

import jax
import numpy as np

from forecaster.swarm import Params


def widen(params: Params, shapes: Params, hidden: int, to: int) -> Params:
    """Widen the hidden layers of networks with units whose weights are zero; outputs stay equal.

    - ``params``: a nested dict of arrays (series, ...) of networks with ``hidden`` units
    - ``shapes``: the same tree for one network with ``to`` units
    - ``hidden``, ``to``: units of a layer before and after

    In every network a unit without weights is zero (in an LSTM its candidate is tanh 0), and no
    normalisation takes a mean over units. An axis that grows begins with inputs, whose number
    stays, followed by blocks of ``hidden`` units (states, gates).
    """

    def grow(leaf: np.ndarray, wide: jax.ShapeDtypeStruct) -> np.ndarray:
        for axis, (old, new) in enumerate(zip(leaf.shape[1:], wide.shape, strict=True), start=1):
            blocks = (new - old) // (to - hidden) if to > hidden else 0
            inputs = old - blocks * hidden
            units = [inputs + block * to + np.arange(hidden) for block in range(blocks)]
            grown = np.zeros((*leaf.shape[:axis], new, *leaf.shape[axis + 1 :]), leaf.dtype)
            index: list[slice | np.ndarray] = [slice(None)] * leaf.ndim
            index[axis] = np.concatenate([np.arange(inputs), *units]).astype(int)
            grown[tuple(index)] = leaf
            leaf = grown
        return leaf

    return jax.tree.map(grow, params, shapes)
