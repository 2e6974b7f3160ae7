"""The numbers that figures, cards and tables of an evaluation show."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from forecaster.evaluation import (
    ALL,
    ALPHA,
    QUOTED_LEVELS,
    TORCH,
    Evaluation,
    differences,
    ratios,
    relative,
    volatility,
)
from forecaster.forecasting import forecast_columns, quantile_columns

SMOOTHED = 21
"""Cutoffs that a mean by date is taken over."""
UNGROUPED = "(no group)"


def ordered(evaluation: Evaluation) -> list[str]:
    """All models: ours, PyTorch's networks, "unchanged", then the others."""
    models = list(evaluation.summary.models)
    first = [n for n in (evaluation.model, TORCH, "Naive", "GARCH", "EWMA") if n in models]
    return first + [name for name in models if name not in first]


def slots(evaluation: Evaluation) -> dict[str, int]:
    """A colour and dash for each model, from 1 to 8; the same models have the same everywhere."""
    fixed = {evaluation.model: 1, TORCH: 2, "Naive": 3, "GARCH": 4, "EWMA": 5}
    others = [name for name in ordered(evaluation) if name not in fixed]
    free = [6, 7, 8]
    return {name: fixed[name] for name in ordered(evaluation) if name in fixed} | {
        name: free[number % len(free)] for number, name in enumerate(others)
    }


def sampled_torch(evaluation: Evaluation) -> bool:
    """Whether PyTorch trained some of the series only."""
    summary = evaluation.summary
    return summary.has_torch and (summary.torch_series or 0) < summary.series


