"""``forecaster evaluate`` and ``forecaster report``."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from forecaster import evaluation as room
from forecaster import ingest, pipeline
from forecaster import report as pages
from forecaster.cli.options import (
    OF_EVALUATION,
    PARTLY,
    THE_ONLY,
    Work,
    config_of,
    data_options,
    gone_options,
    groups_option,
    home_option,
    open_data,
    overwrite_option,
    refuse_others,
    settings_options,
    working,
)
from forecaster.cli.output import name_stale, say, say_reasons, show
from forecaster.cli.risk import print_backtests
from forecaster.errors import has, listed, pip_command
from forecaster.files import PAGES, Home, Output, check_output, check_parent


@click.command()
@data_options
@settings_options(OF_EVALUATION)
@gone_options(memory="all series are in memory together; take fewer, by --tickers")
@click.option("--windows", "n_windows", type=click.IntRange(1),
              help="Number of cutoffs, the latest possible.  [default: 250, or fewer if series "
              "are short]")  # fmt: skip
@click.option("--step", "step_size", type=click.IntRange(1), default=1, show_default=True,
              help="Steps from one cutoff to the next.")  # fmt: skip
@click.option("--baselines", metavar="NAMES",
              help="Comma-separated; any of naive, drift, seasonal_naive, empirical, ewma, har, "
              "log_har, garch, gjr, range_garch, ets, theta, ces, croston, sba, tsb, adida, "
              "torch.  [default: naive,drift,ewma; for prices also garch, where `arch` is "
              "installed]")  # fmt: skip
@click.option("--torch-sample", type=click.IntRange(1), default=50, show_default=True,
              help="Number of series that PyTorch trains.")  # fmt: skip
@click.option("--refit", type=click.IntRange(0), default=0, show_default=True,
              callback=lambda ctx, option, value: value or False,
              help="Train again after this many cutoffs; 0: only at the first.")  # fmt: skip
@click.option("--ends", type=click.Choice(["auto", "common", "own"]), default="auto",
              show_default=True, help="Forecast all series from common cutoffs, or each up to its "
              "own end; auto: own if times only count rows.")  # fmt: skip
@click.option("--resume", is_flag=False, flag_value=THE_ONLY, metavar="[NAME]",
              help="Continue an interrupted evaluation, whose trained networks are kept; NAME "
              "chooses one of several (see `status`).")  # fmt: skip
@click.option("--book", type=click.Path(path_type=Path), metavar="FILE.csv",
              help="Positions, as for `risk`: compare their value at risk at each cutoff with the "
              "losses that came.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder for the results; must not exist.  "
              "[default: evaluations/DATE under --home]")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace an evaluation in --output.")
@groups_option("to summarise")
@home_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    *,
    home: Home,
    baselines: str | None,
    book: Path | None,
    output: Path | None,
    overwrite: bool,
    ray: str | None,
    resume: str | None,
    **given: Any,
) -> int:
    """Forecast the past from many cutoffs, and measure how good the forecasts were.

    Networks learn only from data up to the first cutoff (with --refit, up to the cutoff at which
    they are trained). Writes forecasts, scores, tests, figures, and a report to open in a browser.
    All series have to fit into memory together.

    \b
    Examples:
      forecaster evaluate --tickers dow30.txt --output dow
      forecaster evaluate --source files:prices.parquet --baselines naive,ewma,garch,torch
      forecaster evaluate --source simulated --windows 60 --step 5 --output try
      forecaster evaluate --tickers sp500.txt --baselines naive,garch --ray auto
      forecaster evaluate --resume
    """
    if resume is not None:
        refuse_others(ctx, "resume", "continues with the options given at first", "ray")
        with working("evaluate", ray) as work:
            evaluation = pipeline.resume_evaluation(
                home, resume or None, executor=work.executor, callbacks=_callbacks(work)
            )
        return _finish(evaluation)

    config = config_of(given)
    if output is not None:
        check_parent(output)
    request, membership = open_data(given)
    pages.check_uplot()
    names = ("n_windows", "step_size", "torch_sample", "refit", "ends", "groups", "seed")
    said = None if baselines is None else [name.strip() for name in baselines.split(",")]
    backtest = room.BacktestOptions(
        baselines=None if said is None else tuple(filter(None, said)),
        membership=membership, **{name: given[name] for name in names},
    )  # fmt: skip
    with working("evaluate", ray) as work:
        evaluation = pipeline.evaluate_from_home(
            home, request, config, backtest, folder=output, book=book, overwrite=overwrite,
            executor=work.executor, callbacks=_callbacks(work),
        )  # fmt: skip
    return _finish(evaluation)


def _callbacks(work: Work) -> "pipeline.Callbacks":
    """Return the callbacks that show progress, and the one that makes pages."""
    torch, forecast = map(work.bar.counting, ("PyTorch", "Forecasting"))
    return dataclasses.replace(
        work.callbacks, on_torch=torch, on_forecast=forecast, on_evaluation=_write_pages
    )


def _write_pages(evaluation: "room.Evaluation") -> None:
    """Add figures, tables and the report to an evaluation."""
    pages.write_figures(evaluation)
    pages.write_tables(evaluation)
    pages.build_report(evaluation)


def _finish(evaluation: "room.Evaluation") -> int:
    """Print the verdict, and return the exit code."""
    _print_verdict(evaluation)
    show(f"Report: {evaluation.folder / 'report.html'}")
    summary = evaluation.summary
    name_stale(summary.provenance.stale or {})
    say_reasons("Skipped {}:", summary.skipped)
    for baseline, failed in summary.failed.items():
        say_reasons(f"{baseline} failed on {{}}:", failed)
    partly = summary.skipped or summary.provenance.stale or summary.model in summary.failed
    return PARTLY if partly else 0


@click.command()
@click.argument("folder", required=False, metavar="[DIR]")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE.html",
              help="[default: report.html in DIR]")  # fmt: skip
@overwrite_option
@groups_option("to summarise")
@home_option
def report(
    *,
    home: Home,
    folder: str | None,
    output: Path | None,
    groups: "ingest.Groups | None",
    overwrite: bool,
) -> None:
    """Rebuild the HTML report of an evaluation, by default of the latest under --home.

    With --groups, also write their summaries beside it as CSV.

    \b
    Examples:
      forecaster report
      forecaster report dow --output dow.html
      forecaster report dow --groups sectors.csv
    """
    page = output and check_output(output, PAGES, overwrite=overwrite)
    evaluation = room.Evaluation.read(Path(folder) if folder else home.latest_evaluation())
    if groups is not None:
        ids = [str(name) for name in evaluation.scores["unique_id"].unique()]
        evaluation = evaluation.grouped(groups.of(ids))
    page = page or Output(evaluation.folder / "report.html", "html")
    page.write(lambda to: pages.build_report(evaluation, to))
    written = page.path
    _print_verdict(evaluation)
    show(f"Report: {written}")
    if evaluation.summary.groups:
        name = "groups.csv" if written.name == "report.html" else f"{written.stem}-groups.csv"
        show(f"Groups: {pages.write_groups(evaluation, written.with_name(name))}")


def _print_verdict(evaluation: "room.Evaluation") -> None:
    if evaluation.summary.simulated:
        say("These prices are simulated, not real.")
    garch = "GARCH" in evaluation.summary.models or has("arch")
    if evaluation.summary.of_prices and not garch:
        show(f"Not compared with GARCH, the usual rival: {pip_command('garch')}")
    for line in (*room.verdict(evaluation), *room.caveats(evaluation)):
        show(line)
    if (table := evaluation.folder / pipeline.RISK).exists():
        import pandas as pd

        print_backtests(pd.read_csv(table, float_precision="round_trip"))
    groups = evaluation.summary.groups
    ids = [str(name) for name in evaluation.scores["unique_id"].unique()]
    if rest := [name for name in ids if name not in groups] if groups else []:
        show(f"Without a group, {len(rest)}: {listed(rest)}")
