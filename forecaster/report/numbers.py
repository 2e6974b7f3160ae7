"""The numbers in the figures, cards and tables of an evaluation."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from forecaster.evaluation import (
    ALL,
    ALPHA,
    DRIFTLESS,
    QUOTED_LEVELS,
    RETURN_SCORES,
    TORCH,
    Evaluation,
    around_outcomes,
    comparable,
    compared,
    coverage,
    excess,
    pooled,
    together,
    volatility,
)
from forecaster.forecasting import around_columns, forecast_columns, quantile_columns

SMOOTHED = 21
"""Number of cutoffs in a rolling mean by date."""
UNGROUPED = "(no group)"
_MEANS = {"crps": "CRPS", DRIFTLESS: "CRPS without drift", "mae": "MAE"}
_SUMS = {"crps": "sum of CRPS", "mae": "sum of errors"}
_GOLDEN = 0.6180339887498949  # its multiples spread evenly between whole numbers
RUNGS = (
    "“Forecast by” says what the forecasts of a series rest on, by the rows that it has: networks "
    "of its own; the common network of all series; the combination of simple forecasts and "
    "classical models alone; the classical model that was asked for (ets, theta or ces); or its "
    "last value."
)
"""Names of the bases of forecasts (rungs), with their meaning for readers of a page."""


def ordered(evaluation: Evaluation) -> list[str]:
    """Return all models: ours, PyTorch's networks, "unchanged", then the others."""
    models = list(evaluation.summary.models)
    first = [n for n in (evaluation.model, TORCH, "Naive", "GARCH", "EWMA") if n in models]
    return first + [name for name in models if name not in first]


def slots(evaluation: Evaluation) -> dict[str, int]:
    """Return each model's number of colour and dash, from 1 to 8, the same in all evaluations."""
    fixed = {evaluation.model: 1, TORCH: 2, "Naive": 3, "GARCH": 4, "EWMA": 5}
    free = itertools.cycle((6, 7, 8))
    return {name: fixed.get(name) or next(free) for name in ordered(evaluation)}


def sampled_torch(evaluation: Evaluation) -> bool:
    """Return whether PyTorch trained only some of the series."""
    summary = evaluation.summary
    return summary.has_torch and (summary.torch_series or 0) < summary.series


