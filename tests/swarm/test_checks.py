"""Wrong arguments of a swarm: each error names the argument, what was expected and what it got."""

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

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


normed = functools.partial(nnx.BatchNorm, 3)


class Keyed(nnx.Module):
    """Holds a key, which would never change."""

    def __init__(self, rngs):
        self.key = nnx.Variable(rngs.params())


def nan():
    broken = X.copy()
    broken[4, 2, 1] = np.nan
    return broken


def unused():
    weight = np.ones(HELD_BACK[0].shape[:2], np.float32)
    weight[4] = 0
    return weight


def weight(bad):
    weight = np.ones(X.shape[:2], np.float32)
    weight[4, 2] = bad
    return weight


def supervised(rows):
    given = X, Y, np.ones(X.shape[:2], np.float32), *HELD_BACK, unused()
    return swarm.Supervised(*(array[rows] for array in given))


def pure(weight=1.0, **options):
    """Return a swarm of pure functions, with a counter beside its weights."""

    def init(key):
        return {"w": weight * jnp.ones((3, 1)), "count": jnp.asarray(weight)}

    options = options or {"loss": optax.squared_error}
    return Swarm((init, lambda params, x: x @ params["w"]), N, **options)


def schedule(learning_rate, steps):
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def wide():
    made = make()
    return made.with_state(made.state._replace(params=jax.tree.map(np.float64, made.params)))


def update(count):
    made = make()
    state, rates = jax.tree.map(lambda leaf: leaf[0], (made.state, made.hyperparams))
    made.pure.update(state, swarm.Batch(X[0, :8], Y[0, :count], np.ones(8)), rates)


def equinox():
    eqx = pytest.importorskip("equinox")
    swarm.equinox_functions(eqx.nn.MLP(3, 1, 8, 1, key=jax.random.key(0)))


MADE_WITH = "loss", "loss_fn", "chunk", "data_parallel"


def fit(*args, **options):
    """Return a call that makes a swarm and trains it for an epoch."""
    args, epochs = args or (X, Y), {"epochs": 1}
    made = {name: options.pop(name) for name in MADE_WITH if name in options}
    return lambda: make(**made).fit(*args, **epochs | options)


def made(**options):
    return lambda: make(**options)


VALIDATED, BF16 = {"validation_data": HELD_BACK}, jnp.bfloat16
LOST = {"in 16 bits": np.where(X > 1, np.nan, X).astype(BF16), "too large": X.astype(float) * 1e300,
        "of 64 bits": np.full(X.shape, 2**40 + 7)}  # fmt: skip
