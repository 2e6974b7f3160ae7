"""Networks of one series: they are causal, ignore padding, and can be widened."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import forecaster as fc
from forecaster.forecasting.fitting.training import widen
from forecaster.forecasting.networks import functions
from tests.slow import rest_slow, slow

CAUSAL = ["lstm", "gru", "transformer"]
WHOLE = ["mlp"]


@pytest.mark.parametrize("kind", rest_slow(["lstm", "mlp", "gru", "transformer"], 2))
@pytest.mark.parametrize("layers", [slow(1), 2])
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


@functools.cache
def network(kind: str, layers: int = 2):
    """Return a network with random weights, a function of inputs (5, steps, 4) and valid."""
    config = fc.Config(model=kind, hidden=3, layers=layers, lookback=20, validation=50)
    made = functions(config, 4)
    random = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: random.normal(size=leaf.shape).astype(np.float32),
        made.init(jax.random.key(0)),
    )

    @functools.partial(jax.jit, static_argnames="last_only")
    def outputs(inputs, valid, *, last_only):
        return made.apply(params, inputs, valid, last_only=last_only)[0]

    return outputs


@pytest.fixture(scope="module")
def windows() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, random in the padding too, and valid, for 8 to 20 steps."""
    inputs = np.random.default_rng(2).normal(size=(5, 20, 4)).astype(np.float32)
    first = np.array([0, 0, 3, 7, 12])
    return inputs, (np.arange(20) >= first[:, None]).astype(np.float32)


@pytest.mark.parametrize("kind", CAUSAL)
def test_no_step_sees_a_later_one(kind, windows):
    inputs, valid = windows
    later = inputs.copy()
    later[:, 13:] = 5 - 3 * later[:, 13:]
    before, after = (network(kind)(x, valid, last_only=False) for x in (inputs, later))
    np.testing.assert_array_equal(before[:, :13], after[:, :13])
    assert (np.abs(before[:, 13:] - after[:, 13:]).max(2) > 1e-4).all()


@pytest.mark.parametrize("kind", CAUSAL)
def test_the_last_step_alone_says_what_it_says_among_all(kind, windows):
    alone = network(kind)(*windows, last_only=True)
    among = network(kind)(*windows, last_only=False)
    np.testing.assert_allclose(alone, among[:, -1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", CAUSAL + WHOLE)
def test_what_lies_in_the_padding_changes_nothing(kind, windows):
    inputs, valid = windows
    other = np.where(valid[..., None] > 0, inputs, 7.0)
    whole = kind in WHOLE
    before, after = (network(kind)(x, valid, last_only=whole) for x in (inputs, other))
    seen = np.ones(before.shape, bool) if whole else np.broadcast_to(valid[..., None], before.shape)
    np.testing.assert_array_equal(before[seen > 0], after[seen > 0])
    assert np.isfinite(before).all()


@pytest.mark.parametrize("kind", CAUSAL + WHOLE)
def test_untrained_networks_say_nothing(kind):
    config = fc.Config(model=kind, hidden=3, lookback=20, validation=50)
    made = functions(config, 4)
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    assert shapes["constants"].shape == (5,)

    def outputs(inputs):
        params = made.init(jax.random.key(0))
        return made.apply(params, inputs, jnp.ones((2, 20)), last_only=True)[0]

    np.testing.assert_array_equal(jax.jit(outputs)(jnp.ones((2, 20, 4))), np.zeros((2, 1, 10)))
