"""Which programs are compiled and reused, and on which devices."""

import os

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from forecaster.swarm import Swarm
from forecaster.swarm.devices.lanes import lane_mesh
from tests.swarm.processes import run_python
from tests.swarm.test_swarm import HELD_BACK, N, X, Y, make, same


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


@pytest.fixture
def traces():
    """Return a list that grows by one with every function that JAX traces."""
    traced = []

    def listen(event, *_, **__):
        if "trace" in event:
            traced.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield traced
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_that_the_caller_has_set_changes_nothing(kind):
    mesh = jax.make_mesh((lane_mesh().size,), ("theirs",), axis_types=(kind,))

    def model(key):
        return jax.random.normal(key, (3, 1))

    def predicted():
        made = Swarm((model, lambda w, x: x @ w), 5, loss=lambda p, t: (p - t) ** 2)
        made = made.fit(x, y, epochs=2, batch_size=None)
        made, losses = made.step(x, y)
        return losses, made.predict(x), made.evaluate(x, y), np.asarray(made.bind()(x))

    x = np.random.default_rng(3).normal(size=(5, 7, 3)).astype(np.float32)
    y = x.sum(-1, keepdims=True)
    with jax.set_mesh(mesh):
        within = predicted()
    for inside, outside in zip(within, predicted(), strict=True):
        np.testing.assert_array_equal(inside, outside)


@pytest.mark.slow
def test_cores_that_stay_idle_are_said_once_at_the_callers_line(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import jax, optax\n"
        "jax.devices()\n"
        "from forecaster.swarm import Swarm\n"
        "line = (lambda key: jax.numpy.zeros(3)), (lambda params, x: x @ params)\n"
        "Swarm(line, ['a', 'b'], loss=optax.squared_error)\n"
    )
    said = run_python(
        f"import runpy, sys; sys.stderr = sys.stdout; runpy.run_path({str(script)!r})"
    )
    if (os.cpu_count() or 1) > 1:
        assert said.count("SwarmWarning") == 1
        assert f"{script}:5: SwarmWarning: JAX was already running" in said