ERRORS = {
    "zero members": made(ids=[]),
    "members by a number": made(ids=0),
    "members by a string": made(ids="abc"),
    "ids repeat": made(ids=["a", "b", "a"]),
    "ids no strings": made(ids=[1, 2]),
    **{f"seed {seed!r}": made(seed=seed) for seed in (2**32, -(2**31) - 1, 1.5, "1", True)},
    "no batch": fit(batch_size=0),
    "shared data of one network": lambda: swarm.Single(Widened, loss=optax.squared_error).predict(
        Shared(X[0])
    ),
    "members of different shapes": fit([x[: 10 + i % 2] for i, x in enumerate(X)], Y),
    "data and ids": fit(X[:5], Y[:5]),
    "targets and inputs": fit(X, Y[:, :7]),
    "validation and training": fit(validation_data=(X[..., :2], Y)),
    "NaN": fit(nan(), Y),
    "members of unlike examples": lambda: swarm.stack([X[0], X[1, :, :2]]),
    **{f"a weight of {bad}": fit(sample_weight=weight(bad)) for bad in (np.nan, -1.0, np.inf)},
    "a weight below zero, unchecked": fit(sample_weight=weight(-1.0), check=False),
    "a shared weight below zero": fit(sample_weight=Shared(weight(-1.0)[4])),
    "a streamed weight below zero": fit(
        swarm.Streamed(lambda rows: (X[rows], Y[rows], weight(-1.0)[rows]))
    ),
    **{f"numbers {name}": lambda x=x: make().predict(x) for name, x in LOST.items()},
    "a vector for a loss": fit(loss=None, loss_fn=lambda p, b, k: b.inputs.sum(-1)),
    "a constant for a loss": lambda: pure(loss_fn=lambda p, b, k: 1).step(X, Y),
    "a scalar for elementwise": fit(loss=lambda p, y: ((p - y) ** 2).mean()),
    "targets spread over predictions": fit(X, Y[..., 0], loss=lambda p, y: (p - y) ** 2),
    "weights of whole numbers": lambda: pure(1).step(X, Y),
    "weights of whole numbers, fitted": lambda: pure(1).fit(X, Y, epochs=1),
    "a schedule for a hyperparameter": made(
        hyperparams={"learning_rate": optax.cosine_decay_schedule(0.1, 9)}
    ),
    "a schedule that branches": made(
        optimizer=schedule, hyperparams={"learning_rate": 0.1, "steps": 9}
    ),
    "an optimiser that lacks a value": made(optimizer=lambda rate: optax.sgd(rate)),
    "hyperparams of another length": made(hyperparams={"learning_rate": [1e-3, 1e-2]}),
    "hyperparams no number": made(hyperparams={"learning_rate": "fast"}),
    **{f"hyperparams {value}": made(hyperparams={"hidden": value})
       for value in (2**40 + 5, 3_000_000_000, 1e300)},
    "unknown hyperparams": lambda: make().with_hyperparams(momentum=1.0),
    "patience without validation": fit(patience=3),
    "no epochs": fit(epochs=0),
    "limits among the hyperparams": made(hyperparams={"learning_rate": 1e-3, "patience": 3}),
    "no chunk": fit(chunk=0),
    "no model": lambda: Swarm(cast(Any, 3), IDS, loss=optax.squared_error),
    "a module that is made": lambda: Swarm(
        cast(Any, nnx.Linear(3, 1, rngs=nnx.Rngs(0))), 2, loss=optax.squared_error
    ),
    "a Linen module": lambda: Swarm(cast(Any, linen.Dense(1)), 2, loss=optax.squared_error),
    "an Equinox module": equinox,
    "a module with a key": lambda: Swarm(Keyed, 2, loss=optax.squared_error),
    "state without a function that trains": lambda: Swarm(
        swarm.module_functions(normed)._replace(train=None), N, loss=optax.squared_error
    ).step(X, Y),
    "no devices": fit(data_parallel=0),
    "lanes of more devices than there are": lambda: swarm.lane_mesh(
        2, data_parallel=swarm.lane_mesh().size
    ),
    "unknown member": lambda: make().member("x"),
    "appended twice": lambda: make().append(["m3"]),
    "select a string": lambda: make().select("m1"),
    "select by a string": lambda: make().select(["m1", "m0"], ids="ab"),
    "select twice": lambda: make().select(["m1", "m2", "m1"]),
    "select with too few names": lambda: make().select(["m1", "m2"], ["a"]),
    "select under one name": lambda: make().select(["m1", "m2"], ["a", "a"]),
    "select nobody": lambda: make().select(["m1", "nobody"], ["a", "b"]),
    "select none": lambda: make().select([]),
    "drop a string": lambda: make().drop("m1"),
    "append a string": lambda: make().append("new"),
    "weights of another shape": lambda: make().with_params({"a": np.zeros(3)}),
    "a state of other members": lambda: make().with_state(make(["a"]).state),
    "a state of another optimiser": lambda: make().with_state(make(optimizer=optax.sgd).state),
    "a state in 64 bits": wide,
    "no validation that counts": fit(validation_data=(*HELD_BACK, unused())),
    "no validation that counts, of a stream": fit(swarm.Streamed(supervised)),
    "metrics without names": fit(metrics=cast(Any, [optax.squared_error])),
    "a metric that returns no numbers": fit(metrics={"a": lambda predictions, targets: "low"}),
    "epochs of each member": fit(epochs=cast(Any, [3, 4])),
    "an elementwise loss without targets": fit(X),
    "a metric of the whole batch": fit(metrics={"a": lambda p, y: jnp.mean(p)}),
    "a metric named like a column": fit(metrics={"best_loss": optax.squared_error}),
    "an unknown monitor": fit(**VALIDATED, monitor="accuracy"),
    "a stream of other rows": fit(swarm.Streamed(lambda rows: (X[:1], Y[:1]))),
    "rows outside": fit(Shared(X, np.arange(N) + 1), Shared(Y, np.arange(N) + 1)),
    "targets of another number": lambda: update(4),
    "one target": lambda: update(1),  # it would be spread over all inputs
    **{f"{folds} folds": lambda folds=folds: swarm.kfold_weights(12, folds, seed=0)
       for folds in (0, 1, 13)},
}  # fmt: skip


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
