"""Time agents that play and learn inside one program: by ``Swarm.pure``, and written by hand.

    python scripts/benchmarks/agents.py [--repeats 5] [--quick]

The game, the networks, the loss and the optimiser are those of ``docs/gallery/actor_critic.py``; 64
agents make 1,000 updates. Sides run in turns, each in a process of its own:

- ``pure``: ``Swarm.pure`` in a scan, and back into a swarm with :meth:`Swarm.with_state`
- ``hand``: NNX, ``optax.inject_hyperparams``, ``vmap`` and ``scan``, without this package
- ``hand beside``: the same, in a process that also uses the package

Writes ``agents.csv`` beside this script: medians of the seconds from the start of the process, with
imports and compilation, to the end of the first call; of those that a further call takes; and of
the share of balls that the best agent catches.
"""

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

AGENTS, UPDATES, GAMES, ROWS, PLACES = 64, 1000, 16, 10, 9
SIDES = ("pure", "hand", "hand beside")


def network() -> Any:
    from flax import nnx

    def build(rngs: Any) -> Any:
        return nnx.Sequential(
            nnx.Linear(2 * PLACES, 32, rngs=rngs), nnx.tanh, nnx.Linear(32, 4, rngs=rngs)
        )

    return build


def play(apply: Callable[..., Any], params: Any, key: Any) -> tuple[Any, dict[str, Any]]:
    """Return what an agent saw, (row x game, feature), and its actions and rewards."""
    import jax
    import jax.numpy as jnp

    ball, paddle = jax.random.randint(key, (2, GAMES), 0, PLACES)

    def move(paddle: Any, key: Any) -> tuple[Any, Any]:
        inputs = jax.nn.one_hot(jnp.stack([ball, paddle], 1), PLACES).reshape(GAMES, -1)
        action = jax.random.categorical(key, apply(params, inputs)[:, :3])
        return jnp.clip(paddle + action - 1, 0, PLACES - 1), (inputs, action)

    paddle, (inputs, action) = jax.lax.scan(move, paddle, jax.random.split(key, ROWS))
    reward = jnp.tile(ball == paddle, ROWS).astype(float)
    return inputs.reshape(ROWS * GAMES, -1), {"action": action.ravel(), "reward": reward}


def loss(out: Any, seen: dict[str, Any]) -> Any:
    import jax
    import jax.numpy as jnp

    chances = jax.nn.log_softmax(out[:, :3])
    taken = jnp.take_along_axis(chances, seen["action"][:, None], 1)[:, 0]
    surprise = seen["reward"] - out[:, 3]
    gain = taken * jax.lax.stop_gradient(surprise) - 0.02 * (jnp.exp(chances) * chances).sum(1)
    return 0.5 * surprise**2 - gain


def by_pure(keys: Any, rates: Any) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    import optax

    from forecaster.swarm import Batch, Swarm, module_functions

    functions = module_functions(network())

    def loss_fn(params: Any, batch: Any, key: Any) -> Any:
        out = functions.apply(params, batch.inputs)
        return jnp.average(loss(out, batch.targets), weights=batch.weight)

    swarm = Swarm(
        functions, AGENTS, loss_fn=loss_fn, optimizer=optax.adam,
        hyperparams={"learning_rate": rates},
    )  # fmt: skip

    def learn(state: Any, key: Any, hyperparams: Any) -> Any:
        def turn(state: Any, key: Any) -> Any:
            inputs, seen = play(functions.apply, state.params, key)
            batch = Batch(inputs, seen, jnp.ones(len(inputs)))
            return swarm.pure.update(state, batch, hyperparams)[0], seen["reward"].mean()

        return jax.lax.scan(turn, state, jax.random.split(key, UPDATES))

    program = jax.jit(jax.vmap(learn))

    def call() -> Any:
        state, caught = program(swarm.state, keys, swarm.hyperparams)
        swarm.with_state(state)
        return caught

    return call


def by_hand(keys: Any, rates: Any) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    build = network()
    graph, _ = nnx.split(build(nnx.Rngs(0)), nnx.Param)

    def apply(params: Any, inputs: Any) -> Any:
        return nnx.merge(graph, params)(inputs)

    def begin(key: Any, rate: Any) -> Any:
        params = nnx.split(build(nnx.Rngs(key)), nnx.Param)[1]
        return params, optax.inject_hyperparams(optax.adam)(learning_rate=rate).init(params)

    def learn(carry: Any, key: Any) -> Any:
        def turn(carry: Any, key: Any) -> Any:
            params, state = carry
            inputs, seen = play(apply, params, key)
            grads = jax.grad(lambda p: jnp.mean(loss(apply(p, inputs), seen)))(params)
            updates, state = optax.inject_hyperparams(optax.adam)(1e-3).update(grads, state)
            return (optax.apply_updates(params, updates), state), seen["reward"].mean()

        return jax.lax.scan(turn, carry, jax.random.split(key, UPDATES))

    start = jax.jit(jax.vmap(begin))(jax.random.split(jax.random.key(1), AGENTS), rates)
    program = jax.jit(jax.vmap(learn))
    return lambda: jax.device_get(program(start, keys))[1]


def measure(side: str) -> None:
    """Print the seconds of the first call, those of a further one, and the best share."""
    began = time.perf_counter()
    import jax
    import numpy as np

    if side == "hand beside":
        from forecaster import swarm

        swarm.use_all_cores()
    keys = jax.random.split(jax.random.key(0), AGENTS)
    rates = np.geomspace(1e-4, 1e-1, AGENTS).astype(np.float32)
    call = by_pure(keys, rates) if side == "pure" else by_hand(keys, rates)
    caught = np.asarray(call())
    first, again = time.perf_counter() - began, []
    for _ in range(5):
        began = time.perf_counter()
        np.asarray(call())
        again.append(time.perf_counter() - began)
    print(first, statistics.median(again), caught[:, -50:].mean(1).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    global UPDATES
    UPDATES = 20 if options.quick else UPDATES
    if options.side:
        measure(options.side)
        return
    target = Path(__file__).with_suffix(".csv")
    if options.quick:
        options.repeats, target = 1, Path(tempfile.mkdtemp()) / target.name
    times: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    for _ in range(options.repeats):
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side, *["--quick"] * options.quick]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            times[side].append([float(word) for word in done.stdout.split()])
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["side", "first_s", "again_s", "best_share"])
        for side, rows in times.items():
            medians = [f"{statistics.median(column):.3f}" for column in zip(*rows, strict=True)]
            writer.writerow([side, *medians])
            print(side, *medians)


if __name__ == "__main__":
    main()
