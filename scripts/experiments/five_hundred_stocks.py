"""Repeat the published experiment on 500 stocks, as published and without looking ahead.

    python scripts/experiments/five_hundred_stocks.py --source files:prices.parquet [--as-published]

One LSTM a stock (hidden 32, lookback 20, close only, batch 32, Adam 1e-5, 1,000 epochs, 2 years).
--as-published scales each series by its whole history, splits windows at random, and keeps the
weights that are best on the windows used for the final judgement. Without it, scaling and training
see the first 70 % of days, the next 10 % choose the epoch, and the last 20 % are forecast. Each
side trains for at most --minutes: our side trains as many epochs as fit; PyTorch trains the same
number of epochs for as many stocks as fit. Times are scaled to the whole experiment, and errors
compared on the same stocks. Then this program's default training is timed, and compared on the same
days. Published: 9,560.44 s by a PyTorch loop, 224.51 s by TurbaNet, 42.6 times as fast, on an RTX
2070 Super.
"""

import time
from typing import Any, NamedTuple

import harness
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from flax import nnx

import forecaster as fc
from forecaster.swarm import LSTM, Swarm

HIDDEN, LOOKBACK, BATCH, RATE, EPOCHS, DAYS = 32, 20, 32, 1e-5, 1000, 504


class Network(nnx.Module):
    """One LSTM layer and a linear readout of its last state."""

    def __init__(self, rngs):
        self.cell = LSTM(1, HIDDEN, rngs=rngs)
        self.out = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.cell(x.swapaxes(0, 1), jnp.ones(x.shape[1::-1]))[-1])


class Windows(NamedTuple):
    """The windows of all stocks, (stock, window, ...), and the scale to prices, (stock, 1)."""

    train: tuple[np.ndarray, np.ndarray]
    choose: tuple[np.ndarray, np.ndarray]  # windows that choose the best epoch
    test: tuple[np.ndarray, np.ndarray]
    scale: np.ndarray


def cut(prices: np.ndarray, as_published: bool, seed: int) -> Windows:
    """Cut windows of LOOKBACK scaled closes and the next close."""
    known = prices if as_published else prices[:, : int(0.7 * prices.shape[1])]
    low, scale = known.min(1, keepdims=True), np.ptp(known, axis=1)[:, None]
    scaled = ((prices - low) / scale).astype(np.float32)
    x = np.lib.stride_tricks.sliding_window_view(scaled, LOOKBACK, axis=1)[:, :-1, :, None]
    y = scaled[:, LOOKBACK:, None]
    count = x.shape[1]
    rows = np.arange(count)
    if as_published:
        rows = np.random.default_rng(seed).permutation(count)
        first, second = int(0.8 * count), int(0.8 * count)
    else:  # the day of the target decides
        first = int(0.7 * prices.shape[1]) - LOOKBACK
        second = int(0.8 * prices.shape[1]) - LOOKBACK
    train, choose, test = rows[:first], rows[first:second], rows[second:]
    choose = test if as_published else choose

    def take(part):
        return np.ascontiguousarray(x[:, part]), np.ascontiguousarray(y[:, part])

    return Windows(take(train), take(choose), take(test), scale)


def errors(forecasts: np.ndarray, windows: Windows) -> pd.DataFrame:
    """Return each stock's RMSE and MAE in the price's units, and relative to "unchanged"."""
    x, y = windows.test
    last = x[: len(forecasts), :, -1]
    miss = (forecasts - y[: len(forecasts)])[..., 0] * windows.scale[: len(forecasts)]
    naive = (last - y[: len(forecasts)])[..., 0] * windows.scale[: len(forecasts)]
    mae = np.abs(miss).mean(1)
    return pd.DataFrame(
        {
            "rmse": np.sqrt((miss**2).mean(1)), "mae": mae,
            "mae_relative_to_naive": mae / np.abs(naive).mean(1),
        }
    )  # fmt: skip


