"""One member's batch split over devices: the same training, up to rounding.

Sums over examples are added in another order, an error of about 1e-7 per step. Over the forty steps
here it grows to about 1e-6 of weights around 1; the bounds are ten times that.
"""

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm import GRU, LSTM, Shared, Swarm
from forecaster.swarm.devices import programs
from tests.swarm.processes import run_python

RTOL, ATOL = 1e-4, 1e-5
EXAMPLES, HELD_BACK, BATCH = 101, 27, 17  # all odd


class Network(nnx.Module):
    """A recurrence, optional batch statistics, dropout and an output layer."""

    def __init__(self, cell, rngs, *, norm=False):
        self.cell = cell(3, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs) if norm else None
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        hidden = self.cell(x.swapaxes(0, 1), last_only=True)
        return self.out(self.dropout(hidden if self.norm is None else self.norm(hidden)))


def lstm(rngs):
    return Network(LSTM, rngs)


def gru(rngs):
    return Network(GRU, rngs)


def normed(rngs):
    return Network(LSTM, rngs, norm=True)


def perceptron(rngs):
    layers = nnx.Linear(15, 8, rngs=rngs), nnx.tanh, nnx.Linear(8, 1, rngs=rngs)
    return nnx.Sequential(lambda x: x.reshape(len(x), -1), *layers)


def examples():
    x = np.random.default_rng(0).normal(size=(EXAMPLES, 5, 3)).astype(np.float32)
    return x, x.sum((1, 2))[:, None]


def train(build, **options):
    x, y = map(Shared, examples())
    held_back = Shared(x.values[:HELD_BACK]), Shared(y.values[:HELD_BACK])
    fast = 0.1 if build is normed else 0.2  # batch statistics amplify rounding errors
    made = Swarm(
        build, 3, loss=optax.squared_error, chunk=2,
        hyperparams={"learning_rate": [0.01, 0.02, fast]}, **options,
    )  # fmt: skip
    return made.fit(
        x, y, validation_data=held_back, epochs=6, patience=2, batch_size=BATCH,
        metrics={"error": lambda p, y: abs(p - y)},
    )  # fmt: skip


def assert_alike(one, other):
    """Check for the same weights, losses, stopping and best epochs."""
    for a, b in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)
    for a, b in zip(jax.tree.leaves(one.losses), jax.tree.leaves(other.losses), strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)
    for column in ("status", "epochs", "best_epoch"):
        assert (one.summary()[column] == other.summary()[column]).all()


def what_is_sent(fit):
    """Return the collective operations in the programs that a function compiles."""
    texts, first_call = [], programs.first_call

    def seen(jitted, *args):
        texts.append(jitted.lower(*args).compile().as_text())
        return first_call(jitted, *args)

    programs.first_call = seen
    fitted = fit()
    programs.first_call = first_call
    kinds = "all-reduce", "all-gather", "all-to-all", "collective-permute"
    return fitted, {kind for kind in kinds for text in texts if f" {kind}(" in text}


def in_four_devices(code):
    code = f"from tests.swarm.test_data_parallel import *\nassert len(jax.devices()) == 4\n{code}"
    run_python(code, devices=4)


@pytest.mark.slow
def test_a_split_batch_trains_as_a_whole_one_and_only_sums_are_sent():
    """Train on two lanes of two devices; batch, examples and epoch do not divide evenly."""
    in_four_devices(
        "one, sent = what_is_sent(lambda: train(lstm, lanes=2))\n"
        "assert not sent\n"
        "two, sent = what_is_sent(lambda: train(lstm, data_parallel=2))\n"
        "assert_alike(one, two)\n"
        "assert 'stopped_early' in set(one.summary()['status'])\n"
        "assert sent == {'all-reduce'}\n"  # around the compiled recurrence, too
    )


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["", "off"])
@pytest.mark.parametrize("build", ["lstm", "gru", "normed", "perceptron"])
def test_three_and_four_devices_train_as_one(build, kernel, monkeypatch):
    monkeypatch.setenv("FORECASTER_KERNEL", kernel)
    in_four_devices(
        f"one = train({build}, lanes=1)\n"
        f"for devices in (3, 4):\n    assert_alike(one, train({build}, data_parallel=devices))\n"
    )


def test_more_devices_than_there_are_is_an_error():
    said = f"expected at most the number of devices, {swarm.lane_mesh().size}; got 99"
    with pytest.raises(swarm.SwarmError, match=said):
        train(perceptron, data_parallel=99)
