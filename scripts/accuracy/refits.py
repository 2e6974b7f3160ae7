"""Measure the value of a refit and of an update, over five years of stocks.

    python scripts/accuracy/refits.py [--stocks 50] [--quarters 20] [--output refits.csv] [--quick]

``FORECASTER_TEST_DATA`` names the folder with ``us_stocks_2000_2015.parquet``. A model learns from
all rows before 2011; then three methods continue with it:

- ``once``: the first fit, never refitted
- ``fit``: a new fit at the end of each quarter, on all rows up to that time
- ``update``: :func:`forecaster.update` of the model of the quarter before, at the end of each
  quarter

Each method forecasts every fifth session of the next quarter. Prices are adjusted closes; losses
are losses of their logarithms. The CSV has a row per quarter, method and step (1 and 5):

- ``crps``, the mean over quantiles of 0.05 to 0.95, ``crps_to_fit``, its ratio to the CRPS of
  ``fit``, and ``coverage``, the coverage of 80 % bands
- ``moved, widened``: how far the refit moved the median, in percent of the price, and changed the
  width of the 80 % band, in percent of this width; means over stocks, on the first day
- ``seconds`` of the processor that the refit took
"""

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import forecaster as fc

QUANTILES = [round(number / 20, 2) for number in range(1, 20)]
STEPS, EVERY = (1, 5), 5
BEGIN = pd.Timestamp("2010-12-31")


def stocks(count: int) -> pd.DataFrame:
    """Return the prices of stocks, evenly chosen by their names."""
    path = Path(os.environ["FORECASTER_TEST_DATA"]) / "us_stocks_2000_2015.parquet"
    frame = pd.read_parquet(path).rename(columns={"ticker": "unique_id", "date": "ds"})
    names = sorted(frame["unique_id"].unique())
    frame["ds"] = pd.to_datetime(frame["ds"])
    return frame[frame["unique_id"].isin(names[:: len(names) // count][:count])]


class Prices:
    """The prices of stocks, as panels that end at a day, and as outcomes."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        table = frame.pivot(index="ds", columns="unique_id")
        self.days = table.index.to_numpy()
        self._adjusted, self._close = table["adj_close"].to_numpy(), table["close"].to_numpy()
        self._column = {str(n): k for k, n in enumerate(table["adj_close"].columns)}

    def until(self, day: np.datetime64 | pd.Timestamp) -> fc.Panel:
        return fc.load_panel(self._frame[self._frame["ds"] <= day])

    def forecast(self, model: fc.Model, panel: fc.Panel, day: np.datetime64) -> pd.DataFrame:
        """Return forecasts made on a day, as moves of the logarithm, with the outcomes ``came``."""
        made = fc.predict(model, panel, quantiles=QUANTILES)
        made["step"] = made.groupby("unique_id", observed=True).cumcount() + 1
        made = made[made["step"].isin(STEPS)]
        row = int(np.searchsorted(self.days, day))
        column = made["unique_id"].astype(str).map(self._column).to_numpy()
        ahead = row + made["step"].to_numpy()
        known = ahead < len(self.days)
        came = self._adjusted[np.minimum(ahead, len(self.days) - 1), column]
        quantiles = made[[f"LSTM-q-{q:g}" for q in QUANTILES]].to_numpy()
        moves = np.log(quantiles / self._close[row, column][:, None])
        actual = np.where(known, np.log(came / self._adjusted[row, column]), np.nan)
        columns = {f"q{q:g}": moves[:, k] for k, q in enumerate(QUANTILES)}
        return pd.DataFrame({"step": made["step"].to_numpy(), "came": actual, **columns})


def scored(made: pd.DataFrame) -> pd.DataFrame:
    """Return CRPS and coverage of forecasts, by step."""
    moves = made[[f"q{q:g}" for q in QUANTILES]].to_numpy()
    error, level = made["came"].to_numpy()[:, None] - moves, np.array(QUANTILES)
    crps = 2 * np.maximum(level * error, (level - 1) * error).mean(1)
    inside = made["came"].between(made["q0.1"], made["q0.9"]).where(made["came"].notna())
    scores = made.assign(crps=crps, coverage=inside.astype(float))
    return scores.groupby("step")[["crps", "coverage"]].mean()


def moved(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return how far median and width of two forecasts of one day differ, by step, in percent."""
    width, new = (one["q0.9"] - one["q0.1"] for one in (before, now))
    changes = {
        "step": now["step"],
        "moved": 100 * (now["q0.5"] - before["q0.5"]).abs(),
        "widened": 100 * (new / width - 1).abs(),
    }
    return pd.DataFrame(changes).groupby("step").mean()


def quarters(prices: Prices, count: int) -> Iterator[pd.DataFrame]:
    """Yield the scores of each quarter: ``quarter, method, step`` and the measures."""
    first = fc.fit(prices.until(BEGIN))
    models = {"once": first, "fit": first, "update": first}
    for number in range(count):
        begin, end = (BEGIN + pd.offsets.QuarterEnd(number + k) for k in (0, 1))
        seconds, before = dict.fromkeys(models, 0.0), dict(models)
        if number:
            panel = prices.until(begin)
            for method, refit in (
                ("fit", lambda panel: fc.fit(panel)),
                ("update", lambda panel: fc.update(models["update"], panel)),
            ):
                began = time.process_time()
                models[method] = refit(panel)
                seconds[method] = time.process_time() - began
        days = prices.days[(prices.days > begin) & (prices.days <= end)][::EVERY]
        parts: dict[str, list[pd.DataFrame]] = {method: [] for method in models}
        changes: dict[str, pd.DataFrame] = {}
        for day in days:
            panel = prices.until(day)
            for method, model in models.items():
                parts[method].append(prices.forecast(model, panel, day))
                if day == days[0] and number and method != "once":
                    old = prices.forecast(before[method], panel, day)
                    changes[method] = moved(old, parts[method][0])
        for method, made in parts.items():
            table = scored(pd.concat(made)).join(changes.get(method, pd.DataFrame(index=[*STEPS])))
            table = table.assign(
                quarter=str(pd.Period(end, "Q")), method=method, seconds=seconds[method]
            )
            yield table.rename_axis("step").reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stocks", type=int, default=50)
    parser.add_argument("--quarters", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("refits.csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        options.stocks, options.quarters = 3, 2
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    warnings.simplefilter("ignore")
    rows: list[pd.DataFrame] = []
    for part in quarters(Prices(stocks(options.stocks)), options.quarters):
        rows.append(part)
        table = pd.concat(rows)
        full = table[table["method"] == "fit"].set_index(["quarter", "step"])["crps"]
        keys = pd.MultiIndex.from_frame(table[["quarter", "step"]])
        table["crps_to_fit"] = table["crps"] / full.reindex(keys).to_numpy()
        for name in ("moved", "widened"):
            if name not in table:
                table[name] = np.nan
        names = ["quarter", "method", "step", "crps", "crps_to_fit", "coverage", "moved", "widened"]
        table[[*names, "seconds"]].round(6).to_csv(options.output, index=False)
        print(part.round(5).to_string(index=False, header=False), flush=True)


if __name__ == "__main__":
    main()
