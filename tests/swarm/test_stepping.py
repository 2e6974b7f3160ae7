"""Single calls are spread over the devices without changing results."""

import jax
import numpy as np
import optax
import pytest

from forecaster.swarm import Batch, Shared, Swarm, adamw
from forecaster.swarm.devices.lanes import CHUNK, map_members
from forecaster.swarm.estimators.stepping import OnDevices, Spread, spread_of
from tests.swarm.test_swarm import same

NAMES = [f"m{i}" for i in range(70)]  # more than one chunk
RANDOM = np.random.default_rng(0)
SMALL, LARGE = (RANDOM.normal(size=(70, n, 30)).astype(np.float32) for n in (3, 400))


def line():
    return (lambda key: jax.random.normal(key, (30, 2))), (lambda params, x: x @ params)


def layers():
    def init(key):
        first, second = jax.random.split(key)
        hidden = {"w": jax.random.normal(first, (30, 4)), "b": np.zeros(4, np.float32)}
        return {"hidden": hidden, "out": jax.random.normal(second, (4, 2))}

    def apply(params, x):
        return jax.nn.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"]) @ params["out"]

    return init, apply


@pytest.fixture(scope="module", params=[line, layers], ids=["one array", "a vector of three"])
def many(request) -> Swarm:
    return Swarm(request.param(), NAMES, loss=optax.squared_error)


def targets(x: np.ndarray) -> np.ndarray:
    return x[..., :2] * 0.5


@pytest.mark.usefixtures("many")  # which starts JAX
def test_small_calls_stay_on_one_lane_whoever_is_there():
    assert spread_of(None, 60, SMALL) == spread_of(None, 60, SMALL[:1]) == Spread(1, 64)
    assert spread_of(None, 60, Shared(SMALL[0])) == Spread(1, 64)
    assert spread_of(None, 60, Shared(SMALL, np.arange(9) % 3)) == Spread(1, 64)
    assert spread_of(2, 60, LARGE) == Spread(2, CHUNK)
    assert spread_of(None, 4932, np.zeros((16, 8, 8))) == Spread(1, 16)


@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
def test_single_calls_have_the_same_bits_alone_and_in_company(many, x):
    alone, y = many.select(["m66"]), targets(x)
    own = slice(66, 67)
    np.testing.assert_array_equal(many.predict(x)[66], alone.predict(x[own])[0])
    np.testing.assert_array_equal(many.evaluate(x, y)[66], alone.evaluate(x[own], y[own])[0])
    for _ in range(3):
        many, losses = many.step(x, y)
        alone, loss = alone.step(x[own], y[own])
        assert losses[66] == loss[0]
    assert same(many.select(["m66"]).params, alone.params)


def test_batches_of_all_sizes_follow_each_other(many):
    """Check that states follow when each batch size is spread differently."""
    went, expected = many, many
    for x in (SMALL, LARGE, LARGE, SMALL):
        went, losses = went.step(x, targets(x))
        loaded = expected.select(NAMES)  # through the host
        expected, _ = loaded.step(x, targets(x))
        predicted = went.predict(SMALL), went.predict(LARGE)
        assert all(map(same, predicted, (expected.predict(SMALL), expected.predict(LARGE))))
    assert (went.epochs == 4).all()
    np.testing.assert_array_equal(went.losses.train[:, 3], losses)
    assert same(went.losses.train, expected.losses.train) and same(went.params, expected.params)


@pytest.mark.parametrize(
    "weight", [None, np.array([[0, 0, 0], [1, 2, 0], [0.5, 1, 2]])], ids=["all", "two"]
)
def test_weights_in_a_vector_step_as_trees_do(weight):
    """Also of members whose latest weights are not their best, diverge, or have no example."""
    x = RANDOM.normal(size=(3, 3, 30)).astype(np.float32)
    made = {"loss": optax.squared_error, "optimizer": adamw}
    validated = Swarm(layers(), 3, **made, hyperparams={"learning_rate": 0.1, "clip": 0.5})
    validated = validated.fit(x, 5 + targets(x), validation_data=(x, -5 - targets(x)), epochs=3)
    assert not same(validated.state.params, validated.state.best_params)
    swarm = validated.with_hyperparams(learning_rate=[0.01, 1e38, 0.01])
    data = (x, targets(x)) if weight is None else (x, targets(x), weight)
    batch = Batch(x, targets(x), np.ones((3, 3), np.float32) if weight is None else weight)
    expected = swarm.state
    for _ in range(3):
        swarm, losses = swarm.step(*data)
        expected, wanted = map_members(
            swarm._recipe.step, expected, swarm.hyperparams, batch, members=3
        )
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)
        again = swarm.with_params(swarm.params)  # by way of trees on the host
        np.testing.assert_array_equal(swarm.predict(x), again.predict(x))
    assert isinstance(swarm._devices, OnDevices)
    assert swarm._devices._states and swarm._devices._states.vector is not None
    assert jax.tree.structure(swarm.state) == jax.tree.structure(expected)
    assert list(swarm.diverged) == ["1"]
    for one, other in zip(jax.tree.leaves(swarm.state), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_weights_stay_where_they_are(many, monkeypatch):
    many.predict(SMALL)
    monkeypatch.setattr("forecaster.swarm.estimators.stepping._on_devices", None)  # would fail
    many.predict(SMALL)
    many.predict(Shared(SMALL[0]))
    assert isinstance(many._on_devices(), OnDevices)


def test_numbers_of_64_bits_are_those_of_32(many):
    x = SMALL.astype(np.float64)
    np.testing.assert_array_equal(many.predict(x), many.predict(SMALL))
    assert many.predict(x).dtype == np.float32
