"""Weights that are one vector while they train give the same results as trees."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Swarm, adamw, inject_hyperparams
from forecaster.swarm.training import optimizers
from forecaster.swarm.training.optimizers import _ELEMENTWISE, is_elementwise

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 24, 4)).astype(np.float32)
Y = np.tanh(X.sum(2, keepdims=True))


# So that gradients are clipped by a norm of all of them, and what else is off by default.
SETTINGS = {
    adamw: {"clip": [0.05, 0.1, np.inf], "weight_decay": 0.1},
    optax.sgd: {"momentum": 0.9},
    optax.rmsprop: {"momentum": 0.5},
    optax.adamw: {"weight_decay": 0.1},
}


class Normed(nnx.Module):
    """Weights in five arrays, and statistics that are not trained."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(4, 8, use_bias=False, rngs=rngs)  # its gradient would be none
        self.out = nnx.Linear(8, 1, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.norm(self.hidden(x))))


def trained(optimizer, accumulate=1, **options):
    made = Swarm(
        Normed, 3, loss=optax.squared_error, optimizer=optimizer, accumulate=accumulate,
        hyperparams={"learning_rate": [0.001, 0.003, 0.002], **SETTINGS.get(optimizer, {})},
    )  # fmt: skip
    return made.fit(X, Y, epochs=4, batch_size=8, **options)


OFTEN = (adamw,)  # the others in the night


@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(each, marks=() if each in OFTEN else pytest.mark.slow) for each in _ELEMENTWISE],
    ids=lambda made: getattr(made, "__name__", "partial"),
)
def test_a_vector_trains_as_a_tree_does(optimizer, monkeypatch):
    made, of = [], optimizers.Vector.from_state

    def seen(*args):
        made.append(of(*args))
        return made[-1]

    monkeypatch.setattr(optimizers.Vector, "from_state", seen)
    few = optimizer in (adamw, optax.sgd)
    options = {"accumulate": 2, "metrics": {"off": lambda p, y: abs(p - y)}} if few else {}
    if few:
        options |= {"validation_data": (X, Y), "patience": 2}
    one = trained(optimizer, **options)
    assert made and None not in made
    monkeypatch.setattr(optimizers, "_MOST", 0)
    other = trained(optimizer, **options)
    assert made[-1] is None
    states = (jax.tree.leaves(fitted._result.state) for fitted in (one, other))
    pairs = zip(*states, strict=True)
    for a, b in pairs:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(one.losses.train, other.losses.train, rtol=1e-4)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.lamb,  # goes by the layer
        optax.adafactor,  # goes by rows and columns
        functools.partial(optax.adamw, mask=lambda tree: jax.tree.map(lambda _: True, tree)),
        lambda learning_rate: optax.adam(learning_rate),
        optax.adam(0.1),
    ],
)
def test_who_may_look_at_layers_gets_trees(optimizer):
    assert not is_elementwise(inject_hyperparams(optimizer))
    assert not is_elementwise(lambda hyperparams: optax.adam(0.1))


@pytest.mark.parametrize("optimizer", _ELEMENTWISE)
def test_another_process_knows_them_too(optimizer):
    """Otherwise workers in other processes would compute other bits."""
    copy = pickle.loads(pickle.dumps(inject_hyperparams(optimizer)))
    assert is_elementwise(copy)
