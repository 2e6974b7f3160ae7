"""``forecaster fit``."""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forecaster.cli.shared import (
    INTERRUPTED,
    PARTLY,
    bars,
    console,
    home_option,
    name_skipped,
    name_stale,
    read_tickers,
    say,
    source_options,
)
from forecaster.config import MODELS
from forecaster.errors import UsageError

if TYPE_CHECKING:
    from forecaster.forecasting import Model
    from forecaster.home import Home
    from forecaster.pipeline import SavedFit

_SETTINGS = ("horizon", "lookback", "validation", "model", "head", "hidden", "training", "epochs")


@click.command()
@source_options
@click.option("--horizon", type=int, help="Steps to forecast.  [default: 5]")
@click.option("--lookback", type=int, help="Latest rows a forecast is made from.  [default: 60]")
@click.option("--validation", type=int, help="Latest rows held back to calibrate.  [default: 252]")
@click.option("--model", type=click.Choice(MODELS), help="Kind of network.  [default: lstm]")
@click.option(
    "--head",
    type=click.Choice(["student_t", "point"]),
    help="What is learned: a distribution, or a value by squared error.  [default: student_t]",
)
@click.option("--hidden", type=int, help="Size of a network's hidden layer.  [default: 8]")
@click.option(
    "--training",
    type=click.Choice(["auto", "sequence", "windowed"]),
    help="Learn at every step of a window, or only at its last.  [default: auto]",
)
@click.option("--epochs", type=int, help="Maximum number of epochs.  [default: 100]")
@click.option(
    "--tune",
    is_flag=True,
    help="Search for each series' own learning rate, weight decay and hidden size. Takes several "
    "times as long.",
)
@click.option("--config", metavar="FILE.toml", help="More settings; options take precedence.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--resume", is_flag=True, help="Continue the fit that was interrupted.")
@home_option
@click.pass_context
def fit(
    ctx: click.Context,
    *,
    home: "Home",
    resume: bool,
    tickers: str | None,
    source: str,
    start: datetime | None,
    end: datetime | None,
    mask: tuple[str, ...],
    tune: bool,
    config: str | None,
    seed: int,
    **options: Any,
) -> None:
    """Train one network per series, all at the same time.

    The latest rows (--validation) of each series are held back: they decide when its training
    stops, and they calibrate its bands. A fit that was interrupted is continued by --resume, and
    the model is the same as without the interruption.

    \b
    Examples:
      forecaster fit --tickers sp500.txt
      forecaster fit --tickers dow30.txt --source simulated
      forecaster fit --source files:prices.parquet --horizon 10
      forecaster fit --tickers dow30.txt --tune
      forecaster fit --resume
    """
    if resume:
        return _resume(ctx, home)
    from forecaster.config import Config, read_settings

    settings = read_settings(Path(config)) if config is not None else {}
    settings |= {name: options[name] for name in _SETTINGS if options[name] is not None}
    settings = Config.from_dict(settings, config or "options")

    from forecaster.ingest import open_source

    wanted, _ = read_tickers(tickers)
    opened = open_source(source)
    from forecaster.atomic import make_folder

    make_folder(home.folder)
    from forecaster.pipeline import Callbacks, DataRequest, fit_to_home

    data = DataRequest(opened, wanted, start, end, mask)
    with _resumable(home), bars() as bar:
        callbacks = Callbacks(bar.fetching, say, bar.training)
        result = fit_to_home(home, data, settings, seed, tune=tune, callbacks=callbacks)
    _finish(ctx, result)


def _resume(ctx: click.Context, home: "Home") -> None:
    from click.core import ParameterSource

    for name in ctx.params.keys() - {"home", "resume"}:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--resume continues with the settings of the interrupted fit; leave out --{name}"
            )
    from forecaster.pipeline import resume_fit

    with _resumable(home), bars() as bar:
        result = resume_fit(home, on_training=bar.training)
    _finish(ctx, result)


@contextlib.contextmanager
def _resumable(home: "Home") -> Iterator[None]:
    """Say how to continue when the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        from forecaster.storage import UnfinishedFit

        if UnfinishedFit.has_progress(home):
            say("Interrupted. Continue with `forecaster fit --resume`.")
            raise SystemExit(INTERRUPTED) from None
        raise


def _finish(ctx: click.Context, result: "SavedFit") -> None:
    _print_summary(result)
    name_stale(result.stale)
    name_skipped(result.model.skipped)
    ctx.exit(PARTLY if result.model.skipped or result.stale else 0)


def _print_summary(result: "SavedFit") -> None:
    from rich.table import Table

    model, report = result.model, result.model.report
    span = f"{model.provenance['first']} to {model.provenance['last']}"
    counts = report["status"].value_counts()
    diverged = report.index[report["status"] == "diverged"]
    relative = report["mae_relative_to_naive"].median()
    training = model.provenance["training_seconds"]
    facts = {
        "Source": f"{model.provenance['source']}{_warn_simulated(model)}",
        "Prices" if model.target != "y" else "Series": span,
        "Networks": f"{len(model.ids)} {model.config.column}, one per series",
        "Stopped early": str(counts.get("stopped_early", 0)),
        "Diverged": ", ".join([str(len(diverged)), *diverged]),
        "Skipped": str(len(model.skipped)),
        **_masked(model),
        "Error": f"{relative:.4f} of that of 'unchanged' (median over series, validation span)",
        **_choices(model),
        "Time": f"{result.seconds:.1f} s, {training:.1f} s of it training",
        "Saved": str(result.folder),
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name, value)
    console().print(table, soft_wrap=True)


def _masked(model: "Model") -> dict[str, str]:
    """Sessions that were left out as wrong, by flag."""
    counts = model.provenance.get("masked") or {}
    if not counts:
        return {}
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
    return {"Left out": f"sessions that look wrong: {kinds} (`forecaster status`, --mask)"}


def _choices(model: "Model") -> dict[str, str]:
    """What a search chose, as counts."""
    if not model.provenance.get("tuned"):
        return {}
    counts = {
        name: model.report[name].value_counts().sort_index()
        for name in ("hidden", "learning_rate", "weight_decay")
    }
    return {
        f"Chose {name.replace('_', ' ')}": ", ".join(f"{v:g} ({n})" for v, n in column.items())
        for name, column in counts.items()
    }


def _warn_simulated(model: "Model") -> str:
    return " (not real prices)" if model.provenance["source"] == "simulated" else ""
