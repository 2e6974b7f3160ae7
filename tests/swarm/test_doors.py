"""Swarms that cannot be appended, and results of ``fit`` that were dropped."""

import warnings

import jax.numpy as jnp
import optax
from flax import linen

from forecaster import swarm
from forecaster.swarm import Swarm, SwarmError
from tests.messages import refuses, warns
from tests.swarm.test_swarm import X, Y, make


def test_members_that_learn_otherwise_are_not_appended():
    def huber(predictions, targets):
        return optax.huber_loss(predictions, targets)

    others = [
        (make(["x"], loss=huber), "loss"),
        (make(["x"], optimizer=lambda learning_rate: swarm.adamw(learning_rate)), "optimizer"),
        (make(["x"], accumulate=2), "accumulate"),
        (make(["x"], compute_dtype=jnp.bfloat16), "compute_dtype"),
    ]
    for other, name in others:
        with refuses(SwarmError) as caught:
            make().append(other)
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


def test_a_single_string_is_not_taken_as_letters():
    made = Swarm((lambda key: jnp.zeros(3), lambda params, x: x @ params), 12, loss=optax.l2_loss)
    for call in (
        lambda: made.select("10"),
        lambda: made.select(["1", "0"], ids="ab"),
        lambda: made.drop("10"),
        lambda: made.append("new"),
    ):
        with refuses(SwarmError):
            call()
    assert made.select(["10"]).ids == ("10",) and len(made.drop(["10"])) == 11
