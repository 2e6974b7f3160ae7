"""The page of an evaluation with its sections, and its tables and figures as files."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.errors import DataError, listed, printable
from forecaster.evaluation import (
    ALL,
    DRIFTLESS,
    QUOTED_LEVELS,
    TORCH,
    Evaluation,
    caveats,
    compared,
    comparison,
    coverage,
    lack_of_tests,
    strongest,
    value_at_risk,
    verdict,
)
from forecaster.files import atomic, write_csv
from forecaster.report import html, numbers
from forecaster.report.figures import FIGURES
from forecaster.report.numbers import RUNGS
from forecaster.report.page_data import page_data

GROUPS = "groups.csv"
_OF_RETURNS = (
    "<p>In the next table lower is better, and 0.01 is a small difference. QLIKE judges the "
    "variance, beside squared returns or, with less noise, beside that of daily ranges; "
    "“VaR and ES” value at risk and expected shortfall together (Fissler and Ziegel); the log "
    "score the density at the outcome. All are read from the quantiles by one rule.</p>"
)
SERIES = (
    "<p id='one-help'>Choose a series in the table above, or in any figure by a click. The table "
    "can be used with the keyboard alone.</p><div id='one' tabindex='-1'></div>"
)


def build_report(evaluation: Evaluation, path: Path | None = None) -> Path:
    """Write the report as one HTML file that opens offline; return its path.

    ``path``: by default ``report.html`` in the evaluation's folder. Raises UsageError if the
    library that draws figures is missing, DataError if no series has scores as many steps ahead as
    were forecast.
    """
    path = path or evaluation.folder / "report.html"
    summary = evaluation.summary
    if summary.horizon not in set(known := evaluation.scores["horizon"]):
        raise DataError(
            f"{evaluation.folder}: there are scores up to {known.max()} steps ahead, but forecasts "
            f"of {summary.horizon} steps; a report needs scores at each"
        )
    rungs = f" ({summary.rungs})" if summary.rungs else ""
    steps = "one step" if summary.horizon == 1 else f"1 to {summary.horizon} steps"
    return html.write_page(
        path,
        title=f"{evaluation.model}: {summary.series} series",
        heading="How good are the forecasts?",
        lead=f"{evaluation.model} beside {listed(numbers.ordered(evaluation)[1:])}: "
        f"{summary.series} series{rungs}, {summary.cutoffs_in_words}, {steps} ahead.",
        notices=list(_notices(evaluation)),
        cards=list(_cards(evaluation)),
        sections=list(_sections(evaluation)),
        data=page_data(evaluation),
        script="evaluation.js",
    )


def write_tables(evaluation: Evaluation, folder: Path | None = None) -> list[Path]:
    """Write ``comparison.csv``, ``coverage.csv`` and, if there are groups, ``groups.csv``.

    A horizon of 0 in ``comparison.csv`` stands for the mean over all horizons. ``folder``: by
    default the evaluation's folder. Returns the paths.
    """
    folder = folder or evaluation.folder
    horizons = (ALL, *range(1, evaluation.summary.horizon + 1))
    comparisons = [comparison(evaluation, horizon).assign(horizon=horizon) for horizon in horizons]
    tables = {"comparison": pd.concat(comparisons), "coverage": coverage(evaluation)}
    for name, table in tables.items():
        rounded = table.round(5)
        atomic.write_file(folder / f"{name}.csv", lambda to, t=rounded: write_csv(t, to))
    paths = [folder / f"{name}.csv" for name in tables]
    if evaluation.summary.groups:
        paths.append(write_groups(evaluation, folder / GROUPS))
    return paths


def write_groups(evaluation: Evaluation, path: Path) -> Path:
    """Write the summary of each group of series as CSV; return the path."""
    table = numbers.by_group(evaluation).round(5)
    atomic.write_file(path, lambda temporary: write_csv(table, temporary))
    return path


def write_figures(evaluation: Evaluation, folder: Path | None = None) -> list[Path]:
    """Write the figures as PNG and SVG; return the paths.

    ``folder``: by default ``figures`` in the evaluation's folder.
    """
    folder = folder or evaluation.folder / "figures"
    paths = []
    for name, draw in FIGURES.items():
        figure = draw(evaluation)
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            save = lambda to, f=figure, k=kind: f.savefig(to, format=k, dpi=150, facecolor="white")  # noqa: E731
            atomic.write_file(path, save)
            paths.append(path)
    return paths


def _notices(evaluation: Evaluation) -> Iterator[str]:
    """Yield warnings for the top of the page."""
    summary = evaluation.summary
    if summary.simulated:
        yield "These prices are simulated, not real."
    elif summary.of_prices and not summary.membership:
        yield (
            "Survivorship: only companies in the data are counted, so averages over series look "
            "too good (see below)."
        )


def _cards(evaluation: Evaluation) -> Iterator[html.Card]:
    """Yield the headlines, which are about all horizons together."""
    score = evaluation.sharpest_score
    rows = compared(evaluation)

    def against(score: str, name: str, note: str) -> Iterator[html.Card]:
        if row := rows.get((score, name)):
            what = {"crps": "CRPS", "mae": "absolute error"}[score]
            other = "“unchanged”" if name == "Naive" else name
            equal = f" and equal on {row.equal:.0%}" if row.summed and row.equal > 0 else ""
            better = f"{note}better on {row.better:.0%}{equal} of {row.series} series"
            yield html.Card(f"{row.ratio:.3f}", f"{what}{row.rests_on}, {other} = 1", better)

    yield from against(score, "Naive", "")
    if score != "mae":
        yield from against("mae", "Naive", "")
    other = strongest(evaluation)
    if other not in (None, "Naive", TORCH):
        yield from against(score, str(other), "the strongest of the others; ")
    yield from against(score, TORCH, "")
    held = numbers.mean_coverage(evaluation).unstack("model").reindex(QUOTED_LEVELS)
    held = held.get(evaluation.model, pd.Series(dtype=float)).dropna()
    if len(held):
        first, *rest = (f"{level:g}" for level in held.index)
        note = "; ".join(f"those of {level} % covered {held[float(level)]:.1%}" for level in rest)
        label = f"covered by bands of {first}\N{NO-BREAK SPACE}%"
        yield html.Card(f"{held.iloc[0]:.1%}", label, note)


def _sections(evaluation: Evaluation) -> Iterator[html.Section]:
    """Yield the sections of the page, in order."""
    said = html.points(verdict(evaluation), "<ol class='verdict'>")
    yield html.Section("verdict", "Verdict", f"{said}{_side_by_side(evaluation)}")
    yield from _figures(evaluation)
    yield html.Section("every", "Every series", _every(evaluation))
    yield html.Section("series", "One series", SERIES)
    yield html.Section("risk", "Value at risk and coverage", _risk(evaluation))
    yield html.Section("caveats", "What to keep in mind", _caveats(evaluation))
    yield html.Section("source", "Where this comes from", _provenance(evaluation))


def _figures(evaluation: Evaluation) -> Iterator[html.Section]:
    """Yield the sections of figures, which the page's script fills."""
    model, figure = html.escape(evaluation.model), html.figure
    errors = figure(
        "strips", "Each point is a series",
        "A row for each model; the bar spans half of the series, its notch is the median. "
        "Further left is better.",
    ) + figure(
        "ecdf", "Share of series below an error",
        "A curve further up and left is better. The curves of equal models lie on each other.",
    )  # fmt: skip
    yield html.Section(
        "errors", "Errors of every series",
        f"<div class='controls' id='choices'></div><div class='panels'>{errors}</div>"
        "<p class='note' id='errors-note'></p>",
    )  # fmt: skip
    pairs = figure(
        "forest", f"How much lower or higher {model} is",
        "A line for each series, sorted: the difference as a share of the other's error, with its "
        "95 % interval. Below zero ours is better; coloured if it is significant after correction "
        "for the number of series.",
    ) + figure(
        "scatter", "Series by series",
        "Below the diagonal ours is better. Filled points differ significantly: Diebold-Mariano, "
        "false discoveries held at 5 %.",
    )  # fmt: skip
    yield html.Section(
        "pairs", "Against another model",
        "<div class='controls' id='rivals'></div><p id='pairs-note' role='status'></p>"
        f"<div class='panels'>{pairs}</div>",
    )  # fmt: skip
    yield from _more_figures(evaluation)


