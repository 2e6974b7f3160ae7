"""The tables of ``forecaster predict --paths``: the risk of prices, or values of other series."""

from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from rich.table import Table

if TYPE_CHECKING:
    from forecaster.pipeline import Prediction

_TAIL = 0.05
_BASKET = "equal weights"
_SUM = "sum"


def different_ends(result: "Prediction") -> tuple[str, str] | None:
    """Return the first and the last of the times at which paths end; None where all are one."""
    from forecaster.series import show_time

    ends = result.frame.groupby("unique_id")["ds"].max()
    return None if ends.nunique() == 1 else (show_time(ends.min()), show_time(ends.max()))


def returns_over_horizon(result: "Prediction") -> pd.DataFrame:
    """Return simple returns from the latest price to the last step: (path, series).

    The last column is a basket with equal amounts of money in all series.
    """
    panel, frame = result.panel, result.frame
    last = panel.mask.shape[1] - 1 - np.argmax(panel.mask[:, ::-1], axis=1)
    factors = [result.factors[name] for name in panel.ids]
    latest = panel.channel(panel.target)[np.arange(len(panel.ids)), last] * factors
    ends = frame.groupby(["unique_id", "sample_id"], sort=False)[result.model.config.column].last()
    values = cast(pd.DataFrame, ends.unstack("unique_id"))[list(panel.ids)].to_numpy()
    returns = pd.DataFrame(values / latest - 1, columns=list(panel.ids))
    return returns.assign(**{_BASKET: returns.mean(axis=1)}) if len(panel.ids) > 1 else returns


def values_at_the_end(result: "Prediction") -> pd.DataFrame:
    """Return values at the last step, (path, series), with their sum as the last column.

    There is no sum of a single series, nor of values of different times.
    """
    frame, model = result.frame, result.model.config.column
    ends = frame.groupby(["unique_id", "sample_id"], sort=False)[model].last()
    values = cast(pd.DataFrame, ends.unstack("unique_id"))[list(result.panel.ids)]
    if len(result.panel.ids) == 1 or different_ends(result) is not None:
        return values
    return values.assign(**{_SUM: values.sum(axis=1)})


def values_table(result: "Prediction", most: int) -> Table:
    """Return a table of values at the last step: the first ``most`` series, and any sum of all."""
    values = values_at_the_end(result)
    names = [*list(result.panel.ids)[:most], *([_SUM] if _SUM in values else [])]
    steps, count = result.model.config.horizon, len(result.panel.ids)
    ahead = "one step" if steps == 1 else f"{steps} steps"
    table = Table(
        "series", "median", "80 % band", "95 % band",
        title=f"Values {ahead} ahead, {len(values):,} paths", title_justify="left",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names:
        quantiles = values[name].quantile([0.5, 0.1, 0.9, 0.025, 0.975])
        median, *bounds = (
            f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}" for value in quantiles
        )
        bands = (f"{low} to {high}" for low, high in (bounds[:2], bounds[2:]))
        table.add_row(f"{_SUM} of {count}" if name == _SUM else name, median, *bands)
    return table


def risk_table(result: "Prediction", most: int) -> Table:
    """Return a table of returns over the horizon, with value at risk and expected shortfall.

    Rows: the first ``most`` series, and a basket of all.
    """
    returns = returns_over_horizon(result)
    names = [*list(result.panel.ids)[:most], *([_BASKET] if _BASKET in returns else [])]
    steps, count = result.model.config.horizon, len(result.panel.ids)
    table = Table(
        "series", "median", "80 % band", "value at risk 95 %", "expected shortfall 95 %",
        title=f"Returns over {steps} steps, {len(returns):,} paths", title_justify="left",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names:
        values = returns[name]
        low, median, high, tail = values.quantile([0.1, 0.5, 0.9, _TAIL])
        shortfall = values[values <= tail].mean()
        shown = f"{_BASKET} of {count}" if name == _BASKET else name
        band = f"{low:+.1%} to {high:+.1%}"
        table.add_row(shown, f"{median:+.1%}", band, f"{-tail:.1%}", f"{-shortfall:.1%}")
    return table
