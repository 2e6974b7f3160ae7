"""Wrong arguments of a swarm: each error names the argument, what was expected and what it got."""

import functools
from typing import Any, cast

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster import swarm
from forecaster.swarm import Shared, Swarm, SwarmError, SwarmWarning
from tests.messages import refuses, warns
from tests.swarm.test_swarm import HELD_BACK, IDS, N, Widened, X, Y, make


def within(predictions, targets, width):
    return abs(predictions - targets) < width


def weighted(predictions, targets, sample_weight):
    return (abs(predictions - targets)[:, 0] * sample_weight).sum()


@functools.wraps(within)
def near(predictions, targets):
    return within(predictions, targets, 0.1)


@functools.wraps(weighted)
def passing_on(*args, **kwargs):
    return weighted(*args, **kwargs)


@pytest.mark.parametrize(
    "metric",
    [jax.jit(near), jax.jit(weighted), passing_on],
    ids=lambda metric: f"{type(metric).__name__} {metric.__name__}",
)
def test_the_arguments_are_those_of_the_function_that_is_called(metric):
    """``functools.wraps`` shows the arguments of another."""
    fitted = make().fit(X, Y, epochs=1, metrics={"a": metric})
    assert np.isfinite(fitted.losses.metrics["a"]).all()


def no_rngs(rngs):
    return nnx.Sequential(
        nnx.Linear(3, 4, rngs=rngs), nnx.Dropout(0.5), nnx.Linear(4, 1, rngs=rngs)
    )


def nan():
    broken = X.copy()
    broken[4, 2, 1] = np.nan
    return broken


def unused():
    weight = np.ones(HELD_BACK[0].shape[:2], np.float32)
    weight[4] = 0
    return weight


def supervised(rows):
    given = X, Y, np.ones(X.shape[:2], np.float32), *HELD_BACK, unused()
    return swarm.Supervised(*(array[rows] for array in given))


ERRORS = {
    "zero members": lambda: make([]),
    "ids repeat": lambda: make(["a", "b", "a"]),
    "ids no strings": lambda: make([1, 2]),
    "no batch": lambda: make().fit(X, Y, batch_size=0),
    "shared data of one network": lambda: swarm.Single(Widened, loss=optax.squared_error).predict(
        Shared(X[0])
    ),
    "members of different shapes": lambda: make().fit(
        [x[: 10 + i % 2] for i, x in enumerate(X)], Y
    ),
    "data and ids": lambda: make().fit(X[:5], Y[:5]),
    "targets and inputs": lambda: make().fit(X, Y[:, :7]),
    "validation and training": lambda: make().fit(X, Y, validation_data=(X[..., :2], Y)),
    "NaN": lambda: make().fit(nan(), Y),
    "a vector for a loss": lambda: make(loss=None, loss_fn=lambda p, b, k: b.inputs.sum(-1)).fit(
        X, Y
    ),
    "a scalar for elementwise": lambda: make(loss=lambda p, y: ((p - y) ** 2).mean()).fit(X, Y),
    "targets spread over predictions": lambda: make(loss=lambda p, y: (p - y) ** 2).fit(
        X, Y[..., 0]
    ),
    "a schedule for a hyperparameter": lambda: make(
        hyperparams={"learning_rate": optax.cosine_decay_schedule(0.1, 9)}
    ),
    "an optimiser that lacks a value": lambda: make(optimizer=lambda rate: optax.sgd(rate)),
    "hyperparams of another length": lambda: make(hyperparams={"learning_rate": [1e-3, 1e-2]}),
    "hyperparams no number": lambda: make(hyperparams={"learning_rate": "fast"}),
    "unknown hyperparams": lambda: make().with_hyperparams(momentum=1.0),
    "patience without validation": lambda: make().fit(X, Y, patience=3),
    "no epochs": lambda: make().fit(X, Y, epochs=0),
    "limits among the hyperparams": lambda: make(
        hyperparams={"learning_rate": 1e-3, "patience": 3}
    ),
    "no chunk": lambda: make(chunk=0).fit(X, Y),
    "no model": lambda: Swarm(cast(Any, 3), IDS, loss=optax.squared_error),
    "unknown member": lambda: make().member("x"),
    "appended twice": lambda: make().append(["m3"]),
    "weights of another shape": lambda: make().with_params({"a": np.zeros(3)}),
    "no validation that counts": lambda: make().fit(X, Y, validation_data=(*HELD_BACK, unused())),
    "no validation that counts, of a stream": lambda: make().fit(
        swarm.Streamed(supervised), epochs=1
    ),
    "metrics without names": lambda: make().fit(X, Y, metrics=cast(Any, [optax.squared_error])),
    "a metric that returns no numbers": lambda: make().fit(
        X, Y, epochs=1, metrics={"a": lambda predictions, targets: "low"}
    ),
    "epochs of each member": lambda: make().fit(X, Y, epochs=cast(Any, [3, 4])),
    "an elementwise loss without targets": lambda: make().fit(X, epochs=1),
    "a metric of the whole batch": lambda: make().fit(
        X, Y, metrics={"a": lambda p, y: jax.numpy.mean(p)}
    ),
    "a metric named like a column": lambda: make().fit(
        X, Y, metrics={"best_loss": optax.squared_error}
    ),
    "an unknown monitor": lambda: make().fit(X, Y, validation_data=HELD_BACK, monitor="accuracy"),
    "a stream of other rows": lambda: make().fit(
        swarm.Streamed(lambda rows: (X[:1], Y[:1])), epochs=1
    ),
    "rows outside": lambda: make().fit(Shared(X, np.arange(N) + 1), Shared(Y, np.arange(N) + 1)),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("what", ERRORS)
def test_bad_input_is_a_named_error(what):
    with refuses(SwarmError):
        ERRORS[what]()


def test_hyperparameters_that_nothing_uses_are_named():
    two, adam = ["a", "b"], optax.adam(0.01)
    with warns(SwarmWarning):
        make(two, optimizer=optax.adam, hyperparams={"lr": 5.0})
    with warns(SwarmWarning):
        Swarm(
            no_rngs,
            two,
            loss=optax.squared_error,
            optimizer=adam,
            hyperparams={"learning_rate": 0.1},
        )


def test_hyperparameters_that_something_may_use_give_no_warning(recwarn):
    two = ["a", "b"]

    def loss_fn(params, batch, key, hyperparams):
        return hyperparams["scale"]

    make(two, hyperparams={"dropout": 0.1, "weight_decay": 0.1, "clip": 1.0})
    make(two, optimizer=optax.adam(0.01), hyperparams={"dropout": 0.1})
    make(two, loss=None, loss_fn=loss_fn, hyperparams={"scale": 2.0})
    make(
        two, optimizer=lambda learning_rate, **rest: optax.sgd(learning_rate), hyperparams={"b": 1}
    )
    assert not [each for each in recwarn if each.category is SwarmWarning]


@pytest.mark.usefixtures("unchecked")
def test_numbers_that_are_not_finite_are_let_through_where_that_is_said():
    broken, made = nan(), make()
    for door in (lambda **given: made.predict(broken, **given),
                 lambda **given: made.evaluate(broken, Y, **given),
                 lambda **given: made.step(broken, Y, **given)[1]):  # fmt: skip
        with refuses(SwarmError):
            door()
        finite = np.isfinite(door(check=False)).reshape(len(X), -1).all(1)
        assert list(np.flatnonzero(~finite)) == [4]
