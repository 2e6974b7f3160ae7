"""Padding is replaced by examples, not by zeros, from which a model or a loss may make NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from forecaster.swarm import Swarm, stack

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3)).astype(np.float32)
Y = np.abs(X.sum(-1, keepdims=True)) + 1
WORDS = RANDOM.integers(1, 10, (40, 6))


def percentage(predictions, targets):
    return jnp.abs((predictions - targets) / targets)


def init(key):
    return {"w": 0.1 * jax.random.normal(key, (3, 1)), "b": jnp.zeros(1)}


def line(params, x):
    return x @ params["w"] + params["b"]


def of_directions(params, x):
    return line(params, x / jnp.linalg.norm(x, axis=-1, keepdims=True))


def init_words(key):
    return {"e": 0.1 * jax.random.normal(key, (10, 4)), "w": jnp.ones((4, 1))}


def of_words(params, words):
    """A mean over words; 0 is none."""
    known = (words > 0)[..., None]
    return ((params["e"][words] * known).sum(1) / known.sum(1)) @ params["w"]


@pytest.mark.parametrize("batch_size", [pytest.param(None, marks=pytest.mark.slow), 32])
@pytest.mark.parametrize(
    ("model", "loss", "inputs"),
    [
        ((init, line), percentage, X),
        ((init, of_directions), optax.squared_error, X),
        ((init_words, of_words), optax.squared_error, WORDS),
    ],
    ids=["percentages", "directions", "words"],
)
def test_padding_takes_no_member_away(model, loss, inputs, batch_size):
    """40 examples do not fill the last batch, and the second member has only 33 of them."""
    made = Swarm(model, ["a", "b"], loss=loss, optimizer=optax.adam)
    x, weight = stack([inputs, inputs[:33]])
    y, _ = stack([Y, Y[:33]])
    fitted = made.fit(x, y, sample_weight=weight, epochs=3, batch_size=batch_size)
    assert not fitted.diverged and np.isfinite(fitted.losses.train).all()
    alone = made.select(["b"]).fit(inputs[None, :33], Y[None, :33], epochs=3, batch_size=batch_size)
    for one, other in zip(
        jax.tree.leaves(fitted.select(["b"]).params), jax.tree.leaves(alone.params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert np.isfinite(fitted.evaluate(x, y, sample_weight=weight)).all()


def test_what_lies_in_padding_reaches_nothing():
    made = Swarm((init, line), 1, loss=percentage, optimizer=optax.adam)
    weight = (np.arange(40) % 3 > 0)[None].astype(np.float32)
    results = []
    for instead in (0.0, np.nan, 7.0):
        x, y = (np.where(weight[0, :, None] > 0, part, instead).astype("f4") for part in (X, Y))
        results.append(made.fit(x[None], y[None], sample_weight=weight, epochs=3).params)
    for other in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, results[0], other)
