"""Training loops as people write them: metrics, monitors, callbacks, schedules, two optimisers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Checkpoint, Shared, Status, Swarm, SwarmError
from tests.messages import refuses
from tests.slow import slow
from tests.swarm.test_swarm import HELD_BACK, IDS, N, Network, X, Y, close, make, same


def absolute(predictions, targets):
    return jnp.abs(predictions - targets)


def largest(predictions, targets, sample_weight):
    return jnp.max(jnp.where(sample_weight > 0, jnp.abs(predictions - targets)[:, 0], 0))


METRICS = {"absolute": absolute, "largest": largest}


@pytest.fixture(scope="module")
def untrained() -> Swarm:
    return make()


@pytest.fixture(scope="module")
def measured(untrained) -> Swarm:
    return untrained.fit(X, Y, validation_data=HELD_BACK, epochs=6, metrics=METRICS)


# Metrics


def test_metrics_of_every_epoch_are_those_of_the_weights(untrained, measured):
    for epochs in (1, 6):
        fitted = untrained.fit(X, Y, epochs=epochs)
        error = np.abs(fitted.predict(HELD_BACK[0]) - HELD_BACK[1])
        np.testing.assert_allclose(
            measured.metrics["absolute"][:, epochs - 1], error.mean((1, 2)), rtol=1e-4
        )
        np.testing.assert_allclose(
            measured.metrics["largest"][:, epochs - 1], error.max((1, 2)), rtol=1e-4
        )
    table = measured.summary()
    rows = np.arange(N), table["best_epoch"] - 1
    np.testing.assert_array_equal(table["absolute"], measured.metrics["absolute"][rows])
    plain = untrained.fit(X, Y, validation_data=HELD_BACK, epochs=6)  # measuring changes nothing
    close(plain.params, measured.params)


def test_without_validation_metrics_are_of_the_training_examples(untrained):
    weight = (np.arange(X.shape[1]) < 20) * np.ones((N, 1), np.float32)
    inputs = np.where(weight[..., None] > 0, X, np.nan)
    fitted = untrained.fit(inputs, Y, sample_weight=weight, epochs=3, metrics=METRICS)
    error = np.abs(fitted.predict(X) - Y)[:, :20]
    np.testing.assert_allclose(fitted.metrics["absolute"][:, -1], error.mean((1, 2)), rtol=1e-4)
    np.testing.assert_allclose(fitted.metrics["largest"][:, -1], error.max((1, 2)), rtol=1e-4)
    assert (fitted.epochs == 3).all() and not fitted.diverged
    plain = untrained.fit(inputs, Y, sample_weight=weight, epochs=3)
    close(fitted.params, plain.params)


def test_metrics_stay_with_their_members(measured, tmp_path):
    again = measured.fit(X, Y, epochs=1)  # not measured
    stepped, _ = again.step(X, Y)
    grown = stepped.append(["new"]).select(["new", "m3"])
    values = grown.metrics["absolute"]
    assert np.isnan(values[0]).all() and np.isnan(values[1, 6:]).all() and values.shape == (2, 8)
    np.testing.assert_array_equal(values[1, :6], measured.metrics["absolute"][3])
    measured.save(tmp_path / "s")
    loaded = Swarm.load(tmp_path / "s", Network, loss=optax.squared_error)
    assert same(loaded.losses, measured.losses)


def test_metrics_of_an_interrupted_fit_are_complete(untrained, tmp_path):
    def interrupt(progress):
        if progress.epochs_done:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"epochs": 9, "validation_data": HELD_BACK, "metrics": METRICS}
    with pytest.raises(KeyboardInterrupt):
        checkpoint = Checkpoint(tmp_path / "c")
        untrained.fit(X, Y, checkpoint=checkpoint, on_progress=interrupt, **options)
    checkpoint = Checkpoint(tmp_path / "c", resume=True)
    resumed = untrained.fit(X, Y, checkpoint=checkpoint, **options)
    assert same(resumed.losses, untrained.fit(X, Y, **options).losses)
    with refuses(SwarmError):
        untrained.fit(X, Y, checkpoint=checkpoint, monitor="largest", mode="max", **options)


@pytest.mark.parametrize("mode", ["min", slow("max")])
def test_a_metric_may_decide_which_weights_are_best(untrained, mode):
    def signed(predictions, targets):
        return absolute(predictions, targets) * (1 if mode == "min" else -1)

    fitted = untrained.fit(
        X, Y, validation_data=HELD_BACK, epochs=30, patience=2, batch_size=4,
        metrics={"signed": signed}, monitor="signed", mode=mode,
    )  # fmt: skip
    values = fitted.metrics["signed"] * (1 if mode == "min" else -1)
    table = fitted.summary()
    np.testing.assert_array_equal(np.nanargmin(values, 1) + 1, table["best_epoch"])
    stopped = fitted.status == Status.STOPPED_EARLY
    assert stopped.any() and (fitted.epochs - table["best_epoch"])[stopped].eq(2).all()
    error = np.abs(fitted.predict(HELD_BACK[0]) - HELD_BACK[1]).mean((1, 2))
    np.testing.assert_allclose(error, np.nanmin(values, 1), rtol=1e-4)


# Callbacks, and former names


def test_a_callback_sees_the_losses_and_may_stop(untrained):
    seen = []

    def callback(progress):
        seen.append(progress.losses.metrics["absolute"])
        return progress.epochs_done > 0

    options: dict[str, Any] = {"validation_data": HELD_BACK, "metrics": METRICS}
    stopped = untrained.fit(X, Y, epochs=400, on_progress=callback, **options)
    assert (stopped.status == Status.FINISHED).all() and 0 < stopped.epochs.max() < 400
    np.testing.assert_array_equal(seen[-1], stopped.metrics["absolute"])
    whole = untrained.fit(X, Y, epochs=int(stopped.epochs.max()), **options)
    assert same(stopped.params, whole.params)
    assert (stopped.fit(X, Y, epochs=2).epochs == stopped.epochs + 2).all()


def test_members_that_wait_end_where_they_begin():
    made = make(memory=1, chunk=1)  # a few at a time
    stopped = made.fit(X, Y, epochs=50, on_progress=lambda progress: progress.epochs_done > 0)
    waiting = stopped.epochs == 0
    assert waiting.any() and not waiting.all()
    names = [name for name, waits in zip(IDS, waiting, strict=True) if waits]
    assert same(stopped.select(names).params, made.select(names).params)


# Keys


def test_a_key_draws_what_is_random_and_nothing_else():
    class Dropping(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(3, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.dropout(self.norm(x))

    made = Swarm(Dropping, IDS, loss=optax.squared_error)
    x = Shared(X[0])
    once, twice, other = (made.predict(x, key=key) for key in (0, jax.random.key(0), 1))
    np.testing.assert_array_equal(once, twice)
    assert (once != other).any() and (once[0] != once[1]).any()
    assert ((once == 0) != (made.predict(x) == 0)).mean() == pytest.approx(0.5, abs=0.05)
    kept = once != 0  # by the running statistics, not by those of these examples
    np.testing.assert_allclose(once[kept], 2 * made.predict(x)[kept], rtol=1e-5)
    alone = made.select(["m4"]).predict(x, key=0)
    np.testing.assert_array_equal(alone[0], once[4])
    stepped, _ = made.step(X, X)
    drawn = stepped.predict(x, key=0)
    np.testing.assert_array_equal(drawn[0] == 0, once[0] == 0)
    with refuses(SwarmError):
        made.predict(x, key=jax.random.split(jax.random.key(0), 3))


def test_a_member_is_a_function_to_differentiate(measured):
    function = measured.member_function("m2")
    np.testing.assert_allclose(function(X[2]), measured.predict(X)[2], rtol=1e-5, atol=1e-6)
    slope = jax.jit(jax.vmap(jax.grad(lambda x: function(x)[0])))(X[2])
    step = 1e-2 * np.eye(3, dtype=np.float32)[0]
    expected = (function(X[2] + step) - function(X[2] - step))[:, 0] / 2e-2
    np.testing.assert_allclose(slope[:, 0], expected, rtol=0.1, atol=0.02)
    weights = jax.tree.map(lambda leaf: leaf[2], measured.params)
    by_weights = jax.grad(lambda params: function(X[2], params=params).sum())(weights)
    np.testing.assert_allclose(by_weights["out"]["bias"], [X.shape[1]], rtol=1e-5)


# Optimisers


def test_schedules_of_each_members_own_rate_and_length():
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, 5, 20)

    def optimizer(learning_rate, steps):
        return optax.sgd(lambda step: learning_rate * shape(step * 20 / steps))

    rates, steps = np.geomspace(1e-3, 1e-1, N), np.linspace(10, 40, N)
    made = make(optimizer=optimizer, hyperparams={"learning_rate": rates, "steps": steps})
    fitted = made.fit(X, Y, epochs=8, batch_size=None)
    by_hand = optax.sgd(lambda step: rates[4] * shape(step * 20 / steps[4]))
    alone = make(["m4"], optimizer=by_hand).fit(X[4:5], Y[4:5], epochs=8, batch_size=None)
    close(jax.tree.map(lambda p: p[4], fitted.params), jax.tree.map(lambda p: p[0], alone.params))


def test_a_metric_that_is_undefined_at_first_can_be_watched():
    """Best weights are those of the best epoch that has a value; a numpy bool stops a fit, too."""

    def undefined_at_zero(predictions, targets, sample_weight):
        error = (sample_weight * jnp.square(predictions - targets)[:, 0]).sum()
        return error / jnp.any(predictions != 0)

    line = (lambda key: jnp.zeros((2, 1)), lambda params, x: x @ params)
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    y = x.sum(-1, keepdims=True)
    made = Swarm(line, 2, loss=optax.squared_error, optimizer=optax.sgd,
                 hyperparams={"learning_rate": 0.1})  # fmt: skip
    data = Shared(x), Shared(y)
    fitted = made.fit(*data, validation_data=data, epochs=9, batch_size=None,
                      metrics={"error": undefined_at_zero}, monitor="error")  # fmt: skip
    assert (fitted.summary()["best_epoch"] == 9).all()
    stopped = made.fit(*data, epochs=10_000, batch_size=None,
                       on_progress=lambda now: np.bool_(now.epochs_done > 0))  # fmt: skip
    assert (stopped.summary()["epochs"] < 10_000).all()