def _more_figures(evaluation: Evaluation) -> Iterator[html.Section]:
    """Yield the sections of bands, of errors by date and horizon, and of groups."""
    figure = html.figure
    bands = figure(
        "coverage", "Coverage, less the nominal level",
        "At zero a band covers exactly its share of outcomes; above, it is too wide.",
    ) + figure(
        "pit", "Where outcomes fell in the forecast distributions",
        "Calibrated forecasts have all bars at 1; a hump in the middle means bands too wide.",
    ) + figure(
        "widths", "How wide the bands are",
        "Of two models with correct coverage, the one with narrower bands is better.",
    )  # fmt: skip
    yield html.Section("bands", "Bands", f"<div class='panels'>{bands}</div>")
    # Daily losses leave out the others.
    erring = " where “unchanged” is not always right" if evaluation.summed else ""
    where = figure(
        "by-horizon", "By horizon", "Below 1 a model is better than “unchanged” that far ahead.",
    ) + figure(
        "by-date", "By date",
        f"The mean over all series and steps{erring}, smoothed over "
        f"{numbers.SMOOTHED} cutoffs.",
    ) + figure(
        "by-volatility", "By volatility", "From the calmest tenth of the series to the wildest.",
    )  # fmt: skip
    yield html.Section(
        "where", "When and where the errors are", f"<div class='panels'>{where}</div>"
    )
    if evaluation.summary.groups:
        yield html.Section("groups", "Groups", _groups(evaluation))


