"""Modules as pure functions, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from forecaster.swarm import Dropout, linen_functions, module_functions, use_all_cores
from forecaster.swarm.adapters.functions import pure_functions

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def key():
    use_all_cores()  # before JAX starts
    return jax.random.key(0)


class Net(nnx.Module):
    """A layer, and dropout at the member's own rate."""

    def __init__(self, rngs):
        self.linear = nnx.Linear(3, 50, rngs=rngs)
        self.dropout = Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.linear(x))


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
    np.testing.assert_array_equal(out, again)  # depends only on the key
    exported: Any = functions.export(params, hyperparams or {})
    assert float(exported.dropout.rate[...]) == pytest.approx(dropped)


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


class Arrays(nnx.Module):
    """Plain arrays: fixed, drawn, in a list, and those of WeightNorm."""

    def __init__(self, rngs):
        self.position = jnp.linspace(0, 1, 3)
        self.frequencies = jax.random.normal(rngs.params(), (3, 3))
        self.scales = nnx.List([jnp.full(3, 2.0)])
        self.out = nnx.WeightNorm(nnx.Linear(3, 1, rngs=rngs), rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.sin((x + self.position) @ self.frequencies) * self.scales[0])


def test_plain_arrays_of_a_module_are_its_members_own(key):
    functions = module_functions(Arrays)
    assert functions.train is not None
    params = jax.jit(jax.vmap(functions.init))(jax.random.split(key))
    assert set(params.params) == {"out"}
    np.testing.assert_allclose(params.state["position"], [[0, 0.5, 1]] * 2)
    drawn = params.state["frequencies"]
    assert (drawn[0] != drawn[1]).all()
    one = jax.tree.map(lambda leaf: leaf[1], params)
    out, state = jax.jit(functions.train)(one, X, key=key)
    jax.tree.map(np.testing.assert_array_equal, state, one.state)
    np.testing.assert_allclose(functions.export(one, {})(X), out, rtol=1e-5, atol=1e-6)
    kernel = one.params["out"]["layer_instance"]["kernel"]
    hidden = np.sin((X + np.linspace(0, 1, 3)) @ drawn[1]) * 2
    np.testing.assert_allclose(out, hidden @ kernel / np.linalg.norm(kernel), rtol=1e-4, atol=1e-5)


class Told(nnx.Module):
    def __init__(self, *, rngs):
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x, train=False, deterministic=True):
        x = self.norm(x, use_running_average=not train)
        return self.dropout(x, deterministic=deterministic)


def test_a_module_is_told_what_is_being_done(key):
    functions = module_functions(Told)  # takes rngs by name only
    assert functions.train is not None
    params = functions.init(key)
    out, state = functions.train(params, X + 1, key=key)
    assert (state["norm"]["mean"] != 0).all() and (out == 0).any()
    used = functions.apply(params, X + 1)
    np.testing.assert_allclose(used, X + 1, rtol=1e-4)
    drawn = functions.apply(params, X + 1, key=key)  # with frozen statistics
    np.testing.assert_allclose(drawn, np.where(drawn == 0, 0, 2 * used), rtol=1e-5)
    assert (drawn == 0).any()
    told = functions.apply(params, X + 1, key=key, deterministic=True)
    np.testing.assert_array_equal(told, used)
