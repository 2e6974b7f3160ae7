"""What knowing promotions in advance is worth: the error with and without ``panel.with_future``.

    python scripts/accuracy/promotions.py

Twenty simulated series of 400 days: a wandering level, 40 % more on a random fifth of the days, and
noise of standard deviation 1, whose mean size alone is 0.8. The mean absolute error three days
ahead over the days that were held back is printed, and written to ``promotions.csv`` beside this.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import forecaster as fc

SERIES, DAYS, HORIZON = 20, 400, 3


def market() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sales, and the promotions up to a horizon beyond."""
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
