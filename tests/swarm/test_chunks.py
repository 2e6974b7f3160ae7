"""Lanes that go through several chunks in one call."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm.execution import schedule
from forecaster.swarm.training.loop import Status
from tests.slow import slow
from tests.swarm.test_fitting import IDS, MEMBERS, Perceptron, make_data, run, squared


class Small(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))


def fitted(members, data, *, validated, epochs=40):
    x, y = (part[members] for part in data)
    ids = [f"m{member}" for member in members]
    made = swarm.Swarm(Small, ids, loss=optax.squared_error, hyperparams={"learning_rate": 0.05})
    options = {"validation_data": (x[:, :9], y[:, :9]), "patience": 3} if validated else {}
    return made.fit(x, y, epochs=epochs, batch_size=None, **options)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 32, 4)).astype(np.float32)
    noise = random.normal(size=(300, 32, 1)) * np.linspace(0, 9, 300)[:, None, None]
    return x, (np.tanh(x.sum(2, keepdims=True)) + noise).astype(np.float32)


@pytest.mark.usefixtures("as_for_users")
@pytest.mark.parametrize("validated", [pytest.param(False, marks=pytest.mark.slow), True])
def test_chunks_change_no_bit(data, validated, monkeypatch):
    """300 members are two calls of at most 16 chunks a lane; some stop early."""
    used = []
    train = schedule.Schedule._trained

    def trained(self, call, epochs):
        used.append((self.layout.chunks, len(call.rows)))
        return train(self, call, epochs)

    monkeypatch.setattr(schedule.Schedule, "_trained", trained)
    everybody = np.arange(300)
    whole = fitted(everybody, data, validated=validated)
    assert {chunks for chunks, _ in used} == {16} and max(rows for _, rows in used) > 100
    some = np.array([299, 7, 120])
    few = fitted(some, data, validated=validated)
    monkeypatch.setattr(schedule, "_CHUNKS", 1)
    used.clear()
    one_by_one = fitted(everybody, data, validated=validated)
    assert {chunks for chunks, _ in used} == {1}
    for a, b, c in zip(*(jax.tree.leaves(f.params) for f in (whole, one_by_one, few)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.asarray(a)[some], c)
    np.testing.assert_array_equal(whole.losses.validation, one_by_one.losses.validation)
    if validated:
        assert (
            len(set(np.isfinite(whole.losses.validation).sum(1))) > 3
        )  # members stop in different epochs


@pytest.mark.parametrize("batch_size", [slow(None), 8])
def test_who_has_nothing_to_train_on_keeps_the_latest_weights(batch_size):
    """Their latest weights become the best ones, as for other members."""
    data = make_data()
    validated = swarm.supervised(Perceptron, squared, batch_size=batch_size)
    before = run(validated, data, epochs=6, patience=6)
    weight = np.array(data.weight)
    weight[2] = 0
    plain = dataclasses.replace(validated, validate=None)
    after = run(plain, data._replace(weight=weight), epochs=9, patience=9, previous=before)
    assert list(after.state.epoch) == [9] * MEMBERS
    jax.tree.map(np.testing.assert_array_equal, after.state.best_params, after.state.params)
    pairs = zip(*(jax.tree.leaves(fit.state.params) for fit in (after, before)), strict=True)
    assert all(np.array_equal(a[2], b[2]) for a, b in pairs)


def test_one_that_diverges_is_put_right_by_a_block_of_checked_epochs(monkeypatch):
    """One member of 40 has an absurd learning rate; the others train on."""
    data, asked = make_data(), []
    once = schedule.Schedule._trained

    def trained(self, call, epochs, *, checked=False):
        asked.append(checked)
        return once(self, call, epochs, checked=checked)

    monkeypatch.setattr(schedule.Schedule, "_trained", trained)
    task = dataclasses.replace(
        swarm.supervised(Perceptron, squared, batch_size=None), validate=None
    )
    rates = {"learning_rate": np.where(np.arange(MEMBERS) == 9, 1e30, 1e-2)} | {
        "weight_decay": 0.0, "clip": 1e30
    }  # fmt: skip
    fitted = run(task, data, hyperparams=rates, epochs=20, patience=20)
    diverged = np.flatnonzero(fitted.state.status == Status.DIVERGED)
    assert list(diverged) == [9] and asked.count(True) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fitted.params))
    alone = swarm.fit(
        task, jax.tree.map(lambda leaf: leaf[8:9], data), IDS[8:9], seed=5, epochs=20, patience=20,
        hyperparams={"learning_rate": 1e-2, "weight_decay": 0.0, "clip": 1e30},
    )  # fmt: skip
    for a, b in zip(jax.tree.leaves(fitted.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(a[8:9], b, rtol=1e-5, atol=1e-6)
