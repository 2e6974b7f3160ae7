"""Blocks of epochs without validation, where members that stopped are put back at the end."""

import jax
import numpy as np
import optax

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
