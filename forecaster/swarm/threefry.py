"""Threefry-2x32, the hash of JAX's random keys, without a loop.

On CPUs JAX has XLA compile it as a loop over its rounds, which takes four times as long: where a
small network is trained, half of all there is to compile is this. The numbers are the same.
"""

from typing import Any, cast

from forecaster.swarm.jaxprs import does

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def hashed(one: Any, two: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Two words of a counter, hashed with two words of a key: arrays of uint32, numpy's or JAX's.

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
    """A traced function for the compiler, this hash in the place of JAX's loop where JAX allows.

    Only ``jax.export`` uses what does that, so that a later JAX may have none of it.
    """
    if not does(traced.jaxpr.jaxpr, _draws):
        return traced.lower()
    try:
        import jax.extend.random  # a hundredth of a second, which a forecast need not wait for
        from jax.interpreters import mlir

        rule = cast(Any, mlir.lower_fun)(hashed, multiple_results=True)
        ours = cast(Any, mlir.LoweringParameters)(
            override_lowering_rules=((jax.extend.random.threefry2x32_p, rule),)
        )
        return traced.lower(_private_parameters=ours)
    except (ImportError, AttributeError, TypeError):
        return traced.lower()


def _draws(operation: str) -> bool:
    """Whether it hashes a random key."""
    return operation.startswith("random_") or operation == "threefry2x32"
