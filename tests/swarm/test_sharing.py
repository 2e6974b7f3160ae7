"""Which swarms share what was traced: never one whose functions would compute something else."""

import collections
import cProfile
import functools
import os
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import forecaster
from forecaster.swarm import Dropout, Swarm, use_all_cores
from forecaster.swarm.estimators.recipe import recipe_of
from forecaster.swarm.training import content

INPUTS = np.ones((1, 2, 3), np.float32)
CLIP, FACTOR = 1.0, 1.0


@pytest.fixture(autouse=True)
def cores():
    use_all_cores()  # before anything starts JAX


def init(key):
    return {"w": jnp.ones(3)}


def plain(params, x):
    return x @ params["w"]


def times(factor):
    """Return a model that multiplies by what a function without arguments returns."""
    return init, lambda params, x: (x @ params["w"]) * factor()


def clipped():
    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, gradient: (gradient * CLIP,))
    model = init, lambda params, x: jax.grad(lambda w: identity(w).sum())(params["w"]) * x
    return model, lambda: globals().update(CLIP=CLIP + 1)


def function_attribute():
    def apply(params: Any, x: Any):
        return x @ params["w"] * made.scale

    made: Any = apply
    made.scale = 1.0
    return (init, apply), lambda: setattr(made, "scale", 2.0)


def bound_builtin():
    values = {"scale": 1.0}
    get = values.get
    return times(lambda: get("scale")), lambda: values.update(scale=2.0)


def iterator():
    following = iter([1.0, 2.0, 3.0]).__next__
    return times(lambda: following()), lambda: None


def random_init():
    return (lambda key: {"w": np.random.random(3)}, plain), lambda: None  # noqa: NPY002, the case


def environment():
    os.environ["FORECASTER_TEST_SCALE"] = "1"
    change = functools.partial(os.environ.__setitem__, "FORECASTER_TEST_SCALE", "2")
    return times(lambda: float(os.environ["FORECASTER_TEST_SCALE"])), change


def named_global():
    return times(lambda: globals()["FACTOR"]), lambda: globals().update(FACTOR=FACTOR + 1)


def class_body():
    def factor():
        class Read:
            value = eval("FACTOR")

        return Read.value

    return times(factor), lambda: globals().update(FACTOR=FACTOR + 1)


def dict_subclass():
    class Settings(dict):
        scale = 1.0

    made = Settings()
    return times(lambda: made.scale), lambda: setattr(made, "scale", 2.0)


def float_subclass():
    class Number(float):
        scale = 1.0

    made = Number(1.0)
    return times(lambda: made.scale), lambda: setattr(made, "scale", 2.0)


def default_factory():
    made: Any = collections.defaultdict(lambda: 1.0)
    return times(lambda: made.default_factory()), lambda: setattr(
        made, "default_factory", lambda: 2.0
    )


def relative_import():
    made = {"__package__": "flax", "__name__": "flax.own"}
    exec("def apply(params, x):\n    from .struct import dataclass\n    return x", made)
    return (init, made["apply"]), lambda: None


def masked():
    made = np.ma.array(np.ones(3), mask=False)
    return times(lambda: float(made.sum())), lambda: made.__setitem__(0, np.ma.masked)


def objects():
    value, made = [1.0], np.empty(1, object)
    made[0] = value
    return times(lambda: made[0][0]), lambda: value.__setitem__(0, 2.0)


def vectorized():
    value = [1.0]
    made = np.vectorize(lambda x: x * value[0])
    return times(lambda: float(made(1.0))), lambda: value.__setitem__(0, 2.0)


def metaclass():
    value = [1.0]

    class Kind(type):
        @property
        def scale(cls):
            return value[0]

    class Made(metaclass=Kind):
        pass

    return times(lambda: Made.scale), lambda: value.__setitem__(0, 2.0)


def pytree_attribute():
    made: Any = type("Made", (), {"_pytree_scale": 1.0})
    return times(lambda: made._pytree_scale), lambda: setattr(made, "_pytree_scale", 2.0)


def bound_method():
    class Made:
        scale = 1.0

        def factor(self):
            return self.scale

    made = Made()
    return times(made.factor), lambda: setattr(made, "scale", 2.0)


def run_time_callback():
    def apply(params, x):
        return jax.pure_callback(lambda x: x * FACTOR, x[..., 0], x[..., 0])

    return (init, apply), lambda: globals().update(FACTOR=FACTOR + 1)


def ufunc():
    value = [1.0]
    made = np.frompyfunc(lambda x: x * value[0], 1, 1)
    return times(lambda: float(made(1.0))), lambda: value.__setitem__(0, 2.0)


