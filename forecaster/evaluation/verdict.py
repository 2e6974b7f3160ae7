"""What an evaluation says, in sentences and small tables that need no statistics to be read."""

from typing import Any

import numpy as np
import pandas as pd

from forecaster.evaluation.backtest import Evaluation
from forecaster.evaluation.significance import FEWEST

ALPHA = 0.05
SUSPICIOUS = 0.97  # of the naive error; daily prices do not give more away than that


def verdict(found: Evaluation) -> list[str]:
    """A few sentences about the forecasts one step ahead, the most important first."""
    summary, model = found.summary, found.model
    lines = [
        f"{summary['series']} series, {summary['cutoffs']} cutoffs from {summary['first_cutoff']} "
        f"to {summary['last_cutoff']}, one step ahead:"
    ]
    table = comparison(found, 1)
    against: dict[tuple[str, str], Any] = {
        (row["score"], row["model"]): row for row in table.to_dict("records")
    }
    unchanged = against.get(("mae", "Naive"))
    if unchanged:
        lines.append("Point forecasts: " + _sentence(unchanged, "Naive"))
    bands = [other for score, other in against if score == "crps"]
    for other in sorted(bands, key=lambda name: name != "GARCH"):
        lines.append(f"{_WHOLE}: {_sentence(against['crps', other], other)}")
    held = coverage(found)
    first = held[(held["model"] == model) & (held["horizon"] == 1) & held["level"].isin([80, 95])]
    if len(first):
        pairs = zip(first["level"], first["held"], strict=True)
        lines.append(f"Bands hold {' and '.join(f'{h:.1%} of {of:g} %' for of, h in pairs)}.")
    if told := alike(found):
        lines.append(told)
    for baseline, failed in summary["failed"].items():
        lines.append(f"{baseline} failed on {len(failed)} series, which are not compared with it.")
    if summary["cutoffs"] < FEWEST:
        lines.append(
            f"No test of significance: it needs at least {FEWEST} cutoffs; there are "
            f"{summary['cutoffs']} (--windows)."
        )
    prices = summary["target"] != "y"
    if prices and unchanged and unchanged["ratio"] < SUSPICIOUS:
        lines.append(
            "Unusually far below the error of 'unchanged': look for something in the data that was "
            "not known at the time."
        )
    return lines


def alike(found: Evaluation) -> str:
    """Whether our networks and PyTorch's have errors of the same distribution over series, and the
    times beside each other; empty without PyTorch."""
    from scipy import stats

    summary = found.summary
    if "PyTorch" not in summary["models"]:
        return ""
    table = scaled(found, "crps" if "crps" in found.scores else "mae")
    table = table[[found.model, "PyTorch"]].dropna()
    ours, theirs = table[found.model].to_numpy(), table["PyTorch"].to_numpy()
    p = float(stats.ks_2samp(ours, theirs).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    told = "cannot be told apart from" if p > ALPHA else "differ from"
    seconds = summary["seconds"]
    each = seconds["torch"] / max(1, summary["torch_series"])
    ratio = each / (seconds["training"] / max(1, summary["series"]))
    return (
        f"The errors {told} those of the same networks trained by PyTorch ({len(table)} series, "
        f"two-sample Kolmogorov-Smirnov, p = {p:.2f}; mean ratio "
        f"{np.mean(ours / theirs):.4f}), whose training takes {ratio:.1f} times as long a network, "
        "on all cores."
    )


_WHOLE = "Whole distribution (CRPS)"


def comparison(found: Evaluation, horizon: int) -> pd.DataFrame:
    """Our model against each other one at a horizon, a row per score and model.

    ``ratio`` and ``median_ratio``: over series, of the ratio of scores; ``better``,
    ``significantly_better`` and ``significantly_worse``: shares of the ``series``; ``known``: the
    share with a p-value.
    """
    scores = found.scores[found.scores["horizon"] == horizon]
    tests = found.tests[(found.tests["horizon"] == horizon)]
    rows = []
    for (test, other), part in tests.groupby(["test", "model"], sort=False):
        score, is_comparison = str(test).removesuffix("_against"), str(test).endswith("_against")
        if not is_comparison:
            continue
        table = scores.pivot(index="unique_id", columns="model", values=score)
        part = part[np.isfinite(part["value"])]
        if part.empty or other not in table:
            continue  # it failed on all series
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (table[found.model] / table[other]).replace([np.inf, -np.inf], np.nan)
        significant = part["p_adjusted"] < ALPHA
        rows.append(
            {
                "score": score, "model": other, "series": len(part), "ratio": ratio.mean(),
                "median_ratio": ratio.median(),
                "better": part["value"].mean(),
                "significantly_better": (significant & (part["value"] == 1)).mean(),
                "significantly_worse": (significant & (part["value"] == 0)).mean(),
                "known": part["p_value"].notna().mean(),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def coverage(found: Evaluation) -> pd.DataFrame:
    """Shares of outcomes inside the bands, ``model, horizon, level, held``, means over series."""
    columns = [name for name in found.scores if str(name).startswith("coverage-")]
    means = found.scores.groupby(["model", "horizon"], sort=False)[columns].mean().reset_index()
    table = means.melt(["model", "horizon"], var_name="level", value_name="held").dropna()
    table["level"] = table["level"].str.removeprefix("coverage-").astype(float)
    return table.sort_values(["model", "horizon", "level"], ignore_index=True)


def value_at_risk(found: Evaluation) -> pd.DataFrame:
    """One step ahead, per model and probability: how often the value at risk was exceeded, and on
    what share of series Kupiec's and Christoffersen's tests reject."""
    tests = found.tests[found.tests["test"].str.startswith(("kupiec-", "christoffersen-"))]
    name, probability = (
        tests["test"].str.split("-", n=1).str[0],
        tests["test"].str.split("-").str[1],
    )
    tests = tests.assign(name=name, probability=probability.astype(float))
    tests["rejected"] = (tests["p_adjusted"] < ALPHA).where(tests["p_value"].notna())
    by = ["probability", "model"]
    shares = tests[tests["name"] == "kupiec"].groupby(by, sort=False)["value"].mean()
    rejected = tests.astype({"rejected": float}).pivot_table(
        index=by, columns="name", values="rejected", sort=False, dropna=False
    )
    return shares.rename("exceeded").to_frame().join(rejected).reset_index()


def scaled(found: Evaluation, score: str) -> pd.DataFrame:
    """A score of every series (rows) and model (columns), mean over horizons, in units of the
    series' mean absolute change over a season before the first cutoff (as in MASE)."""
    scores = found.scores
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = scores["mase"] / scores["mae"]
    values = scores.assign(scaled=scores[score] * unit)
    return values.pivot_table(index="unique_id", columns="model", values="scaled", sort=False)


def _sentence(row: Any, other: str) -> str:
    text = f"better than {other} on {row['better']:.0%} of {row['series']:.0f} series"
    if row["known"] > 0:
        text += (
            f", significantly on {row['significantly_better']:.0%} (worse on "
            f"{row['significantly_worse']:.0%})"
        )
    text += f"; {row['ratio']:.4f} of its error on average"
    return f"{text} (median {row['median_ratio']:.4f})."