def by_ours(windows: Windows, minutes: float, epochs: int) -> tuple[pd.DataFrame, float, int]:
    """Train by this program; return errors, seconds for all epochs, and the epochs trained."""
    ids = [f"s{i}" for i in range(len(windows.scale))]
    swarm = Swarm(Network, ids, loss=optax.squared_error, optimizer=optax.adam,
                  hyperparams={"learning_rate": RATE})  # fmt: skip

    def train(count: int):
        began = time.perf_counter()
        fitted = swarm.fit(
            *windows.train, validation_data=windows.choose, epochs=count, batch_size=BATCH
        )
        return fitted, time.perf_counter() - began

    train(1)  # compile
    trial = min(5, epochs)
    each = train(trial)[1] / trial
    count = int(np.clip(60 * minutes / each, 1, epochs))
    fitted, seconds = train(count)
    return errors(fitted.predict(windows.test[0]), windows), seconds * epochs / count, count


def by_torch(windows: Windows, minutes: float, epochs: int) -> tuple[pd.DataFrame, float, int]:
    """Train stocks in PyTorch while time lasts; return errors, seconds per stock, their number."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    forecasts, began = [], time.perf_counter()
    parts: Any = (*windows.train, *windows.choose, windows.test[0])
    for x, y, choose_x, choose_y, test_x in zip(*map(torch.tensor, parts), strict=True):
        cell, out = torch.nn.LSTM(1, HIDDEN, batch_first=True), torch.nn.Linear(HIDDEN, 1)
        weights = [*cell.parameters(), *out.parameters()]
        optimizer = torch.optim.Adam(weights, lr=RATE, fused=True)
        best, kept = np.inf, []
        for _ in range(epochs):
            order = torch.randperm(len(x))
            for low in range(0, len(x), BATCH):
                rows = order[low : low + BATCH]
                optimizer.zero_grad(set_to_none=True)
                ((out(cell(x[rows])[0][:, -1]) - y[rows]) ** 2).mean().backward()
                optimizer.step()
            with torch.no_grad():
                loss = float(((out(cell(choose_x)[0][:, -1]) - choose_y) ** 2).mean())
                if loss < best:
                    best, kept = loss, [weight.clone() for weight in weights]
        with torch.no_grad():
            for weight, value in zip(weights, kept, strict=True):
                weight.copy_(value)
            forecasts.append(out(cell(test_x)[0][:, -1]).numpy())
        done = time.perf_counter() - began
        if done * (len(forecasts) + 1) / len(forecasts) > 60 * minutes:
            break
    seconds = (time.perf_counter() - began) / len(forecasts)
    return errors(np.stack(forecasts), windows), seconds, len(forecasts)


def by_default(panel: fc.Panel, test: int, epochs: int) -> tuple[pd.DataFrame, float]:
    """Train with this program's defaults before the test span, for at most ``epochs`` epochs.

    Returns its errors one day ahead on that span, and seconds, including compilation.
    """
    config = fc.Config(validation=100, horizon=1, epochs=epochs)
    began = time.perf_counter()
    first = fc.cross_validation(panel, config, n_windows=test, step_size=1)
    seconds = time.perf_counter() - began
    miss = (first["LSTM"] - first["y"]).abs().groupby(first["unique_id"]).mean()
    naive = (first["Naive"] - first["y"]).abs().groupby(first["unique_id"]).mean()
    rmse = ((first["LSTM"] - first["y"]) ** 2).groupby(first["unique_id"]).mean() ** 0.5
    return pd.DataFrame({"rmse": rmse, "mae": miss, "mae_relative_to_naive": miss / naive}), seconds


def prices_of(source: str, stocks: int, days: int) -> fc.Panel:
    """Return the latest days that a number of stocks have in common."""
    tickers = [f"S{i}" for i in range(stocks)] if source == "simulated" else None
    panel = fc.load_panel(source, tickers, mask=())  # the published work kept all sessions
    recent = panel.times[-days:]
    complete = panel.mask[:, -days:].all(1)
    ids = [name for name, whole in zip(panel.ids, complete, strict=True) if whole][:stocks]
    return panel.only(ids).between(start=recent[0])


def main() -> None:
    parser = harness.parser(__doc__, stocks=500, epochs=EPOCHS)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each side, at the most")
    parser.add_argument("--source", default="simulated", help="simulated or files:PATH")
    parser.add_argument("--as-published", action="store_true", help="with its leaks")
    options = parser.parse_args()
    if options.quick:
        options.stocks, options.epochs, options.minutes = 3, 2, 0.02
    panel = prices_of(options.source, options.stocks, DAYS)
    closes = np.array(panel.channel(panel.target))
    protocol = "as published" if options.as_published else "honest"
    print(f"{len(closes)} stocks, {closes.shape[1]} days, {protocol}", flush=True)
    windows = cut(closes, options.as_published, options.seed)
    parts, rows = [], []

    def note(method: str, measured: pd.DataFrame, seconds: float, trained: str) -> None:
        parts.append(measured.assign(method=method, way=protocol).reset_index(drop=True))
        rows.append(
            {
                "way": protocol, "method": method, "seconds_for_all": seconds,
                "seconds_per_stock": seconds / len(closes), "trained": trained,
                "rmse_median": measured["rmse"].median(),
                "mae_relative_to_naive_median": measured["mae_relative_to_naive"].median(),
                "stocks": len(closes), "stocks_compared": len(measured), "epochs": options.epochs,
                "source": panel_name(options),
            }
        )  # fmt: skip
        print({k: rows[-1][k] for k in ("method", "seconds_for_all", "trained",
              "mae_relative_to_naive_median")}, flush=True)  # fmt: skip

    ours, seconds, epochs = by_ours(windows, options.minutes, options.epochs)
    measured, each, some = by_torch(windows, options.minutes, epochs)
    note("ours", ours[:some], seconds, f"{len(closes)} stocks, {epochs} epochs")
    each *= options.epochs / epochs
    note("PyTorch loop", measured, each * len(closes), f"{some} stocks, {epochs} epochs")
    goal = measured["mae_relative_to_naive"].median()
    if not options.as_published:
        test = windows.test[0].shape[1] if not options.quick else 5
        for most in (1, 5, 25, 100):
            measured, seconds = by_default(panel, test, most)
            reached = measured["mae_relative_to_naive"].median() <= goal
            if reached or most == 100:
                good = ", as good as PyTorch" if reached else ""
                note("ours, default training", measured[:some], seconds,
                     f"all stocks, {most} epochs{good}")  # fmt: skip
                break

    name = f"five_hundred_stocks{'_as_published' if options.as_published else ''}"
    table = pd.DataFrame(rows)
    spread = pd.concat(parts).groupby(["way", "method"])["mae_relative_to_naive"]
    quantiles = spread.quantile([0.05, 0.25, 0.75, 0.95]).unstack().add_prefix("naive_q")
    table = table.merge(quantiles.reset_index(), on=["way", "method"])
    harness.write(options, table, name)

    drawn, (place,) = harness.axes(width=6)
    for colour, part in zip(harness.COLOURS, parts, strict=False):
        values = np.sort(part["mae_relative_to_naive"])
        place.step(values, np.linspace(0, 1, len(values)), color=colour,
                   label=part["method"].iloc[0])  # fmt: skip
    place.axvline(1, color="#bbbbbb", lw=1)
    place.set(xscale="log", xlabel='absolute error, "unchanged" = 1', ylabel="share of stocks",
              title=f"{some} of {len(closes)} stocks, {epochs} epochs, {protocol}")  # fmt: skip
    place.legend(frameon=False, fontsize=8)
    harness.figure(options, drawn, name)


def panel_name(options) -> str:
    return options.source.split("/")[-1]


if __name__ == "__main__":
    main()
