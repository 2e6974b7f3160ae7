"""What TurbaNet's tests and examples do, done here; the lines that each takes are in the docs.

Written from what they do, not from their code: https://github.com/EthanSchmitt7/TurbaNet, 0.4.1.
"""

import inspect
import itertools
import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax import linen

from forecaster.swarm import Shared, Swarm, linen_functions

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gallery" / "turbanet.md"
RANDOM = np.random.default_rng(0)


class Brain(linen.Module):
    layers: int = 1
    outputs: int = 1

    @linen.compact
    def __call__(self, x):
        for _ in range(self.layers):
            x = linen.relu(linen.Dense(8)(x))
        return linen.Dense(self.outputs)(x)


def ids_of(count: int, name: str = "network") -> list[str]:
    return [f"{name} {i}" for i in range(count)]


def regression(epochs: int = 10_000):
    """Ten networks learn ten random labels by heart: losses before and after."""
    x = RANDOM.random((10, 9)).astype(np.float32)
    y = (RANDOM.random((10, 1)) > 0.5).astype(np.float32)
    functions = linen_functions(Brain(), x)
    swarm = Swarm(functions, ids_of(10), loss=optax.l2_loss, optimizer=optax.adam)
    data = Shared(x), Shared(y)
    trained = swarm.fit(*data, epochs=epochs, batch_size=None)
    return swarm.evaluate(*data), trained.evaluate(*data)


def classification(epochs: int = 1000):
    """A hundred networks learn a random class for each of 64 bit patterns."""
    x = np.array(list(itertools.product([0, 1], repeat=6)), np.float32)
    y = np.eye(2, dtype=np.float32)[RANDOM.integers(2, size=64)]
    functions = linen_functions(Brain(layers=2, outputs=2), x)
    loss = optax.softmax_cross_entropy
    swarm = Swarm(functions, ids_of(100), loss=loss, optimizer=optax.adam)
    trained = swarm.fit(Shared(x), Shared(y), epochs=epochs, batch_size=None)
    return swarm.evaluate(Shared(x), Shared(y)), trained.evaluate(Shared(x), Shared(y))


def put_together():
    """Two swarms appended, merged with their optimisers' states, taken apart."""
    functions = linen_functions(Brain(), np.zeros((1, 3), np.float32))
    options = {"loss": optax.squared_error, "optimizer": optax.adam}
    first = Swarm(functions, ids_of(10, "first"), **options)
    second = Swarm(functions, ids_of(10, "second"), **options)
    both = first.append(second)
    merged, one = both.merge(opt_state=True), both.select(["first 0"])
    return first, second, both, merged, one, both.drop(["first 0"])


def generation(swarm: Swarm, fitness: np.ndarray, random: np.random.Generator) -> Swarm:
    """Parents by tournament, children by crossover of two parents' weights and rare mutations."""
    drawn = random.integers(len(swarm), size=(2 * len(swarm), 5))
    winners = drawn[np.arange(len(drawn)), fitness[drawn].argmax(1)]
    mothers, fathers = (
        swarm.select([swarm.ids[row] for row in rows], ids=swarm.ids)
        for rows in np.split(winners, 2)
    )

    def cross(mother, father):
        child = np.where(random.random(mother.shape) < 0.5, mother, father)
        mutated = random.random(mother.shape) < 0.02
        return child + mutated * random.normal(0, 0.5, mother.shape)

    return swarm.with_params(jax.tree.map(cross, mothers.params, fathers.params))


@pytest.mark.slow
@pytest.mark.parametrize("learn", [regression, classification])
def test_all_networks_learn(learn):
    before, after = learn()
    assert after.mean() < 0.5 * before.mean() and (after < before).all()


def test_swarms_are_put_together_and_taken_apart():
    first, second, both, merged, one, rest = put_together()
    assert len(both) == 20 and len(merged) == len(one) == 1 and len(rest) == 19
    for key in ("Dense_0", "Dense_1"):
        for leaf in ("kernel", "bias"):
            parts = [swarm.params[key][leaf] for swarm in (first, second)]
            np.testing.assert_array_equal(both.params[key][leaf], np.concatenate(parts))
            mean = np.concatenate(parts).mean(0, keepdims=True)
            np.testing.assert_allclose(merged.params[key][leaf], mean, atol=1e-6)
    assert merged.epochs[0] == both.epochs.max()


@pytest.mark.slow
def test_inputs_of_any_shape_are_predicted():
    """Several networks, single or several batches; and one network without a member axis."""
    functions = linen_functions(Brain(), np.zeros((1, 3), np.float32))
    many, one = (Swarm(functions, ids_of(n), loss=optax.squared_error) for n in (10, 1))
    assert many.predict(np.zeros((10, 4, 5, 3), np.float32)).shape == (10, 4, 5, 1)
    assert one.predict(Shared(np.zeros((8, 5, 3), np.float32))).shape == (1, 8, 5, 1)


@pytest.mark.slow
def test_generations_get_better_without_a_gradient():
    x = np.array(list(itertools.product([0, 1], repeat=2)), np.float32)
    y = np.array([[0], [1], [1], [0]], np.float32)  # exclusive or
    swarm = Swarm(linen_functions(Brain(), x), ids_of(60), loss=optax.squared_error)
    random = np.random.default_rng(0)
    first = swarm.evaluate(Shared(x), Shared(y))
    for _ in range(40):
        swarm = generation(swarm, -swarm.evaluate(Shared(x), Shared(y)), random)
    last = swarm.evaluate(Shared(x), Shared(y))
    assert np.median(last) < first.min() and last.min() < 0.05


def lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def test_the_table_counts_the_lines_of_today():
    page = PAGE.read_text()
    rows = re.findall(r"^\| .*\| `([\w./]+)`(?:, `(\w+)`)? \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for path, function, count in rows:
        text = (ROOT / path).read_text()
        if function:
            text = inspect.getsource(globals()[function])
        elif path.endswith(".md"):
            text = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
        assert lines(text) == int(count), (path, function, lines(text))
