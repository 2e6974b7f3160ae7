"""What own networks add to simpler methods, on the rows that a fit held back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from forecaster.forecasting.methods import FORECAST_BY, Method
from forecaster.series import CLASSICAL

COMPONENTS = (*CLASSICAL, "linear", "patterns")
"""The components of the combination that are also compared by themselves."""
COMBINATION_COVERAGE = "combination_coverage-80"
"""The column of reports with the share of outcomes in bands of 80 % around the combination."""
SEASONAL_NAIVE = "seasonal_naive"
VOLATILITY = "volatility of a month"
"""What prices are compared with: normal distributions of the volatility of the latest month."""
_NEARLY_ALL = 0.8  # share of the series for which a forecast must be known to be compared


def beside(name: str) -> str:
    """Return the column with the error of a forecast, relative to that of the last value."""
    return f"{name}_beside_naive"


def crps_of(name: str) -> str:
    """Return the column with the score of a forecast of prices, see :func:`comparison`."""
    return f"crps_{name}"


def comparison(report: pd.DataFrame, made: Mapping[str, Any]) -> pd.DataFrame:
    """Return how well each method forecasts the rows held back, a row per method.

    All rows are about the same series: those with networks of their own if there are any, or a
    sample of them where components of the combination are computed by themselves. A method that
    fewer than four in five of these series have is left out, and so is a series that lacks one of
    the others. Networks learned nothing from these rows; components may have seen the first ones.

    - ``loss``: of prices: the mean CRPS of their logarithms, in percent, over a sample. Of networks
      of other series: the mean negative log likelihood, by which training also stops, so that it
      flatters own networks a little
    - ``error``: the mean absolute error over that of the last value, the median over series
    - ``coverage``: the share of outcomes in the model's bands of 80 %, over a sample of all series
      that it forecasts so; of the combination, in bands calibrated on earlier outcomes
    - ``seconds``: of the training of all networks

    What the fit has not measured is NaN. ``attrs["series"]`` is the number of series.
    ``report``: of a model, a row per series; ``made``: its provenance
    """
    own = report[FORECAST_BY] == Method.OWN
    if crps_of(VOLATILITY) in report:
        return _comparison_of_prices(report, made)
    some = report[own] if own.any() else report
    sampled = some.filter([beside(Method.COMBINATION)]).notna().any(axis=1)
    some = some[sampled] if sampled.any() else some
    first = str(Method.OWN if own.any() else some[FORECAST_BY].mode()[0])
    columns = {str(name): beside(name) for name in (Method.COMBINATION, *COMPONENTS)}
    columns["season before"] = beside(SEASONAL_NAIVE)
    columns[first] = "mae_relative_to_naive"  # perhaps a classical model that forecasts alone
    errors = pd.DataFrame({n: some[of] for n, of in columns.items() if of in some}, some.index)
    errors = errors.loc[:, errors.notna().mean() >= _NEARLY_ALL]
    same = errors.notna().all(axis=1)
    middle, some = errors[same].median(), some[same]
    classical = [name for name in CLASSICAL if name in middle]
    best = middle[classical].idxmin() if classical else None
    middle = middle.drop([name for name in classical if name != best])

    def mean(column: str) -> float:
        return float(some[column].mean()) if column in some else np.nan

    table = pd.DataFrame({"error": middle, "loss": np.nan, "coverage": np.nan, "seconds": np.nan})
    table.loc["last value", "error"] = 1.0
    if str(Method.COMBINATION) in table.index:
        table.loc[str(Method.COMBINATION), "coverage"] = mean(COMBINATION_COVERAGE)
    table.loc[first, "coverage"] = made.get("coverage")
    if own.any():
        table.loc[first, ["loss", "seconds"]] = mean("validation_loss"), made["training_seconds"]
    order = list(dict.fromkeys([first, *map(str, table.index)]))
    table = table.loc[order, ["loss", "error", "coverage", "seconds"]]
    table.attrs["series"] = len(some)
    return table


def _comparison_of_prices(report: pd.DataFrame, made: Mapping[str, Any]) -> pd.DataFrame:
    """Return how well the parts of a band forecast: nobody beats the error of the last price."""
    scores = report.filter(regex=f"^{crps_of('')}").dropna()
    losses = scores.rename(columns=lambda name: name.removeprefix(crps_of("")))
    table = pd.DataFrame({"loss": losses.mean(), "coverage": np.nan, "seconds": np.nan})
    table.loc[table.index[0], "coverage"] = made.get("coverage")
    table.loc[str(Method.OWN), "seconds"] = made["training_seconds"]
    table.attrs["series"] = len(scores)
    return table
