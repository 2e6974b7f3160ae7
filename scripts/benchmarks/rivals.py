"""Small networks by ours and by what else trains many at once: first result, and repeated calls.

    python scripts/benchmarks/rivals.py [--only NAME] [--repeats 5] [--sides ours,vmap,torch]

The examples of TurbaNet (its README and tests, two spirals), larger networks, and networks of the
digits' size; full batches, Adam, the same data for all sides. A first call is made in a process of
its own, which has imported its libraries and compiles everything; repeated calls take turns in one
process. Writes ``rivals.csv`` beside this script: seconds of the first call, the median of the
repeated ones, and how many times as long as ours each took.

TurbaNet takes part where it can be imported (``pip install --ignore-requires-python turbanet``).
"""

import argparse
import dataclasses
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SIDES = ("ours", "vmap", "turbanet", "torch")


@dataclasses.dataclass(frozen=True)
class Work:
    """What is trained: layer sizes, members, steps, examples."""

    sizes: tuple[int, ...]
    members: int
    steps: int
    examples: int
    kind: str = "fit"  # or predict, step: single calls on new data, ``steps`` times

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (example, input) and targets (example, output), the same for all sides."""
        random = np.random.default_rng(0)
        x = random.normal(size=(self.examples, self.sizes[0])).astype(np.float32)
        y = np.tanh(x @ random.normal(size=(self.sizes[0], self.sizes[-1]))).astype(np.float32)
        return x, y


WORK = {
    "10 of 9-8-1": Work((9, 8, 1), 10, 2000, 10),
    "100 of 6-8-8-2": Work((6, 8, 8, 2), 100, 1000, 32),
    "10 of 2-10-10-10-10-1 (two spirals)": Work((2, 10, 10, 10, 10, 1), 10, 2000, 128),
    "1 of 2-256-256-1": Work((2, 256, 256, 1), 1, 256, 128),
    "16 of 2-256-256-1": Work((2, 256, 256, 1), 16, 64, 128),
    "64 of 2-256-256-1": Work((2, 256, 256, 1), 64, 32, 128),
    "predict, 16 of 8-64-64-4": Work((8, 64, 64, 4), 16, 200, 8, "predict"),
    "step, 16 of 8-64-64-4": Work((8, 64, 64, 4), 16, 200, 8, "step"),
    "128 of 64-32-10 (digits)": Work((64, 32, 10), 128, 50, 1024),
    "1000 of 4-8-1": Work((4, 8, 1), 1000, 500, 64),
}


def by_ours(work: Work) -> Callable[[], Any]:
    import optax
    from flax import nnx

    from forecaster.swarm import Shared, Swarm

    x, y = work.data()

    def network(rngs):
        layers = []
        for inputs, outputs in itertools.pairwise(work.sizes):
            layers += [nnx.Linear(inputs, outputs, rngs=rngs), nnx.relu]
        return nnx.Sequential(*layers[:-1])

    made = Swarm(
        network, [f"n{i}" for i in range(work.members)], loss=optax.squared_error,
        optimizer=optax.adam, hyperparams={"learning_rate": 1e-3},
    )  # fmt: skip
    many = np.broadcast_to(x, (work.members, *x.shape))
    targets = np.broadcast_to(y, (work.members, *y.shape))

    def fit() -> float:
        fitted = made.fit(Shared(x), Shared(y), epochs=work.steps, batch_size=None)
        return float(fitted.losses.train[:, -1].mean())

    def predict() -> float:
        out = None
        for _ in range(work.steps):
            out = made.predict(many)
        return float(np.asarray(out).mean())

    def step() -> float:
        swarm, losses = made, None
        for _ in range(work.steps):
            swarm, losses = swarm.step(many, targets)
        return float(np.asarray(losses).mean())

    return {"fit": fit, "predict": predict, "step": step}[work.kind]


class Plain(NamedTuple):
    """A network and its training, written down: functions of one member."""

    init: Callable[[Any], Any]  # of a key
    apply: Callable[[Any, Any], Any]  # of weights and inputs
    begin: Callable[[Any], Any]  # the optimiser's state, of weights
    step: Callable[[Any, Any, Any], Any]  # of weights with that state, inputs and targets


def plain(work: Work) -> Plain:
    """The network of a work in JAX and optax alone."""
    import jax
    import jax.numpy as jnp
    import optax

    adam = optax.adam(1e-3)

    def init(key):
        layers = []
        for inputs, outputs in itertools.pairwise(work.sizes):
            key, own = jax.random.split(key)
            scale = inputs**-0.5
            layers.append((scale * jax.random.normal(own, (inputs, outputs)), jnp.zeros(outputs)))
        return layers

    def apply(params, x):
        for kernel, bias in params[:-1]:
            x = jax.nn.relu(x @ kernel + bias)
        kernel, bias = params[-1]
        return x @ kernel + bias

    def step(carry, x, y):
        params, state = carry
        loss, grads = jax.value_and_grad(lambda p: ((apply(p, x) - y) ** 2).mean())(params)
        updates, state = adam.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), loss

    return Plain(init, apply, adam.init, step)


def by_vmap(work: Work) -> Callable[[], Any]:
    """One vmap, one scan over the steps, one program."""
    import jax
    import jax.numpy as jnp

    x, y = map(jnp.asarray, work.data())
    network = plain(work)

    def train(key):
        params = network.init(key)
        carry = params, network.begin(params)
        return jax.lax.scan(lambda c, _: network.step(c, x, y), carry, length=work.steps)

    keys = jax.random.split(jax.random.key(0), work.members)
    if work.kind == "fit":
        program = jax.jit(jax.vmap(train))
        return lambda: float(np.asarray(program(keys)[1])[:, -1].mean())
    params = jax.jit(jax.vmap(network.init))(keys)
    state = jax.jit(jax.vmap(network.begin))(params)
    one, use = jax.jit(jax.vmap(network.step)), jax.jit(jax.vmap(network.apply))
    many = np.broadcast_to(np.asarray(x), (work.members, *x.shape))
    targets = np.broadcast_to(np.asarray(y), (work.members, *y.shape))

    def predict() -> float:
        out = None
        for _ in range(work.steps):
            out = use(params, many)
        return float(np.asarray(out).mean())

    def steps() -> float:
        carry, losses = (params, state), None
        for _ in range(work.steps):
            carry, losses = one(carry, many, targets)
        return float(np.asarray(losses).mean())

    return predict if work.kind == "predict" else steps


def by_turbanet(work: Work) -> Callable[[], Any]:
    import optax
    import turbanet  # pyright: ignore[reportMissingImports]
    from flax import linen

    x, y = work.data()

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            for outputs in work.sizes[1:-1]:
                x = linen.relu(linen.Dense(outputs)(x))
            return linen.Dense(work.sizes[-1])(x)

    made = turbanet.TurbaTrainState.swarm(Network(), optax.adam(1e-3), work.members, x[:1])
    many = np.broadcast_to(x, (work.members, *x.shape))
    targets = np.broadcast_to(y, (work.members, *y.shape))

    def train() -> float:
        swarm, losses = made, None
        for _ in range(work.steps):
            swarm, losses, _ = swarm.train(many, targets, turbanet.mse)
        return float(np.asarray(losses).mean())

    def predict() -> float:
        out = None
        for _ in range(work.steps):
            out = made.predict(many)
        return float(np.asarray(out).mean())

    return predict if work.kind == "predict" else train


def by_torch(work: Work) -> Callable[[], Any]:
    """An ensemble as PyTorch's tutorial on them has it: functional_call under vmap, one Adam."""
    import torch

    x, y = map(torch.tensor, work.data())

    def network():
        layers = []
        for inputs, outputs in itertools.pairwise(work.sizes):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    base = network().to("meta")
    start, _ = torch.func.stack_module_state([network() for _ in range(work.members)])

    def outputs(params, x):
        return torch.func.functional_call(base, params, (x,))

    def train() -> float:
        params = {name: value.detach().clone().requires_grad_() for name, value in start.items()}
        adam = torch.optim.Adam(params.values(), lr=1e-3, fused=True)
        losses = torch.zeros(())
        for _ in range(work.steps):
            adam.zero_grad()
            predicted = torch.vmap(outputs, in_dims=(0, None))(params, x)
            losses = ((predicted - y) ** 2).mean((1, 2))
            losses.sum().backward()
            adam.step()
        return float(losses.mean())

    def predict() -> float:
        with torch.no_grad():
            out = torch.zeros(())
            for _ in range(work.steps):
                out = torch.vmap(outputs, in_dims=(0, None))(start, x)
        return float(out.mean())

    return predict if work.kind == "predict" else train


