"""Settings that are data of a fit: a second fit with other ones finds its programs compiled."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import forecaster as fc
from forecaster.forecasting.task import Series, Started, make_task, split_of

CONFIG = fc.Config(hidden=2, lookback=12, burn_in=4, horizon=2, validation=40, members=1)
DATA = {
    "epochs": 3, "patience": 1, "learning_rate": 1e-2, "weight_decay": 1e-2, "shrinkage": 1.0,
    "clip": 0.5, "encoding": "small",
}  # fmt: skip
FEATURES, STEPS = 3, 100


def traced(config: fc.Config, *, started: bool) -> str:
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


@pytest.mark.parametrize("started", [False, True])
def test_settings_that_are_data_change_nothing_that_is_traced(started):
    before = traced(CONFIG, started=started)
    for name, value in DATA.items():
        changed = dataclasses.replace(CONFIG, **{name: value})
        assert getattr(changed, name) != getattr(CONFIG, name)
        assert traced(changed, started=started) == before
    assert traced(dataclasses.replace(CONFIG, hidden=3), started=started) != before
