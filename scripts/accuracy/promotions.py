"""Measure the value of knowing promotions and prices in advance, by ``panel.with_future``.

    FORECASTER_TEST_DATA=FOLDER python scripts/accuracy/promotions.py [--quick]

Panels are forecast twice, without covariates and with them, for the last horizon, which is
withheld:

- twenty simulated series of 400 days: a wandering level, 40 % more on a random fifth of the days,
  and noise of standard deviation 1, with a mean absolute value of 0.8
- sixty series of panels of competitions, whose values are multiplied by 1.4 at a random 15 % of the
  times (promotion), or by a price to the power of -1.5, the price 10 with a deviation of 15 %; the
  same series as they are, with random promotions that change nothing (chance)

Prints the mean absolute error over the mean absolute change of each series, and writes it to
``promotions.csv`` beside this script.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import forecaster as fc

SHOPS, DAYS = 20, 400
SERIES = 60
# Panel, horizon, and the latest rows that are used.
PANELS = [
    ("M1 yearly", 3, 17), ("M1 quarterly", 4, 20), ("M1 quarterly", 4, 40), ("M1 monthly", 12, 24),
    ("NN3", 12, 150), ("NN5", 14, 300), ("M4 weekly", 6, 200),
]  # fmt: skip


def shops() -> pd.DataFrame:
    """Return simulated sales ``y`` and their promotions ``x``."""
    random = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=DAYS)
    made = []
    for number in range(SHOPS):
        x = (random.random(DAYS) < 0.2).astype(float)
        level = 50 + 0.3 * random.normal(size=DAYS).cumsum()
        y = level * (1 + 0.4 * x) + random.normal(size=DAYS)
        made.append(pd.DataFrame({"unique_id": f"s{number:02d}", "ds": days, "y": y, "x": x}))
    return pd.concat(made)


def read(name: str) -> pd.DataFrame:
    """Return some series of a competition as a long frame."""
    data = Path(os.environ["FORECASTER_TEST_DATA"])
    kind, _, period = name.partition(" ")
    if kind == "M1":
        frame = pd.read_parquet(data / "m1.parquet")
        frame = frame[frame["period"] == period.upper()]
    elif kind == "M4":
        frame = pd.read_parquet(data / "m4_weekly_train.parquet")
        frame = frame.set_axis(["unique_id", "ds", "y"], axis=1)
    else:
        frame = pd.read_parquet(data / "small_panels.parquet")
        frame = frame[frame["panel"] == kind.lower()]
    ids = frame["unique_id"].drop_duplicates()
    kept = ids.iloc[:: max(1, len(ids) // SERIES)].iloc[:SERIES]
    frame = frame[frame["unique_id"].isin(kept)]
    return frame.astype({"unique_id": str})[["unique_id", "ds", "y"]]


def changed(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the series with covariates ``x``, which have changed their values, or not."""
    random = np.random.default_rng(0)
    promotion = (random.random(len(frame)) < 0.15).astype(float)
    price = 10 * np.exp(0.15 * random.normal(size=len(frame)))
    x = price if kind == "price" else promotion
    factor = {"price": (price / 10) ** -1.5, "promotion": 1 + 0.4 * promotion, "chance": 1.0}[kind]
    return frame.assign(x=x, y=frame["y"] * factor)


def errors(frame: pd.DataFrame, horizon: int) -> tuple[float, float]:
    """Return the scaled error without and with the covariate."""
    last = frame.groupby("unique_id").tail(horizon)
    known = frame.drop(last.index)[["unique_id", "ds", "y"]]
    scale = known.groupby("unique_id")["y"].apply(lambda y: y.diff().abs().mean())
    panel = fc.load_panel(known)
    made = []
    for one in (panel, panel.with_future(frame[["unique_id", "ds", "x"]])):
        forecast = fc.predict(fc.fit(one, fc.Config(horizon=horizon)), one)
        both = forecast.merge(last, on=["unique_id", "ds"], validate="one_to_one")
        error = (both["y"] - both["LSTM"]).abs() / both["unique_id"].map(scale)
        made.append(float(error[np.isfinite(error)].mean()))
    return made[0], made[1]


def rows(quick: bool) -> Iterator[dict[str, object]]:
    """Yield the errors of each panel; ``quick``: of the simulated shops alone."""
    without, with_them = errors(shops(), 3)
    yield {
        "panel": "simulated shops", "rows": DAYS, "horizon": 3, "covariate": "promotion",
        "without": without, "with": with_them,
    }  # fmt: skip
    for name, horizon, most in () if quick else PANELS:
        frame = read(name).groupby("unique_id").tail(most + horizon)
        long = frame.groupby("unique_id")["y"].transform("size") >= 2 * horizon + 4
        frame = frame[long].reset_index(drop=True)
        for kind in ("promotion", "price", "chance"):
            without, with_them = errors(changed(frame, kind), horizon)
            yield {
                "panel": name, "rows": most, "horizon": horizon, "covariate": kind,
                "without": without, "with": with_them,
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="What promotions known in advance are worth.")
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    quick, table = parser.parse_args().quick, []
    for row in rows(quick):
        table.append(row)
        print(pd.DataFrame([row]).round(3).to_string(index=False, header=len(table) == 1))
    target = Path(tempfile.mkdtemp() if quick else Path(__file__).parent) / "promotions.csv"
    pd.DataFrame(table).round(4).to_csv(target, index=False)


if __name__ == "__main__":
    main()
