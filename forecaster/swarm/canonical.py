"""Describe an array of NumPy to JAX: its shape, and the type that JAX will give it."""

from typing import Any

import jax
from jax.sharding import Sharding


def shape_in_jax(
    shape: tuple[int, ...], dtype: Any, sharding: Sharding | None = None
) -> jax.ShapeDtypeStruct:
    """Return a shape with the type that JAX keeps: without x64, numbers of 64 bits have 32.

    JAX 0.12 warns where it is asked for 64 bits that it does not keep.
    """
    kept = jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(shape, kept, sharding=sharding)