@pytest.mark.parametrize(
    "case",
    [
        clipped, function_attribute, bound_builtin, iterator, random_init, environment,
        named_global, class_body, dict_subclass, float_subclass, default_factory,
        relative_import, masked, objects, vectorized, metaclass, pytree_attribute, bound_method,
        run_time_callback, ufunc,
    ],
)  # fmt: skip
def test_a_swarm_whose_functions_read_what_cannot_be_told_shares_nothing(case):
    model, change = case()
    first = recipe(model)
    change()
    assert recipe(model) is not first


def recipe(model, loss=optax.squared_error, optimizer=optax.adam):
    return recipe_of(model, loss, None, optimizer, 1, None)


@pytest.mark.parametrize(
    "values",  # made in the test: JAX must not start before
    [
        lambda: (jnp.asarray(2.0), jnp.array(2.0, jnp.float32)),  # weakly typed, and not
        lambda: (jax.random.key(1, impl="rbg"), jax.random.key(1, impl="unsafe_rbg")),
        lambda: (np.matrix(np.ones((2, 2))), np.ones((2, 2))),
        lambda: (np.ones(2), np.ones(2)),  # one of them may change
        lambda: ({"a": 1}, {"a": 1}),
        lambda: (1, True),
        lambda: (0.0, -0.0),
    ],
)
def test_values_that_compute_something_else_are_not_shared(values):
    def apply(params, x, value):
        return x

    one, other = (recipe((init, functools.partial(apply, value=value))) for value in values())
    assert one is not other


def test_a_gradient_rule_that_reads_a_changed_global_is_traced_again():
    model, change = clipped()
    before = Swarm(model, 1, loss=optax.squared_error).predict(INPUTS)
    change()
    after = Swarm(model, 1, loss=optax.squared_error).predict(INPUTS)
    assert after[0, 0, 0] == before[0, 0, 0] + 1


def test_a_value_that_differs_while_functions_are_traced_ends_the_sharing():
    scale = np.ones(1, np.float32)
    model = init, lambda params, x: x @ params["w"] * scale[0]
    first, second = (Swarm(model, 1, loss=optax.squared_error) for _ in range(2))
    assert first._recipe is second._recipe
    scale[:] = 2
    assert first.predict(INPUTS)[0, 0] == 6
    scale[:] = 1
    third = Swarm(model, 1, loss=optax.squared_error)
    assert second.predict(INPUTS)[0, 0] == third.predict(INPUTS)[0, 0] == 3


def test_metrics_are_measured_as_they_are_now():
    scale = [1.0]

    def metric(predictions, targets):
        return scale[0] + 0 * predictions

    def measured():
        made = Swarm((init, plain), 1, loss=optax.squared_error)
        fitted = made.fit(INPUTS, INPUTS[..., 0], epochs=1, metrics={"scale": metric})
        return fitted.losses.metrics["scale"][0, 0]

    first = measured()
    scale[0] = 2.0
    assert (first, measured()) == (1, 2)


def test_a_folder_whose_name_begins_as_a_library_is_none():
    library = Path(forecaster.__file__).parent
    assert content._is_installed(str(library / "swarm" / "task.py"))
    assert not content._is_installed(f"{library}_mine/task.py")
    assert not content._is_installed(f"{library}_mine.py")
    assert not content._is_installed("<stdin>")


def test_a_script_that_a_module_runs_is_no_library(monkeypatch):
    class Settings:
        scale = 1.0

    Settings.__module__ = "__main__"
    run_by = types.ModuleType("__main__")  # as by python -m cProfile script.py
    run_by.__file__ = cProfile.__file__
    monkeypatch.setitem(sys.modules, "__main__", run_by)
    model = times(lambda: Settings.scale)
    first = recipe(model)
    Settings.scale = 2.0
    assert recipe(model) is not first


class Network(nnx.Module):
    def __init__(self, rngs, hidden=4):
        self.inner = nnx.Linear(3, hidden, rngs=rngs)
        self.dropout = Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(hidden, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(jax.nn.gelu(self.inner(x))))


class Twice(Network):
    def __call__(self, x):
        return 2 * super().__call__(x)


def build(rngs):
    return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 1, rngs=rngs))


def pinball(predictions, targets):
    return jnp.maximum(0.9 * (targets - predictions), 0.1 * (predictions - targets))


def drawn(key):
    return {"w": jax.random.normal(key, (3,)) * np.float32(2)}


def chained(learning_rate):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))


@pytest.mark.parametrize(
    "made",
    [
        lambda: (Network,),
        lambda: (Twice, pinball),
        lambda: (build, optax.huber_loss, chained),
        lambda: (lambda rngs: Network(rngs, 5), functools.partial(optax.huber_loss, delta=2.0)),
        lambda: (functools.partial(Network, hidden=6), pinball, optax.sgd),
        lambda: ((drawn, plain), pinball, functools.partial(optax.sgd, momentum=0.9)),
    ],
)
def test_ordinary_models_losses_and_optimisers_are_shared(made):
    assert recipe(*made()) is recipe(*made())
