"""Put the page together: text, tables, figures and the data that its script draws from."""

import html
import io
import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from forecaster import atomic
from forecaster.evaluation import (
    Evaluation,
    comparison,
    coverage,
    horizon_of,
    scaled,
    value_at_risk,
    verdict,
)
from forecaster.forecasting import forecast_columns
from forecaster.report.figures import FIGURES, INK, PALE, by_torch, shown

HISTORY = 250  # steps that a ticker's picture shows
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.size": 9.5, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "figure.facecolor": "none",
    "axes.facecolor": "none", "savefig.facecolor": "none",
}  # fmt: skip


def build_report(found: Evaluation, path: Path | None = None) -> Path:
    """Write ``report.html`` into the evaluation's folder, or to ``path``: one file, no request."""
    path = path or found.folder / "report.html"
    here = files("forecaster.report")
    read = lambda name: (here / name).read_text(encoding="utf-8")  # noqa: E731
    page = Template(read("page.html")).substitute(
        style=read("page.css"),
        script=read("page.js"),
        data=_json(_data(found)),
        title=html.escape(f"{found.model}: {found.summary['series']} series"),
        warnings=_warnings(found),
        provenance=_provenance(found),
        verdict="".join(f"<li>{html.escape(line)}</li>" for line in verdict(found)),
        coverage=_table(_coverage_table(found)),
        risk=_table(_risk_table(found)),
        cost=_table(_cost_table(found)),
        skipped=_skipped(found),
        by_torch=_figure(found, "by_torch") if "PyTorch" in found.summary["models"] else "",
        **{name: _figure(found, name) for name in FIGURES},
    )
    atomic.write_file(path, lambda to: to.write_text(page, encoding="utf-8"))
    return path


def write_tables(found: Evaluation, folder: Path | None = None) -> list[Path]:
    """What the verdict is drawn from, for all horizons: ``comparison.csv`` and ``coverage.csv``."""
    folder = folder or found.folder
    horizons = range(1, found.summary["horizon"] + 1)
    parts = [comparison(found, horizon).assign(horizon=horizon) for horizon in horizons]
    tables = {"comparison": pd.concat(parts), "coverage": coverage(found)}
    for name, table in tables.items():
        rounded = table.round(5)
        atomic.write_file(folder / f"{name}.csv", lambda to, t=rounded: t.to_csv(to, index=False))
    return [folder / f"{name}.csv" for name in tables]


def write_figures(found: Evaluation, folder: Path | None = None) -> list[Path]:
    """The figures as PNG and SVG; returns their paths."""
    folder = folder or found.folder / "figures"
    paths = []
    wanted = {name: draw for name, (draw, _) in FIGURES.items()}
    if "PyTorch" in found.summary["models"]:
        wanted["by_torch"] = by_torch
    for name, draw in wanted.items():
        figure = draw(found)
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            options: dict[str, Any] = {"format": kind, "dpi": 150, "facecolor": "white"}
            atomic.write_file(path, lambda to, f=figure, o=options: f.savefig(to, **o))
            paths.append(path)
    return paths


_SOMETIMES = {"by_torch": (by_torch, "The same networks trained by PyTorch, on the same series")}


def _figure(found: Evaluation, name: str) -> str:
    """A figure as inline SVG whose ink follows the page's colours."""
    import matplotlib as mpl

    draw, caption = (FIGURES | _SOMETIMES)[name]
    style: Any = _STYLE | {"svg.hashsalt": name}
    with mpl.rc_context(style):
        figure, buffer = draw(found), io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(PALE, "var(--line)")
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(caption)}"', 1)
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _data(found: Evaluation) -> dict[str, Any]:
    """What the script shows: the table of all series, and the forecasts of each."""
    columns, rows = _all_series(found)
    return {"model": found.model, "columns": columns, "rows": rows, "series": _series(found)}


def _all_series(found: Evaluation) -> tuple[list[str], list[list[Any]]]:
    """The table of all series: headings, and a row each."""
    model, scores = found.model, found.scores
    mase = scaled(found, "mae")
    mine = scores[scores["model"] == model]
    means = mine.groupby("unique_id", sort=False).mean(numeric_only=True)
    rival = next((n for n in ("GARCH", "EWMA", "Naive") if n in mase and n != model), model)
    crps = scaled(found, "crps") if "crps" in scores else mase
    tests = found.tests[(found.tests["model"] == rival) & (found.tests["horizon"] == 1)]
    p = tests[tests["test"] == "crps_against"].set_index("unique_id")["p_adjusted"]
    table = pd.DataFrame(
        {
            "mase": mase[model], "naive": mase[model] / mase["Naive"],
            "crps": crps[model] / crps[rival], "p": p.reindex(mase.index),
            "held80": means.get("coverage-80"), "held95": means.get("coverage-95"),
        }
    )  # fmt: skip
    columns = ["series", "MASE", "against Naive", f"CRPS against {rival}", "p, adjusted"]
    return [*columns, "80 % holds", "95 % holds"], [
        [str(name), *(None if not np.isfinite(v) else float(f"{v:.4g}") for v in row)]
        for name, row in zip(table.index, table.to_numpy(float), strict=True)
    ]


def _series(found: Evaluation) -> dict[str, Any]:
    """Per series: times, values, one-step bands, and the fan of the latest cutoff."""
    model = found.model
    levels = [level for level in ("80", "95") if level in found.summary["levels"]]
    columns = forecast_columns(model, levels)
    bounds = columns[1:]
    frame = found.forecasts(columns)
    frame["horizon"] = horizon_of(frame)
    out = {}
    for name, part in frame.groupby("unique_id", sort=False):
        steps = part[part["horizon"] == 1].tail(HISTORY)
        fan = part[part["cutoff"] == part["cutoff"].max()]
        out[str(name)] = {
            "t": _times(steps["ds"]), "y": _numbers(steps["y"]),
            "m": _numbers(steps[model]), "b": [_numbers(steps[b]) for b in bounds],
            "ft": _times(fan["ds"]), "fy": _numbers(fan["y"]), "fm": _numbers(fan[model]),
            "fb": [_numbers(fan[b]) for b in bounds],
        }  # fmt: skip
    return out


