"""Swarm: training, prediction, selecting and combining members, saving, errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm import Shared, Status, Streamed, Swarm
from forecaster.swarm.training.supervised import bootstrap_sample
from tests.slow import slow

N, EXAMPLES = 9, 32
IDS = [f"m{i}" for i in range(N)]
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, EXAMPLES, 3)).astype(np.float32)
Y = np.sin(X).sum(-1, keepdims=True).astype(np.float32)
HELD_BACK = X[:, :8], Y[:, :8]


class Network(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(3, 8, rngs=rngs)
        self.dropout = swarm.Dropout(rngs=rngs)
        self.out = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(jax.nn.relu(self.inner(x))))


class Widened(Network):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.inner, self.out = nnx.Linear(3, 12, rngs=rngs), nnx.Linear(12, 1, rngs=rngs)


def make(ids=IDS, **options) -> Swarm:
    usual: dict[str, Any] = {"loss": optax.squared_error, "hyperparams": {"learning_rate": 1e-2}}
    usual |= {"seed": 3} | options
    return Swarm(Network, ids, **usual)


@pytest.fixture(scope="module")
def untrained() -> Swarm:
    return make()


@pytest.fixture(scope="module")
def trained(untrained) -> Swarm:
    return untrained.fit(X, Y, validation_data=HELD_BACK, epochs=12, patience=4, batch_size=8)


def same(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def close(a, b, within=1e-6):
    """Check that arrays are the same but for rounding, relative to their largest number."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        size = np.max(np.abs(np.asarray(y, float)), initial=0, where=np.isfinite(y))
        np.testing.assert_allclose(x, y, rtol=0, atol=within * size)


# Training


def test_training_learns_and_says_how_it_went(untrained, trained):
    assert (trained.evaluate(X, Y) < untrained.evaluate(X, Y)).all()
    assert (untrained.epochs == 0).all()  # fit did not change it
    table = trained.summary()
    assert list(table.index) == IDS and (table["epochs"] == trained.epochs).all()
    seen = trained.losses.validation
    assert seen.shape == trained.losses.train.shape == (N, trained.epochs.max())
    np.testing.assert_allclose(trained.evaluate(*HELD_BACK), table["best_loss"], rtol=1e-5)
    assert "9" in repr(trained) and "41 parameters" in repr(trained)


@pytest.mark.slow
@pytest.mark.usefixtures("as_for_users")
def test_without_validation_training_in_pieces_is_training_at_once(untrained):
    pieces = untrained.fit(X, Y, epochs=3).fit(X, Y, epochs=4)
    whole = untrained.fit(X, Y, epochs=7)
    assert same(pieces.params, whole.params) and same(pieces.losses, whole.losses)
    assert (whole.epochs == 7).all() and (whole.status == Status.FINISHED).all()


def test_a_step_is_one_update_on_the_batch():
    sgd = make(optimizer=optax.sgd, hyperparams={"learning_rate": 0.1})
    after, losses = sgd.step(X, Y)
    np.testing.assert_allclose(losses, sgd.evaluate(X, Y), rtol=1e-5)
    module = sgd.member("m4")

    def loss(module):
        return ((module(X[4]) - Y[4]) ** 2).mean()

    grads = nnx.to_pure_dict(nnx.grad(loss)(module))
    expected = jax.tree.map(lambda p, g: p[4] - 0.1 * g, sgd.params, grads)
    close(jax.tree.map(lambda p: p[4], after.params), expected)
    assert (after.epochs == 1).all() and after.losses.train.shape == (N, 1)


def test_a_step_goes_on_from_the_best_weights(trained):
    still = trained.with_hyperparams(learning_rate=0.0)
    assert (still.summary()["best_epoch"] < still.epochs).any()
    after, losses = still.step(X, Y)
    close(after.params, still.params)  # adamw's decay is a share of the rate
    np.testing.assert_allclose(losses, still.evaluate(X, Y), rtol=1e-4)


@pytest.mark.slow
def test_shared_data_are_the_same_data(untrained):
    copied = untrained.fit(np.repeat(X[:1], N, 0), np.repeat(Y[:1], N, 0), epochs=4)
    close(untrained.fit(Shared(X[0]), Shared(Y[0]), epochs=4).params, copied.params)
    rows = np.arange(N) % 3
    copied = untrained.fit(X[rows], Y[rows], validation_data=(X[rows], Y[rows]), epochs=4)
    shared = untrained.fit(
        Shared(X, rows),
        Shared(Y, rows),
        validation_data=(Shared(X, rows), Shared(Y, rows)),
        epochs=4,
    )
    close(shared.params, copied.params)
    np.testing.assert_allclose(shared.predict(Shared(X, rows)), copied.predict(X[rows]), rtol=1e-3)