def horizons_shown(evaluation: Evaluation) -> list[int]:
    """The horizons to choose from: all together, and each or, of many, a few."""
    last = evaluation.summary.horizon
    if last == 1:
        return [ALL]
    return [ALL, *(range(1, last + 1) if last <= 5 else sorted({1, (last + 1) // 2, last}))]


def pits(evaluation: Evaluation) -> tuple[np.ndarray, dict[str, pd.DataFrame]]:
    """Probability integral transforms over all horizons.

    Returns edges, which are 0, the quantiles and 1, and by model how many outcomes of every series
    (row) lie between each two of them; without bands, none.
    """
    levels = evaluation.summary.levels
    names = {name: forecast_columns(name, levels) for name in ordered(evaluation)}
    edges = np.array([0.0, *quantile_columns(names[evaluation.model], evaluation.model), 1.0])
    if len(edges) < 4:  # the median alone
        return np.zeros(0), {}
    stored = set(evaluation.columns)
    names = {name: columns for name, columns in names.items() if stored.issuperset(columns)}
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in names}
    for frame in evaluation.batches([column for columns in names.values() for column in columns]):
        for name, columns in names.items():
            bounds = frame[list(quantile_columns(columns, name).values())].to_numpy()
            parts[name].append(_counts(frame, bounds))
    return edges, {name: pd.concat(part) for name, part in parts.items()}


def _counts(frame: pd.DataFrame, bounds: np.ndarray) -> pd.DataFrame:
    """How many outcomes of each series lie between quantiles; zeros where there is no forecast."""
    known = np.isfinite(bounds).all(1) & np.isfinite(frame["y"].to_numpy())
    below = (frame["y"].to_numpy()[:, None] > bounds).sum(1)
    codes, names = pd.factorize(frame["unique_id"])
    bins = bounds.shape[1] + 1
    counts = np.bincount(codes[known] * bins + below[known], minlength=len(names) * bins)
    return pd.DataFrame(counts.reshape(-1, bins), index=names)


def density(edges: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Counts between edges as a density: 1 everywhere if forecasts are calibrated."""
    return counts / max(1, counts.sum()) / np.diff(edges)


def median_widths(evaluation: Evaluation, model: str, horizon: int = 1) -> pd.Series:
    """The median over series of the width of a model's bands in volatilities, by level."""
    scores = evaluation.scores
    scores = scores[(scores["model"] == model) & (scores["horizon"] == horizon)]
    scores = scores.set_index("unique_id")
    columns = [str(name) for name in scores if str(name).startswith("width-")]
    levels = [float(name.removeprefix("width-")) / 100 for name in columns]
    widths = [(scores[name] / volatility(evaluation)).median() for name in columns]
    return pd.Series(widths, index=levels, dtype=float).sort_index()


def relative_by_horizon(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """Each model's score relative to that of "unchanged", by horizon; means over series."""
    steps = sorted(evaluation.scores["horizon"].unique())
    means = {step: relative(evaluation, score, int(step)).mean() for step in steps}
    return pd.DataFrame(means).T


def relative_by_date(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """Each model's score relative to that of "unchanged", by cutoff; means of 21 cutoffs."""
    days = evaluation.daily.pivot(index="cutoff", columns="model", values=score).sort_index()
    means = days.rolling(SMOOTHED, 1).mean()
    return means.div(means["Naive"], axis=0)


def relative_by_volatility(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """Each model's score relative to that of "unchanged", by decile of volatility, from 1; means.

    With fewer than ten series there are as many groups as series; with one, none.
    """
    ranks = volatility_share(evaluation).rank(method="first")
    count = min(10, len(ranks))
    if count < 2:
        return pd.DataFrame()
    table = relative(evaluation, score)
    deciles = pd.qcut(ranks, count, labels=False).reindex(table.index)
    means = table.groupby(deciles).mean()
    return means.set_index(means.index + 1)


def volatility_share(evaluation: Evaluation) -> pd.Series:
    """The volatility of each series as a share of its mean size at the cutoffs."""
    outcomes = evaluation.forecasts([])
    size = outcomes.assign(y=outcomes["y"].abs()).groupby("unique_id")["y"].mean()
    share = volatility(evaluation) / size
    return share.replace([np.inf, -np.inf], np.nan).dropna()


def significant(table: pd.DataFrame) -> pd.Series:
    """Which rows of :func:`~forecaster.evaluation.differences` differ from zero."""
    return table["p_adjusted"] < ALPHA


def side_by_side(evaluation: Evaluation) -> pd.DataFrame:
    """A row per model: its scores relative to "unchanged", its bands, and ours against it."""
    score, rows = evaluation.sharpest_score, []
    tables = {name: relative(evaluation, name) for name in _scores_of(evaluation)}
    held = held_shares(evaluation)
    compared = differences(evaluation, score)
    for name in ordered(evaluation):
        ours = compared[(compared["model"] == name) & compared["difference"].notna()]
        tested = ours[ours["p_adjusted"].notna()]
        signs = tested["difference"].where(significant(tested), 0)
        rows.append(
            {
                "model": name,
                "series": int(tables[score][name].notna().sum()),
                **{f"{key.upper()}, unchanged = 1": t[name].mean() for key, t in tables.items()},
                **{f"{level:g} % coverage": table[name].mean() for level, table in held.items()},
                f"{evaluation.model} better": (ours["difference"] < 0).mean(),
                "significantly": (signs < 0).mean(),
                "significantly worse": (signs > 0).mean(),
            }
        )
    return pd.DataFrame(rows)


def held_shares(evaluation: Evaluation) -> Mapping[float, pd.DataFrame]:
    """By quoted level, the share that bands of every series (row) and model (column) hold."""
    scores = evaluation.scores
    known = [level for level in QUOTED_LEVELS if f"coverage-{level}" in scores]
    return {
        level: scores.pivot_table(
            index="unique_id", columns="model", values=f"coverage-{level}", sort=False
        ).reindex(columns=ordered(evaluation))
        for level in known
    }


def by_group(evaluation: Evaluation) -> pd.DataFrame:
    """A row per group and model: ``group, model, series`` and means over the group's series.

    ``crps, mae``: relative to "unchanged"; ``coverage-80, coverage-95``; ``ratio``: our score
    relative to the model's; ``better``: on which share of the series ours is lower. Series without
    a group come last. Without groups there are no rows.
    """
    groups, ours, rows = evaluation.summary.groups, evaluation.model, []
    if not groups:
        return pd.DataFrame(columns=["group", "model", "series"])
    scores = {name: relative(evaluation, name) for name in _scores_of(evaluation)}
    held = held_shares(evaluation)
    ids = scores[evaluation.sharpest_score].index
    members = pd.Series([groups.get(str(name), UNGROUPED) for name in ids], index=ids)
    names = sorted(set(members), key=lambda name: (name == UNGROUPED, name))
    for model in ordered(evaluation):
        ratio = ratios(evaluation, evaluation.sharpest_score, model)
        for group in names:
            own = members.index[members == group]
            rows.append(
                {
                    "group": group,
                    "model": model,
                    "series": int(scores[evaluation.sharpest_score][model][own].notna().sum()),
                    **{name: table.loc[own, model].mean() for name, table in scores.items()},
                    **{f"coverage-{lv:g}": t[model].reindex(own).mean() for lv, t in held.items()},
                    "ratio": ratio[own].mean(),
                    "better": (ratio[own].dropna() < 1).mean() if model != ours else np.nan,
                }
            )
    table = pd.DataFrame(rows)
    return table.sort_values("group", key=lambda g: g.map(names.index), kind="stable")


def _scores_of(evaluation: Evaluation) -> list[str]:
    """The scores that are shown, the sharpest first."""
    return list(dict.fromkeys([evaluation.sharpest_score, "mae"]))
