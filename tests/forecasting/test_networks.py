"""Networks of one series: what stays the same when they are widened."""

import dataclasses

import jax
import numpy as np
import pytest

import forecaster as fc
from forecaster.forecasting.networks import widen
from forecaster.forecasting.training import functions


@pytest.mark.parametrize("kind", ["lstm", "gru", "mlp"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_widened_network_says_the_same(kind, layers):
    small = fc.Config(model=kind, hidden=3, layers=layers, lookback=20, validation=50)
    wide = dataclasses.replace(small, hidden=7)
    random = np.random.default_rng(0)
    made, target = functions(small, 4), functions(wide, 4)
    params = jax.tree.map(
        lambda leaf: random.normal(size=(2, *leaf.shape)).astype(np.float32),
        made.init(jax.random.key(0)),
    )
    shapes = jax.eval_shape(target.init, jax.random.key(0))
    wider = widen(params, shapes, 3, 7)
    assert jax.tree.map(lambda leaf: leaf.shape[1:], wider) == jax.tree.map(
        lambda leaf: leaf.shape, shapes
    )
    inputs = random.normal(size=(5, 20, 4)).astype(np.float32)
    seen = np.ones((5, 20), bool)

    def outputs(model, tree, row):
        weights = jax.tree.map(lambda leaf: leaf[row], tree)
        return jax.tree.leaves(model.apply(weights, inputs, seen, last_only=True))

    for row in range(2):
        for x, y in zip(outputs(made, params, row), outputs(target, wider, row), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    same = widen(params, jax.eval_shape(made.init, jax.random.key(0)), 3, 3)
    assert jax.tree.all(jax.tree.map(np.array_equal, same, params))
