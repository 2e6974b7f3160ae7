"""The tasks of TurbaNet's tests and examples; docs/ compares the lines of code.

Written from their behaviour, not their code: https://github.com/EthanSchmitt7/TurbaNet, 0.4.1.
"""

import functools
import inspect
import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

from forecaster.swarm import Shared, Single, Swarm, linen_functions

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gallery" / "turbanet.md"
RANDOM = np.random.default_rng(0)
RATE = {"learning_rate": 0.01}


@functools.cache
def pole() -> SimpleNamespace:
    """Return environment, rollout and loss of the gallery's cart-pole, 128 steps per update."""
    text = (PAGE.parent / "cart_pole.py").read_text()
    names: dict[str, Any] = {"__name__": "cart_pole"}
    exec(compile(text.split("rates = ")[0], "cart_pole.py", "exec"), names)
    names["steps"] = 128
    return SimpleNamespace(**names, pays=linen_functions(Reward(), np.zeros((1, 5), np.float32)))


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
    """Train ten networks on ten random labels; return losses before and after."""
    x = RANDOM.random((10, 9)).astype(np.float32)
    y = (RANDOM.random((10, 1)) > 0.5).astype(np.float32)
    functions = linen_functions(Brain(), x)
    swarm = Swarm(functions, ids_of(10), loss=optax.l2_loss, optimizer=optax.adam)
    data = Shared(x), Shared(y)
    trained = swarm.fit(*data, epochs=epochs, batch_size=None)
    return swarm.evaluate(*data), trained.evaluate(*data)


def classification(epochs: int = 1000):
    """Train a hundred networks on a random class for each of 64 bit patterns."""
    x = np.array(list(itertools.product([0, 1], repeat=6)), np.float32)
    y = np.eye(2, dtype=np.float32)[RANDOM.integers(2, size=64)]
    functions = linen_functions(Brain(layers=2, outputs=2), x)
    loss = optax.softmax_cross_entropy
    swarm = Swarm(functions, ids_of(100), loss=loss, optimizer=optax.adam)
    trained = swarm.fit(Shared(x), Shared(y), epochs=epochs, batch_size=None)
    return swarm.evaluate(Shared(x), Shared(y)), trained.evaluate(Shared(x), Shared(y))


def put_together():
    """Append two swarms, merge them with optimisers' states, select members."""
    functions = linen_functions(Brain(), np.zeros((1, 3), np.float32))
    options = {"loss": optax.squared_error, "optimizer": optax.adam}
    first = Swarm(functions, ids_of(10, "first"), **options)
    second = Swarm(functions, ids_of(10, "second"), **options)
    both = first.append(second)
    merged, one = both.merge(opt_state=True), both.select(["first 0"])
    return first, second, both, merged, one, both.drop(["first 0"])


def generation(swarm: Swarm, fitness: np.ndarray, random: np.random.Generator) -> Swarm:
    """Choose parents by tournament; cross two parents' weights, with rare mutations."""
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


def one_agent(updates: int = 40, carts: int = 8):
    """Train a single agent by PPO; return steps between two falls in every update."""
    functions, clipped = pole().functions, pole().clipped
    agent = Single(functions, loss_fn=clipped, optimizer=optax.adam, hyperparams=RATE)
    play, state, stood = jax.jit(pole().rollout), np.zeros((carts, 4), np.float32), []
    for key in jax.random.split(jax.random.key(0), updates):
        state, states, seen = play(agent.params, state, key)
        agent = agent.fit(states, seen, epochs=4, batch_size=256)
        stood.append(1 / max(seen["fallen"].mean(), 1 / seen["fallen"].size))
    return np.array(stood)


class Reward(linen.Module):
    """An agent's reward for a step, from observation and action."""

    @linen.compact
    def __call__(self, seen):
        return linen.tanh(linen.Dense(1)(seen))[..., 0]


def paid(params, state, key):
    """Roll out the cart-pole with rewards from the agent's own network."""
    last, states, seen = pole().rollout(params["acts"], state, key)
    seen["pay"] = pole().pays.apply(params["pays"], jnp.append(states, seen["action"][:, None], 1))

    def back(later, step):
        later = jnp.where(step["fallen"], 0, step["pay"] + 0.99 * later)
        return 0.95 * later + 0.05 * step["value"], later

    steps = jax.tree.map(lambda leaf: leaf.reshape(pole().steps, -1), seen)
    value = pole().functions.apply(params["acts"], last)[:, 2]
    seen["return"] = jax.lax.scan(back, value, steps, reverse=True)[1].reshape(-1)
    return last, states, seen


def discovery(generations: int = 5, agents: int = 16, updates: int = 5):
    """Train agents by PPO with their own rewards; breed both by how long the pole stood.

    Returns steps between two falls, (generation, agent).
    """
    rewards = Swarm(pole().pays, agents, loss=optax.squared_error)
    functions, clipped = pole().functions, pole().clipped
    born = Swarm(functions, agents, loss_fn=clipped, optimizer=optax.adam, hyperparams=RATE)
    play, fitness = jax.jit(jax.vmap(paid)), []
    for number in range(generations):
        grown, state, fallen = born, np.zeros((agents, 4, 4), np.float32), []
        for keys in jax.random.split(jax.random.key(number), (updates, agents)):
            state, *seen = play({"acts": grown.params, "pays": rewards.params}, state, keys)
            grown = grown.fit(*seen, epochs=4, batch_size=256)
            fallen.append(np.asarray(seen[1]["fallen"]).mean(1))
        fitness.append(1 / np.maximum(np.mean(fallen, 0), 1e-3))
        born, rewards = (  # with the same parents
            generation(swarm, fitness[-1], np.random.default_rng(number))
            for swarm in (born, rewards)
        )
    return np.array(fitness)


@pytest.mark.slow
@pytest.mark.parametrize("learn", [regression, classification])
def test_all_networks_learn(learn):
    before, after = learn()
    assert after.mean() < 0.5 * before.mean() and (after < before).all()


def test_swarms_are_put_together_and_taken_apart():
    first, second, both, merged, one, rest = put_together()
    assert len(both) == 20 and len(merged) == len(one) == 1 and len(rest) == 19
    parts = (swarm.params["Dense_0"]["kernel"] for swarm in (first, second))
    mean = np.concatenate([*parts]).mean(0, keepdims=True)
    np.testing.assert_allclose(merged.params["Dense_0"]["kernel"], mean, atol=1e-6)
    assert merged.epochs[0] == both.epochs.max()


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


@pytest.mark.slow
def test_one_agent_learns_to_balance_the_pole():
    stood = one_agent()
    assert stood[0] < 100 and stood[-5:].min() > 475  # solved, by TurbaNet's limit


@pytest.mark.slow
def test_agents_and_what_they_are_paid_for_are_bred_together():
    stood = np.median(discovery(), 1)
    assert stood[-1] > 2 * stood[0]


def lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def test_the_table_counts_the_lines_of_today():
    page = PAGE.read_text()
    rows = re.findall(r"^\| .*\| `([\w./]+)`((?:, `\w+`)*) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 8
    for path, functions, count in rows:
        text = (ROOT / path).read_text()
        if functions:
            named = re.findall(r"\w+", functions)
            text = "\n".join(inspect.getsource(globals()[name]) for name in named)
        elif path.endswith(".md"):
            text = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
        assert lines(text) == int(count), (path, functions, lines(text))