def _times(times: pd.Series) -> list[Any]:
    if not pd.api.types.is_datetime64_any_dtype(times):
        return [int(time) for time in times]
    whole = (times == times.dt.normalize()).all()
    return times.dt.strftime("%Y-%m-%d" if whole else "%Y-%m-%d %H:%M").tolist()


def _numbers(values: pd.Series) -> list[float | None]:
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values.to_numpy(float)]


def _json(data: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _provenance(found: Evaluation) -> str:
    s = found.summary
    config = s["config"]
    facts = {
        "Made": f"{s['created']}, forecaster {s['versions']['forecaster']}, JAX "
        f"{s['versions']['jax']}, Python {s['python']}",
        "Data": f"{s.get('source', 'a panel')}, {s['first']} to {s['last']}",
        "Hash of the data": s.get("data_sha256", "not known"),
        "Cutoffs": f"{s['cutoffs']}, {s['step_size']} apart, {s['first_cutoff']} to "
        f"{s['last_cutoff']}; forecasts 1 to {s['horizon']} steps ahead",
        "Training": f"on what was known at the first cutoff{_refit(s['refit'])}; the latest "
        f"{config['validation']} rows of it held back to stop early and calibrate",
        "Network": f"{config['model']}, {config['hidden']} hidden, lookback {config['lookback']}, "
        f"head {config['head']}, one per series; seed {s['seed']}",
        "Series": f"{s['series']} of {s['series'] + len(s['skipped'])}{_survivors(s)}",
    }
    rows = (f"<dt>{html.escape(k)}</dt><dd>{html.escape(str(v))}</dd>" for k, v in facts.items())
    return f"<dl>{''.join(rows)}</dl>"


def _survivors(summary: dict[str, Any]) -> str:
    if summary.get("membership"):
        return ", each counted while it belonged to the universe (point-in-time membership)"
    return ""


def _refit(refit: Any) -> str:
    if refit is False:
        return ", never again"
    return ", again at every cutoff" if refit is True else f", again every {refit} cutoffs"


def _warnings(found: Evaluation) -> str:
    """What a reader must know before any figure."""
    summary = found.summary
    lines = []
    if summary.get("source") == "simulated":
        lines.append("These prices are simulated, not real.")
    elif summary["target"] != "y" and not summary.get("membership"):
        lines.append(
            "Survivorship: only companies that are in the data are counted, and lists of today's "
            "companies leave out those that failed. Averages over series are flattered; "
            "comparisons between methods on the same series are not. A universe file with dates "
            "of membership avoids it."
        )
    return "".join(f'<p class="warning">{html.escape(line)}</p>' for line in lines)


def _skipped(found: Evaluation) -> str:
    left_out = {name: f"left out: {why}" for name, why in found.summary["skipped"].items()}
    for baseline, failed in found.summary["failed"].items():
        left_out |= {f"{name}, {baseline}": f"failed: {why}" for name, why in failed.items()}
    if not left_out:
        return "<p>No series was left out, and no baseline failed.</p>"
    rows = (f"<li>{html.escape(n)}: {html.escape(why)}</li>" for n, why in left_out.items())
    heading = f"<summary>{len(left_out)} left out or failed</summary>"
    return f"<details>{heading}<ul>{''.join(rows)}</ul></details>"


def _coverage_table(found: Evaluation) -> pd.DataFrame:
    held = coverage(found)
    part = held[held["level"].isin([80, 95]) & held["model"].isin(shown(found))]
    table = part.pivot(index=["model", "horizon"], columns="level", values="held").reset_index()
    return table.rename(columns={level: f"{level:g} % holds" for level in (80, 95)})


def _risk_table(found: Evaluation) -> pd.DataFrame:
    table = value_at_risk(found)
    names = {"exceeded": "exceeded", "kupiec": "Kupiec rejects", "christoffersen": "clusters"}
    table["probability"] = [f"{p:.1%}" for p in table["probability"]]
    return table.rename(columns={"probability": "value at risk", **names})


def _cost_table(found: Evaluation) -> pd.DataFrame:
    seconds = found.summary["seconds"]
    rows = [(f"{found.model}, training of all", f"{seconds['training']:.1f} s")]
    if "torch" in seconds:
        count = found.summary["torch_series"]
        rows += [(f"PyTorch, training of {count}", f"{seconds['torch']:.1f} s")]
    rows += [(f"{name}, all processes", f"{s:.1f} s") for name, s in seconds["baselines"].items()]
    rows += [("the whole evaluation, by the clock", f"{seconds['all']:.1f} s")]
    for name, used in found.summary["peak_memory_gb"].items():
        rows += [(f"peak memory, {name}", f"{used:.2f} GB")] if used else []
    return pd.DataFrame(rows, columns=["what", "cost"])


def _table(table: pd.DataFrame) -> str:
    def show(value) -> str:
        if isinstance(value, float):
            return f"{value:.1%}" if np.isfinite(value) else "\N{EN DASH}"
        return str(value)

    head = "".join(f"<th scope='col'>{html.escape(str(name))}</th>" for name in table)
    body = (
        "<tr>" + "".join(f"<td>{html.escape(show(v))}</td>" for v in row) + "</tr>"
        for row in table.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
