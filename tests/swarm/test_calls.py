"""Single calls: arrays of all kinds, and states that stay on the devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Shared, Swarm
from forecaster.swarm.estimators.stepping import OnDevice
from tests.slow import rest_slow
from tests.swarm.test_swarm import close, same

N = 5
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 6, 3)).astype(np.float32)
Y = np.sin(X).sum(-1, keepdims=True)
WEIGHT = np.ones((N, 6), np.float32)
WEIGHT[1, 2:] = 0
EMPTY = np.where(np.arange(N)[:, None] == 3, 0, WEIGHT)
HOLE = np.where(WEIGHT[..., None] > 0, X, np.nan)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.out = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 1, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)

    def __call__(self, x):
        return self.out(self.norm(self.inner(x)))


class Named(nnx.Module):
    def __init__(self, rngs):
        self.out = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, x):
        return {"mean": self.out(x["a"]), "twice": 2 * self.out(x["a"])}


def loss_fn(params, batch, key):
    error = optax.huber_loss(jnp.tanh(batch.inputs @ params), batch.targets)[:, 0]
    return (batch.weight * error).sum() / jnp.maximum(batch.weight.sum(), 1)


PAIR = (lambda key: jax.random.normal(key, (3, 1))), (lambda params, x: x @ params)
LINE = {"loss": optax.squared_error, "optimizer": optax.adam}
NAMED = {"loss": lambda p, t: optax.squared_error(p["mean"], t["mean"])}
CASES = {
    "arrays": (PAIR, LINE, (X, Y)),
    "a member without examples": (PAIR, LINE, (X, Y, EMPTY)),
    "holes where the weight is zero": (PAIR, LINE, (HOLE, Y, WEIGHT)),
    "shared, with weights": (PAIR, LINE, (Shared(X[0]), Shared(Y[0]), Shared(WEIGHT[1]))),
    "shared rows": (PAIR, LINE, (Shared(X, np.arange(N)[::-1]), Y)),
    "64 bits": (PAIR, LINE, (X.astype(float), Y.astype(float))),
    "a tree": (lambda rngs: Named(rngs), NAMED, ({"a": X, "b": X}, {"mean": Y})),
    "own loss": (PAIR, {"loss_fn": loss_fn}, (X, Y, WEIGHT)),
    "untrained state": (lambda rngs: Network(rngs), LINE, (X, Y)),
    "in bfloat16": (PAIR, LINE | {"compute_dtype": jnp.bfloat16}, (X, Y)),
}


def results(made: Swarm, data: tuple) -> list:
    """What three rounds of single calls return, and the state and losses after them."""
    found = []
    for _ in range(3):
        made, losses = made.step(*data)
        found += [losses, made.predict(data[0], check=False), made.evaluate(*data), made.state]
    return [*found, made.losses.train]


def bits(tree) -> list:
    return [
        (leaf.dtype, leaf.shape, leaf.flags.writeable, leaf.tobytes())
        for leaf in jax.tree.leaves(tree)
    ]


@pytest.mark.parametrize("name", rest_slow(CASES, ordinary=6))
def test_states_that_stay_on_the_devices_give_what_those_on_the_host_give(name, monkeypatch):
    model, options, data = CASES[name]
    stays = results(Swarm(model, N, **options), data)
    monkeypatch.setattr("forecaster.swarm.estimators.stepping.MOST_BYTES", 0)
    close(stays, results(Swarm(model, N, **options), data))


@pytest.mark.parametrize("examples", [3, 4000], ids=["on one device", "on all lanes"])
def test_single_calls_give_the_same_alone_and_in_company(examples):
    x = RANDOM.normal(size=(70, examples, 3)).astype(np.float32)  # more than one chunk
    everyone, own = (x, x.sum(-1, keepdims=True)), slice(66, 67)
    alone = tuple(part[own] for part in everyone)
    many = Swarm(PAIR, 70, **LINE)
    for a, b in zip(results(many, everyone), results(many.select(["66"]), alone), strict=True):
        close(jax.tree.map(lambda leaf: np.asarray(leaf)[own], a), b)


@pytest.mark.parametrize("weight", [WEIGHT, EMPTY], ids=["all step", "one does not"])
def test_a_step_that_does_not_count_keeps_the_latest_weights(weight):
    """After validation the best weights are not the latest, until a step counts."""
    validated = Swarm(PAIR, N, loss=optax.squared_error, optimizer=optax.sgd)
    validated = validated.fit(X, Y, validation_data=(X, -Y), epochs=3)
    assert not same(validated.state.params, validated.state.best_params)
    values = {"learning_rate": np.where(np.arange(N) == 2, 1e38, 1e-3).astype(np.float32)}
    changed = validated.with_hyperparams(**values)
    for _ in range(3):
        changed, _ = changed.step(X, Y, weight)
    assert list(changed.diverged) == ["2"]
    still = [2, 3] if weight is EMPTY else [2]  # of which nothing was computed
    np.testing.assert_array_equal(
        np.asarray(changed.state.params)[still], validated.state.params[still]
    )


def test_without_such_devices_calls_give_the_same(known, monkeypatch):
    made, expected = Swarm(PAIR, N, **LINE), known.predict(X)
    monkeypatch.setattr("forecaster.swarm.estimators.stepping.inline_mesh", lambda: None)
    assert bits(made.predict(X)) == bits(expected)
    assert isinstance(made._device, OnDevice)
    assert made._device.params.devices() <= set(jax.local_devices())


@pytest.fixture
def known() -> Swarm:
    """A swarm that has learned from calls with arrays of usual shapes."""
    made = Swarm(PAIR, N, **LINE)
    for call in (made.evaluate, made.step):
        call(X, Y)
    made.step(X, Y, WEIGHT)
    for inputs in (X, X.astype(float), np.ones(X.shape, int)):
        made.predict(inputs)
    return made


def test_hyperparameters_are_those_of_the_call(known):
    fast = known.with_hyperparams(learning_rate=0.5)
    expected = Swarm(PAIR, N, hyperparams={"learning_rate": 0.5}, **LINE).step(X, Y)[0]
    assert same(fast.step(X, Y)[0].params, expected.params)
    known.hyperparams["learning_rate"] = np.full(N, 0.5, np.float32)
    assert same(known.step(X, Y)[0].params, expected.params)
