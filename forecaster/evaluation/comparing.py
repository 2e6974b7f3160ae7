"""Compare an evaluation's models across series, in numbers, small tables and sentences.

Errors are compared relative to "unchanged", in volatilities, or in pairs of models. A horizon of
:data:`ALL` means the mean over all horizons. All functions raise UsageError for a score or a
horizon that the evaluation does not have. The sentences are for readers without statistics.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from forecaster.errors import listed
from forecaster.evaluation.baselines import TORCH
from forecaster.evaluation.evaluation import Evaluation, check_asked
from forecaster.evaluation.rolling_origin import NAIVE
from forecaster.evaluation.scores.scores import DRIFTLESS
from forecaster.evaluation.scores.tables import ALL, fewest_cutoffs, lags_of

ALPHA = 0.05
"""The level of all significance tests."""
SUSPICIOUS = 0.97
"""Share of the naive error below which forecasts of daily prices are too good to be true."""
QUOTED_LEVELS = (80, 95)
"""The bands that sentences and tables quote, in percent."""


class Together(NamedTuple):
    """Scores relative to those of another model, for all series together, by model.

    - ``ratio``: the mean over series of the ratio at each horizon; where errors are summed
      (:attr:`.Evaluation.summed`), the ratio of the sums over series and horizons
    - ``series``: the number of series it rests on
    """

    ratio: pd.Series
    series: pd.Series


def relative(
    evaluation: Evaluation, score: str, horizon: int = ALL, other: str = NAIVE
) -> pd.DataFrame:
    """Return a score relative to that of another model, "unchanged", at the same horizon.

    The table has a row per series and a column per model.
    """
    table = _by_horizon(evaluation, score, horizon)
    return _over_horizons("mean", table.div(table[other], axis=0), evaluation)


def in_volatility(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return a score in units of each series' volatility, see :func:`volatility`.

    The table has a row per series and a column per model.
    """
    table = _by_horizon(evaluation, score, horizon)
    unit = volatility(evaluation).reindex(table.index.get_level_values("unique_id")).to_numpy()
    return _over_horizons("mean", table.div(unit, axis=0), evaluation)