def horizons_shown(evaluation: Evaluation) -> list[int]:
    """Return the horizons to choose from: all together, then each, or a few if there are many."""
    last = evaluation.summary.horizon
    if last == 1:
        return [ALL]
    return [ALL, *(range(1, last + 1) if last <= 5 else sorted({1, (last + 1) // 2, last}))]


def pits(evaluation: Evaluation) -> tuple[np.ndarray, dict[str, pd.DataFrame]]:
    """Compute histograms of the randomised probability integral transform over all horizons.

    Returns the edges of the bins (0, the quantiles and 1), and for each model the number of
    outcomes of each series (row) in each bin (column). Both are empty if there are no bands.
    """
    levels = evaluation.summary.levels
    names = {name: forecast_columns(name, levels) for name in ordered(evaluation)}
    edges = np.array([0.0, *quantile_columns(names[evaluation.model], evaluation.model), 1.0])
    if len(edges) < 4:  # only the median
        return np.zeros(0), {}
    stored = set(evaluation.columns)
    names = {name: columns for name, columns in names.items() if stored.issuperset(columns)}
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in names}
    wanted = [column for columns in names.values() for column in columns]
    wanted += [column for name in names for column in around_columns(name) if column in stored]
    for frame in evaluation.batches(wanted):
        for name in names:
            parts[name].append(_counts(frame, name, edges))
    return edges, {name: pd.concat(part) for name, part in parts.items()}


def _counts(frame: pd.DataFrame, model: str, edges: np.ndarray) -> pd.DataFrame:
    """Count each series' outcomes between quantiles; rows without a forecast are not counted.

    An outcome that quantiles equal is drawn among the probabilities that it has, by its row.
    """
    y = frame["y"].to_numpy()
    bounds = frame[list(quantile_columns(frame, model).values())].to_numpy()
    known = np.isfinite(bounds).all(1) & np.isfinite(y)
    below, at_most = around_outcomes(frame, model)
    drawn = below + (at_most - below) * (0.001 + 0.998 * (_GOLDEN * np.arange(len(y)) % 1))
    codes, names = pd.factorize(frame["unique_id"])
    bins = bounds.shape[1] + 1
    fell = codes * bins + np.searchsorted(edges[1:-1], drawn)
    counts = np.bincount(fell[known], minlength=len(names) * bins)
    return pd.DataFrame(counts.reshape(-1, bins), index=names)


def density(edges: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Turn counts per bin into a density, which is 1 everywhere if forecasts are calibrated."""
    return counts / max(1, counts.sum()) / np.diff(edges)


def median_widths(evaluation: Evaluation, model: str) -> pd.Series:
    """Return the median width of a model's bands one step ahead, in volatilities, by level."""
    scores = evaluation.scores
    scores = scores[(scores["model"] == model) & (scores["horizon"] == 1)]
    scores = scores.set_index("unique_id")
    columns = [str(name) for name in scores if str(name).startswith("width-")]
    levels = [float(name.removeprefix("width-")) / 100 for name in columns]
    widths = [(scores[name] / volatility(evaluation)).median() for name in columns]
    return pd.Series(widths, index=levels, dtype=float).sort_index()


def relative_by_horizon(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """Return each model's score relative to "unchanged", for all series together, by horizon."""
    steps = sorted(evaluation.scores["horizon"].unique())
    means = {step: together(evaluation, score, horizon=int(step)).ratio for step in steps}
    return pd.DataFrame(means).T


def relative_by_date(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """Return each model's score relative to "unchanged" by cutoff, as means of 21 cutoffs."""
    days = evaluation.daily.pivot(index="cutoff", columns="model", values=score).sort_index()
    means = days.rolling(SMOOTHED, 1).mean()
    return means.div(means["Naive"], axis=0)


def relative_by_volatility(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """Return each model's score relative to "unchanged" by decile of volatility, from 1.

    With fewer than ten series, each is its own group; a single series makes no group.
    """
    ranks = volatility_share(evaluation).rank(method="first")
    count = min(10, len(ranks))
    if count < 2:
        return pd.DataFrame()
    table = comparable(evaluation, score)
    deciles = pd.qcut(ranks, count, labels=False).reindex(table.index)
    parts = {int(n) + 1: pooled(own).ratio for n, own in table.groupby(deciles)}
    return pd.DataFrame(parts).T


def volatility_share(evaluation: Evaluation) -> pd.Series:
    """Return each series' volatility as a share of its mean absolute value at the cutoffs."""
    outcomes = evaluation.forecasts([])
    size = outcomes.assign(y=outcomes["y"].abs()).groupby("unique_id")["y"].mean()
    share = volatility(evaluation) / size
    return share.replace([np.inf, -np.inf], np.nan).dropna()


def significant(table: pd.DataFrame) -> pd.Series:
    """Mark the rows of :func:`~forecaster.evaluation.differences` that differ from zero."""
    return table["p_adjusted"] < ALPHA


def side_by_side(evaluation: Evaluation) -> pd.DataFrame:
    """Return a row per model: scores relative to "unchanged", coverage, and how ours compares.

    For prices there is also the CRPS with every median moved to the latest price, for other series
    the weighted quantile loss of all together. Where a score rests on fewer series than the row,
    their number is in a column of its own; where errors are summed, the headings say so.
    """
    score, summed = evaluation.sharpest_score, evaluation.summed
    headings = _SUMS if summed else _MEANS
    whole = {name: together(evaluation, name) for name in headings if name in evaluation.scores}
    fewer = [n for n in evaluation.losses if not whole[n].series.equals(whole[score].series)]
    held, against, rows = held_shares(evaluation), compared(evaluation), list[dict[str, Any]]()
    for name in ordered(evaluation):
        ours = against.get((score, name))
        tested = ours if ours and ours.known > 0 else None
        ratios_of = {
            f"{headings[each]}, unchanged = 1": float(of.ratio[name]) for each, of in whole.items()
        }
        rows.append(
            {
                "model": name,
                "series": int(whole[score].series[name]),
                **ratios_of,
                **{f"series, {each.upper()}": int(whole[each].series[name]) for each in fewer},
                **_weighted_loss(evaluation, name),
                **{f"{level:g} % coverage": table[name].mean() for level, table in held.items()},
                f"{evaluation.model} better": ours.better if ours else np.nan,
                "significantly": tested.significantly_better if tested else np.nan,
                "significantly worse": tested.significantly_worse if tested else np.nan,
            }
        )
    return pd.DataFrame(rows)


def of_returns(evaluation: Evaluation) -> pd.DataFrame:
    """Return a row per model with its scores of log returns minus those of "unchanged".

    The scores are means over series of the mean over horizons; lower is better. Scores that the
    evaluation lacks have no column: for series that are not prices only ``model`` is there.
    """
    known = {name: what for name, what in RETURN_SCORES.items() if name in evaluation.scores}
    models = ordered(evaluation)
    columns = {
        what: excess(evaluation, name).mean().reindex(models).to_numpy()
        for name, what in known.items()
    }
    return pd.DataFrame({"model": models, **columns})


def _weighted_loss(evaluation: Evaluation, model: str) -> dict[str, float]:
    """Return the weighted quantile loss of a model over all series, under its heading."""
    scores = evaluation.scores
    if evaluation.summary.of_prices or "size" not in scores:
        return {}
    own = scores[(scores["model"] == model) & scores["crps"].notna()]
    size = float(own["size"].sum())
    return {"weighted quantile loss": float(own["crps"].sum()) / size if size else np.nan}


def mean_coverage(evaluation: Evaluation) -> pd.Series:
    """Return the mean share of outcomes in the bands over all horizons, by model and level."""
    return coverage(evaluation).groupby(["model", "level"], sort=False)["held"].mean()


def held_shares(evaluation: Evaluation) -> Mapping[float, pd.DataFrame]:
    """Return the coverage of the bands by quoted level, each a table of (series, model)."""
    scores = evaluation.scores
    known = [level for level in QUOTED_LEVELS if f"coverage-{level}" in scores]
    return {
        level: scores.pivot_table(
            index="unique_id", columns="model", values=f"coverage-{level}", sort=False
        ).reindex(columns=ordered(evaluation))
        for level in known
    }


def by_group(evaluation: Evaluation) -> pd.DataFrame:
    """Return a row per group and model: ``group, model, series`` and means over the series.

    ``crps, mae``: scores relative to "unchanged"; ``coverage-80, coverage-95``; ``ratio``: our
    score relative to the model's; ``better``: the share of series on which our score is lower.
    Where errors are summed (:attr:`.Evaluation.summed`), the scores and ``ratio`` are of sums.
    Series without a group come last. If there are no groups, there are no rows.
    """
    groups, ours, rows = evaluation.summary.groups, evaluation.model, []
    if not groups:
        return pd.DataFrame(columns=["group", "model", "series"])
    sharpest, held = evaluation.sharpest_score, held_shares(evaluation)
    scores = {name: comparable(evaluation, name) for name in evaluation.losses}
    ids = scores[sharpest].index
    members = pd.Series([groups.get(str(name), UNGROUPED) for name in ids], index=ids)
    against = {name: comparable(evaluation, sharpest, name) for name in ordered(evaluation)}
    for group in sorted(set(members), key=lambda name: (name == UNGROUPED, name)):
        own = members.index[members == group]
        whole = {name: pooled(table.loc[own]) for name, table in scores.items()}
        for model, table in against.items():
            one = pooled(table.loc[own], model)
            both = table.loc[own, [ours, model]].dropna()
            counted = one.series[ours] if evaluation.summed else whole[sharpest].series[model]
            rows.append(
                {
                    "group": group,
                    "model": model,
                    "series": int(counted),
                    **{name: each.ratio[model] for name, each in whole.items()},
                    **{f"coverage-{lv:g}": t[model].reindex(own).mean() for lv, t in held.items()},
                    "ratio": one.ratio[ours],
                    "better": (both[ours] < both[model]).mean() if model != ours else np.nan,
                }
            )
    return pd.DataFrame(rows)
