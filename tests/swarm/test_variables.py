"""Models with untrained state: running statistics, fixed tables, random streams."""

from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Swarm, SwarmError, Variables
from tests.swarm.test_swarm import same

N = 5
IDS = [f"m{i}" for i in range(N)]
RANDOM = np.random.default_rng(1)
X = (3 + 2 * RANDOM.normal(size=(N, 20, 3))).astype(np.float32)
Y = np.sin(X).sum(-1, keepdims=True).astype(np.float32)


class Fixed(nnx.Variable):
    """A variable that is neither trained nor random."""


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.table = Fixed(jax.random.normal(rngs.params(), (3, 4)))
        self.norm = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(jax.nn.relu(self.norm(x @ self.table[...]))))


def make(ids=IDS, model: Any = Normed, **options) -> Swarm:
    hyperparams = {"learning_rate": 0.02}
    return Swarm(model, ids, loss=optax.squared_error, hyperparams=hyperparams, **options)


@pytest.fixture(scope="module")
def untrained() -> Swarm:
    return make()


@pytest.fixture(scope="module")
def trained(untrained) -> Swarm:
    return untrained.fit(X, Y, epochs=6, batch_size=8)


def test_a_member_is_trained_as_flax_would_train_it(untrained):
    """Compare with Flax's own state and gradients, on the whole batch and without dropout."""

    class Plain(Normed):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.dropout = nnx.Dropout(0.0, rngs=rngs)

    made = make(model=Plain, optimizer=optax.sgd)
    module: Any = made.member("m2")
    module.train()
    optimizer = nnx.Optimizer(module, optax.sgd(0.02), wrt=nnx.Param)
    for _ in range(3):
        grads = nnx.grad(lambda module: ((module(X[2]) - Y[2]) ** 2).mean())(module)
        optimizer.update(module, grads)
    module.eval()
    fitted = made.fit(X, Y, epochs=3, batch_size=None)
    np.testing.assert_allclose(fitted.predict(X)[2], module(X[2]), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(fitted.member("m2")(X[2]), module(X[2]), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(
        fitted.params.state["norm"]["mean"][2], module.norm.mean[...], rtol=1e-4
    )


def test_state_is_carried_by_training_and_frozen_in_use(untrained, trained):
    assert isinstance(trained.params, Variables) and trained.parameters == 4 * 2 + 4 + 1
    before, after = untrained.params.state, trained.params.state
    assert same(before["table"], after["table"])  # fixed
    assert len(np.unique(before["table"][:, 0, 0])) == N  # each member has its own
    assert (before["norm"]["mean"] == 0).all() and (after["norm"]["mean"] != 0).all()
    expected = np.einsum("nei,nij->nj", X, after["table"]) / 20
    np.testing.assert_allclose(after["norm"]["mean"], expected, rtol=0.3, atol=0.5)
    one = trained.predict(X[:, :1])  # a prediction does not depend on other examples
    np.testing.assert_allclose(one, trained.predict(X)[:, :1], rtol=1e-4, atol=1e-5)
    assert (trained.evaluate(X, Y) < untrained.evaluate(X, Y)).all()


def test_state_is_saved_and_chosen_with_the_weights(untrained, trained, tmp_path):
    trained.save(tmp_path / "s")
    loaded = Swarm.load(tmp_path / "s", Normed, loss=optax.squared_error)
    assert same(loaded.params, trained.params) and same(loaded.predict(X), trained.predict(X))

    held_back = X[:, :5], Y[:, :5]
    whole = untrained.fit(X, Y, validation_data=held_back, epochs=12, patience=4)
    best = whole.summary()["best_loss"]  # with the statistics of the best weights
    np.testing.assert_allclose(whole.evaluate(*held_back), best, rtol=1e-4)


@pytest.mark.parametrize(("examples", "tolerance"), [(10, 1e-4), (12, 0.1)])
def test_padding_has_no_part_in_statistics(examples, tolerance):
    """Exact if the examples fill the batch evenly, approximate if some are repeated."""
    short = np.sort(X[:, :examples], 1)  # a trend: its beginning is not representative
    inputs = np.concatenate([short, np.full((N, 20 - examples, 3), 1e6, np.float32)], 1)
    weight = (np.arange(20) < examples) * np.ones((N, 1), np.float32)
    padded = make().fit(inputs, Y, sample_weight=weight, epochs=2, batch_size=None)
    norm, table = padded.params.state["norm"], padded.params.state["table"]
    seen = np.einsum("nei,nij->nej", short, table)
    off = abs(norm["mean"] - 0.75 * seen.mean(1)) / seen.std(1)  # momentum 0.5, two epochs
    assert off.max() < tolerance
    np.testing.assert_allclose(norm["var"], 0.25 + 0.75 * seen.var(1), rtol=4 * tolerance)


def test_a_type_error_inside_build_is_the_callers_own():
    def build(rngs):
        return nnx.Linear(3, "four", rngs=rngs)  # pyright: ignore

    with pytest.raises(TypeError) as raised:
        make(model=build)
    assert not isinstance(raised.value, SwarmError)
    assert any(entry.name == "build" for entry in raised.traceback)
