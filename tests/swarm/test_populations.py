"""Members copied, averaged, appended, and results of ``fit`` that were dropped."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

from forecaster import swarm
from forecaster.swarm import Swarm, SwarmError
from tests.messages import refuses, warns
from tests.swarm.test_swarm import IDS, N, X, Y, close, make, same


@pytest.fixture(scope="module")
def trained():
    rates = np.linspace(1e-3, 1e-2, N)
    return make(optimizer=optax.adam, hyperparams={"learning_rate": rates, "dropout": 0.5}).fit(
        X, Y, epochs=3, batch_size=None
    )


def row(tree: Any, number: int):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[number], tree)


def test_a_member_is_copied_with_all_that_training_left_of_it(trained):
    copies = trained.select(["m4", "m1", "m4"], ids=["m4", "m1", "again"])
    assert copies.ids == ("m4", "m1", "again") and (copies.epochs == 3).all()
    ours, theirs = copies.summary().loc["again"], trained.summary().loc["m4"]
    assert ours["learning_rate"] == theirs["learning_rate"]
    np.testing.assert_array_equal(copies.losses.train[2], trained.losses.train[4])
    # Without random layers copies train alike, if the optimiser's moments were copied too.
    rows, calm = [4, 1, 4], {"dropout": 0.0}
    after, _ = copies.with_hyperparams(**calm).step(X[rows], Y[rows])
    expected, _ = trained.with_hyperparams(**calm).step(X, Y)
    assert same(row(after.params, 2), row(expected.params, 4))


def test_a_copy_draws_its_own_random_numbers(trained):
    copies = trained.select(["m4", "m4"], ids=["m4", "again"])
    after, _ = copies.step(X[[4, 4]], Y[[4, 4]])
    expected, _ = trained.step(X, Y)
    assert same(row(after.params, 0), row(expected.params, 4))  # it kept its name
    assert not same(row(after.params, 1), row(after.params, 0))  # other dropout


def test_optimiser_states_are_averaged_if_asked_for():
    """Compare with momentum by hand: after the first step it is the gradient."""
    before = make(IDS[:2], optimizer=optax.sgd, hyperparams={"learning_rate": 0.1, "momentum": 0.9})
    after, _ = before.step(X[:2], Y[:2])
    weights = np.array([1.0, 3.0])
    merged = after.merge("both", weights, opt_state=True)
    fresh = after.merge("both", weights)
    assert merged.epochs[0] == 1 and fresh.epochs[0] == 0 and same(merged.params, fresh.params)
    went = jax.tree.map(lambda b, a: np.average(a - b, 0, weights), before.params, after.params)
    rolled, _ = merged.step(X[:1], Y[:1])
    expected = jax.tree.map(lambda p, w: p + 0.9 * w, fresh.step(X[:1], Y[:1])[0].params, went)
    close(rolled.params, expected)
    assert rolled.epochs[0] == 2 and np.isfinite(rolled.losses.train[0, 1])
    everywhere = merged.select(["both"] * 3, ids=["a", "b", "c"])
    again, _ = everywhere.step(np.repeat(X[:1], 3, 0), np.repeat(Y[:1], 3, 0))
    close(row(again.params, 2), row(rolled.params, 0))


def test_members_that_learn_otherwise_are_not_appended():
    def huber(predictions, targets):
        return optax.huber_loss(predictions, targets)

    others = [
        (make(["x"], loss=huber), "loss"),
        (make(["x"], optimizer=lambda learning_rate: swarm.adamw(learning_rate)), "optimizer"),
        (make(["x"], accumulate=2), "accumulate"),
        (make(["x"], compute_dtype=jnp.bfloat16), "compute_dtype"),
    ]
    ours = make(["y"])
    for other, name in others:
        with refuses(SwarmError) as caught:
            ours.append(other)
        assert f"another {name}" in str(caught.value)

    clipped = optax.chain(optax.clip(1.0), optax.adam(0.1))
    assert len(make(["a"], optimizer=clipped).append(make(["b"], optimizer=clipped))) == 2


def test_members_of_another_model_are_not_appended():
    def members(ids, model):
        return Swarm(model, ids, loss=optax.squared_error)

    line = (lambda key: jnp.zeros(3), lambda params, x: x @ params)
    with refuses(SwarmError):
        members(["a"], line).append(members(["b"], (line[0], lambda params, x: x * params)))
    assert len(members(["a"], line).append(members(["b"], line))) == 2
    linear = [swarm.linen_functions(linen.Dense(1), X[0]) for _ in range(2)]
    assert len(members(["a"], linear[0]).append(members(["b"], linear[1]))) == 2


def test_a_result_of_fit_that_is_dropped_is_noticed():
    made = make(["a"])
    assert "1 finished" in repr(made.fit(X[:1], Y[:1], epochs=1))  # as a notebook does
    for use in (lambda: made.summary(), lambda: made.predict(X[:1]), lambda: made.member("a")):
        with warns(swarm.SwarmWarning) as caught:
            use()
        assert caught[0].filename == __file__
    made = make(["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(X[:1], Y[:1], epochs=1).evaluate(X[:1], Y[:1])  # used once
        made.predict(X[:1])
        kept = made.fit(X[:1], Y[:1], epochs=1)
        made.evaluate(X[:1], Y[:1])
    assert kept.epochs == [1]
