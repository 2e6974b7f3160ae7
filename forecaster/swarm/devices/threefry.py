"""Threefry-2x32, the hash of JAX's random keys, by compiled code.

JAX lets XLA compile the hash again wherever a program draws, as a loop over its rounds. Calling
compiled code instead gives the same bits. On two cores (2026-11) first fits with bootstrap samples
or dropout took 2.3 s instead of 3.3 s and 1.9 s instead of 3.9 s, later fits 0.27 s instead of
0.37 s and 0.095 s instead of 0.139 s. (Unrolled, the hash can keep LLVM's vectoriser busy for
hours.)
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from forecaster.swarm.native import library, processor


def has_operation(jaxpr: Any, wanted: Callable[[str], bool]) -> bool:
    """Return whether an operation of a ``Jaxpr``, or of one inside it, has a wanted name.

    ``Jaxpr`` objects are recognised by their attributes, because importing their types takes 10 ms.
    """
    return any(wanted(each.primitive.name) or _inside(each.params, wanted) for each in jaxpr.eqns)


def _inside(params: dict[str, Any], wanted: Callable[[str], bool]) -> bool:
    values = jax.tree.leaves(list(params.values()), is_leaf=_is_program)
    return any(_is_program(value) and has_operation(_opened(value), wanted) for value in values)


def _is_program(value: object) -> bool:
    return hasattr(_opened(value), "eqns")


def _opened(value: Any) -> Any:
    """Return the ``Jaxpr`` of a closed one."""
    return getattr(value, "jaxpr", value)


_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_MANY = 16  # counters per key that fill a vector


def hashed(one: Any, two: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Hash two words of a counter with two words of a key, numpy arrays of uint32.

    20 rounds, Salmon et al. (2011), doi:10.1145/2063384.2063405.
    """
    number = left.dtype.type
    schedule = one, two, one ^ two ^ number(0x1BD11BDA)
    left, right = left + one, right + two
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            left = left + right
            right = (right << number(rotation)) | (right >> number(32 - rotation))
            right = right ^ left
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + number(group + 1)
    return left, right


def lowered(traced: Any) -> Any:
    """Lower a traced function, with the compiled hash instead of JAX's if it runs here.

    The override is a private parameter of JAX, which a later version may lack; JAX's own hash is
    the fallback.
    """
    if not has_operation(traced.jaxpr.jaxpr, _draws) or library.kernel_status()[0] is None:
        return traced.lower()
    try:
        import jax.extend.random  # takes 10 ms
        from jax.interpreters import mlir

        rule = cast(Any, mlir.lower_fun)(_call_hash, multiple_results=True)
        ours = cast(Any, mlir.LoweringParameters)(
            override_lowering_rules=((jax.extend.random.threefry2x32_p, rule),)
        )
        return traced.lower(_private_parameters=ours)
    except (ImportError, AttributeError, TypeError):
        return traced.lower()


def _call_hash(one: Any, two: Any, left: Any, right: Any) -> Sequence[Any]:
    """Call the compiled hash on arrays that broadcast against each other."""
    shape = np.broadcast_shapes(one.shape, two.shape, left.shape, right.shape)
    keys, counters = jnp.broadcast_arrays(one, two), jnp.broadcast_arrays(left, right)
    if not _each_key_hashes_all(keys[0].shape, counters[0].shape):
        keys, counters = ([jnp.broadcast_to(word, shape) for word in of] for of in (keys, counters))
    out = jax.ShapeDtypeStruct(shape, jnp.uint32)
    return cast(Sequence[Any], jax.ffi.ffi_call(processor.HASH, [out, out])(*keys, *counters))


def _each_key_hashes_all(keys: Sequence[int], counters: Sequence[int]) -> bool:
    """Return whether each of the keys (..., 1, 1) hashes all of many counters (1, ..., n, m)."""
    rank = max(len(keys), len(counters))
    keys, counters = ([1] * (rank - len(shape)) + list(shape) for shape in (keys, counters))
    first = next((axis for axis, size in enumerate(counters) if size != 1), rank)
    return math.prod(counters) >= _MANY and all(size == 1 for size in keys[first:])


def _draws(operation: str) -> bool:
    """Return whether an operation of this name hashes a random key."""
    return operation.startswith("random_") or operation == "threefry2x32"
