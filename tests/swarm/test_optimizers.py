"""Optimisers take their settings from hyperparameters; all of optax's can be used."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from forecaster.swarm import adamw, inject_hyperparams
from tests.slow import slow
from tests.swarm.test_swarm import X, Y, close, make, untrained

__all__ = ["untrained"]  # the fixture

PARAMS: Any = {"w": np.array([1.0, -2.0], np.float32)}
GRADS: Any = {"w": np.array([0.5, 3.0], np.float32)}


def step(optimizer: optax.GradientTransformation, count: int = 1) -> Any:
    """Return the last of several updates by the same gradients."""
    state, updates = optimizer.init(PARAMS), None
    for _ in range(count):
        updates, state = optimizer.update(GRADS, state, PARAMS)
    return updates


def test_arguments_come_from_the_hyperparameters_of_their_names():
    hyperparams = {
        "learning_rate": jnp.float32(0.1),
        "momentum": jnp.float32(0.9),
        "x": jnp.ones(()),
    }
    made = inject_hyperparams(optax.sgd)(hyperparams)
    close(step(made, 2), step(optax.sgd(0.1, momentum=0.9), 2))
    others = step(optax.sgd(0.1), 2)
    assert not np.allclose(step(made, 2)["w"], others["w"])


def test_adamw_clips_by_the_global_norm():
    large = jax.tree.map(lambda gradient: 1e3 * gradient, GRADS)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in jax.tree.leaves(large)))
    clipped = jax.tree.map(lambda gradient: gradient / norm, large)
    ours, plain = adamw(0.1, clip=jnp.float32(1.0)), optax.adamw(0.1)
    _, after = ours.update(large, ours.init(PARAMS), PARAMS)
    _, expected = plain.update(clipped, plain.init(PARAMS), PARAMS)
    for moment in ("mu", "nu"):
        close(optax.tree_utils.tree_get(after, moment), optax.tree_utils.tree_get(expected, moment))


@pytest.mark.slow
def test_accumulated_batches_are_one_large_batch():
    options = {"optimizer": optax.sgd, "hyperparams": {"learning_rate": 0.1}}
    four = make(accumulate=4, **options).fit(X, Y, epochs=3, batch_size=8)
    close(four.params, make(**options).fit(X, Y, epochs=3, batch_size=None).params)


def test_a_search_along_a_line_gets_no_learning_rate():
    """A rate of 1e-3 would make each step of lbfgs a thousandth of its length."""
    few = functools.partial(optax.lbfgs, memory_size=3)
    for optimizer in (optax.lbfgs, few):
        assert make(optimizer=optimizer, hyperparams={}).hyperparams == {}
        assert make(optimizer=optimizer, hyperparams={"learning_rate": 0.5}).hyperparams
    adafactor = make(optimizer=optax.adafactor, hyperparams={})  # has none of its own
    assert adafactor.hyperparams["learning_rate"][0] == np.float32(1e-3)


@pytest.mark.parametrize(
    "name",
    ["chain", *map(slow, ("noisy_sgd", "lbfgs", "lion", "inject"))],
)
def test_optimisers_of_many_kinds(untrained, name):
    optimizer = {
        "noisy_sgd": functools.partial(optax.noisy_sgd, key=jax.random.PRNGKey(0)),
        "lbfgs": optax.lbfgs(),  # searches along a line
        "lion": optax.lion,
        "chain": optax.chain(optax.clip(1.0), optax.adam(optax.cosine_decay_schedule(0.02, 99))),
        "inject": optax.inject_hyperparams(optax.adam)(learning_rate=0.02),
    }[name]
    made = make(optimizer=optimizer, hyperparams={"learning_rate": 0.01}).fit(X, Y, epochs=5)
    assert (made.evaluate(X, Y) < untrained.evaluate(X, Y)).all()