MAKERS = {"ours": by_ours, "vmap": by_vmap, "turbanet": by_turbanet, "torch": by_torch}


def first_call(side: str, name: str) -> float:
    """Seconds from the networks' making to the first result, in this process."""
    import optax  # noqa: F401

    if side == "ours":
        pass
    if side == "turbanet":
        import turbanet  # noqa: F401  # pyright: ignore[reportMissingImports]
    if side == "torch":
        import torch  # noqa: F401
    if side != "torch":
        import jax
        from flax import linen, nnx  # noqa: F401

        if side == "ours":
            from forecaster import swarm

            swarm.use_all_cores()
        jax.local_devices()
    began = time.perf_counter()
    MAKERS[side](WORK[name])()
    return time.perf_counter() - began


def first_calls(name: str, sides: list[str], repeats: int) -> dict[str, float]:
    """The median of first calls, each in a process of its own, in turns."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for side in sides * repeats:
        command = [sys.executable, __file__, "--first", side, "--only", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds[side].append(json.loads(done.stdout.splitlines()[-1]))
    return {side: statistics.median(each) for side, each in seconds.items()}


def repeated_calls(name: str, sides: list[str], repeats: int) -> dict[str, float]:
    """The median of repeated calls, in turns, the order reversed every other time."""
    from forecaster import swarm

    swarm.use_all_cores()
    runs = {side: MAKERS[side](WORK[name]) for side in sides}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(-1, repeats):
        for side in sides if repeat % 2 else reversed(sides):
            began = time.perf_counter()
            runs[side]()
            if repeat >= 0:
                seconds[side].append(time.perf_counter() - began)
    return {side: statistics.median(each) for side, each in seconds.items()}


def main() -> None:
    options = arguments()
    if options.first:
        print(first_call(options.first, options.only))
        return
    sides = [side for side in options.sides.split(",") if side != "turbanet" or _has("turbanet")]
    table = []
    for name in WORK if options.only is None else [n for n in WORK if options.only in n]:
        repeated = repeated_calls(name, sides, options.repeats) if not options.no_repeated else {}
        first = first_calls(name, sides, options.first_repeats) if options.first_repeats else {}
        for side in sides:
            row: dict[str, Any] = {"work": name, "side": side}
            for kind, seconds in (("repeated", repeated), ("first", first)):
                if seconds:
                    row[f"{kind}_seconds"] = round(seconds[side], 4)
                    row[f"{kind}_ratio"] = round(seconds[side] / seconds["ours"], 3)
            table.append(row)
            print(row, flush=True)
    if options.only is None or options.output:
        import pandas as pd

        path = options.output or Path(__file__).with_suffix(".csv")
        pd.DataFrame(table).to_csv(path, index=False)


def _has(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", help="rows whose name contains this; writes no file by itself")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--first-repeats", type=int, default=3, help="0: no first calls")
    parser.add_argument("--no-repeated", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
