"""Compare forecasts with and without effects of the calendar, by rolling origin.

The traded volumes of a hundred US stocks by day, week and month have trading days, ends of months
and holidays; the cash withdrawals of NN5 have a week, holidays and ends of months. The script
compares the combinations of classical models that networks start from, by the mean absolute error
of the logarithm (volumes) or of the value (withdrawals):

    python scripts/accuracy/calendar_effects.py [--output calendar_effects.csv] [--quick]

``FORECASTER_TEST_DATA`` names the folder with the data.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.series.features.choosing import choose_transform
from forecaster.series.features.known_effects import Shared

STOCKS = 100
CUTOFFS = {  # steps ahead, and the first days that are forecast
    "by day": (21, ["2004-12-06", "2007-03-05", "2009-06-08", "2012-12-06", "2014-09-08"]),
    "by week": (13, ["2006-03-04", "2008-09-06", "2010-01-02", "2012-11-03", "2014-11-01"]),
    "by month": (12, ["2006-01-01", "2008-01-01", "2010-01-01", "2012-01-01", "2014-01-01"]),
    "NN5": (56, ["1997-08-10", "1997-10-05", "1997-11-30", "1998-01-25"]),
}
PERIODS = {"by day": "B", "by week": "W-FRI", "by month": "MS"}


def data() -> Path:
    return Path(os.environ["FORECASTER_TEST_DATA"])


def volumes(freq: str) -> pd.DataFrame:
    prices = pd.read_parquet(data() / "us_stocks_2000_2015.parquet").astype({"ticker": str})
    names = sorted(prices["ticker"].unique())
    prices = prices[prices["ticker"].isin(names[:: len(names) // STOCKS])]
    prices["ds"] = pd.to_datetime(prices["date"])
    if freq != "B":
        group = [pd.Grouper(key="ds", freq=freq), "ticker"]
        prices = prices.groupby(group)["volume"].sum().reset_index()
    frame = prices.rename(columns={"ticker": "unique_id", "volume": "y"})
    return frame.loc[frame["y"] > 0, ["unique_id", "ds", "y"]]


def withdrawals() -> pd.DataFrame:
    frame = pd.read_parquet(data() / "small_panels.parquet")
    frame = frame[frame["panel"] == "nn5"].astype({"unique_id": str})
    frame["ds"] = pd.Timestamp("1996-03-18") + pd.to_timedelta(frame["ds"] - 1, unit="D")
    return frame[["unique_id", "ds", "y"]]


def errors_from(
    frame: pd.DataFrame, cutoff: pd.Timestamp, horizon: int, in_logarithms: bool
) -> tuple[tuple[str, ...], list[float]]:
    """Return the groups of special steps that are used, and the errors without and with them."""
    panel = fc.load_panel(frame[frame["ds"] < cutoff])
    later = frame[frame["ds"] >= cutoff]
    times = np.sort(later["ds"].unique())[:horizon]
    wide = later.pivot_table(index="unique_id", columns="ds", values="y")
    actual = wide.reindex(index=list(panel.ids), columns=times).to_numpy()
    known = choose_transform("auto", panel).learned_from(panel, horizon)
    shared = known.learned.known
    errors: list[float] = []
    for transform in (known.with_learned(known=Shared(shared.responses)), known):
        fitted = transform.with_components(panel, horizon)
        value = fitted.apply(panel, horizon).base[:, -1]
        error = np.log(actual / np.maximum(value, 1.0)) if in_logarithms else actual - value
        errors.append(float(np.nanmean(np.abs(error))))
    return shared.calendar.groups, errors


def main() -> None:
    parser = argparse.ArgumentParser(description="What effects of the calendar are worth.")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    cutoffs_of = CUTOFFS
    if options.quick:
        cutoffs_of = {name: (horizon, days[:1]) for name, (horizon, days) in CUTOFFS.items()}
        cutoffs_of.pop("by day")
        options.output = Path(tempfile.mkdtemp()) / options.output.name
    rows: list[dict[str, Any]] = []
    for name, (horizon, cutoffs) in cutoffs_of.items():
        frame = volumes(PERIODS[name]) if name in PERIODS else withdrawals()
        for cutoff in cutoffs:
            groups, (without, beside) = errors_from(
                frame, pd.Timestamp(cutoff), horizon, name in PERIODS
            )
            panel = f"volumes {name}" if name in PERIODS else name
            row: dict[str, Any] = {"panel": panel, "horizon": horizon, "from": cutoff}
            row |= {
                "groups": " ".join(groups),
                "without": round(without, 4),
                "with": round(beside, 4),
            }
            rows.append(row | {"ratio": round(beside / without, 3)})
            print(*rows[-1].values(), sep="\t", flush=True)
    pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
