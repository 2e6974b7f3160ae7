"""Compare the value at risk of random books with the losses that came, 2005 to 2015.

    python scripts/accuracy/books.py [--stocks 50] [--books 100] [--quick]

``FORECASTER_TEST_DATA`` names the folder with ``us_stocks_2000_2015.parquet``. Half of the books
are long, half long-short, of 10 to 40 stocks with weights from 0.5 to 1.5. Networks are trained
every four years on what was known then. Every fifth session since 2005 all books are measured by
the joint paths of ``fc.risk``, so that periods of five sessions do not overlap. The CSV has a row
per kind, horizon, level and year, and ``all`` years:

- ``expected, came``: shares of losses above the value at risk, means over books and origins
- ``error, p``: standard error clustered by date, and p-value of the expected share
- ``low, high``: of the books' own shares, the 5 % and the 95 % quantile

The kind ``basket`` is the 80 % band of all stocks together, of five sessions: ``came`` is the share
outside it, and ``p`` that of an exact binomial test.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.evaluation import RollingOrigin
from forecaster.forecasting import draw_paths, prepared, price_factor
from forecaster.portfolio.measures import quantile_weights

STEPS, LEVELS = (1, 5), (95.0, 97.5, 99.0)
FIRST, EVERY, YEARS = pd.Timestamp("2005-01-01"), 5, 4
KINDS = ("long", "long-short")


def stocks(count: int) -> fc.Panel:
    """Return stocks with all rows, evenly chosen by their names."""
    rows = pd.read_parquet(Path(os.environ["FORECASTER_TEST_DATA"]) / "us_stocks_2000_2015.parquet")
    sizes = rows.groupby("ticker").size()
    names = sorted(sizes.index[sizes == sizes.max()])
    chosen = names[:: len(names) // count][:count]
    rows["date"] = pd.to_datetime(rows["date"])
    return fc.load_panel(rows[rows["ticker"].isin(chosen) & (rows["date"] >= "2001-01-01")])


def random_books(count: int, names: int) -> np.ndarray:
    """Return weights (book, stock); books of the first half are long."""
    random, weights = np.random.default_rng(0), np.zeros((count, names))
    for number, book in enumerate(weights):
        chosen = random.choice(names, random.integers(10, min(names, 40) + 1), replace=False)
        sizes = random.uniform(0.5, 1.5, len(chosen))
        signs = random.choice([-1, 1], len(chosen)) if number >= count // 2 else 1
        book[chosen] = sizes * signs / sizes.sum()
    return weights


def breaches(panel: fc.Panel, books: np.ndarray, windows: int, n_paths: int) -> pd.DataFrame:
    """Return a row per origin, horizon, level and kind: the share of books with a larger loss.

    The column ``books`` has for each book whether it had one.
    """
    rolling = RollingOrigin.fit(
        panel, fc.Config(horizon=5), windows, EVERY, refit=YEARS * 252 // EVERY, level=(80,)
    )
    close, rows = panel.channel(panel.target), list[dict[str, object]]()
    for model, cutoffs in rolling.parts:
        for at in cutoffs:
            known = prepared(model, panel.until(panel.times[at]))
            paths = draw_paths(*known, n_paths, int(at), STEPS)
            ids = [panel.ids.index(name) for name in paths.panel.ids]
            now = np.array([values[-1] for values, _ in paths.panel.rows()])
            now *= price_factor(paths.panel)
            moves = paths.values / now[:, None, None] - 1
            for number, step in enumerate(STEPS):
                came = close[ids, at + step] / close[ids, at] - 1
                losses = np.sort(-books[:, ids] @ moves[:, :, number], axis=1)
                for level in LEVELS:
                    var = losses @ quantile_weights(n_paths, level / 100)
                    row = {"time": panel.times[at], "horizon": step, "level": level}
                    rows.append(row | {"kind": "books", "books": -books[:, ids] @ came > var})
            basket = np.quantile(moves[:, :, -1].mean(0), [0.1, 0.9])
            outside = not basket[0] <= came.mean() <= basket[1]
            row = {"time": panel.times[at], "horizon": STEPS[-1], "level": 80.0}
            rows.append(row | {"kind": "basket", "books": np.array([outside])})
    return pd.DataFrame(rows)


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the CSV."""
    rows = list[dict[str, object]]()
    for (what, horizon, level), part in found.groupby(["kind", "horizon", "level"], sort=False):
        hits = np.stack([*part["books"]]).astype(float)
        years = pd.DatetimeIndex(part["time"]).year.to_numpy()
        half = hits.shape[1] // 2
        kinds = {"basket": hits} if what == "basket" else dict(zip(
            KINDS, (hits[:, :half], hits[:, half:]), strict=True))  # fmt: skip
        for kind, its in kinds.items():
            for year in [*np.unique(years), "all"]:
                some = its if year == "all" else its[years == year]
                share, mean = 1 - level / 100, float(some.mean())
                error = float(some.mean(1).std(ddof=1) / np.sqrt(len(some)))
                p = 2 * norm.sf(abs(mean - share) / error) if error else float(mean == share)
                if kind == "basket":
                    p = binomtest(int(some.sum()), len(some), share).pvalue
                low, high = np.quantile(some.mean(0), [0.05, 0.95])
                rows.append({
                    "kind": kind, "horizon": horizon, "level": level, "year": year,
                    "origins": len(some), "expected": share, "came": mean, "error": error,
                    "p": float(p), "low": low, "high": high,
                })  # fmt: skip
    return pd.DataFrame(rows).round(4)


def main() -> None:
    """Measure, print what was asked beside what came, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stocks", type=int, default=50)
    parser.add_argument("--books", type=int, default=100)
    parser.add_argument("--paths", type=int, default=2000)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    began, panel = time.process_time(), stocks(12 if asked.quick else asked.stocks)
    if asked.quick:
        panel = panel.until("2006-06-30")
    warnings.simplefilter("ignore", ForecasterWarning)
    windows = int((panel.times >= FIRST).sum() - STEPS[-1]) // EVERY
    books = random_books(asked.books, len(panel.ids))
    found = table(breaches(panel, books, windows, 500 if asked.quick else asked.paths))
    print(found[found["year"] == "all"].to_string(index=False))
    print("years in which the basket is rejected at 1 %:",
          int((found.query("kind == 'basket' and year != 'all'")["p"] < 0.01).sum()))  # fmt: skip
    folder = Path(tempfile.mkdtemp()) if asked.quick else Path(__file__).parent
    found.to_csv(folder / "books.csv", index=False)
    print(f"{time.process_time() - began:.0f} seconds of the processor: {folder / 'books.csv'}")


if __name__ == "__main__":
    main()
