"""The data that the script of an evaluation's page draws, of all series and of each."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from forecaster.evaluation import (
    MEASURES,
    QUOTED_LEVELS,
    TORCH,
    Evaluation,
    coverage,
    differences,
    horizon_of,
    strongest,
    volatility,
)
from forecaster.forecasting import FORECAST_BY, bounds_of
from forecaster.report import numbers
from forecaster.report.html import Json, as_numbers, columns, limits, pack, positions, rounded

_MOST_COUNTED = 64**2 - 2


def page_data(evaluation: Evaluation) -> Json:
    """Return all data of the page, by the names that ``evaluation.js`` uses."""
    models, scores, ids = numbers.ordered(evaluation), evaluation.losses, evaluation.ids
    groups, times = evaluation.summary.groups, time_axis(evaluation)
    return {
        "model": evaluation.model,
        "models": models,
        "slots": dict(numbers.slots(evaluation)),
        "rival": TORCH if TORCH in models else strongest(evaluation),
        "sampled": TORCH if numbers.sampled_torch(evaluation) else None,
        "horizon": evaluation.summary.horizon,
        "ids": ids,
        "groups": [groups.get(name, numbers.UNGROUPED) for name in ids] if groups else None,
        "rungs": _rungs(evaluation, ids),
        "dated": pd.api.types.is_datetime64_any_dtype(times),
        "scores": scores,
        "horizons": list(numbers.horizons_shown(evaluation)),
        "measured": {
            measure: {key: _measured(evaluation, measure, key, ids) for key in scores}
            for measure in MEASURES
        },
        "compared": {key: _compared(evaluation, key, ids) for key in scores},
        "held": {
            f"{level:g}": columns(table.reindex(ids))
            for level, table in numbers.held_shares(evaluation).items()
        },
        "coverage": _coverage(evaluation),
        "widths": _widths(evaluation),
        "pit": _pit(evaluation, ids),
        "where": {key: _where(evaluation, key) for key in scores},
        "byGroup": columns(numbers.by_group(evaluation)),
        "times": as_numbers(times),
        "levels": [lv for lv in numbers.QUOTED_LEVELS if str(lv) in evaluation.summary.levels],
        "series": of_all_series(evaluation, times),
    }


def _rungs(evaluation: Evaluation, ids: list[str]) -> list[Json] | None:
    """Return the basis of each series' forecasts (its rung); None where it is not known."""
    if FORECAST_BY not in evaluation.scores:
        return None
    each = evaluation.scores.drop_duplicates("unique_id").set_index("unique_id")[FORECAST_BY]
    return [str(rung) for rung in each.reindex(ids)]


def _measured(evaluation: Evaluation, measure: str, score: str, ids: list[str]) -> Json:
    """Return a number for each series, by horizon and model."""
    return {
        str(horizon): columns(MEASURES[measure](evaluation, score, horizon).reindex(ids))
        for horizon in numbers.horizons_shown(evaluation)
    }


def _compared(evaluation: Evaluation, score: str, ids: list[str]) -> Json:
    """Return differences to every other model, by horizon, with half intervals and significance."""
    out: dict[str, Json] = {}
    for horizon in numbers.horizons_shown(evaluation):
        table = differences(evaluation, score, horizon)
        table = table.assign(sure=numbers.significant(table))
        by_model = {}
        for name, rows in table.groupby("model", sort=False):
            own = rows.set_index("unique_id").reindex(ids)
            sure = own["sure"].fillna(False).astype(int)  # pyright: ignore[reportCallIssue]
            by_model[str(name)] = {
                "difference": rounded(own["difference"]),
                "half": rounded((own["high"] - own["low"]) / 2, 3),
                "sure": "".join(map(str, sure)),
            }
        out[str(horizon)] = by_model
    return out


def _coverage(evaluation: Evaluation) -> Json:
    """Return nominal levels and covered shares, by horizon and model."""
    together = numbers.mean_coverage(evaluation).reset_index().assign(horizon=0)
    held = pd.concat([coverage(evaluation), together])
    return {
        str(horizon): {
            name: {
                "level": rounded(rows["level"] / 100),
                "held": rounded(rows["held"]),
            }
            for name in numbers.ordered(evaluation)
            if len(rows := held[(held["model"] == name) & (held["horizon"] == horizon)])
        }
        for horizon in numbers.horizons_shown(evaluation)
    }


def _widths(evaluation: Evaluation) -> Json:
    """Return levels and median widths one step ahead, by model."""
    out: dict[str, Json] = {}
    for name in numbers.ordered(evaluation):
        widths = numbers.median_widths(evaluation, name).dropna()
        if len(widths):
            out[name] = {"level": rounded(widths.index), "width": rounded(widths)}
    return out


def _pit(evaluation: Evaluation, ids: list[str]) -> Json:
    """Return the edges of the PIT's bins, and each model's counts, of all series and of each."""
    edges, counts = numbers.pits(evaluation)
    out: dict[str, Json] = {}
    for name, table in counts.items():
        table = table.reindex(ids).fillna(0)
        if table.to_numpy().sum():
            packed = [
                pack(np.minimum(row, _MOST_COUNTED), 0, _MOST_COUNTED) for row in table.to_numpy()
            ]
            out[name] = {"all": table.sum().astype(int).tolist(), "each": packed}
    return {"edges": rounded(edges), "models": out}


def _where(evaluation: Evaluation, score: str) -> Json:
    """Return scores relative to "unchanged" by horizon, by date and by decile of volatility."""
    dates = numbers.relative_by_date(evaluation, score)
    steps = numbers.relative_by_horizon(evaluation, score)
    deciles = numbers.relative_by_volatility(evaluation, score)
    models = numbers.ordered(evaluation)
    return {
        "horizon": {"x": steps.index.tolist(), **columns(steps.reindex(columns=models))},
        "date": {
            "x": as_numbers(dates.index),
            **columns(dates.reindex(columns=models)),
        },
        "decile": {"x": deciles.index.tolist(), **columns(deciles.reindex(columns=models))}
        if len(deciles)
        else None,
    }


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
    between = limits(np.append(values, shown), 6)
    return {
        "at": positions(values.index, times),
        "range": between,
        "y": pack(values.to_numpy(float), *between, 3),
        "from": values.index.get_indexer(pd.Index(chosen)).tolist(),
        "steps": fans.groupby("cutoff").size().tolist(),
        "fans": [pack(column, *between, 2) for column in shown.T],
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
    return [[int(at), *rounded(row, 6)] for at, row in zip(where, numbers, strict=True)]
