"""Time swarms of 1 to 128 classifiers of two spirals, by this program, a plain vmap, and PyTorch.

    python scripts/experiments/two_spirals.py [--quick] [--repeats 3]

128 points of two interleaved spirals, all in one batch, Adam 1e-3, 1,024 epochs; small networks (16
hidden units) and large ones (two layers of 256). Time is proportional to epochs: large networks are
trained for --large-epochs, PyTorch's for --torch-epochs, and the times are scaled. Published, on a
CPU: 128 small networks 48 s by PyTorch and 2.6 s by TurbaNet; 128 large networks 131 s and 453 s.
"""

import functools
import itertools

import harness
import jax
import numpy as np
import optax
import pandas as pd
import torch_mlp
from flax import nnx

from forecaster.swarm import Shared, Swarm

EPOCHS, RATE = 1024, 1e-3
NETWORKS = {"small": (16,), "large": (256, 256)}


def spirals(points: int = 128, noise: float = 0.05, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points (point, 2) and labels (point,) of two spirals; Lang and Witbrock (1988)."""
    random = np.random.default_rng(seed)
    angle = np.linspace(0.5, 2.5 * np.pi, points // 2)
    arm = np.stack([angle * np.cos(angle), angle * np.sin(angle)], 1) / angle.max()
    x = np.concatenate([arm, -arm]) + random.normal(0, noise, (2 * (points // 2), 2))
    return x.astype(np.float32), np.repeat([0, 1], points // 2)


def network(hidden: tuple[int, ...], rngs: nnx.Rngs) -> nnx.Module:
    sizes = [2, *hidden]
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nnx.Linear(inputs, outputs, rngs=rngs), nnx.relu]
    return nnx.Sequential(*layers, nnx.Linear(sizes[-1], 1, rngs=rngs))


def loss(logits, label):
    return optax.sigmoid_binary_cross_entropy(logits[..., 0], label)


def by_ours(hidden: tuple[int, ...], members: int, epochs: int, x, y):
    swarm = Swarm(
        functools.partial(network, hidden), [f"n{i}" for i in range(members)], loss=loss,
        optimizer=optax.adam, hyperparams={"learning_rate": RATE},
    )  # fmt: skip

    def run() -> float:
        fitted = swarm.fit(Shared(x), Shared(y), epochs=epochs, batch_size=None)
        correct = (fitted.predict(Shared(x))[..., 0] > 0) == y
        return float(correct.mean())

    return run


def by_vmap(hidden: tuple[int, ...], members: int, epochs: int, x, y):
    """Train as in published work: one vmap, one jitted epoch, a Python loop over epochs."""
    adam = optax.adam(RATE)
    keys = jax.random.split(jax.random.key(0), members)
    graph, _ = nnx.split(network(hidden, nnx.Rngs(0)))

    def error(params):
        return loss(nnx.merge(graph, params)(x), y).mean()

    def epoch(params, state):
        updates, state = adam.update(jax.grad(error)(params), state, params)
        return optax.apply_updates(params, updates), state

    start = jax.jit(jax.vmap(lambda key: nnx.split(network(hidden, nnx.Rngs(key)))[1]))
    step, begin = jax.jit(jax.vmap(epoch)), jax.jit(jax.vmap(adam.init))

    def run() -> float:
        params = start(keys)
        state = begin(params)
        for _ in range(epochs):
            params, state = step(params, state)
        logits = jax.vmap(lambda p: nnx.merge(graph, p)(x))(params)
        return float(((np.asarray(logits)[..., 0] > 0) == y).mean())

    return run


def by_torch(hidden: tuple[int, ...], members: int, epochs: int, x, y, pool=None):
    jobs = [(x, y, hidden, 2, epochs, len(x), RATE, seed) for seed in range(members)]

    def run() -> float:
        outputs = pool.train(jobs) if pool else [torch_mlp.train(*job) for job in jobs]
        return float(np.mean([(each.argmax(1) == y).mean() for each in outputs]))

    return run


def main() -> None:
    parser = harness.parser(__doc__, repeats=3, torch_epochs=64, large_epochs=128)
    options = parser.parse_args()
    epochs, members = EPOCHS, [1, 2, 4, 8, 16, 32, 64, 128]
    if options.quick:
        epochs, members, options.repeats = 4, [2], 1
        options.torch_epochs = options.large_epochs = 2
    x, y = spirals(seed=options.seed)
    parts = []
    pool = torch_mlp.Pool()
    for size, hidden in NETWORKS.items():
        for count in members:
            few = min(options.torch_epochs, epochs)
            some = epochs if size == "small" else min(options.large_epochs, epochs)
            table, correct = harness.paired(
                {
                    "ours": by_ours(hidden, count, some, x, y),
                    "plain vmap": by_vmap(hidden, count, some, x, y),
                    "PyTorch pool": by_torch(hidden, count, few, x, y, pool),
                    "PyTorch loop": by_torch(hidden, count, few, x, y),
                },
                options.repeats,
            )
            torch = table["method"].str.startswith("PyTorch")
            table["epochs_trained"] = np.where(torch, few, some)
            table["seconds"] *= epochs / table["epochs_trained"]
            table["correct"] = table["method"].map(correct).where(table["epochs_trained"] == epochs)
            parts.append(table.assign(network=size, members=count))
            shown = harness.medians(table, ["method"]).set_index("method")["median"]
            print(size, count, shown.round(2).to_dict(), flush=True)
    pool.close()
    table = pd.concat(parts, ignore_index=True)
    harness.write(options, table)
    drawn, panels = harness.axes(len(NETWORKS))
    for place, size in zip(panels, NETWORKS, strict=True):
        part = harness.medians(table[table["network"] == size], ["method", "members"])
        harness.log_log(place, part, "members", f"two spirals, {size} networks", "seconds")
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
