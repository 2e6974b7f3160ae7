"""Small calls on one device give what large ones on all lanes give."""

import jax
import numpy as np
import optax
import pytest

from forecaster.swarm import Swarm
from tests.swarm.test_swarm import close

NAMES = [f"m{i}" for i in range(70)]  # more than one chunk
RANDOM = np.random.default_rng(0)
SMALL, LARGE = (RANDOM.normal(size=(70, n, 30)).astype(np.float32) for n in (3, 400))


def line():
    return (lambda key: jax.random.normal(key, (30, 2))), (lambda params, x: x @ params)


@pytest.fixture(scope="module")
def many() -> Swarm:
    return Swarm(line(), NAMES, loss=optax.squared_error)


def targets(x: np.ndarray) -> np.ndarray:
    return x[..., :2] * 0.5


@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
def test_single_calls_give_the_same_alone_and_in_company(many, x):
    alone, y = many.select(["m66"]), targets(x)
    own = slice(66, 67)
    close(many.predict(x)[66], alone.predict(x[own])[0])
    close(many.evaluate(x, y)[66], alone.evaluate(x[own], y[own])[0])
    for _ in range(3):
        many, losses = many.step(x, y)
        alone, loss = alone.step(x[own], y[own])
        close(losses[66], loss[0])
    close(many.select(["m66"]).params, alone.params)
