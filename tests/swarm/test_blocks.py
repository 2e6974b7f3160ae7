"""Blocks of epochs without validation, where members that stopped are put back at the end."""

import collections
import dataclasses

import jax
import numpy as np
import optax
import pytest

from forecaster.swarm.execution.fitting import fit
from forecaster.swarm.training.loop import Status
from forecaster.swarm.training.supervised import Supervised, supervised

LINE = (lambda key: jax.random.normal(key, (2, 1)), lambda params, x: x @ params)
IDS = ["short", "long", "empty"]


def test_members_stop_at_their_own_epoch_and_without_examples_nothing_changes():
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 8, 2)).astype(np.float32)
    weight = np.ones((3, 8), np.float32)
    weight[2] = 0
    task = supervised(LINE, optax.squared_error, optimizer=optax.adam, validated=False)
    rate = {"learning_rate": 0.1}

    def trained(rows, epochs):
        data = Supervised(x[rows], x[rows].sum(-1, keepdims=True), weight[rows])
        return fit(task, data, [IDS[row] for row in rows], seed=0, epochs=epochs, hyperparams=rate)

    together = trained([0, 1, 2], np.array([3, 9, 9]))
    assert list(together.epochs) == [3, 9, 9] and (together.status == Status.FINISHED).all()
    assert list(np.isfinite(together.losses.train).sum(1)) == [3, 9, 9]
    for row, epochs in enumerate([3, 9, 9]):
        alone = trained([row], epochs)
        np.testing.assert_array_equal(together.params[row], alone.params[0])
        np.testing.assert_array_equal(together.losses.train[row, :epochs], alone.losses.train[0])
    begun = trained([2], 1)
    np.testing.assert_array_equal(together.params[2], begun.params[0])
    assert (together.losses.train[2] == 0).all() and (together.params[1] != begun.params[0]).any()


@pytest.mark.parametrize(
    ("measured", "kept"),
    [
        (collections.OrderedDict(b=np.int32(3), a=np.float16(0.5)), {"a": 0.5, "b": 3}),
        ({"a": np.float32(0.5)}, {"a": 0.5, "b": np.nan}),
        ({}, {"a": np.nan, "b": np.nan}),
    ],
)
def test_metrics_of_a_task_of_ones_own_are_kept_by_name(measured, kept):
    task = supervised(LINE, optax.squared_error, validated=False)
    task = dataclasses.replace(task, measure=lambda *_: measured, metrics=("a", "b"))
    x = np.ones((1, 4, 2), np.float32)
    data = Supervised(x, x[..., :1], np.ones((1, 4), np.float32))
    result = fit(task, data, ["x"], seed=0, epochs=2, hyperparams={"learning_rate": 0.1})
    for name, value in kept.items():
        np.testing.assert_array_equal(result.losses.metrics[name], [[value, value]])
