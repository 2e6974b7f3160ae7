"""Members copied, averaged and taken from a search, with their training state."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

from forecaster.swarm import SwarmError
from tests.messages import refuses
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


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["m1", "m2", "m1"], None),
        (["m1", "m2"], ["a"]),
        (["m1", "m2"], ["a", "a"]),
        (["m1", "nobody"], ["a", "b"]),
        ([], None),
    ],
)
def test_copies_without_names_are_refused(trained, names, ids):
    with refuses(SwarmError):
        trained.select(names, ids)


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
