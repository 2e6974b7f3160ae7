"""Data parallelism: split a step's batch over several devices with the same weights on each.

This module only declares how examples are sharded. The program stays that of one device; XLA's
partitioner splits its arithmetic and adds up the gradients once per step. So losses of a batch,
statistics and random draws equal those of one device, up to rounding.

The devices of a lane form a second axis of the mesh, which the lanes' ``shard_map`` leaves to the
partitioner (``jax.sharding.AxisType.Auto``).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from forecaster.swarm.task import AnyArray, Tree

AXIS = "batch"  # name of the mesh axis


def _devices_per_lane() -> int:
    """Return over how many devices the traced program splits a batch.

    1 inside :func:`by_example`, where the batch is already split.
    """
    mesh = jax.sharding.get_abstract_mesh()
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return mesh.shape[AXIS] if kinds.get(AXIS) == AxisType.Auto else 1


def shard_batch(tree: Tree) -> Tree:
    """Shard a batch, arrays (example, ...), by example over the devices of a lane.

    Values do not change. With one device per lane this does nothing. If the number of examples is
    not divisible by that of devices, the last device has fewer.
    """
    if (count := _devices_per_lane()) == 1:
        return tree

    def shard(leaf: AnyArray) -> AnyArray:
        if np.ndim(leaf) == 0 or jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            return leaf  # a scalar, or random keys
        padded = _padded(jnp.asarray(leaf), 0, count)
        return jax.lax.with_sharding_constraint(padded, P(AXIS))[: leaf.shape[0]]

    return jax.tree.map(shard, tree)


def first_example(x: AnyArray, used: AnyArray) -> jax.Array:
    """Return the first used example of a batch (example, ...) on every device; zeros if none is.

    In a split batch it is computed as a sum, so that the devices exchange only that.
    """
    x, count = jnp.asarray(x), len(used)
    first = jnp.where(used, jnp.arange(count), count).min()
    if _devices_per_lane() == 1:
        taken = jnp.take(x, first, axis=0, mode="clip")
        return jnp.where(first < count, taken, jnp.zeros((), x.dtype))
    is_first = (jnp.arange(count) == first).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(is_first, x, jnp.zeros((), x.dtype)).sum(0).astype(x.dtype)


def replicated(tree: Tree) -> Tree:
    """Replicate arrays, such as summed gradients, on all devices of a lane."""
    return tree if _devices_per_lane() == 1 else jax.lax.with_sharding_constraint(tree, P())


def by_example(
    function: Callable[..., jax.Array],
    weights: tuple[jax.Array, ...],
    arrays: tuple[jax.Array, ...],
    *,
    last_only: bool,
) -> jax.Array:
    """Call ``function(*weights, *arrays)``, each device on its own examples.

    For a function that the partitioner cannot split, or would split badly. ``arrays`` are
    (time, example, ...); the function returns an array (time, example, ...), or with ``last_only``
    (example, ...), and its examples must be independent.
    """
    if (count := _devices_per_lane()) == 1:
        return function(*weights, *arrays)
    examples = arrays[0].shape[1]
    padded = [_padded(array, 1, count) for array in arrays]
    out = P(AXIS) if last_only else P(None, AXIS)
    specs = (*[P()] * len(weights), *[P(None, AXIS)] * len(arrays))
    # shard_map adds up the derivatives by the weights, which are on all devices.
    mapped = jax.shard_map(
        function, in_specs=specs, out_specs=out, axis_names={AXIS}, check_vma=False
    )
    found = mapped(*weights, *padded)
    return found[:examples] if last_only else found[:, :examples]


def _padded(array: jax.Array, axis: int, devices: int) -> jax.Array:
    """Return an array with zeros appended along an axis to a multiple of ``devices``."""
    missing = -array.shape[axis] % devices
    if not missing:
        return array
    return jnp.pad(array, [(0, missing if n == axis else 0) for n in range(array.ndim)])
