"""What a swarm refuses to join, and what it notices."""

import warnings

import jax.numpy as jnp
import optax
import pytest

from forecaster import swarm
from forecaster.swarm import Single, SwarmError
from tests.swarm.test_swarm import Network, X, Y, make


def test_members_that_learn_otherwise_are_not_appended():
    def huber(predictions, targets):
        return optax.huber_loss(predictions, targets)

    others = [
        (make(["x"], loss=huber), "another loss: expected squared_error; got .*huber"),
        (make(["x"], optimizer=lambda learning_rate: swarm.adamw(learning_rate)), "optimizer"),
        (make(["x"], accumulate=2), "another accumulate: expected 1; got 2"),
        (make(["x"], compute_dtype=jnp.bfloat16), "another compute_dtype"),
    ]
    for other, message in others:
        with pytest.raises(SwarmError, match=message):
            make().append(other)

    def made(ids, rate):  # equal transformations, which are other objects each time
        return make(ids, optimizer=optax.chain(optax.clip(1.0), optax.adam(rate)))

    assert len(made(["a"], 0.1).append(made(["b"], 0.1))) == 2
    with pytest.raises(SwarmError, match="another optimizer"):
        made(["a"], 0.1).append(made(["b"], 0.2))


def test_a_result_of_fit_that_is_dropped_is_noticed(tmp_path):
    made = make(["a"])
    made.fit(X[:1], Y[:1], epochs=1)
    for use in (
        lambda: made.predict(X[:1]),
        lambda: made.evaluate(X[:1], Y[:1]),
        lambda: made.save(tmp_path / "s"),
        lambda: made.member("a"),
        lambda: made.member_function("a"),
    ):
        with pytest.warns(swarm.SwarmWarning, match=r"Write swarm = swarm.fit\(...\)") as caught:
            use()
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(X[:1], Y[:1], epochs=1).evaluate(X[:1], Y[:1])  # used, and not needed any more
        made.predict(X[:1])
        kept = made.fit(X[:1], Y[:1], epochs=1)
        made.evaluate(X[:1], Y[:1])
    assert kept.epochs == [1]


def test_warnings_point_at_the_line_that_called():
    single = Single(Network, loss=optax.squared_error)
    single.fit(X[0], Y[0], epochs=1)
    with pytest.warns(swarm.SwarmWarning) as caught:
        single.predict(X[0])
    assert caught[0].filename == __file__