def _side_by_side(evaluation: Evaluation) -> str:
    table = numbers.side_by_side(evaluation)
    forms = {"series": "d"} | {name: ".3f" for name in table if str(name).endswith("= 1")}
    means = (
        "sums over series and all horizons"
        if evaluation.summed
        else "means over series and over all horizons"
    )
    caption = (
        f"All models, {means}; “better” and “significantly” give "
        f"the share of the series on which {evaluation.model} is better than the model"
    )
    forms |= {name: "d" for name in table if str(name).startswith("series, ")}
    made = html.table(table, caption, {str(k): v for k, v in forms.items()})
    return f"{made}{_untested(evaluation)}"


def _untested(evaluation: Evaluation, horizon: int = ALL) -> str:
    """Return a note on why the columns of tests are empty, if there are too few cutoffs."""
    why = lack_of_tests(evaluation, horizon)
    return f"<p class='note'>{html.typeset(why)}</p>" if why else ""


def _groups(evaluation: Evaluation) -> str:
    """Return the figure and the table of groups, and the series without a group."""
    members = evaluation.summary.groups
    rest = [name for name in evaluation.ids if name not in members]
    named = f"<p class='note'>Without a group: {html.escape(', '.join(rest))}.</p>" if rest else ""
    drawn = html.figure(
        "strips-groups", "Series by group",
        "A row for each group; the bar spans half of its series, the notch is the median. A click "
        "opens a series.",
    )  # fmt: skip
    return f"{drawn}<div id='group-table'></div>{named}"


def _every(evaluation: Evaluation) -> str:
    note = ""
    if numbers.sampled_torch(evaluation):
        trained = evaluation.summary.torch_series
        note = (
            f"<p class='note'>PyTorch trained {trained} of the {evaluation.summary.series} series, "
            "evenly picked: its column is blank for the others, its means are over these series, "
            "and it is left out of the figures by date and by volatility.</p>"
        )
    return f"{note}<div class='controls' id='table-choices'></div><div id='table'></div>"


def _risk(evaluation: Evaluation) -> str:
    models = {name: position for position, name in enumerate(numbers.ordered(evaluation))}
    risk = value_at_risk(evaluation)
    risk = risk.iloc[np.lexsort([risk["model"].map(models), -risk["probability"]])]
    risk = risk.assign(probability=[f"{p:.1%}" for p in risk["probability"]])
    names = {"probability": "value at risk", "kupiec": "Kupiec rejects", "christoffersen":
             "in clusters"}  # fmt: skip
    tables = [html.table(risk.rename(columns=names), "Value at risk, one step ahead")]
    returns = numbers.of_returns(evaluation)
    if len(returns.columns) > 1:
        caption = "Scores of log returns less those of “unchanged”, means over all horizons"
        forms = {str(name): ".3f" for name in returns}
        tables.append(f"{_OF_RETURNS}{html.table(returns, caption, forms)}")
    held = coverage(evaluation)
    for level in QUOTED_LEVELS:
        rows = held[held["level"] == level].pivot(index="model", columns="horizon", values="held")
        rows = rows.reindex([name for name in models if name in rows.index]).reset_index()
        rows = rows.rename(columns=lambda h: f"{h} ahead" if h != "model" else h)
        if len(rows):
            tables.append(html.table(rows, f"Shares of outcomes that bands of {level} % covered"))
    return (
        "<p>“Exceeded” should equal the probability. Kupiec's test rejects where it does not, "
        "Christoffersen's where exceedances come in clusters; both columns are shares of series, "
        f"false discoveries held at 5 %.</p>{_untested(evaluation, 1)}{''.join(tables)}"
    )