def excess(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return a score less that of "unchanged" at the same horizon.

    It is for scores of which only differences say something, such as ``qlike``. The table has a row
    per series and a column per model.
    """
    table = _by_horizon(evaluation, score, horizon)
    return _over_horizons("mean", table.sub(table[NAIVE], axis=0), evaluation)


MEASURES: Mapping[str, Callable[[Evaluation, str, int], pd.DataFrame]] = {
    "relative": relative,
    "volatility": in_volatility,
}


def volatility(evaluation: Evaluation) -> pd.Series:
    """Return the root mean squared one-step change of each series at the evaluation's cutoffs."""
    scores = evaluation.scores
    naive = scores[(scores["model"] == NAIVE) & (scores["horizon"] == 1)]
    size = naive.set_index("unique_id")["rmse"]
    return size.where(size > 0)


def totals(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return the sum of a score over the horizons, in the units of each series.

    The table has a row per series and a column per model; NaN where a score is missing.
    """
    return _over_horizons("sum", _by_horizon(evaluation, score, horizon), evaluation)


def together(
    evaluation: Evaluation, score: str, other: str = NAIVE, horizon: int = ALL
) -> Together:
    """Return each model's score relative to that of ``other``, for all series together."""
    return pooled(comparable(evaluation, score, other, horizon), other)


def comparable(
    evaluation: Evaluation, score: str, other: str = NAIVE, horizon: int = ALL
) -> pd.DataFrame:
    """Return the rows of series that :func:`pooled` takes: sums of a score, or ratios of it."""
    if evaluation.summed:
        return totals(evaluation, score, horizon)
    return relative(evaluation, score, horizon, other)


def pooled(table: pd.DataFrame, other: str = NAIVE) -> Together:
    """Return scores relative to those of ``other``; ``table``: rows of :func:`comparable`.

    A model is compared on the series for which both scores are known. The sums are those of errors
    or, as all ratios of ``other`` to itself are 1, give the mean ratio. The result is NaN where the
    sum of ``other`` is zero, or there is no such series.
    """
    both = table.notna() & table[[other]].notna().to_numpy()
    sums = both.mul(table[other].fillna(0), axis=0).sum()
    return Together(table.where(both).sum() / sums.where(sums > 0), both.sum())


def differences(evaluation: Evaluation, score: str, horizon: int = ALL) -> pd.DataFrame:
    """Return how much lower or higher our score is than each other model's, with a 95 % interval.

    Columns: ``unique_id, model, difference`` (as a share of the other's score), ``low, high`` (NaN
    where there are too few cutoffs for a test), ``p_adjusted``.

    The interval is that of the Diebold-Mariano test, which allows for overlapping errors.
    """
    check_asked(evaluation, horizon, score)
    tests = tests_at(evaluation, horizon)
    tests = tests[tests["test"] == f"{score}_against"]
    quantile = stdtrit(tests["degrees"], 0.975)
    known = np.isfinite(tests["statistic"]) & (tests["statistic"] != 0)
    half = quantile * (tests["difference"] / tests["statistic"].where(known)).abs()
    return tests.assign(low=tests["difference"] - half, high=tests["difference"] + half)[
        ["unique_id", "model", "difference", "low", "high", "p_adjusted"]
    ].reset_index(drop=True)


def tests_at(evaluation: Evaluation, horizon: int) -> pd.DataFrame:
    """Return the tests of our model against the others at a horizon."""
    tests = evaluation.tests
    return tests[tests["test"].str.endswith("_against") & (tests["horizon"] == horizon)]


def _by_horizon(evaluation: Evaluation, score: str, horizon: int) -> pd.DataFrame:
    check_asked(evaluation, horizon, score)
    scores = evaluation.scores
    if horizon != ALL:
        scores = scores[scores["horizon"] == horizon]
    return scores.pivot(index=["unique_id", "horizon"], columns="model", values=score)


def _over_horizons(how: str, table: pd.DataFrame, evaluation: Evaluation) -> pd.DataFrame:
    """Return means or sums over horizons, a row per series in the evaluation's order.

    NaN where a score is missing at any horizon.
    """
    groups = table.replace([np.inf, -np.inf], np.nan).groupby(level="unique_id")
    whole = groups.count() == groups.size().to_numpy()[:, None]
    return groups.agg(how).where(whole).reindex(evaluation.ids)


class Comparison(NamedTuple):
    """Our model compared with another one by one score, at a horizon or over all horizons.

    - ``series``: number of series compared
    - ``ratio``, ``median_ratio``: mean and median over series of our score over the other's. Where
      ``summed``, ``ratio`` is the sum of our score over that of the other's
    - ``better``, ``significantly_better``, ``significantly_worse``: the share of the series on
      which our model is better, significantly better, or significantly worse
    - ``known``: the share of the series with a p-value
    - ``driftless``: the mean ratio of CRPS where every median is moved to the latest price, so that
      neither model has a drift; NaN for series that are not prices, and for another score
    - ``compared``: the number of series that ``ratio`` rests on
    - ``equal``: the share of the series on which both scores are equal
    - ``summed``: whether errors are compared by sums, see :attr:`.Evaluation.summed`
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
    driftless: float
    compared: int
    equal: float
    summed: bool

    @property
    def rests_on(self) -> str:
        """The series that the ratio rests on, after a comma; empty for a mean over all of them."""
        if self.summed:
            return f", summed over {self.compared} series"
        some = self.compared < self.series
        return f", on {self.compared} of {self.series} series" if some else ""

    @property
    def shares(self) -> str:
        """The shares of series on which ours is better or significantly better, in words."""
        equal = f" and equal on {self.equal:.0%}" if self.summed and self.equal > 0 else ""
        text = f"better on {self.better:.0%}{equal} of {self.series} series"
        if self.known > 0:
            text += (
                f" (significantly on {self.significantly_better:.0%}, significantly worse on "
                f"{self.significantly_worse:.0%})"
            )
        return text


def verdict(evaluation: Evaluation) -> list[str]:
    """Return five plain sentences about the forecasts over all horizons, the most important first.

    They name the data, and judge point forecasts, whole distributions, bands, and the networks that
    PyTorch trained or, where there are none, the series on which ours do best and worst.
    """
    rows = compared(evaluation)
    beside = rows.get((evaluation.sharpest_score, TORCH))
    return [
        _what_was_forecast(evaluation),
        _points_in_words(evaluation, rows.get(("mae", NAIVE))),
        _distributions_in_words(evaluation, rows),
        _bands_in_words(evaluation),
        _ends_in_words(evaluation) if beside is None else _torch_in_words(evaluation, beside),
    ]


def caveats(evaluation: Evaluation) -> list[str]:
    """Return what to warn of beside the verdict: failures, too few cutoffs, errors too small."""
    summary = evaluation.summary
    lines = [
        f"{baseline} failed on {len(failed)} series, which are not compared with it."
        for baseline, failed in summary.failed.items()
        if baseline != summary.model
    ]
    if lost := summary.failed.get(summary.model):
        lines.append(
            f"{summary.model} could not forecast {len(lost)} series from all cutoffs; the other "
            "cutoffs of these series count for no model."
        )
    if evaluation.summed:
        lines.append(
            "Errors are summed over series before models are compared, so that large series count "
            "more: on more than a tenth of the series an error is zero, and has no ratio."
        )
    if untested := lack_of_tests(evaluation):
        lines.append(untested)
    naive = compared(evaluation).get(("mae", NAIVE))
    if summary.of_prices and naive and naive.ratio < SUSPICIOUS:
        lines.append(
            "Unusually far below the error of 'unchanged': look for something in the data that was "
            "not known at the time."
        )
    return lines


def lack_of_tests(evaluation: Evaluation, horizon: int = ALL) -> str | None:
    """Return that there are too few cutoffs for tests, in a sentence; None where there are enough.

    It is about the number of cutoffs of the evaluation; a series may have fewer.
    """
    summary = evaluation.summary
    steps = summary.horizon if horizon == ALL else horizon
    needed = fewest_cutoffs(lags_of(steps, summary.step_size))
    if summary.cutoffs >= needed:
        return None
    overlap = f" over {steps} steps, whose forecasts overlap" if needed > fewest_cutoffs() else ""
    return (
        f"No test of significance{overlap}: it needs at least {needed} cutoffs; there are "
        f"{summary.cutoffs} (--windows)."
    )


def comparison(evaluation: Evaluation, horizon: int = ALL) -> pd.DataFrame:
    """Compare our model with each other one at a horizon, by default over all horizons.

    Returns a row per score and model, whose columns are the fields of :class:`Comparison`.
    """
    rows = compared(evaluation, horizon).values()
    return pd.DataFrame(rows, columns=list(Comparison._fields))


def strongest(
    evaluation: Evaluation, rows: Mapping[tuple[str, str], Comparison] | None = None
) -> str | None:
    """Return the strongest of the other models; PyTorch's networks only if there is no other.

    It is the one with the highest median ratio of our score to its score, over all horizons, or,
    where errors are summed, with the highest ratio of sums; None where there is no other model.

    ``rows``: of :func:`compared`, if they are there already
    """
    rows = compared(evaluation) if rows is None else rows
    others = [row for row in rows.values() if row.score == evaluation.sharpest_score]
    others = [row for row in others if row.model != TORCH] if len(others) > 1 else others
    ratios = [row.ratio if row.summed else row.median_ratio for row in others]
    return others[int(np.nan_to_num(ratios, nan=-np.inf).argmax())].model if others else None


def compared(evaluation: Evaluation, horizon: int = ALL) -> dict[tuple[str, str], Comparison]:
    """Return the rows of :func:`comparison` by score and model."""
    check_asked(evaluation, horizon)
    known, ours, rows_of = set(evaluation.scores["model"]), evaluation.model, {}
    for (test, name), rows in tests_at(evaluation, horizon).groupby(["test", "model"], sort=False):
        score, model = str(test).removesuffix("_against"), str(name)
        rows = rows[np.isfinite(rows["value"])]
        if rows.empty or model not in known:
            continue  # it failed on all series
        moved = np.nan
        if score == "crps" and DRIFTLESS in evaluation.scores:
            moved = relative(evaluation, DRIFTLESS, horizon, model)[ours].mean()
        significant = rows["p_adjusted"] < ALPHA
        sums = totals(evaluation, score, horizon).reindex(rows["unique_id"])
        whole = together(evaluation, score, model, horizon)
        better = (sums[ours] < sums[model]).mean() if evaluation.summed else rows["value"].mean()
        rows_of[score, model] = Comparison(
            score=score,
            model=model,
            series=len(rows),
            ratio=whole.ratio[ours],
            median_ratio=relative(evaluation, score, horizon, model)[ours].median(),
            better=better,
            significantly_better=(significant & (rows["value"] == 1)).mean(),
            significantly_worse=(significant & (rows["value"] == 0)).mean(),
            known=rows["p_value"].notna().mean(),
            driftless=moved,
            compared=int(whole.series[ours]),
            equal=(sums[ours] == sums[model]).mean(),
            summed=evaluation.summed,
        )
    return rows_of


def coverage(evaluation: Evaluation) -> pd.DataFrame:
    """Return the mean share of outcomes inside the bands: ``model, horizon, level, held``."""
    scores = evaluation.scores
    columns = [name for name in scores if str(name).startswith("coverage-")]
    means = scores.groupby(["model", "horizon"], sort=False)[columns].mean().reset_index()
    table = means.melt(["model", "horizon"], var_name="level", value_name="held").dropna()
    table["level"] = table["level"].str.removeprefix("coverage-").astype(float)
    return table.sort_values(["model", "horizon", "level"], ignore_index=True)


def value_at_risk(evaluation: Evaluation) -> pd.DataFrame:
    """Check values at risk one step ahead; return a row per probability and model.

    - ``exceeded``: the share of outcomes below the value at risk, mean over series
    - ``kupiec``, ``christoffersen``: the share of series on which the test rejects
    """
    tests = evaluation.tests
    tests = tests[tests["test"].str.startswith(("kupiec-", "christoffersen-"))]
    tests = tests.assign(rejected=(tests["p_adjusted"] < ALPHA).where(tests["p_value"].notna()))
    tests[["name", "probability"]] = tests["test"].str.split("-", n=1, expand=True)
    tests = tests.astype({"probability": float, "rejected": float})
    by = ["probability", "model"]
    shares = tests[tests["name"] == "kupiec"].groupby(by, sort=False)["value"].mean()
    rejected = tests.pivot_table(
        index=by, columns="name", values="rejected", sort=False, dropna=False
    )
    return shares.rename("exceeded").to_frame().join(rejected).reset_index()


def _what_was_forecast(evaluation: Evaluation) -> str:
    summary = evaluation.summary
    others = [name for name in summary.models if name not in (summary.model, TORCH)]
    steps = "one step" if summary.horizon == 1 else f"1 to {summary.horizon} steps"
    rungs = f" ({summary.rungs})" if summary.rungs else ""
    means = "" if summary.horizon == 1 else "; all figures are means over these steps"
    return (
        f"{summary.model} forecast {summary.series} series{rungs} {steps} ahead from "
        f"{summary.cutoffs_in_words}, beside {listed(others)}{means}."
    )


def _points_in_words(evaluation: Evaluation, naive: Comparison | None) -> str:
    if naive is None:
        return "Point forecasts cannot be compared with those of 'unchanged'."
    return (
        f"Point forecasts: {naive.ratio:.3f} times the error of 'unchanged'"
        f"{naive.rests_on}{_at_the_ends(evaluation, 'mae')}, {naive.shares}."
    )


def _distributions_in_words(
    evaluation: Evaluation, rows: Mapping[tuple[str, str], Comparison]
) -> str:
    other = strongest(evaluation, rows)
    if evaluation.sharpest_score != "crps" or other is None:
        return "Whole distributions: without bands there is nothing to compare."
    naive, rival = (rows.get(("crps", name)) for name in (NAIVE, other))
    parts, moved = list[str](), list[float]()
    if naive:
        moved.append(naive.driftless)
        ends = _at_the_ends(evaluation, "crps")
        parts.append(f"{naive.ratio:.3f} times that of 'unchanged'{naive.rests_on}{ends}")
    if rival and other != NAIVE:
        moved.append(rival.driftless)
        some = "" if naive and rival.summed else rival.rests_on.removeprefix(", ")
        rests_on = f" ({some})" if some else ""
        parts.append(
            f"{rival.ratio:.3f} times that of {other}{rests_on}, the strongest of the others"
        )
    shares = f", {rival.shares}" if rival else ""
    known = [f"{ratio:.3f}" for ratio in moved if np.isfinite(ratio)]
    if known:
        shares += (
            "; with every median moved to the latest price, so without drift, "
            f"{' and '.join(known)}"
        )
    return f"Whole distributions: a CRPS {' and '.join(parts)}{shares}."


def _at_the_ends(evaluation: Evaluation, score: str) -> str:
    """Return our relative score at the first and the last horizon, in words."""
    last = int(evaluation.scores["horizon"].max())
    if last == 1:
        return ""
    near, far = (together(evaluation, score, horizon=h).ratio for h in (1, last))
    ours = evaluation.model
    return f" ({near[ours]:.3f} one step ahead, {far[ours]:.3f} at {last})"


def _bands_in_words(evaluation: Evaluation) -> str:
    held = coverage(evaluation)
    ours = held[(held["model"] == evaluation.model) & held["level"].isin(QUOTED_LEVELS)]
    if ours.empty:
        return "Bands: there are none to check."
    parts = []
    for level, rows in ours.groupby("level"):
        shares = rows["held"]
        ends = f" ({shares.min():.1%} to {shares.max():.1%} by horizon)" if len(rows) > 1 else ""
        parts.append(f"those of {level:g} % covered {shares.mean():.1%} of the outcomes{ends}")
    return f"Bands: {', '.join(parts)}."


def _torch_in_words(evaluation: Evaluation, beside: Comparison) -> str:
    """Return how our networks' errors differ from those of PyTorch's on the same task."""
    config = evaluation.summary.config
    alike = config.start == "independent" and config.members == 1
    kind = "the same networks" if alike else "networks of the same kind, one for each series,"
    return (
        f"PyTorch: {kind} have errors that "
        f"{_same_distribution(evaluation)}; ours are "
        f"{beside.ratio:.4f} times theirs, {beside.shares}."
    )


def _same_distribution(evaluation: Evaluation) -> str:
    """Return whether our errors can be told apart from PyTorch's, in words.

    The test is paired: both have one error for each series.
    """
    from scipy import stats

    table = relative(evaluation, evaluation.sharpest_score)[[evaluation.model, TORCH]].dropna()
    if len(table) < 2:
        return "are too few to be told apart from ours"
    differences = (table[evaluation.model] - table[TORCH]).to_numpy()
    p = float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0  # pyright: ignore
    finding = "cannot be told apart from ours" if p > ALPHA else "differ from ours"
    return f"{finding} (Wilcoxon's signed-rank test over {len(table)} series, p = {p:.2g})"


def _ends_in_words(evaluation: Evaluation) -> str:
    ours = relative(evaluation, evaluation.sharpest_score)[evaluation.model].dropna().sort_values()
    if ours.empty:
        return "For no series can errors be compared with those of 'unchanged'."
    name = evaluation.sharpest_score.upper()
    every = evaluation.scores["unique_id"].nunique()
    of = "half of the series" if len(ours) == every else f"half of the {len(ours)} series compared"
    return (
        f"Best and worst: relative to 'unchanged' it does best on {ours.index[0]} ({name} "
        f"{ours.iloc[0]:.3f}) and worst on {ours.index[-1]} ({ours.iloc[-1]:.3f}); {of} "
        f"are below {ours.median():.3f}."
    )
