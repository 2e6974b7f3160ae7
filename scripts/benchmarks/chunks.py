"""Time swarms of models that go through steps on a few numbers, by the size of their chunks.

    python scripts/benchmarks/chunks.py [--repeats 5] [--output chunks.csv] [--quick]

The models are an equation that is integrated (Lotka and Volterra's, Runge-Kutta, 100 steps), a
Kalman filter of a level and a slope (150 steps), a GARCH(1, 1) variance (500 steps) and exponential
smoothing with a trend (200 steps). Each is fitted for 60 epochs to one series per member, in chunks
of 8 (the default), 16 and 32. The fits take turns; the first turn compiles and is not counted.
Writes ``chunks.csv`` beside this script: the median of the seconds, and its ratio to chunks of 8.
It takes a minute on two cores.
"""

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from forecaster import swarm

CHUNKS, MEMBERS, EPOCHS = (8, 16, 32), (2, 30, 300), 60
Forecast = Callable[[jax.Array, jax.Array], jax.Array]  # of parameters and a series


def equation(params: jax.Array, series: jax.Array) -> jax.Array:
    a, b, c, d = jnp.exp(params)

    def slope(y: jax.Array) -> jax.Array:
        return jnp.stack([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]])

    def step(y: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        one = slope(y)
        two = slope(y + 0.025 * one)
        three = slope(y + 0.025 * two)
        four = slope(y + 0.05 * three)
        return (y := y + 0.05 / 6 * (one + 2 * two + 2 * three + four)), y[0]

    return jax.lax.scan(step, series[:2], None, length=len(series))[1]


def kalman(params: jax.Array, series: jax.Array) -> jax.Array:
    moves, seen = jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.array([1.0, 0.0])
    noise, error = jnp.diag(jnp.exp(params[:2])), jnp.exp(params[2])

    def step(state: tuple[jax.Array, jax.Array], value: jax.Array) -> tuple[Any, jax.Array]:
        mean, variance = moves @ state[0], moves @ state[1] @ moves.T + noise
        forecast = seen @ mean
        gain = variance @ seen / (seen @ variance @ seen + error)
        mean = mean + gain * (value - forecast)
        return (mean, variance - jnp.outer(gain, seen @ variance)), forecast

    return jax.lax.scan(step, (jnp.zeros(2), 10 * jnp.eye(2)), series)[1]


def garch(params: jax.Array, series: jax.Array) -> jax.Array:
    level, (new, old) = jnp.exp(params[0]), jax.nn.sigmoid(params[1:3])

    def step(variance: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return level + new * value**2 + old * (1 - new) * variance, variance

    return jax.lax.scan(step, jnp.float32(1), series)[1]


def smoothing(params: jax.Array, series: jax.Array) -> jax.Array:
    share, of_trend = jax.nn.sigmoid(params[:2])

    def step(state: tuple[jax.Array, jax.Array], value: jax.Array) -> tuple[Any, jax.Array]:
        level, trend = state
        forecast = level + trend
        new = share * value + (1 - share) * forecast
        return (new, of_trend * (new - level) + (1 - of_trend) * trend), forecast

    return jax.lax.scan(step, (params[2], params[3]), series)[1]


MODELS: dict[str, tuple[Forecast, list[float], int]] = {  # with a start and the length of a series
    "equation": (equation, [0.0, -2.3, -2.6, 0.4], 100),
    "kalman": (kalman, [0.0, 0.0, 0.0, 0.0], 150),
    "garch": (garch, [-2.0, -2.0, 2.0, 0.0], 500),
    "smoothing": (smoothing, [-1.0, -2.0, 0.0, 0.0], 200),
}


def fits(name: str, members: int) -> dict[int, Callable[[], Any]]:
    """Return a fit for each size of chunks."""
    path, start, length = MODELS[name]
    random = np.random.default_rng(0)
    x = random.normal(size=(members, 1, length)).astype(np.float32)
    x = x if name == "garch" else 5 + np.abs(x.cumsum(-1))

    def init(key: jax.Array) -> jax.Array:
        return jnp.array(start) + 0.01 * jax.random.normal(key, (4,))

    def apply(params: jax.Array, inputs: jax.Array) -> jax.Array:
        return jax.vmap(lambda series: path(params, series))(inputs)

    def loss(predictions: jax.Array, targets: jax.Array) -> jax.Array:
        return (predictions - targets) ** 2

    made = {chunk: swarm.Swarm((init, apply), members, loss=loss, chunk=chunk) for chunk in CHUNKS}
    return {chunk: functools.partial(each.fit, x, x, epochs=EPOCHS) for chunk, each in made.items()}


def measured(name: str, members: int, repeats: int) -> list[dict[str, Any]]:
    """Return a row for each size of chunks."""
    runs = fits(name, members)
    seconds: dict[int, list[float]] = {chunk: [] for chunk in CHUNKS}
    for repeat in range(-1, repeats):
        for chunk, run in runs.items():
            began = time.perf_counter()
            run()
            if repeat >= 0:
                seconds[chunk].append(time.perf_counter() - began)
    medians = {chunk: statistics.median(each) for chunk, each in seconds.items()}
    rows = [
        {
            "model": name,
            "members": members,
            "chunk": chunk,
            "seconds": round(median, 4),
            "ratio": round(median / medians[8], 2),
        }
        for chunk, median in medians.items()
    ]
    print(*rows, sep="\n", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    members_of = MEMBERS
    if options.quick:
        members_of, options.repeats = MEMBERS[:1], 1
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    swarm.use_all_cores()
    rows = [
        row
        for name in MODELS
        for members in members_of
        for row in measured(name, members, options.repeats)
    ]
    pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
