"""Data parallelism: a step's batch split over several devices, with the same weights on each.

The program stays that of one device: what is said here is only where the examples of an array lie.
XLA's partitioner splits the arithmetic accordingly and adds up the gradients, once a step. So a
loss of a whole batch, statistics and random draws are those of one device, up to rounding.

The devices of a lane are an axis of the mesh of their own, which the lanes' ``shard_map`` leaves to
the partitioner (``jax.sharding.AxisType.Auto``).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from forecaster.swarm.task import AnyArray, Tree

AXIS = "batch"  # of the mesh


def _ways() -> int:
    """Over how many devices the program that is being traced splits a batch.

    1 also where it is split already, inside of :func:`by_example`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return mesh.shape[AXIS] if kinds.get(AXIS) == AxisType.Auto else 1


def shard_batch(tree: Tree) -> Tree:
    """Lay the examples of a batch, arrays (example, ...), on the devices that share them.

    Values stay as they are, and where a lane has one device nothing happens at all. A number of
    examples that does not divide leaves room on the last device.
    """
    if (ways := _ways()) == 1:
        return tree

    def lay(leaf: AnyArray) -> AnyArray:
        if np.ndim(leaf) == 0 or jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            return leaf  # one of all examples, or random keys
        padded = _padded(jnp.asarray(leaf), 0, ways)
        return _laid(padded, P(AXIS))[: leaf.shape[0]]

    return jax.tree.map(lay, tree)


def first_example(x: AnyArray, used: AnyArray) -> jax.Array:
    """The first example of a batch (example, ...) that is used, on every device; else zeros.

    Of a split batch as a sum, so that nothing else is sent.
    """
    x, count = jnp.asarray(x), len(used)
    first = jnp.where(used, jnp.arange(count), count).min()
    if _ways() == 1:
        taken = jnp.take(x, first, axis=0, mode="clip")
        return jnp.where(first < count, taken, jnp.zeros((), x.dtype))
    is_first = (jnp.arange(count) == first).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(is_first, x, jnp.zeros((), x.dtype)).sum(0).astype(x.dtype)


def replicated(tree: Tree) -> Tree:
    """Have arrays whole on each device of a lane, such as the sum of its gradients."""

    def whole(leaf: jax.Array) -> jax.Array:
        return _laid(leaf, P())

    return tree if _ways() == 1 else jax.tree.map(whole, tree)


def by_example(
    function: Callable[..., jax.Array],
    weights: tuple[jax.Array, ...],
    arrays: tuple[jax.Array, ...],
    *,
    last_only: bool,
) -> jax.Array:
    """``function(*weights, *arrays)`` of arrays (time, example, ...), each device for its examples.

    For a function that the partitioner cannot look into, or would split badly. It returns an array
    (time, example, ...), or with ``last_only`` (example, ...), and treats each example by itself.
    """
    if (ways := _ways()) == 1:
        return function(*weights, *arrays)
    examples = arrays[0].shape[1]
    padded = [_padded(array, 1, ways) for array in arrays]
    out = P(AXIS) if last_only else P(None, AXIS)
    specs = (*[P()] * len(weights), *[P(None, AXIS)] * len(arrays))
    # Derivatives by the weights, which all devices have, come out added up.
    apart = jax.shard_map(
        function, in_specs=specs, out_specs=out, axis_names={AXIS}, check_vma=False
    )
    found = apart(*weights, *padded)
    return found[:examples] if last_only else found[:, :examples]


def _laid(leaf: jax.Array, spec: P) -> jax.Array:
    return jax.lax.with_sharding_constraint(leaf, spec)


def _padded(array: jax.Array, axis: int, ways: int) -> jax.Array:
    """With zeros at an axis's end, so that each device has as many."""
    missing = -array.shape[axis] % ways
    if not missing:
        return array
    return jnp.pad(array, [(0, missing if n == axis else 0) for n in range(array.ndim)])
