"""Networks of every library, and one network alone."""

from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import linen, nnx

from forecaster import swarm
from forecaster.swarm import Shared, Single, Swarm, SwarmError, Variables
from tests.messages import refuses
from tests.swarm.test_swarm import HELD_BACK, X, Y, same

IDS = ["a", "b", "c"]
x, y = X[:3], Y[:3]


def make(functions, ids=IDS, **options) -> Swarm:
    return Swarm(functions, ids, loss=optax.squared_error,
                 hyperparams={"learning_rate": 0.02}, **options)  # fmt: skip


def with_state() -> swarm.Functions:
    eqx = pytest.importorskip("equinox")

    class Normed(eqx.Module):
        inner: Any
        norm: Any
        dropout: Any
        out: Any

        def __init__(self, key):
            first, second = jax.random.split(key)
            self.inner = eqx.nn.Linear(3, 8, key=first)
            self.norm = eqx.nn.BatchNorm(8, "batch", mode="batch", momentum=0.5)
            self.dropout = eqx.nn.Dropout(0.2)
            self.out = eqx.nn.Linear(8, 1, key=second)

        def __call__(self, x, state, *, key=None):
            x, state = self.norm(self.inner(x), state)
            return self.out(self.dropout(jax.nn.relu(x), key=key)), state

    return swarm.equinox_functions(lambda key: eqx.nn.make_with_state(Normed)(key))


def perceptron() -> swarm.Functions:
    eqx = pytest.importorskip("equinox")
    return swarm.equinox_functions(lambda key: eqx.nn.MLP(3, 1, 8, 1, key=key))


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.relu(linen.Dense(8)(x)))


MODELS = {
    "pure": lambda: ((lambda key: jax.random.normal(key, (3, 1))), (lambda w, x: x @ w)),
    "linen": lambda: swarm.linen_functions(Dense(), x[0]),
    "equinox": perceptron,
    "equinox with state": with_state,
}


@pytest.mark.parametrize("kind", MODELS)
def test_models_of_every_library_learn_and_are_exported_and_saved(kind, tmp_path):
    model = MODELS[kind]()
    made = make(model)
    fitted = made.fit(x, y, epochs=6, batch_size=8)
    assert (fitted.evaluate(x, y) < made.evaluate(x, y)).all()
    member = fitted.member("b")
    one = jax.vmap(member)(x[1]) if "equinox" in kind else member(x[1])
    np.testing.assert_allclose(one, fitted.predict(x)[1], rtol=1e-4, atol=1e-5)
    fitted.save(tmp_path / "s")
    loaded = Swarm.load(tmp_path / "s", model, loss=optax.squared_error)
    assert same(loaded.predict(x), fitted.predict(x))
    alone = make(model, ["b"]).fit(x[1:2], y[1:2], epochs=6, batch_size=8)
    assert same(alone.params, fitted.select(["b"]).params)
    if isinstance(fitted.params, Variables):
        assert not same(made.params.state, fitted.params.state)
        np.testing.assert_allclose(fitted.predict(x)[:, :1], fitted.predict(x[:, :1]), rtol=1e-4)
        assert (fitted.predict(x, key=0) != fitted.predict(x)).any()


@pytest.mark.parametrize("pair", [(x[0], x[1]), {"x": x[0], "z": x[1]}], ids=["tuple", "dict"])
def test_equinox_modules_of_several_inputs_take_them_together(pair):
    eqx = pytest.importorskip("equinox")

    class Plain(eqx.Module):
        scale: jax.Array

        def __call__(self, x, z, *, key=None):
            return self.scale * (x - z)

    functions = swarm.equinox_functions(lambda key: Plain(jax.numpy.ones(())))
    out = functions.apply(functions.init(jax.random.key(0)), pair)
    np.testing.assert_allclose(out, x[0] - x[1], rtol=1e-6)


def test_one_network_needs_no_member_axis(tmp_path):
    def network(rngs):
        return nnx.Sequential(nnx.Linear(3, 8, rngs=rngs), nnx.relu, nnx.Linear(8, 1, rngs=rngs))

    weight = np.ones(len(X[0]), np.float32)
    made = Single(network, loss=optax.squared_error, hyperparams={"learning_rate": 0.02})
    fitted = made.fit(
        X[0], Y[0], sample_weight=weight, validation_data=(HELD_BACK[0][0], HELD_BACK[1][0]),
        epochs=5, metrics={"absolute": lambda p, y: abs(p - y)},
    )  # fmt: skip
    expected = make(network, ["0"]).fit(
        Shared(X[0]), Shared(Y[0]), validation_data=(Shared(X[0, :8]), Shared(Y[0, :8])), epochs=5
    )
    np.testing.assert_allclose(fitted.predict(X[0]), expected.predict(X[:1])[0], rtol=1e-5)
    assert fitted.losses.train.shape == (5,) == fitted.metrics["absolute"].shape
    assert fitted.params["layers"][0]["kernel"].shape == (3, 8)
    np.testing.assert_allclose(fitted.module()(X[0]), fitted.predict(X[0]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fitted.function()(X[0]), fitted.predict(X[0]), rtol=1e-4, atol=1e-6)
    stepped, loss = fitted.step(X[0], Y[0])
    assert loss == pytest.approx(fitted.evaluate(X[0], Y[0]), rel=1e-4)
    stepped.save(tmp_path / "n")
    loaded = Single.load(tmp_path / "n", network, loss=optax.squared_error)
    assert same(loaded.params, stepped.params) and repr(loaded).startswith("Network (1 ")
    make(network).save(tmp_path / "s")
    with refuses(SwarmError):
        Single.load(tmp_path / "s", network, loss=optax.squared_error)
