"""What an evaluation says, in sentences and small tables that need no statistics to be read."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.evaluation.result import Evaluation
from forecaster.evaluation.significance import FEWEST

ALPHA = 0.05
"""The level of all tests of significance."""
SUSPICIOUS = 0.97
"""Of the naive error; daily prices do not give more away than that."""
QUOTED_LEVELS = (80, 95)
"""The bands that sentences and tables speak of."""

_POINT, _DISTRIBUTION = "Point forecasts", "Whole distribution (CRPS)"


class Comparison(NamedTuple):
    """Our model against another one at a horizon, by one score.

    - ``series``: how many are compared
    - ``ratio``, ``median_ratio``: of our score to the other's, over series
    - ``better``, ``significantly_better``, ``significantly_worse``: shares of the series
    - ``known``: the share of the series with a p-value
    """

    score: str
    model: str
    series: int
    ratio: float
    median_ratio: float
    better: float
    significantly_better: float
    significantly_worse: float
    known: float

    def sentence(self) -> str:
        """The comparison in words."""
        text = f"better than {self.model} on {self.better:.0%} of {self.series} series"
        if self.known > 0:
            text += (
                f", significantly on {self.significantly_better:.0%} (worse on "
                f"{self.significantly_worse:.0%})"
            )
        text += f"; {self.ratio:.4f} of its error on average"
        return f"{text} (median {self.median_ratio:.4f})."


def verdict(evaluation: Evaluation) -> list[str]:
    """A few sentences about the forecasts one step ahead, the most important first."""
    summary, comparisons = evaluation.summary, list(_comparisons(evaluation, 1))
    naive = next((c for c in comparisons if (c.score, c.model) == ("mae", "Naive")), None)
    lines = [
        f"{summary.series} series, {summary.cutoffs} cutoffs from {summary.first_cutoff} "
        f"to {summary.last_cutoff}, one step ahead:"
    ]
    if naive:
        lines.append(f"{_POINT}: {naive.sentence()}")
    of_bands = [c for c in comparisons if c.score == "crps"]
    for compared in sorted(of_bands, key=lambda c: c.model != "GARCH"):
        lines.append(f"{_DISTRIBUTION}: {compared.sentence()}")
    lines += [*_bands_in_words(evaluation), *_torch_in_words(evaluation)]
    for baseline, failed in summary.failed.items():
        lines.append(f"{baseline} failed on {len(failed)} series, which are not compared with it.")
    return [*lines, *_reservations(evaluation, naive)]


def comparison(evaluation: Evaluation, horizon: int) -> pd.DataFrame:
    """Our model against each other one at a horizon: a row per score and model.

    Columns: the fields of :class:`Comparison`.
    """
    rows = list(_comparisons(evaluation, horizon))
    return pd.DataFrame(rows, columns=list(Comparison._fields))


def _comparisons(evaluation: Evaluation, horizon: int) -> Iterator[Comparison]:
    scores = evaluation.scores[evaluation.scores["horizon"] == horizon]
    tests = evaluation.tests[evaluation.tests["horizon"] == horizon]
    for (test, model), rows in tests.groupby(["test", "model"], sort=False):
        if not str(test).endswith("_against"):
            continue
        score = str(test).removesuffix("_against")
        table = scores.pivot(index="unique_id", columns="model", values=score)
        rows = rows[np.isfinite(rows["value"])]
        if rows.empty or model not in table:
            continue  # it failed on all series
        yield _compared(score, str(model), table[evaluation.model], table[model], rows)


def _compared(
    score: str, model: str, ours: pd.Series, others: pd.Series, tests: pd.DataFrame
) -> Comparison:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (ours / others).replace([np.inf, -np.inf], np.nan)
    significant = tests["p_adjusted"] < ALPHA
    return Comparison(
        score=score,
        model=model,
        series=len(tests),
        ratio=ratio.mean(),
        median_ratio=ratio.median(),
        better=tests["value"].mean(),
        significantly_better=(significant & (tests["value"] == 1)).mean(),
        significantly_worse=(significant & (tests["value"] == 0)).mean(),
        known=tests["p_value"].notna().mean(),
    )


def coverage(evaluation: Evaluation) -> pd.DataFrame:
    """Shares of outcomes inside the bands, ``model, horizon, level, held``: means over series."""
    scores = evaluation.scores
    columns = [name for name in scores if str(name).startswith("coverage-")]
    means = scores.groupby(["model", "horizon"], sort=False)[columns].mean().reset_index()
    table = means.melt(["model", "horizon"], var_name="level", value_name="held").dropna()
    table["level"] = table["level"].str.removeprefix("coverage-").astype(float)
    return table.sort_values(["model", "horizon", "level"], ignore_index=True)


def value_at_risk(evaluation: Evaluation) -> pd.DataFrame:
    """Values at risk one step ahead: a row per probability and model.

    ``exceeded``: how often, mean over series; ``kupiec`` and ``christoffersen``: the share of
    series on which the test rejects.
    """
    tests = evaluation.tests
    tests = tests[tests["test"].str.startswith(("kupiec-", "christoffersen-"))]
    name, probability = (tests["test"].str.split("-", n=1).str[part] for part in (0, 1))
    tests = tests.assign(name=name, probability=probability.astype(float))
    tests["rejected"] = (tests["p_adjusted"] < ALPHA).where(tests["p_value"].notna())
    by = ["probability", "model"]
    shares = tests[tests["name"] == "kupiec"].groupby(by, sort=False)["value"].mean()
    rejected = tests.astype({"rejected": float}).pivot_table(
        index=by, columns="name", values="rejected", sort=False, dropna=False
    )
    return shares.rename("exceeded").to_frame().join(rejected).reset_index()


def scaled(evaluation: Evaluation, score: str) -> pd.DataFrame:
    """A score of every series (rows) and model (columns), mean over horizons.

    In units of the series' mean absolute change over a season before the first cutoff, as MASE.
    """
    scores = evaluation.scores
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = scores["mase"] / scores["mae"]
    values = scores.assign(scaled=scores[score] * unit)
    return values.pivot_table(index="unique_id", columns="model", values="scaled", sort=False)


def _bands_in_words(evaluation: Evaluation) -> Iterator[str]:
    held = coverage(evaluation)
    ours = held[(held["model"] == evaluation.model) & (held["horizon"] == 1)]
    quoted = ours[ours["level"].isin(QUOTED_LEVELS)]
    if len(quoted):
        pairs = zip(quoted["level"], quoted["held"], strict=True)
        yield f"Bands hold {' and '.join(f'{held:.1%} of {level:g} %' for level, held in pairs)}."


def _torch_in_words(evaluation: Evaluation) -> Iterator[str]:
    """Whether our networks and PyTorch's have errors of the same distribution over series."""
    from scipy import stats

    if not evaluation.summary.has_torch:
        return
    table = scaled(evaluation, evaluation.sharpest_score)[[evaluation.model, "PyTorch"]].dropna()
    ours, torch = table[evaluation.model].to_numpy(), table["PyTorch"].to_numpy()
    p = float(stats.ks_2samp(ours, torch).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    finding = "cannot be told apart from" if p > ALPHA else "differ from"
    config = evaluation.summary.config
    alike = config.start == "independent" and config.members == 1
    rivals = "the same networks" if alike else "networks of the same kind, one a series by itself,"
    yield (
        f"The errors {finding} those of {rivals} trained by PyTorch ({len(table)} series, "
        f"two-sample Kolmogorov-Smirnov, p = {p:.2f}; mean ratio "
        f"{np.mean(ours / torch):.4f}), whose training takes {_torch_times(evaluation):.1f} times "
        "as long a series, on all cores."
    )


def _torch_times(evaluation: Evaluation) -> float:
    """How many times as long PyTorch trains a network as we do."""
    summary = evaluation.summary
    torch = (summary.seconds.torch or 0.0) / max(1, summary.torch_series or 0)
    return torch / (summary.seconds.training / max(1, summary.series))


def _reservations(evaluation: Evaluation, naive: Comparison | None) -> Iterator[str]:
    summary = evaluation.summary
    if summary.cutoffs < FEWEST:
        yield (
            f"No test of significance: it needs at least {FEWEST} cutoffs; there are "
            f"{summary.cutoffs} (--windows)."
        )
    if summary.of_prices and naive and naive.ratio < SUSPICIOUS:
        yield (
            "Unusually far below the error of 'unchanged': look for something in the data that was "
            "not known at the time."
        )
