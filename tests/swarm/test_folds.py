"""Cross-validation in one swarm."""

import numpy as np
import optax
import pytest

from forecaster.swarm import Shared, Swarm, SwarmError, kfold_weights
from tests.messages import refuses


def test_each_example_is_held_out_once():
    train, held_out = kfold_weights(11, 3, seed=0)
    assert (held_out.sum(0) == 1).all() and (train + held_out == 1).all()
    assert sorted(held_out.sum(1)) == [3, 4, 4]
    assert (held_out == kfold_weights(11, 3, seed=0).held_out).all()
    assert (held_out != kfold_weights(11, 3, seed=1).held_out).any()
    assert (held_out[0, :4] != held_out[0, 0]).any()  # shuffled


def test_folds_and_settings_are_members_of_one_swarm():
    """For least squares the error of left-out examples has a closed form."""
    random = np.random.default_rng(0)
    x = random.normal(size=(12, 2)).astype(np.float32)
    y = x @ np.array([[1], [-2]], np.float32) + random.normal(0, 0.1, (12, 1)).astype(np.float32)
    train, held_out = kfold_weights(12, 4, seed=0)
    rates = np.repeat([0.2, 1e-6], 4)
    line = (lambda key: np.zeros((2, 1), np.float32), lambda params, x: x @ params)
    sweep = Swarm(
        line, [f"{rate} {fold}" for rate in (0.2, 1e-6) for fold in range(4)],
        loss=optax.squared_error, optimizer=optax.sgd, hyperparams={"learning_rate": rates},
    )  # fmt: skip
    weight = np.tile(train, (2, 1))
    sweep = sweep.fit(Shared(x), Shared(y), sample_weight=weight, epochs=200, batch_size=None)
    error = sweep.evaluate(Shared(x), Shared(y), np.tile(held_out, (2, 1))).reshape(2, 4)
    for fold in range(4):
        kept, left = train[fold] > 0, held_out[fold] > 0
        solved = np.linalg.lstsq(x[kept], y[kept], rcond=None)[0]
        expected = ((x[left] @ solved - y[left]) ** 2).mean()
        np.testing.assert_allclose(error[0, fold], expected, rtol=1e-3)
    assert (error[1] > 10 * error[0]).all()


@pytest.mark.parametrize("folds", [0, 1, 13])
def test_folds_that_cannot_be_are_refused(folds):
    with refuses(SwarmError):
        kfold_weights(12, folds, seed=0)
