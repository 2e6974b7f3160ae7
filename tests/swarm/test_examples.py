"""The examples that callers give, their form in training, and cross-validation."""

import numpy as np
import optax
import pytest

from forecaster.swarm import Shared, Streamed, Swarm, kfold_weights, stack
from forecaster.swarm.training.examples import training_data

IDS = ("A", "B")
X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
Y = X[..., 0]


def test_members_of_unequal_length_are_padded_with_weight_zero():
    stacked, weight = stack([X[0], X[1, :2]])
    np.testing.assert_array_equal(stacked[0], X[0])
    np.testing.assert_array_equal(stacked[1], [*X[1, :2], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weight, [[1, 1, 1, 1], [1, 1, 0, 0]])


@pytest.mark.parametrize("given", [1, 2, 3])
def test_streams_may_leave_out_targets_and_weight(given):
    weight = np.full((2, 4), 0.5, np.float32)
    keys = np.arange(4, dtype=np.uint32).reshape(2, 2)

    def load(rows):
        return (X[rows], Y[rows], weight[rows])[:given] if given > 1 else X[rows]

    data = training_data(IDS, Streamed(load), None, None, None, keys)
    assert isinstance(data, Streamed)
    loaded = data.load(np.array([1]))
    np.testing.assert_array_equal(loaded.inputs, X[1:])
    assert (loaded.targets is None) == (given == 1)
    np.testing.assert_array_equal(loaded.weight, np.full((1, 4), 0.5 if given == 3 else 1.0))
    np.testing.assert_array_equal(loaded.bootstrap, keys[1:])


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
