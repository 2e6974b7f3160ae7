"""What own networks add to simpler means, on the rows that a fit held back."""

import numpy as np
import pandas as pd

from forecaster.forecasting.methods import FORECAST_BY, Method

CLASSICAL = Method.ETS, Method.THETA, Method.CES
COMPONENTS = (*CLASSICAL, "linear", "patterns")
"""Those of the combination that are compared by themselves."""
COVERAGE, COMBINATION_COVERAGE = "coverage-80", "combination_coverage-80"
"""The columns of reports with the share of outcomes in bands of 80 %."""
START_LOSS = "validation_loss_of_start"
"""The column with the loss of the networks that all series' own started from."""


def beside(name: str) -> str:
    """Return the column with the error of a forecast, relative to that of the last value."""
    return f"{name}_beside_naive"


def comparison(report: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Return how well each means forecasts the rows held back, a row for each.

    All forecast the same series: those with networks of their own if there are any, or a sample of
    these where components of the combination are computed by themselves. Networks learned nothing
    from these rows; components may have seen the first of them.

    - ``loss``: of networks: the mean negative log likelihood, by which training also stops, so that
      it flatters own networks a little
    - ``error``: the mean absolute error over that of the last value, the median over series
    - ``coverage``: the share of outcomes in bands of 80 %
    - ``seconds``: of the training of all networks

    What the fit has not measured is NaN. ``report``: of a model; ``seconds``: of its training
    """
    own = report[FORECAST_BY] == Method.OWN
    some = report[own] if own.any() else report
    sampled = some.filter([beside(Method.COMBINATION)]).notna().any(axis=1)
    some = some[sampled] if sampled.any() else some

    def of(column: str, how: str = "median") -> float:
        return float(some[column].agg(how)) if column in some else np.nan

    errors = {name: of(beside(name)) for name in COMPONENTS}
    best = min(CLASSICAL, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    naive, seasonal = "mae_relative_to_naive", "mae_relative_to_seasonal_naive"
    first = Method.OWN if own.any() else some[FORECAST_BY].mode()[0]
    loss, time = (of("validation_loss", "mean"), seconds) if own.any() else (np.nan, np.nan)
    forecast = {first: (loss, of(naive), of(COVERAGE, "mean"), time)}
    combined = of(beside(Method.COMBINATION)), of(COMBINATION_COVERAGE, "mean")
    rows = {
        Method.COMMON: (of(START_LOSS, "mean"), np.nan, np.nan, np.nan),
        Method.COMBINATION: (np.nan, *combined, np.nan),
        **{name: (np.nan, errors[name], np.nan, np.nan) for name in (best, "linear", "patterns")},
        Method.LAST_VALUE: (np.nan, 1.0, np.nan, np.nan),
        "season before": (np.nan, float((some[naive] / some[seasonal]).median()), np.nan, np.nan),
    }
    rows = forecast | rows | forecast  # at the top
    columns = ["loss", "error", "coverage", "seconds"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.set_axis([*map(str, rows)]).dropna(how="all")
