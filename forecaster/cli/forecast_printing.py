"""The tables of ``forecaster predict``: forecasts with bands, or what sample paths show."""

from collections.abc import Sequence
from typing import cast

import pandas as pd

from forecaster.cli.printing import print_table
from forecaster.cli.shared import say
from forecaster.forecasting import FORECAST_BY, RISE, Method, bounds_of, quantile_column
from forecaster.pipeline import Prediction
from forecaster.series import show_time, show_times

FULL_TABLES = 5
"""For more series than this, one line each."""
_SHOWN = [0.1, 0.5, 0.9, 0.05, 0.025, 0.975]  # quantiles of paths; 0.05 is the tail of risk
_BASKET, _SUM = "equal weights", "sum"


def print_forecasts(
    result: Prediction, levels: Sequence[float], quantiles: Sequence[float]
) -> None:
    """Print a table of dates for each series, or for many series one table of their last dates.

    ``levels``, ``quantiles``: the bands, in percent, and the quantiles to show
    """
    frame, model, ids = result.frame, result.model.config.column, result.panel.ids
    each = not result.summed and len(ids) <= FULL_TABLES
    known = {} if result.summed else dict(zip(ids, _latest(result), strict=True))
    by = FORECAST_BY in frame and bool((frame[FORECAST_BY] != Method.OWN).any())
    bands = {f"{level:g} % band": bounds_of(model, level) for level in levels}
    columns = {"median": (model,), **bands}
    columns |= {f"quantile {q:g}": (quantile_column(model, q),) for q in quantiles}
    headings, lines = ("date", *columns, "P(rise)"), []
    for group, part in frame.groupby("unique_id", sort=False):
        name = str(group)
        part = part if each else part[-1:]
        rows = [
            (
                time,
                *(_band(row[list(its)].tolist()) for its in columns.values()),
                f"{row[RISE]:.0%}",
            )
            for time, (_, row) in zip(show_times(part["ds"]), part.iterrows(), strict=True)
        ]
        method = str(part[FORECAST_BY].iloc[0]) if by else ""
        if each:
            title = f"{name}   last {'value' if result.panel.target == 'y' else 'close'} "
            title += f"{_number(known[name])} on {result.ends[name]}"
            title += "   (simulated)" if result.simulated else ""
            title += f"   forecast by {method}" if by else ""
            print_table(title, headings, rows, numbers=True)
        else:
            first = f"{part['series'].iloc[0]:,}" if result.summed else _number(known[name])
            lines.append((name, first, *rows[0], *([method] if by else [])))
    if not each:
        first = ("group", "series") if result.summed else ("series", "last")
        headings = (*first, *headings, *(["forecast by"] if by else []))
        print_table("", headings, lines, numbers=True)


def print_paths(result: Prediction) -> None:
    """Print values at the last step of paths; of prices the risk of the returns until then.

    Rows: the first series, and the sum of all values, or a basket of all prices.
    """
    ends, prices, count = at_the_end(result), result.panel.target != "y", len(result.panel.ids)
    rows = []
    for number, (name, its) in enumerate(ends.items()):
        if FULL_TABLES <= number < count:
            continue
        low, median, high, tail, lowest, highest = its.quantile(_SHOWN)
        if prices:
            shortfall = its[its <= tail].mean()
            cells = (
                f"{median:+.1%}", f"{low:+.1%} to {high:+.1%}", f"{-tail:.1%}", f"{-shortfall:.1%}",
            )  # fmt: skip
        else:
            cells = _number(median), _band([low, high]), _band([lowest, highest])
        rows.append((f"{name} of {count}" if number == count else str(name), *cells))
    steps = result.model.config.horizon
    ahead = "one step" if steps == 1 else f"{steps} steps"
    title = f"Returns over {ahead}" if prices else f"Values {ahead} ahead"
    more = ("value at risk 95 %", "expected shortfall 95 %") if prices else ("95 % band",)
    print_table(
        f"{title}, {len(ends):,} paths", ("series", "median", "80 % band", *more), rows,
        numbers=True,
    )  # fmt: skip
    if (times := _different_ends(result)) is not None:
        say(
            f"The paths end at different times, {times[0]} to {times[1]}. "
            + ("So the returns, also those of the basket, are over different days." if prices
               else "So there is no sum; --sum FILE.csv adds up the values of each date.")
        )  # fmt: skip


def at_the_end(result: Prediction) -> pd.DataFrame:
    """Return values at the last step; of prices simple returns from the latest one: (path, series).

    Of several series the last column is the sum of the values, unless they are of different times,
    or a basket with equal amounts of money in all prices.
    """
    frame, names = result.frame, list(result.panel.ids)
    last = frame.groupby(["unique_id", "sample_id"], sort=False)[result.model.config.column].last()
    values = cast(pd.DataFrame, last.unstack("unique_id"))[names]
    if result.panel.target != "y":
        values = values / _latest(result) - 1
        return values.assign(**{_BASKET: values.mean(axis=1)}) if len(names) > 1 else values
    if len(names) == 1 or _different_ends(result) is not None:
        return values
    return values.assign(**{_SUM: values.sum(axis=1)})


def _different_ends(result: Prediction) -> tuple[str, str] | None:
    """Return the first and the last of the times at which paths end; None where all are one."""
    ends = result.frame.groupby("unique_id")["ds"].max()
    return None if ends.nunique() == 1 else (show_time(ends.min()), show_time(ends.max()))


def _latest(result: Prediction) -> list[float]:
    """Return the latest value of each series, in quoted prices."""
    values = result.panel.channel(result.panel.target)
    return [
        float(its[seen][-1]) * result.factors[name]
        for name, its, seen in zip(result.panel.ids, values, result.panel.mask, strict=True)
    ]


def _band(bounds: Sequence[float]) -> str:
    return " to ".join(map(_number, bounds))


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}"
