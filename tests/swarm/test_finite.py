"""Whether all numbers of a tree are finite, in two passes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

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


def test_arrays_may_lie_on_devices_in_different_ways():
    if (count := len(jax.devices())) == 1:
        pytest.skip("one device")
    mesh = jax.make_mesh((count,), ("m",), axis_types=(AxisType.Explicit,))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "m"))
    ones = np.ones((8, 8), np.float32)
    with jax.set_mesh(mesh):
        good = [jax.device_put(ones, whole), jax.device_put(ones, split)]
        bad = [good[0], jax.device_put(np.inf * ones, split)]
        assert bool(all_finite(good)) and not bool(jax.jit(all_finite)(bad))