@pytest.mark.slow
def test_a_bootstrap_is_training_on_the_sample_that_the_key_draws(untrained):
    keys = swarm.member_keys(3, IDS)
    valid = jnp.ones(EXAMPLES, bool)
    drawn = np.stack(
        [bootstrap_sample(jax.random.wrap_key_data(jnp.asarray(key)), valid) for key in keys]
    )
    assert len({tuple(d) for d in drawn}) == N  # different for every member
    assert 0.5 < np.mean([len(set(d)) for d in drawn]) / EXAMPLES < 0.75  # 1 - 1/e
    bagged = untrained.fit(Shared(X[0]), Shared(Y[0]), bootstrap=True, epochs=4)
    close(bagged.params, untrained.fit(X[0][drawn], Y[0][drawn], epochs=4).params)


@pytest.mark.parametrize("memory", [slow(None), 1])
def test_streamed_data_are_the_same_data(memory):
    most = []

    def load(rows):
        most.append(len(rows))
        return X[rows], Y[rows]

    plain = make()
    streamed = make(memory=memory, chunk=2).fit(Streamed(load), epochs=8)
    close(streamed.params, plain.fit(X, Y, epochs=8).params)
    if memory:
        assert max(most) <= 4  # at most two lanes of two


@pytest.mark.parametrize("validation", [None, HELD_BACK], ids=["", "validated"])
def test_members_that_diverge_are_named_and_the_others_do_not_notice(validation):
    inputs = X.copy()
    inputs[2, 5] = np.inf
    rate = np.full(N, 1e-2)
    rate[6] = 1e6
    made = make(optimizer=optax.sgd, hyperparams={"learning_rate": rate})
    after = made.fit(inputs, Y, validation_data=validation, epochs=6, check=False)
    assert set(after.diverged) == {"m2", "m6"}
    assert after.diverged["m2"] == 1 and 1 <= after.diverged["m6"] <= 6
    # A diverged member has exactly the weights of its last finite epoch.
    if (sound := after.diverged["m6"] - 1) > 0 and validation is None:
        assert same(after.select(["m6"]).params, made.fit(X, Y, epochs=sound).select(["m6"]).params)
    assert same(after.select(["m2"]).params, made.select(["m2"]).params)
    others = [name for name in IDS if name not in after.diverged]
    keep = [IDS.index(name) for name in others]
    kept = validation and tuple(part[keep] for part in validation)
    without = made.select(others).fit(X[keep], Y[keep], validation_data=kept, epochs=6)
    close(after.select(others).params, without.params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))
    again = after.fit(X, Y, epochs=2)  # does not train again
    assert again.diverged == after.diverged and (again.drop(["m2", "m6"]).epochs == 8).all()


def test_a_number_of_members_will_do_and_outputs_may_be_trees():
    class Split(nnx.Module):
        def __init__(self, rngs):
            self.mean = nnx.Linear(3, 1, rngs=rngs)
            self.scale = nnx.Linear(3, 1, rngs=rngs)

        def __call__(self, x):
            return {"mean": self.mean(x), "scale": jax.nn.softplus(self.scale(x))}

    def loss(predictions, targets):
        error = (targets["y"] - predictions["mean"]) / (predictions["scale"] + 0.1)
        return error**2 / 2 + jnp.log(predictions["scale"] + 0.1)

    made = Swarm(Split, 3, loss=loss)
    assert made.ids == ("0", "1", "2")
    trained = made.fit(X[:3], {"y": Y[:3]}, epochs=5)
    assert (trained.evaluate(X[:3], {"y": Y[:3]}) < made.evaluate(X[:3], {"y": Y[:3]})).all()
    assert trained.predict(X[:3])["scale"].shape == (3, EXAMPLES, 1)


# Predicting, combining, saving


def test_a_member_by_itself_is_the_member(trained):
    for row in (0, 5):
        alone = trained.member(IDS[row])
        assert isinstance(alone, Network)
        np.testing.assert_allclose(alone(X[row]), trained.predict(X)[row], rtol=1e-5, atol=1e-6)


def test_selected_dropped_and_appended_members_stay_what_they_were(trained):
    some = trained.select(["m7", "m1"])
    np.testing.assert_array_equal(some.predict(X[[7, 1]]), trained.predict(X)[[7, 1]])
    assert trained.drop(["m0", "m8"]).ids == tuple(IDS[1:-1])
    back = trained.drop(["m7", "m1"]).append(some)
    assert same(back.select(IDS).params, trained.params)
    np.testing.assert_array_equal(back.select(IDS).losses.validation, trained.losses.validation)
    grown = trained.append(["new"])
    assert same(grown.select(["new"]).params, make(["new"]).params)  # as if it had been there
    assert grown.epochs[-1] == 0 and np.isnan(grown.losses.train[-1]).all()


def test_merging_is_the_mean_of_the_weights(trained):
    weights = np.arange(N)
    merged = trained.merge("mean", weights)
    expected = jax.tree.map(lambda p: np.average(p, 0, weights), trained.params)
    close(jax.tree.map(lambda p: p[0], merged.params), expected)
    everywhere = trained.with_params(merged)
    assert everywhere.ids == trained.ids
    np.testing.assert_array_equal(
        everywhere.params["out"]["bias"][0], merged.params["out"]["bias"][0]
    )
    assert everywhere.fit(X, Y, epochs=1).epochs.max() == trained.epochs.max() + 1
