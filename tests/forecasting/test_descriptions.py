"""Descriptions under which the programs of a fit are kept on disk: everything that is traced."""

import dataclasses
import os
import re
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import forecaster as fc
from forecaster.forecasting.fitting import pooled
from forecaster.forecasting.predicting import predicting
from forecaster.forecasting.task import (
    _DATA,
    Series,
    Started,
    description_of,
    make_task,
    split_of,
)
from forecaster.swarm.devices import stored

CONFIG = fc.Config(hidden=2, lookback=12, burn_in=4, horizon=2, validation=40, members=1)
OTHER = {
    "model": "gru", "head": "point", "hidden": 3, "layers": 2, "horizon": 3, "lookback": 13,
    "burn_in": 3, "validation": 30, "training": "windowed", "transform": "log_return",
    "season": 5, "market": "SPY", "premium": 0.5, "common_volatility": False,
    "start": "independent", "members": 2, "shrinkage": 1.0, "epochs": 3, "patience": 1,
    "batch_size": 4, "learning_rate": 1e-2, "weight_decay": 1e-2, "clip": 0.5,
    "precision": "bfloat16", "data_parallel": 2, "encoding": "small",
}  # fmt: skip
FEATURES, STEPS = 3, 100


def said(config: fc.Config) -> str | None:
    return description_of("series", config, None, FEATURES)()


def test_every_setting_has_another_value_here():
    assert OTHER.keys() == {field.name for field in dataclasses.fields(fc.Config)}


@pytest.mark.parametrize("name", OTHER)
def test_settings_are_told_apart_unless_they_are_data(name):
    changed = dataclasses.replace(CONFIG, **{name: OTHER[name]})
    assert getattr(changed, name) != getattr(CONFIG, name)
    assert (said(changed) == said(CONFIG)) == (name in _DATA)


@pytest.mark.parametrize("name", _DATA)
@pytest.mark.parametrize("started", [False, True])
def test_settings_that_are_data_change_nothing_that_is_traced(name, started):
    def traced(config: fc.Config) -> str:
        task = make_task(config, split_of(config, STEPS), FEATURES, started=started)
        params = jax.eval_shape(task.init, jax.random.key(0))
        hyperparams = dict.fromkeys(config.hyperparams("pooled"), 0.1)
        known = np.zeros((STEPS, config.horizon), np.float32)
        features = np.zeros((STEPS, FEATURES), np.float32)
        data: Any = Series(features, known, np.array(0), np.array(60), np.array(False))
        data = Started(data, jax.tree.map(jnp.zeros_like, params)) if started else data

        def step(params, key, data, hyperparams):
            index, _ = task.batches(data, key)
            batch = task.take(data, jax.tree.map(lambda leaf: leaf[0], index))
            slopes = jax.grad(task.loss)(params, batch, key, hyperparams)
            optimizer = task.optimizer(hyperparams)
            moved = optimizer.update(slopes, optimizer.init(params), params)
            assert task.validate is not None
            return moved, task.validate(params, data, hyperparams)

        key = jax.random.key(0)
        made = jax.make_jaxpr(task.init)(key), jax.make_jaxpr(step)(params, key, data, hyperparams)
        return re.sub("0x[0-9a-f]+", "", str(made))  # functions in it have addresses

    assert traced(CONFIG) == traced(dataclasses.replace(CONFIG, **{name: OTHER[name]}))


def test_splits_features_stages_and_batches_are_told_apart():
    split = split_of(CONFIG, STEPS)
    made = [
        make_task(CONFIG, split, FEATURES),
        make_task(CONFIG, split, FEATURES, started=True),
        make_task(CONFIG, split, FEATURES + 1),
        make_task(CONFIG, split_of(CONFIG, STEPS + 1), FEATURES),
        pooled._pooled_task(CONFIG, split, FEATURES, None, 8, 5),
        pooled._pooled_task(CONFIG, split, FEATURES, None, 8, 6),
    ]
    texts = [task.description() for task in made if task.description is not None]
    forecast = stored.description_of(predicting._forecast_function(CONFIG, FEATURES, None))
    assert forecast is not None
    assert len({*texts, forecast()}) == len(made) + 1


class Own(nnx.Module):
    def __init__(self, inputs, rngs):
        self.out = nnx.Linear(inputs, 2, rngs=rngs)

    def __call__(self, inputs, valid):
        return self.out(inputs)


def test_a_users_own_network_is_not_described():
    assert description_of("series", CONFIG, Own, FEATURES)() is None


@pytest.mark.slow
def test_a_fit_that_finds_its_programs_loads_no_flax(tmp_path):
    """Flax takes a third of a second, which only tracing needs."""
    script = """
import sys, hashlib
import forecaster as fc
panel = fc.load_panel("simulated", ["AAPL", "KO"], start="2023-01-01")
config = fc.Config(hidden=2, lookback=12, burn_in=4, horizon=2, validation=40, epochs=2)
frame = fc.predict(fc.fit(panel, config, seed=1), panel)
print("flax" in sys.modules, hashlib.sha256(frame.to_csv().encode()).hexdigest())
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    found = [
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True,
            env=environment | {"FORECASTER_CACHE": str(tmp_path)},
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert [loaded for loaded, _ in found] == ["True", "False"]
    assert found[0][1] == found[1][1]
