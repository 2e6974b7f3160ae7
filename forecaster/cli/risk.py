"""The tables of ``forecaster predict --paths``: the risk of prices, or values of other series."""

from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd

from forecaster.cli.printing import print_table

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


def print_values(result: "Prediction", most: int) -> None:
    """Print values at the last step: the first ``most`` series, and any sum of all."""
    values = values_at_the_end(result)
    steps = result.model.config.horizon
    rows = []
    for name in [*list(result.panel.ids)[:most], *([_SUM] if _SUM in values else [])]:
        quantiles = values[name].quantile([0.5, 0.1, 0.9, 0.025, 0.975])
        median, *bounds = (f"{x:,.2f}" if abs(x) >= 1 else f"{x:.4g}" for x in quantiles)
        bands = (f"{low} to {high}" for low, high in (bounds[:2], bounds[2:]))
        rows.append((_of_all(name, result), median, *bands))
    ahead = "one step" if steps == 1 else f"{steps} steps"
    headings = ("series", "median", "80 % band", "95 % band")
    print_table(f"Values {ahead} ahead, {len(values):,} paths", headings, rows, numbers=True)


def print_risk(result: "Prediction", most: int) -> None:
    """Print returns over the horizon, with value at risk and expected shortfall.

    Rows: the first ``most`` series, and a basket of all.
    """
    returns = returns_over_horizon(result)
    rows = []
    for name in [*list(result.panel.ids)[:most], *([_BASKET] if _BASKET in returns else [])]:
        values = returns[name]
        low, median, high, tail = values.quantile([0.1, 0.5, 0.9, _TAIL])
        shortfall = values[values <= tail].mean()
        band = f"{low:+.1%} to {high:+.1%}"
        shown = _of_all(name, result)
        rows.append((shown, f"{median:+.1%}", band, f"{-tail:.1%}", f"{-shortfall:.1%}"))
    title = f"Returns over {result.model.config.horizon} steps, {len(returns):,} paths"
    headings = ("series", "median", "80 % band", "value at risk 95 %", "expected shortfall 95 %")
    print_table(title, headings, rows, numbers=True)


def _of_all(name: str, result: "Prediction") -> str:
    return f"{name} of {len(result.panel.ids)}" if name in (_SUM, _BASKET) else name
