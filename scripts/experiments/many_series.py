"""Train 1,660 networks: in a loop whose iterations get slower, and in one call.

    python scripts/experiments/many_series.py [--quick] [--series 1660]

A frequent question is why "training one network per series in a Python loop gets slower with every
iteration". There are three causes, each reproduced here for --iterations models. First, losses are
added up as tensors, so that their graphs are kept. Second, results are appended to a table by
copying it (with ten times as many models). Third, a function is compiled again for every model,
which is slow from the start. For comparison: the loop without these faults, and one swarm of all
series. Then uneven convergence: every series stops by its own validation loss and leaves the swarm
(compaction), compared with training all series until the slowest has finished. The saving depends
on how uneven the series are, here waves under very different noise. The claim that asynchronous
scheduling saves 40 % is about this saving.
"""

import time

import harness
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from flax import nnx

from forecaster import swarm
from forecaster.swarm import LSTM

LOOKBACK, HIDDEN, ROWS, BATCH = 20, 8, 200, 32


def windows(series: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make noisy waves of different difficulty, as windows and next values.

    Windows are (series, example, step, 1), next values (series, example, 1).
    """
    random = np.random.default_rng(seed)
    time_ = np.arange(ROWS + LOOKBACK)
    period, noise = random.uniform(5, 60, (series, 1)), random.uniform(0.02, 1.5, (series, 1))
    values = np.sin(2 * np.pi * time_ / period) + noise * random.normal(size=(series, len(time_)))
    values = (values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True)
    cut = np.lib.stride_tricks.sliding_window_view(values, LOOKBACK, axis=1)[:, :-1]
    return cut[..., None].astype(np.float32), values[:, LOOKBACK:, None].astype(np.float32)


class Network(nnx.Module):
    """One LSTM layer and a linear readout of its last state."""

    def __init__(self, rngs):
        self.cell = LSTM(1, HIDDEN, rngs=rngs)
        self.out = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.cell(x.swapaxes(0, 1), jnp.ones(x.shape[1::-1]))[-1])


def torch_loop(x, y, epochs: int, keeps_graphs: bool) -> list[float]:
    """Train in a PyTorch loop; return the seconds of each model.

    With the fault, the total loss stays a tensor, whose whole graph is traversed for every model.
    """
    import torch

    torch.set_num_threads(1)
    seconds, total = [], torch.zeros(())
    for inputs, targets in zip(torch.tensor(x), torch.tensor(y), strict=True):
        began = time.perf_counter()
        cell, out = torch.nn.LSTM(1, HIDDEN, batch_first=True), torch.nn.Linear(HIDDEN, 1)
        optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()], fused=True)
        for _ in range(epochs):
            for low in range(0, len(inputs) - BATCH + 1, BATCH):
                optimizer.zero_grad(set_to_none=True)
                said = out(cell(inputs[low : low + BATCH])[0][:, -1])
                loss = ((said - targets[low : low + BATCH]) ** 2).mean()
                loss.backward(retain_graph=keeps_graphs)
                optimizer.step()
                total = total + (loss if keeps_graphs else loss.detach())
        if keeps_graphs:  # "the gradient of everything so far", for a progress message
            weights = [cell.weight_hh_l0]
            torch.autograd.grad(total, weights, retain_graph=True, allow_unused=True)
        seconds.append(time.perf_counter() - began)
    return seconds


def jax_loop(x, y, epochs: int, recompiles: bool) -> list[float]:
    """Train in a JAX loop; return each model's seconds. Fault: a new step function each time."""
    adam = optax.adam(1e-3)
    graph, _ = nnx.split(Network(nnx.Rngs(0)))

    def make():
        def error(params, a, b):
            return ((nnx.merge(graph, params)(a) - b) ** 2).mean()

        def epoch(params, state, inputs, targets):
            def step(carry, batch):
                params, state = carry
                updates, state = adam.update(jax.grad(error)(params, *batch), state, params)
                return (optax.apply_updates(params, updates), state), ()

            return jax.lax.scan(step, (params, state), (inputs, targets))[0]

        return jax.jit(epoch)

    whole = len(x[0]) // BATCH * BATCH
    step, seconds = make(), []
    for number, (inputs, targets) in enumerate(zip(x, y, strict=True)):
        began = time.perf_counter()
        if recompiles:
            step = make()
        params = nnx.split(Network(nnx.Rngs(number)))[1]
        state = adam.init(params)
        batches = [a[:whole].reshape(-1, BATCH, *a.shape[1:]) for a in (inputs, targets)]
        for _ in range(epochs):
            params, state = step(params, state, *batches)
        jax.block_until_ready(params)
        seconds.append(time.perf_counter() - began)
    return seconds


def appending(series: int, rows: int) -> list[float]:
    """Return the seconds that each append of one model's forecasts to a copied table takes."""
    table, seconds = pd.DataFrame({"unique_id": [], "y": []}), []
    for number in range(series):
        began = time.perf_counter()
        new = pd.DataFrame({"unique_id": f"s{number}", "y": np.zeros(rows)})
        table = pd.concat([table, new], ignore_index=True)
        seconds.append(time.perf_counter() - began)
    return seconds


def convergence(series: int, epochs: int, patience: int, seed: int) -> tuple[dict, float]:
    """Return seconds with and without compaction, and how uneven the members' epochs are."""
    x, y = windows(series, seed)
    weight = np.ones(x.shape[:2], np.float32)
    data = swarm.Supervised(
        x[:, :-40], y[:, :-40], weight[:, :-40], x[:, -40:], y[:, -40:], weight[:, -40:]
    )
    task = swarm.supervised(Network, optax.squared_error, batch_size=BATCH)
    ids = [f"s{i}" for i in range(series)]

    def train(epochs, patience):
        hyperparams = {"learning_rate": 3e-3, "weight_decay": 0.0, "clip": 1.0}
        began = time.perf_counter()
        fitted = swarm.fit(task, data, ids, seed=seed, epochs=epochs, patience=patience,
                           hyperparams=hyperparams)  # fmt: skip
        return time.perf_counter() - began, fitted.epochs

    train(1, 1)  # compile
    uneven, used = train(epochs, patience)
    longest = int(used.max())
    whole, _ = train(longest, 10**6)
    return {"with compaction": uneven, "without": whole}, float(used.mean() / longest)


def main() -> None:
    options = harness.parser(
        __doc__, series=1660, iterations=120, epochs=20, longest=200, patience=10
    ).parse_args()
    if options.quick:
        options.series, options.iterations, options.epochs, options.longest = 8, 4, 1, 4
    x, y = windows(options.iterations, options.seed)
    by_iteration = {
        "PyTorch, keeps graphs": torch_loop(x, y, 1, True),
        "PyTorch, without fault": torch_loop(x, y, 1, False),
        "JAX, compiles each": jax_loop(x, y, 1, True),
        "JAX, without fault": jax_loop(x, y, 1, False),
        "appends to a table": appending(options.iterations * 10, 1000)[
            :: 10 if not options.quick else 1
        ],
    }
    parts = [
        pd.DataFrame(
            {
                "part": "loop",
                "method": name,
                "seconds": s,
                "iteration": np.arange(len(s)) * (10 if "appends" in name else 1),
            }
        )
        for name, s in by_iteration.items()
    ]
    for name, seconds in by_iteration.items():
        tenth = max(1, len(seconds) // 10)
        first, last = np.median(seconds[1 : 1 + tenth]), np.median(seconds[-tenth:])
        print(f"{name}: {first * 1e3:.1f} ms at first, {last * 1e3:.1f} ms at last", flush=True)

    x, y = windows(options.series, options.seed)
    ids = [f"s{i}" for i in range(options.series)]
    networks = swarm.Swarm(Network, ids, loss=optax.squared_error, optimizer=optax.adam)
    began = time.perf_counter()
    networks.fit(x, y, epochs=options.epochs, batch_size=BATCH)
    first = time.perf_counter() - began
    began = time.perf_counter()
    networks.fit(x, y, epochs=options.epochs, batch_size=BATCH)
    seconds = time.perf_counter() - began
    few = torch_loop(x[:6], y[:6], options.epochs, False)
    steady = np.median(few[1:]) * options.series  # one thread, one model after the other
    print(
        f"{options.series} series x {options.epochs} epochs in one call: {seconds:.1f} s "
        f"({first:.1f} s with compiling); the PyTorch loop without fault: {steady:.1f} s"
    )
    rows = [
        ("one call", "swarm", seconds), ("one call", "swarm, with compiling", first),
        ("one call", "PyTorch loop, scaled", steady),
    ]  # fmt: skip
    elapsed, work = convergence(options.series, options.longest, options.patience, options.seed)
    print(
        f"uneven convergence: {elapsed['with compaction']:.1f} s, all until the slowest "
        f"{elapsed['without']:.1f} s "
        f"({1 - elapsed['with compaction'] / elapsed['without']:.0%} saved; "
        f"the members' epochs are {work:.0%} of that)"
    )
    rows += [("convergence", name, value) for name, value in elapsed.items()]
    rows.append(("convergence", "share of epochs that were needed", work))
    parts.append(pd.DataFrame(rows, columns=["part", "method", "seconds"]))
    harness.write(options, pd.concat(parts, ignore_index=True).assign(series=options.series))

    drawn, (place,) = harness.axes(width=6)
    for colour, (name, values) in zip(harness.COLOURS, by_iteration.items(), strict=True):
        smooth = pd.Series(values[1:]).rolling(5, min_periods=1).median()
        place.plot(smooth, color=colour, label=name)
    place.set(yscale="log", xlabel="iteration (tenth of one for appending)", ylabel="seconds",
              title="a loop over series")  # fmt: skip
    place.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
