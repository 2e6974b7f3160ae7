"""Measure the value of knowing promotions in advance, with and without ``panel.with_future``.

    python scripts/accuracy/promotions.py

Twenty simulated series of 400 days: a wandering level, 40 % more on a random fifth of the days, and
noise of standard deviation 1, with a mean absolute value of 0.8. Prints the mean absolute error
three days ahead over the held-back days, and writes it to ``promotions.csv`` beside this script.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import forecaster as fc

SERIES, DAYS, HORIZON = 20, 400, 3


def market() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate sales, and promotions up to one horizon beyond their end."""
    random = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=DAYS + HORIZON)
    sales, plans = [], []
    for number in range(SERIES):
        promotion = (random.random(len(days)) < 0.2).astype(float)
        level = 50 + 0.3 * random.normal(size=len(days)).cumsum()
        y = level * (1 + 0.4 * promotion) + random.normal(size=len(days))
        keys = {"unique_id": f"s{number:02d}", "ds": days}
        sales.append(pd.DataFrame({**keys, "y": y}).iloc[:DAYS])
        plans.append(pd.DataFrame({**keys, "promotion": promotion}))
    return pd.concat(sales), pd.concat(plans)


def main() -> None:
    sales, plans = market()
    panel = fc.load_panel(sales)
    rows = []
    for what, known in (("unknown", panel), ("known", panel.with_future(plans))):
        report = fc.fit(known, fc.Config(horizon=HORIZON)).report
        errors = report[["mae", "mae_relative_to_naive"]].mean()
        rows.append({"promotions": what, **errors})
    table = pd.DataFrame(rows).round(3)
    print(table.to_string(index=False))
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
