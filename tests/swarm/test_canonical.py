"""JAX 0.12 warns of types of 64 bits that it does not keep; it is never asked for them."""

import jax
import numpy as np
import pytest

from forecaster.swarm.canonical import shape_in_jax


@pytest.mark.parametrize(
    ("given", "kept"), [("float64", "float32"), ("int64", "int32"), ("bool", "bool")]
)
def test_a_shape_has_the_type_that_jax_keeps(given, kept):
    assert shape_in_jax((2, 3), np.dtype(given)).dtype == kept
    with jax.enable_x64(True):
        assert shape_in_jax((2, 3), np.dtype(given)).dtype == given


def test_keys_stay_keys():
    keys = jax.random.split(jax.random.key(0), 2)
    assert shape_in_jax((2,), keys.dtype).dtype == keys.dtype
