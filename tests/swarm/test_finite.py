"""Whether all numbers of a tree are finite, in two passes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from forecaster.swarm.training.loop import all_finite

SHAPES = [(), (5,), (0, 3), (3, 0), (4, 3), (2, 3, 2, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "int32", "bool"])
def test_it_is_what_numpy_says_of_each_array(dtype):
    trees = [[jnp.ones(shape, dtype) for shape in SHAPES]]
    if jnp.issubdtype(dtype, jnp.inexact):
        for number, bad in itertools.product(range(len(SHAPES)), (np.nan, np.inf, -np.inf)):
            tree = list(trees[0])
            if tree[number].size:
                last = tuple(size - 1 for size in tree[number].shape)
                tree[number] = tree[number].at[last].set(bad)
                trees.append(tree)
    assert len(trees) == (1 if dtype in ("int32", "bool") else 1 + 3 * 4)
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    expected = [True] + [False] * (len(trees) - 1)
    assert list(map(bool, map(all_finite, trees))) == expected
    assert list(jax.jit(jax.vmap(all_finite))(together)) == expected
    assert bool(all_finite({}))
