"""Put the page together: text, tables, figures and the data that its script draws from."""

import html
import io
import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from forecaster import atomic
from forecaster.csv_writer import write_csv
from forecaster.errors import printable
from forecaster.evaluation import (
    QUOTED_LEVELS,
    Evaluation,
    comparison,
    coverage,
    horizon_of,
    scaled,
    value_at_risk,
    verdict,
)
from forecaster.forecasting import forecast_columns
from forecaster.report.figures import INK, PALE, figures_of, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HISTORY = 250
"""Steps that the picture of a series shows."""
_STYLE = {
    "svg.fonttype": "none", "font.size": 9.5, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "figure.facecolor": "none",
    "axes.facecolor": "none", "savefig.facecolor": "none",
}  # fmt: skip

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | float | None"


def build_report(evaluation: Evaluation, path: Path | None = None) -> Path:
    """Write the report as one HTML file that loads nothing from elsewhere; returns its path.

    ``path``: by default ``report.html`` in the evaluation's folder.
    """
    path = path or evaluation.folder / "report.html"
    page = Template(_resource("page.html")).substitute(
        style=_resource("evaluation.css"),
        script=_resource("page.js"),
        data=_json(_data(evaluation)),
        title=html.escape(f"{evaluation.model}: {evaluation.summary.series} series"),
        warnings=_warnings(evaluation),
        provenance=_provenance(evaluation),
        verdict="".join(f"<li>{html.escape(line)}</li>" for line in verdict(evaluation)),
        coverage=_table(_coverage_table(evaluation)),
        risk=_table(_risk_table(evaluation)),
        cost=_table(_cost_table(evaluation)),
        skipped=_skipped(evaluation),
        **_figures(evaluation),
    )
    atomic.write_file(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def write_tables(evaluation: Evaluation, folder: Path | None = None) -> list[Path]:
    """Write what the verdict says, for all horizons: ``comparison.csv`` and ``coverage.csv``.

    ``folder``: by default the evaluation's. Returns the paths.
    """
    folder = folder or evaluation.folder
    horizons = range(1, evaluation.summary.horizon + 1)
    comparisons = [comparison(evaluation, horizon).assign(horizon=horizon) for horizon in horizons]
    tables = {"comparison": pd.concat(comparisons), "coverage": coverage(evaluation)}
    for name, table in tables.items():
        rounded = table.round(5)
        atomic.write_file(folder / f"{name}.csv", lambda to, t=rounded: write_csv(t, to))
    return [folder / f"{name}.csv" for name in tables]


def write_figures(evaluation: Evaluation, folder: Path | None = None) -> list[Path]:
    """Write the figures as PNG and SVG; returns the paths.

    ``folder``: by default ``figures`` in the evaluation's.
    """
    folder = folder or evaluation.folder / "figures"
    paths = []
    for name, (draw, _) in figures_of(evaluation).items():
        figure = draw(evaluation)
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            save = lambda to, f=figure, k=kind: f.savefig(to, format=k, dpi=150, facecolor="white")  # noqa: E731
            atomic.write_file(path, save)
            paths.append(path)
    return paths


def _resource(name: str) -> str:
    return (files("forecaster.report") / name).read_text(encoding="utf-8")


def _figures(evaluation: Evaluation) -> dict[str, str]:
    """The figures as HTML, by the places of the page that they go to."""
    drawn = {
        name: _figure(evaluation, name, draw, caption)
        for name, (draw, caption) in figures_of(evaluation).items()
    }
    return {"by_torch": ""} | drawn


def _figure(
    evaluation: Evaluation, name: str, draw: Callable[[Evaluation], "Figure"], caption: str
) -> str:
    """A figure as inline SVG whose ink follows the page's colours."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):  # pyright: ignore[reportArgumentType]
        figure, buffer = draw(evaluation), io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(PALE, "var(--line)")
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(caption)}"', 1)
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _data(evaluation: Evaluation) -> Json:
    """What the script shows: the table of all series, and the forecasts of each."""
    table = _all_series(evaluation)
    return {
        "model": evaluation.model,
        "columns": ["series", *map(str, table)],
        "rows": [
            [str(name), *(None if not np.isfinite(v) else float(f"{v:.4g}") for v in row)]
            for name, row in zip(table.index, table.to_numpy(float), strict=True)
        ],
        "series": _series(evaluation),
    }


def _all_series(evaluation: Evaluation) -> pd.DataFrame:
    """The table of all series, under the headings that the page shows."""
    model, scores = evaluation.model, evaluation.scores
    mase = scaled(evaluation, "mae")
    other = next((n for n in ("GARCH", "EWMA", "Naive") if n in mase and n != model), model)
    crps = scaled(evaluation, "crps") if "crps" in scores else mase
    tests = evaluation.tests
    tests = tests[(tests["model"] == other) & (tests["horizon"] == 1)]
    p = tests[tests["test"] == "crps_against"].set_index("unique_id")["p_adjusted"]
    means = scores[scores["model"] == model].groupby("unique_id", sort=False)
    means = means.mean(numeric_only=True)
    table = {
        "MASE": mase[model],
        "against Naive": mase[model] / mase["Naive"],
        f"CRPS against {other}": crps[model] / crps[other],
        "p, adjusted": p.reindex(mase.index),
    }
    held = {f"{level} % holds": means.get(f"coverage-{level}") for level in QUOTED_LEVELS}
    return pd.DataFrame(table | held)


def _series(evaluation: Evaluation) -> Json:
    """Per series: times, values, one-step bands, and the fan of the latest cutoff."""
    model = evaluation.model
    levels = [str(level) for level in QUOTED_LEVELS if str(level) in evaluation.summary.levels]
    columns = forecast_columns(model, levels)
    frame = evaluation.forecasts(columns)
    frame["horizon"] = horizon_of(frame)
    series = {}
    for name, rows in frame.groupby("unique_id", sort=False):
        steps = rows[rows["horizon"] == 1].tail(HISTORY)
        fan = rows[rows["cutoff"] == rows["cutoff"].max()]
        series[str(name)] = {
            "t": _times(steps["ds"]), "y": _numbers(steps["y"]),
            "m": _numbers(steps[model]), "b": [_numbers(steps[b]) for b in columns[1:]],
            "ft": _times(fan["ds"]), "fy": _numbers(fan["y"]), "fm": _numbers(fan[model]),
            "fb": [_numbers(fan[b]) for b in columns[1:]],
        }  # fmt: skip
    return series


def _times(times: pd.Series) -> list[Json]:
    if not pd.api.types.is_datetime64_any_dtype(times):
        return [int(time) for time in times]
    whole = (times == times.dt.normalize()).all()
    return times.dt.strftime("%Y-%m-%d" if whole else "%Y-%m-%d %H:%M").tolist()


def _numbers(values: pd.Series) -> list[Json]:
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values.to_numpy(float)]


def _json(data: Json) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _provenance(evaluation: Evaluation) -> str:
    summary = evaluation.summary
    config, data, versions = summary.config, summary.provenance, summary.provenance.versions
    facts = {
        "Made": f"{data.created}, forecaster {versions['forecaster']}, JAX {versions['jax']}, "
        f"Python {data.python}",
        "Data": f"{printable(data.source or 'a panel')}, {summary.first} to {summary.last}",
        "Hash of the data": data.data_sha256 or "not known",
        "Cutoffs": f"{summary.cutoffs}, {summary.step_size} apart, {summary.first_cutoff} to "
        f"{summary.last_cutoff}; forecasts 1 to {summary.horizon} steps ahead",
        "Training": f"on what was known at the first cutoff{_refit(refit=summary.refit)}; the "
        f"latest {config.validation} rows of it held back to stop early and calibrate",
        "Network": f"{config.model}, {config.hidden} hidden, lookback {config.lookback}, "
        f"head {config.head}, one per series; seed {summary.seed}",
        "Series": f"{summary.series} of {summary.series + len(summary.skipped)}",
    }
    if summary.membership:
        facts["Series"] += (
            ", each counted while it belonged to the universe (point-in-time membership)"
        )
    rows = (f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items())
    return f"<dl>{''.join(rows)}</dl>"


def _refit(*, refit: bool | int) -> str:
    if refit is False:
        return ", never again"
    return ", again at every cutoff" if refit is True else f", again every {refit} cutoffs"


def _warnings(evaluation: Evaluation) -> str:
    """What a reader must know before any figure."""
    summary = evaluation.summary
    lines = []
    if summary.simulated:
        lines.append("These prices are simulated, not real.")
    elif summary.of_prices and not summary.membership:
        lines.append(
            "Survivorship: only companies that are in the data are counted, and lists of today's "
            "companies leave out those that failed. Averages over series are flattered; "
            "comparisons between methods on the same series are not. A universe file with dates "
            "of membership avoids it."
        )
    return "".join(f'<p class="warning">{html.escape(line)}</p>' for line in lines)


def _skipped(evaluation: Evaluation) -> str:
    left_out = {name: f"left out: {why}" for name, why in evaluation.summary.skipped.items()}
    for baseline, failed in evaluation.summary.failed.items():
        left_out |= {f"{name}, {baseline}": f"failed: {why}" for name, why in failed.items()}
    if not left_out:
        return "<p>No series was left out, and no baseline failed.</p>"
    rows = (f"<li>{html.escape(n)}: {html.escape(why)}</li>" for n, why in left_out.items())
    heading = f"<summary>{len(left_out)} left out or failed</summary>"
    return f"<details>{heading}<ul>{''.join(rows)}</ul></details>"


def _coverage_table(evaluation: Evaluation) -> pd.DataFrame:
    held = coverage(evaluation)
    held = held[held["level"].isin(QUOTED_LEVELS) & held["model"].isin(shown(evaluation))]
    table = held.pivot(index=["model", "horizon"], columns="level", values="held").reset_index()
    return table.rename(columns={level: f"{level} % holds" for level in QUOTED_LEVELS})


def _risk_table(evaluation: Evaluation) -> pd.DataFrame:
    table = value_at_risk(evaluation)
    table["probability"] = [f"{p:.1%}" for p in table["probability"]]
    headings = {
        "probability": "value at risk",
        "kupiec": "Kupiec rejects",
        "christoffersen": "clusters",
    }
    return table.rename(columns=headings)


def _cost_table(evaluation: Evaluation) -> pd.DataFrame:
    summary, seconds = evaluation.summary, evaluation.summary.seconds
    rows = [(f"{evaluation.model}, training of all", f"{seconds.training:.1f} s")]
    if seconds.torch is not None:
        rows += [(f"PyTorch, training of {summary.torch_series}", f"{seconds.torch:.1f} s")]
    rows += [(f"{name}, all processes", f"{s:.1f} s") for name, s in seconds.baselines.items()]
    rows += [("the whole evaluation, by the clock", f"{seconds.all:.1f} s")]
    memory = summary.peak_memory_gb.items()
    rows += [(f"peak memory, {name}", f"{used:.2f} GB") for name, used in memory if used]
    return pd.DataFrame(rows, columns=["what", "cost"])


def _table(table: pd.DataFrame) -> str:
    """A table as HTML; numbers are shares."""
    head = "".join(f"<th scope='col'>{html.escape(str(name))}</th>" for name in table)
    body = (
        "<tr>" + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row) + "</tr>"
        for row in table.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1%}" if np.isfinite(value) else "\N{EN DASH}"
    return str(value)
