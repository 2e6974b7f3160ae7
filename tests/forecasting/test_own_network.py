"""A user's own Flax module as the network of each series."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import linen, nnx

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from forecaster.forecasting.networks import functions
from forecaster.series import Transform
from tests.messages import refuses


class Decays(linen.Module):
    """A causal network with dropout: running means at three decays, and a layer on top."""

    hidden: int
    rate: float = 0.1
    causal = True

    @linen.compact
    def __call__(self, inputs, valid, deterministic):
        steps = jnp.arange(inputs.shape[1])
        distance = steps[:, None] - steps
        weights = [jnp.where(distance >= 0, 0.5**speed**distance, 0) for speed in (1, 2, 4)]
        inputs = inputs * valid[..., None]
        means = [jnp.einsum("ts,bsf->btf", weight, inputs) for weight in weights]
        hidden = linen.tanh(linen.Dense(self.hidden)(jnp.concatenate([inputs, *means], -1)))
        return linen.Dropout(self.rate)(hidden, deterministic=deterministic)


class Window(nnx.Module):
    """A network that sees the whole window and returns the head's outputs."""

    def __init__(self, inputs, lookback, outputs, *, rngs, width=6):
        self.first = nnx.Linear(inputs * lookback, width, rngs=rngs)
        self.second = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, inputs, valid):
        hidden = (inputs * valid[..., None]).reshape(inputs.shape[0], -1)
        return self.second(nnx.relu(self.first(hidden)))


class Told(nnx.Module):
    """A network that requires ``train`` and returns it in its outputs."""

    def __init__(self, inputs, *, rngs):
        self.layer = nnx.Linear(inputs, 4, rngs=rngs)

    def __call__(self, inputs, valid, train, deterministic, training, is_training):
        said = 10.0 * train + 1e3 * training + 1e4 * is_training - 100.0 * deterministic
        return self.layer(inputs) + said


class Leaks(linen.Module):
    causal = True

    @linen.compact
    def __call__(self, inputs, valid):
        return linen.Dense(3)(inputs - inputs.mean(1, keepdims=True))


class Short(linen.Module):
    @linen.compact
    def __call__(self, inputs, valid):
        return inputs[:, :3]


class Odd(linen.Module):
    width: int

    def __call__(self, inputs, valid):
        return inputs


class Statistics(linen.Module):
    @linen.compact
    def __call__(self, inputs, valid):
        return linen.BatchNorm(use_running_average=True)(inputs)


class Outputs(linen.Module):
    outputs: int

    @linen.compact
    def __call__(self, inputs, valid):
        return linen.Dense(self.outputs + 1)(inputs)


class Naive(linen.Module):
    def __call__(self, inputs, valid):
        return inputs


@pytest.fixture(scope="module")
def own(panel, config) -> fc.Model:
    return fc.fit(panel, config, seed=1, network=Decays)


def test_an_nnx_module_is_told_whether_it_trains(config):
    made = functions(config, 3, Told)
    params = jax.tree.map(jnp.ones_like, made.init(jax.random.key(0)))
    windows = jnp.zeros((2, config.lookback, 3)), jnp.ones((2, config.lookback))
    used = made.apply(params, *windows, last_only=True)[0]
    trained = made.apply(params, *windows, last_only=True, key=jax.random.key(1))[0]
    np.testing.assert_allclose(trained - used, 4 * 11110.0)


def test_a_model_is_made_of_it(panel, own, config):
    assert own.config == dataclasses.replace(
        config, model=f"{__name__}:Decays", training="sequence"
    )
    assert own.networks.network is Decays
    params = own.params
    seen = Transform("log_return").feature_count(config.horizon)
    assert params["network"]["Dense_0"]["kernel"].shape == (5, 1, 4 * seen, config.hidden)
    assert params["out"]["kernel"].shape == (5, 1, config.hidden, 6)
    trained = np.abs(params["out"]["kernel"]).max((1, 2, 3)) > 0
    assert trained.sum() >= 3  # the others were best untrained
    forecast = fc.predict(own, panel)
    assert list(forecast)[2:5] == ["Decays", "Decays-lo-80", "Decays-hi-80"]
    pd.testing.assert_frame_equal(forecast, fc.predict(own, panel), check_exact=True)


def test_a_class_that_cannot_be_imported_is_given_to_load(panel, own, tmp_path):
    path = f"{__name__}:somewhere.<locals>.Decays"
    config = dataclasses.replace(own.config, model=path)
    networks = dataclasses.replace(own.networks, config=config)
    run = fc.save(dataclasses.replace(own, networks=networks), tmp_path / "run")
    with refuses(ModelError) as caught:
        fc.load(run)
    assert f"Import Decays and call fc.load({str(run)!r}, network=Decays)" in str(caught.value)
    again = fc.load(run, network=Decays)
    assert again.config == own.config
    pd.testing.assert_frame_equal(
        fc.predict(again, panel), fc.predict(own, panel), check_exact=True
    )
    with refuses(ModelError):
        fc.load(run, network=Window)


def test_an_nnx_module_that_gives_the_outputs_itself(config):
    wave = np.sin(np.arange(300) * 2 * np.pi / 9) + 5
    panel = fc.load_panel(pd.DataFrame({"unique_id": "wave", "ds": np.arange(300), "y": wave}))
    config = dataclasses.replace(config, transform="difference", epochs=20, patience=20)
    model = fc.fit(panel, config, seed=0, network=Window)
    assert model.config.training_mode == "windowed" and "out" not in model.params
    assert model.report["mae_relative_to_naive"].iloc[0] < 0.5


@pytest.mark.parametrize(
    "network", [Leaks, Short, Odd, Outputs, Naive, Decays(3), dict, Statistics]
)
def test_what_cannot_be_used_is_named(panel, config, network):
    with refuses(UsageError):
        fc.fit(panel, config, network=network)


@pytest.mark.parametrize("model", ["nowhere.nets:Mine", "json:JSONDecoder"])
def test_a_path_that_leads_to_no_network_is_named(panel, config, model):
    with refuses(UsageError):
        fc.fit(panel, dataclasses.replace(config, model=model))


def test_dropout_acts_in_training_alone(config):
    made = functions(config, 7, Decays)
    params = jax.tree.map(lambda leaf: leaf + 0.1, made.init(jax.random.key(0)))
    windows, valid = jnp.ones((20, 30, 7)), jnp.ones((20, 30))

    def outputs(key):
        return np.asarray(made.apply(params, windows, valid, last_only=True, key=key)[0])

    first, second = (outputs(jax.random.key(seed)) for seed in (1, 2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(outputs(None), outputs(None))
