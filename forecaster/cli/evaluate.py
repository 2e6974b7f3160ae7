"""``forecaster evaluate`` and ``forecaster report``."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forecaster.cli.fit_options import (
    OF_EVALUATION,
    THE_ONLY,
    Data,
    Work,
    data_options,
    refuse_others,
    settings_options,
    working,
)
from forecaster.cli.shared import (
    PARTLY,
    home_option,
    name_stale,
    overwrite_option,
    say,
    say_reasons,
    show,
)
from forecaster.errors import listed
from forecaster.files import PAGES, check_output, check_parent, from_text

if TYPE_CHECKING:
    from forecaster.evaluation import Evaluation
    from forecaster.files import Home
    from forecaster.pipeline import Calls

_FOR_PAGES = 0.25  # figures and report are made if the tables take less than this part of memory
_groups_option = click.option(
    "--groups",
    metavar="FILE.csv",
    help="Groups to summarise, such as sectors: a CSV with the columns ticker and group.",
)


@click.command()
@data_options
@settings_options(OF_EVALUATION)
@click.option("--windows", type=click.IntRange(1),
              help="Number of cutoffs, the latest possible.  [default: 250, or fewer if series "
              "are short]")  # fmt: skip
@click.option("--step", type=click.IntRange(1), default=1, show_default=True,
              help="Steps from one cutoff to the next.")  # fmt: skip
@click.option("--baselines", default="naive,drift,ewma", show_default=True, metavar="NAMES",
              help="Comma-separated; any of naive, drift, seasonal_naive, empirical, ewma, har, "
              "log_har, garch, gjr, range_garch, ets, theta, ces, croston, sba, tsb, adida, "
              "torch.")  # fmt: skip
@click.option("--torch-sample", type=click.IntRange(1), default=50, show_default=True,
              help="Number of series that PyTorch trains, evenly picked.")  # fmt: skip
@click.option("--refit", type=click.IntRange(0), default=0, show_default=True,
              help="Train again after this many cutoffs; 0: only at the first.")  # fmt: skip
@click.option("--ends", type=click.Choice(["auto", "common", "own"]), default="auto",
              show_default=True, help="Forecast all series from common cutoffs, or each up to its "
              "own end; auto: own if times only count rows.")  # fmt: skip
@click.option("--resume", is_flag=False, flag_value=THE_ONLY, metavar="[NAME]",
              help="Continue an interrupted evaluation; NAME chooses one of several "
              "(see `status`).")  # fmt: skip
@click.option("--output", metavar="DIR", help="Folder for the results; must not exist.  "
              "[default: evaluations/DATE under --home]")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace an evaluation in --output.")
@_groups_option
@home_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    home: "Home",
    data: Data,
    settings: dict[str, Any],
    windows: int | None,
    step: int,
    baselines: str,
    torch_sample: int,
    refit: int,
    ends: str,
    seed: int,
    output: str | None,
    groups: str | None,
    ray: str | None,
    memory: str | None,
    resume: str | None,
    *,
    overwrite: bool,
) -> None:
    """Forecast the past from many cutoffs, and measure how good the forecasts were.

    Networks learn only from data up to the first cutoff (with --refit, up to the cutoff at which
    they are trained). Writes all forecasts, scores per series and horizon, tests, figures, and a
    report to open in a browser. If the series do not fit into memory together (--memory), they are
    evaluated in shards, and there are no figures and no report if the tables are too large for
    them. --resume continues an evaluation that was interrupted.

    \b
    Examples:
      forecaster evaluate --tickers dow30.txt --output dow
      forecaster evaluate --source files:prices.parquet --baselines naive,ewma,garch,torch
      forecaster evaluate --source simulated --windows 60 --step 5 --output try
      forecaster evaluate --tickers sp500.txt --groups sectors.csv
      forecaster evaluate --tickers sp500.txt --baselines naive,garch --ray auto
      forecaster evaluate --source files:meters.parquet --memory 4GB
      forecaster evaluate --resume
    """
    if resume is not None:
        return _resume(ctx, home, resume or None, ray)
    from forecaster.evaluation import BacktestOptions
    from forecaster.forecasting import Config
    from forecaster.ingest import read_groups
    from forecaster.pipeline import evaluate_from_home, parse_memory
    from forecaster.report import check_uplot

    checked = Config.from_dict(settings, ctx.params["config"] or "options")
    names = [name.strip() for name in baselines.split(",") if name.strip()]
    if output is not None:
        check_parent(Path(output))
    grouped = read_groups(from_text(groups)) if groups is not None else None
    request, membership = data.open()
    check_uplot()
    budget = None if memory is None else parse_memory(memory)
    backtest = BacktestOptions(
        windows, step, tuple(names), refit or False, seed, torch_sample, membership, ends,
        groups=grouped,
    )  # fmt: skip
    with working("evaluate", ray) as work:
        evaluation = evaluate_from_home(
            home, request, checked, backtest,
            folder=Path(output) if output else None, overwrite=overwrite, memory=budget,
            calls=_calls(work, budget),
        )  # fmt: skip
    _print_result(ctx, evaluation)


def _resume(ctx: click.Context, home: "Home", name: str | None, ray: str | None) -> None:
    refuse_others(ctx, "resume", "continues with the options given at first", but="ray")
    from forecaster.pipeline import resume_evaluation

    with working("evaluate", ray) as work:
        evaluation = resume_evaluation(home, name, _calls(work, None))
    _print_result(ctx, evaluation)


def _calls(work: Work, memory: int | None) -> "Calls":
    """Return the executor, the callbacks that show progress, and the one that makes pages."""
    from forecaster.evaluation import BacktestCallbacks
    from forecaster.pipeline import Calls

    torch, forecast = map(work.bar.counting, ("PyTorch", "Forecasting"))
    evaluating = BacktestCallbacks(torch=torch, forecast=forecast)
    return Calls(_pages_within(memory), work.executor, work.callbacks, evaluating)


def _pages_within(memory: int | None) -> "Callable[[Evaluation], None]":
    """Return a function that adds figures and report if the evaluation's tables fit into memory."""

    def finish(evaluation: "Evaluation") -> None:
        from forecaster.evaluation import Evaluation, bytes_of_tables
        from forecaster.machine import free_memory

        need, free = bytes_of_tables(evaluation.folder), memory or free_memory()
        if need < _FOR_PAGES * free:
            return _write_pages(Evaluation.read(evaluation.folder))
        say(
            f"No figures and no report: the tables of {evaluation.summary.series:,} series take "
            f"about {need / 1e9:.1f} GB in memory; `forecaster report DIR` makes the report on a "
            f"machine with {need / _FOR_PAGES / 1e9:.0f} GB. The tables are saved as Parquet."
        )

    return finish


