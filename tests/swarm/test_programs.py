"""What is compiled, and what is not compiled again."""

import re

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Swarm
from forecaster.swarm.programs import Program
from tests.swarm.test_swarm import HELD_BACK, N, X, Y, make, same


@pytest.fixture
def compilations():
    """A list that grows by one with every program that XLA compiles."""
    compiled = []

    def listen(event, *_, **__):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield compiled
    jax.monitoring.unregister_event_duration_listener(listen)


def test_hyperparameters_are_data_and_compile_nothing(compilations):
    made = make(
        hyperparams={"learning_rate": 1e-2, "dropout": 0.1, "weight_decay": 0.0, "clip": 1.0}
    )
    first = made.fit(X, Y, validation_data=HELD_BACK, epochs=3, patience=3)
    before = len(compilations)
    assert before
    second = made.with_hyperparams(
        learning_rate=np.geomspace(1e-4, 1e-1, N), dropout=np.linspace(0, 0.5, N),
        weight_decay=np.linspace(0, 0.1, N), clip=np.linspace(0.1, 1, N),
    ).fit(X, Y, validation_data=HELD_BACK, epochs=5, patience=np.arange(N) + 1)  # fmt: skip
    assert len(compilations) == before
    assert not same(first.params, second.params)


def test_equal_functions_are_compiled_once_whatever_the_number_of_members(compilations):

    def work(members, seed):
        def network(rngs):  # another object each time
            return nnx.Sequential(
                nnx.Linear(3, 5, rngs=rngs), nnx.relu, nnx.Linear(5, 1, rngs=rngs)
            )

        random = np.random.default_rng(seed)
        x = random.normal(size=(members, 20, 3)).astype(np.float32)
        y = x.sum(-1, keepdims=True)
        made = Swarm(
            network, [f"{seed}/{i}" for i in range(members)], loss=optax.squared_error, seed=seed,
            hyperparams={"learning_rate": random.uniform(1e-3, 1e-2)},
        )  # fmt: skip
        fitted = made.fit(x, y, epochs=3, batch_size=8)
        fitted.predict(x)
        fitted.step(x, y)

    work(3, 1)
    before = len(compilations)
    assert before
    work(40, 2)
    assert len(compilations) == before


def test_programs_have_names_that_a_profile_shows(monkeypatch):
    names = []
    lower = Program.lower

    def seen(self, *args):
        lowered = lower(self, *args)
        names.append(re.findall(r"module @(\w+)", lowered.as_text())[0])
        return lowered

    monkeypatch.setattr(Program, "lower", seen)
    made = make(["a", "b"], optimizer=optax.sgd)
    fitted = made.fit(X[:2], Y[:2], validation_data=(X[:2], Y[:2]), epochs=1)
    fitted.predict(X[:2])
    fitted.step(X[:2], Y[:2])
    fitted.evaluate(X[:2], Y[:2])
    wanted = {"initialise", "resume", "train", "predict", "step", "evaluate"}
    assert {f"jit_swarm_{name}" for name in wanted} == set(names)
