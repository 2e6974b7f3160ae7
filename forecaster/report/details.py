"""The page's data on one series, packed: forecast fans over time, and the worst days."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from forecaster.evaluation import QUOTED_LEVELS, Evaluation, horizon_of, volatility
from forecaster.forecasting import bounds_of
from forecaster.report.packing import Json, pack, positions

HISTORY = 250
"""Number of latest rows of a series that are shown, with the fans over them."""
WORST = 8


def time_axis(evaluation: Evaluation) -> pd.Index:
    """Return all times of cutoffs and outcomes, in order."""
    keys = evaluation.forecasts([])
    return pd.Index(np.unique(np.concatenate([keys["cutoff"].to_numpy(), keys["ds"].to_numpy()])))


def of_all_series(evaluation: Evaluation, times: pd.Index) -> dict[str, Json]:
    """Return :func:`of_series` for each series by name; ``times``: the time axis of positions."""
    levels = [level for level in QUOTED_LEVELS if str(level) in evaluation.summary.levels]
    bounds = [bound for level in levels[::-1] for bound in bounds_of(evaluation.model, str(level))]
    unit = volatility(evaluation)
    columns = list(dict.fromkeys([evaluation.model, *bounds, "Naive"]))
    return {
        str(name): of_series(rows, times, [evaluation.model, *bounds], float(unit[name]))
        for frame in evaluation.batches(columns)
        for name, rows in frame.groupby("unique_id", sort=False)
    }


def of_series(
    rows: pd.DataFrame, times: pd.Index, columns: Sequence[str], unit: float
) -> Mapping[str, Json]:
    """Return a series' recent values, its fans of forecasts that do not overlap, its worst days.

    - ``rows``: the forecasts of the series, in order of cutoffs and horizons
    - ``times``: the time axis that positions refer to
    - ``columns``: the forecast and the bounds of its bands
    - ``unit``: the volatility of the series

    In the result:

    - ``at``: positions of the rows on the time axis; only that of the first row if no row is
      missing in between
    - ``y``: the values there, packed between the two numbers of ``range``
    - ``from``, ``steps``: each fan's position in ``y``, and its number of steps
    - ``fans``: forecasts and bounds of the fans, packed
    - ``worst``: for each of the worst days its position on the time axis, the value before, the
      value, the forecast and bounds, and the error in volatilities
    """
    rows = rows.assign(step=horizon_of(rows))
    before = rows.drop_duplicates("cutoff").set_index("cutoff")["Naive"]
    values = pd.concat([before, rows.drop_duplicates("ds").set_index("ds")["y"]])
    values = values[~values.index.duplicated(keep="last")].sort_index().tail(HISTORY)
    chosen = _apart(rows, values.index)
    fans = rows[rows["cutoff"].isin(chosen)]
    shown = fans[list(columns)].to_numpy(float)
    low = float(np.nanmin([np.nanmin(values), np.nanmin(shown, initial=np.inf)]))
    high = float(np.nanmax([np.nanmax(values), np.nanmax(shown, initial=-np.inf)]))
    return {
        "at": positions(values.index, times),
        "range": [_short(low), _short(high)],
        "y": pack(values.to_numpy(float), _short(low), _short(high), 3),
        "from": values.index.get_indexer(pd.Index(chosen)).tolist(),
        "steps": fans.groupby("cutoff").size().tolist(),
        "fans": [pack(column, _short(low), _short(high), 2) for column in shown.T],
        "worst": _worst(rows, times, columns, unit),
    }


def _apart(rows: pd.DataFrame, known: pd.Index) -> list[object]:
    """Choose cutoffs whose forecasts do not overlap, from the last one backwards."""
    ends = rows.groupby("cutoff")["ds"].max()
    chosen: list[object] = []
    for cutoff, end in ends[::-1].items():
        if cutoff not in known:
            break
        if not chosen or end <= chosen[-1]:  # pyright: ignore[reportOperatorIssue]
            chosen.append(cutoff)
    return chosen[::-1]


def _worst(rows: pd.DataFrame, times: pd.Index, columns: Sequence[str], unit: float) -> list[Json]:
    first = rows[rows["step"] == 1]
    error = (first["y"] - first[columns[0]]) / unit
    first = first.assign(error=error)[np.isfinite(error)]
    worst = first.loc[first["error"].abs().sort_values(ascending=False).index[:WORST]]
    numbers = worst[["Naive", "y", *columns, "error"]].to_numpy(float)
    where = times.get_indexer(pd.Index(worst["ds"]))
    return [
        [int(at), *(_short(v) if np.isfinite(v) else None for v in row)]
        for at, row in zip(where, numbers, strict=True)
    ]


def _short(value: float) -> float:
    return float(f"{value:.6g}")