def _write_pages(evaluation: "Evaluation") -> None:
    """Add figures, tables and the report to an evaluation's folder."""
    from forecaster.report import build_report, write_figures, write_tables

    write_figures(evaluation)
    write_tables(evaluation)
    build_report(evaluation)


def _print_result(ctx: click.Context, evaluation: "Evaluation") -> None:
    _print_verdict(evaluation)
    page = evaluation.folder / "report.html"
    show(f"Report: {page}" if page.exists() else f"Tables: {evaluation.folder}")
    name_stale(evaluation.summary.provenance.stale or {})
    say_reasons("Skipped {}:", evaluation.summary.skipped)
    for baseline, failed in evaluation.summary.failed.items():
        say_reasons(f"{baseline} failed on {{}}:", failed)
    summary = evaluation.summary
    partly = summary.skipped or summary.provenance.stale or summary.model in summary.failed
    ctx.exit(PARTLY if partly else 0)


@click.command()
@click.argument("folder", required=False, metavar="[DIR]")
@click.option("--output", metavar="FILE.html", help="[default: report.html in DIR]")
@overwrite_option
@_groups_option
@home_option
def report(
    home: "Home", folder: str | None, output: str | None, groups: str | None, *, overwrite: bool
) -> None:
    """Rebuild the HTML report of an evaluation, by default of the latest under --home.

    With --groups, also write their summaries beside it as CSV.

    \b
    Examples:
      forecaster report
      forecaster report dow --output dow.html
      forecaster report dow --groups sectors.csv
    """
    page = check_output(Path(output), PAGES, overwrite=overwrite) if output else None
    from forecaster.evaluation import Evaluation
    from forecaster.ingest import read_groups
    from forecaster.report import build_report, write_groups

    evaluation = Evaluation.read(Path(folder) if folder else home.latest_evaluation())
    if groups is not None:
        ids = [str(name) for name in evaluation.scores["unique_id"].unique()]
        evaluation = evaluation.grouped(read_groups(from_text(groups)).of(ids))
    if page is None:
        written = build_report(evaluation)
    else:
        written = page.path
        page.write(lambda to: build_report(evaluation, to))
    _print_verdict(evaluation)
    show(f"Report: {written}")
    if evaluation.summary.groups:
        show(f"Groups: {write_groups(evaluation, _groups_beside(written))}")


def _groups_beside(page: Path) -> Path:
    """Return the file for a page's groups: ``groups.csv``, or one named after the page."""
    return page.with_name("groups.csv" if page.name == "report.html" else f"{page.stem}-groups.csv")


def _print_verdict(evaluation: "Evaluation") -> None:
    from forecaster.evaluation import caveats, verdict

    if evaluation.summary.simulated:
        say("These prices are simulated, not real.")
    for line in (*verdict(evaluation), *caveats(evaluation)):
        show(line)
    groups = evaluation.summary.groups
    ids = [str(name) for name in evaluation.scores["unique_id"].unique()]
    if rest := [name for name in ids if name not in groups] if groups else []:
        show(f"Without a group, {len(rest)}: {listed(rest)}")
