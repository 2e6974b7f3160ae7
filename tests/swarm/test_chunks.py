"""Lanes that go through several chunks in one call."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm.execution import schedule


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
def test_chunks_change_no_results(data, monkeypatch):
    """300 members are two calls of at most 16 chunks a lane; some stop early."""
    everybody, some = np.arange(300), np.array([299, 7, 120])
    whole, few = (fitted(members, data, validated=True) for members in (everybody, some))
    monkeypatch.setattr(schedule, "_CHUNKS", 1)
    one_by_one = fitted(everybody, data, validated=True)
    for a, b, c in zip(*(jax.tree.leaves(f.params) for f in (whole, one_by_one, few)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(a)[some], c, rtol=1e-5, atol=1e-6)
    assert len(set(np.isfinite(whole.losses.validation).sum(1))) > 3  # epochs until they stop
