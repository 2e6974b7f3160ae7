"""Modules as pure functions, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from forecaster.swarm import Dropout, SwarmError, linen_functions, module_functions, use_all_cores
from forecaster.swarm.modules import pure_functions

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def key():
    use_all_cores()  # before anything starts JAX
    return jax.random.key(0)


class Net(nnx.Module):
    """A layer and dropout at a member's own rate."""

    def __init__(self, rngs):
        self.linear = nnx.Linear(3, 50, rngs=rngs)
        self.dropout = Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.linear(x))


def test_params_are_a_plain_dict_and_the_exported_module_predicts_the_same(key):
    functions = module_functions(Net)
    params = functions.init(key)
    assert jax.tree.map(jnp.shape, params) == {"linear": {"bias": (50,), "kernel": (3, 50)}}
    expected = X @ params["linear"]["kernel"] + params["linear"]["bias"]
    np.testing.assert_allclose(functions.apply(params, X), expected, rtol=1e-5)
    np.testing.assert_allclose(functions.export(params, {})(X), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("hyperparams", "dropped"), [(None, 0.5), ({"dropout": 0.0}, 0.0), ({"dropout": 0.9}, 0.9)]
)
def test_the_rate_of_dropout_is_the_members_or_the_modules(key, hyperparams, dropped):
    functions = module_functions(Net)
    params = functions.init(key)
    inputs = jnp.ones((40, 3))
    out = functions.apply(params, inputs, key=key, hyperparams=hyperparams)
    assert abs(float((out == 0).mean()) - dropped) < 0.05
    again = functions.apply(params, inputs, key=key, hyperparams=hyperparams)
    np.testing.assert_array_equal(out, again)  # the key alone decides
    exported: Any = functions.export(params, hyperparams or {})
    assert float(exported.dropout.rate[...]) == pytest.approx(dropped)


def test_missing_keys_are_named_errors(key):
    without_key = module_functions(lambda rngs: nnx.Dropout(0.1))
    with pytest.raises(SwarmError, match="module Dropout needs a random key and has none"):
        without_key.apply({}, X, key=key)


def test_pure_functions_get_a_key_where_they_take_one(key):
    def noisy(params, inputs, key):
        return inputs + params if key is None else inputs + jax.random.normal(key, inputs.shape)

    functions = pure_functions(lambda key: jnp.ones(3), noisy)
    params = functions.init(key)
    np.testing.assert_array_equal(functions.apply(params, X, hyperparams={}), X + 1)
    assert (functions.apply(params, X, key=key) != X + 1).all()
    plain = pure_functions(lambda key: jnp.ones(3), lambda params, inputs: inputs * params)
    np.testing.assert_array_equal(plain.apply(params, X, key=key), X)
    np.testing.assert_array_equal(plain.export(params, {})(X), X)


PAIRS = (X, X + 1), [X, X + 1], {"x": X, "z": X + 1}


class Difference(linen.Module):
    @linen.compact
    def __call__(self, x, z, train: bool):
        return linen.BatchNorm(use_running_average=not train)(x - z)


@pytest.mark.parametrize("pair", PAIRS, ids=["tuple", "list", "dict"])
def test_modules_of_several_inputs_take_them_together(key, pair):
    class Both(nnx.Module):
        def __init__(self, rngs):
            self.scale = nnx.Param(jnp.float32(2))

        def __call__(self, x, z):
            return self.scale[...] * (x - z)

    functions = module_functions(Both)
    np.testing.assert_array_equal(
        functions.apply(functions.init(key), pair), -2.0 * np.ones((2, 3))
    )
    for sample in ((pair,), (X, X)):
        functions = linen_functions(Difference(), *sample)
        params = functions.init(key)
        expected = -np.ones((2, 3)) / np.sqrt(1 + 1e-5)
        np.testing.assert_allclose(functions.apply(params, pair), expected, rtol=1e-6)
        assert functions.train is not None
        np.testing.assert_allclose(functions.train(params, pair, key=key)[0], 0, atol=1e-6)


def test_a_module_of_one_pair_gets_it_whole(key):
    class Whole(linen.Module):
        @linen.compact
        def __call__(self, pair):
            return pair[0] - pair[1]

    functions = linen_functions(Whole(), PAIRS[0])
    np.testing.assert_array_equal(functions.apply(functions.init(key), PAIRS[0]), -np.ones((2, 3)))


def test_linen_modules_without_state_have_params_only(key):
    functions = linen_functions(linen.Dense(4), X)
    params = functions.init(key)
    assert set(params) == {"kernel", "bias"}
    np.testing.assert_array_equal(functions.export(params, {})(X), functions.apply(params, X))