def _caveats(evaluation: Evaluation) -> str:
    summary, lines = evaluation.summary, caveats(evaluation)
    if summary.of_prices and not (summary.simulated or summary.membership):
        lines.append(
            "Survivorship: lists of today's companies leave out those that failed. This makes "
            "averages over series look too good, but not comparisons between methods on the same "
            "series. A universe file with dates of membership avoids it."
        )
    if DRIFTLESS in evaluation.scores:
        lines.append(_drift(summary.config.premium))
    lines.append(
        "“Unchanged” is Naive, the last value with the bands of a random walk. A volatility is the "
        "root of a series' mean squared change over one step, at these cutoffs."
    )
    lines += [RUNGS] if summary.rungs else []
    return f"{html.points(lines)}{_skipped(evaluation)}"


def _drift(premium: float | None) -> str:
    """Return where the drift of prices comes from, and how to measure its part in a gain."""
    learned = (
        "what networks and baselines learned from the past"
        if premium is None
        else f"a premium of {100 * premium:g} % a year, which baselines that forecast volatilities "
        "have, too"
    )
    return (
        f"The drift of prices is {learned}. “CRPS without drift” compares the same distributions "
        "with their medians moved to the latest price: what is lost there was drift."
    )


def _skipped(evaluation: Evaluation) -> str:
    reasons = {name: f"skipped: {why}" for name, why in evaluation.summary.skipped.items()}
    for baseline, failed in evaluation.summary.failed.items():
        reasons |= {f"{name}, {baseline}": f"failed: {why}" for name, why in failed.items()}
    if not reasons:
        return "<p>No series was skipped, and no baseline failed.</p>"
    rows = (f"<li>{html.escape(f'{n}: {why}')}</li>" for n, why in reasons.items())
    heading = f"<summary>{len(reasons)} skipped or failed</summary>"
    return f"<details>{heading}<ul>{''.join(rows)}</ul></details>"


def _provenance(evaluation: Evaluation) -> str:
    summary = evaluation.summary
    data, versions = summary.provenance, summary.provenance.versions
    of = {name: printable(versions.get(name, "not known")) for name in ("forecaster", "jax")}
    settings = {**dataclasses.asdict(summary.config), "refit": summary.refit, "seed": summary.seed}
    facts = {
        "Made": f"{data.created}, forecaster {of['forecaster']}, JAX {of['jax']}, "
        f"Python {data.python}",
        "Data": f"{printable(data.source or 'a panel')}, {summary.first} to {summary.last}",
        "Hash of the data": data.data_sha256 or "not known",
        "Cutoffs": f"{summary.cutoffs}, {summary.step_size} apart, {summary.first_cutoff} to "
        f"{summary.last_cutoff}; forecasts 1 to {summary.horizon} steps ahead",
        "Settings": printable(", ".join(f"{name} {value}" for name, value in settings.items())),
        "Series": f"{summary.series} of {summary.series + len(summary.skipped)}",
    }
    if summary.rungs:
        facts["Forecast by"] = f"{summary.rungs}, at the latest cutoff of each series"
    if summary.own_ends:
        facts["Cutoffs"] += "; each series up to its own end, so the times are those of the longest"
    if summary.membership:
        facts["Series"] += (
            ", each counted while it belonged to the universe (point-in-time membership)"
        )
    return html.facts(facts) + html.table(_costs(evaluation), "Time")


def _costs(evaluation: Evaluation) -> pd.DataFrame:
    summary, seconds = evaluation.summary, evaluation.summary.seconds
    rows = [(f"{evaluation.model}, training of all", f"{seconds.training:.1f} s")]
    if seconds.torch is not None:
        rows += [(f"PyTorch, training of {summary.torch_series}", f"{seconds.torch:.1f} s")]
    rows += [(f"{name}, forecasts", f"{s:.1f} s") for name, s in seconds.baselines.items()]
    rows += [("the whole evaluation, by the clock", f"{seconds.all:.1f} s")]
    return pd.DataFrame(rows, columns=["what", "cost"])
