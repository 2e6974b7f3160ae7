"""``forecaster fit``."""

from typing import TYPE_CHECKING, Any

import click

from forecaster import forecasting, pipeline, series, storage
from forecaster.cli.options import (
    PARTLY,
    THE_LATEST,
    THE_ONLY,
    cluster,
    config_of,
    data_options,
    home_option,
    memory_option,
    open_data,
    read_tickers,
    refuse_others,
    settings_options,
    was_given,
    working,
)
from forecaster.cli.output import bars, name_stale, print_table, say, say_reasons, show, show_facts
from forecaster.errors import UsageError, listed, printable
from forecaster.files import Home, make_folder, run_name

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@data_options
@settings_options()
@memory_option
@click.option("--tune", is_flag=True, help="Search each series' learning rate, weight "
              "decay and hidden size. Takes several times as long.")  # fmt: skip
@click.option("--run", metavar="NAME", help="Name of the run.  [default: its time]")
@click.option("--resume", is_flag=False, flag_value=THE_ONLY, metavar="[NAME]", help="Continue an "
              "interrupted fit; NAME chooses one of several (see `status`).")  # fmt: skip
@click.option("--update", is_flag=False, flag_value=THE_LATEST, metavar="[RUN]", help="Continue "
              "the training of a run, by default the latest, on rows stored since, as a new run. "
              "Fetches nothing: run `forecaster ingest` before.")  # fmt: skip
@click.option("--older-than", type=click.IntRange(min=1), metavar="ROWS", help="With --update: "
              "only series with at least ROWS new rows.  [default: 1]")  # fmt: skip
@click.option("--alarmed", is_flag=True, help="With --update: only series with an alarm (see "
              "`scorecard`), and those of --older-than if it is given.")  # fmt: skip
@click.option("--discard", metavar="NAME", help="Delete an interrupted fit or evaluation.")
@home_option
@click.pass_context
def fit(
    ctx: click.Context,
    *,
    home: Home,
    resume: str | None,
    update: str | None,
    older_than: int | None,
    alarmed: bool,
    discard: str | None,
    ray: str | None,
    **given: Any,
) -> int:
    """Train the networks of all series at the same time.

    The latest rows (--validation) of each series are held back: they decide when training stops,
    and they calibrate the bands. After an interruption --resume continues the fit, and ends with
    the same model. Several fits may run under one home at the same time, but only one in shards
    (--memory) per source.

    \b
    Examples:
      forecaster fit --tickers sp500.txt
      forecaster fit --tickers dow30.txt --source simulated
      forecaster fit --source files:sales.csv --columns id=store,time=day,target=net --horizon 10
      forecaster fit --tickers AAPL,MSFT --market "SPY,^VIX"
      forecaster fit --tickers dow30.txt --tune --run dow-tuned
      forecaster fit --source files:meters.parquet --memory 4GB
      forecaster fit --tickers sp500.txt --ray auto
      forecaster fit --resume
      forecaster fit --update --older-than 21 --alarmed
    """
    if update is not None:
        return _update(ctx, home, update or None, ray)
    if older_than is not None or alarmed:
        raise UsageError("--older-than and --alarmed choose the series of --update; add it")
    if discard is not None:
        refuse_others(ctx, "discard", "trains nothing")
        storage.discard(home, discard)
        show(f"Removed {discard}")
        return 0
    if resume is not None:
        why = "continues with the settings and the shards that the fit began with"
        refuse_others(ctx, "resume", why, "ray")
        with working("fit", ray) as work:
            result = pipeline.resume_fit(
                home, resume or None, executor=work.executor, callbacks=work.callbacks
            )
        return _finish(result)
    config = config_of(given)
    if given["run"] is not None:
        home.check_new_name(given["run"], fits=False)
    request, _ = open_data(given)
    make_folder(home.folder)
    with working("fit", ray) as work:
        result = pipeline.fit_to_home(
            home, request, config, given["seed"],
            tune=given["tune"], run=given["run"], memory=given["memory"],
            executor=work.executor, callbacks=work.callbacks,
        )  # fmt: skip
    return _finish(result)


def _update(ctx: click.Context, home: Home, before: str | None, ray: str | None) -> int:
    """Train the networks of a run on."""
    refuse_others(
        ctx, "update", "trains with the settings of the run and what is stored",
        "ray", "older_than", "alarmed", "tickers", "run", "seed",
    )  # fmt: skip
    params = ctx.params
    wanted, _ = read_tickers(params["tickers"])
    with cluster(ray) as executor, bars() as bar:
        result = pipeline.update_run(
            home, before, wanted, older_than=params["older_than"], alarmed=params["alarmed"],
            seed=params["seed"] if was_given(ctx, "seed") else None, name=params["run"],
            executor=executor, on_training=bar.training, on_notice=say,
        )  # fmt: skip
    report, names, folder = result.run.index.report, result.series, result.run.folder
    rest = len(report) - len(names)
    show_facts(
        {
            "Continues": f"run {result.before}",
            "Updated": f"{len(names):,} series: {series.names_in_short(names)}",
            "As before": f"{rest:,} series",
            "Time": f"{result.seconds:.1f} s",
            "Run": run_name(folder),
            "Saved": str(folder),
        }
    )
    _print_comparison(forecasting.comparison(report.loc[names], result.run.provenance))
    name_stale(result.gone)
    return PARTLY if result.gone else 0


def _finish(fit: "pipeline.SavedFit") -> int:
    _print_summary(fit)
    name_stale(fit.stale)
    say_reasons("Skipped {}:", fit.model.skipped)
    if fit.again is not None:
        say(
            "Some series were skipped because their workers were lost. All trained networks are "
            f"kept; `forecaster fit --resume {fit.again}` tries the others again and makes a "
            "run of all series."
        )
    return PARTLY if fit.model.skipped or fit.stale else 0


def _print_summary(fit: "pipeline.SavedFit") -> None:
    model, report, shards = fit.model, fit.run.index.report, len(fit.run.index.folders)
    config, made, counts = model.config, model.provenance, report["status"].value_counts()
    diverged = report.index[report["status"] == "diverged"]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in (made.get("masked") or {}).items())
    wrong = f"sessions that look wrong: {kinds} (`forecaster status`, --mask)"
    error = report["mae_relative_to_naive"].median()
    shown = {
        "Source": made["source"] + (" (not real prices)" if made["source"] == "simulated" else ""),
        "Prices" if model.target != "y" else "Series": f"{made['first']} to {made['last']}",
        "Networks": _networks(model, report),
        "Shards": str(shards) if shards > 1 else "",
        "Products": str(made["products"]) if config.precision != "float32" else "",
        "Forecast by": forecasting.counted(report[forecasting.FORECAST_BY]),
        "Tuned": _chosen(report) if made.get("tuned") else "",
        "Error": f"{error:.4f} times that of 'unchanged', the median over series"
        if error == error
        else "",
        "Stopped early": str(counts.get("stopped_early", 0)),
        "Diverged": ", ".join([str(len(diverged)), *diverged]),
        "Skipped": str(len(model.skipped)),
        "Left out": wrong if kinds else "",
        "Market": listed(config.indices),
        "Covariates": _covariates(model, report),
        "Time": f"{fit.seconds:.1f} s, {made['training_seconds']:.1f} s of it training",
        "Run": fit.run.name,
        "Saved": str(fit.run.folder),
    }
    show_facts({name: text for name, text in shown.items() if text})
    _print_comparison(forecasting.comparison(report, made))
    if worse := forecasting.worse_than_simple(report):
        click.secho(printable(worse), fg="red")


def _print_comparison(table: "pd.DataFrame") -> None:
    """Print how well networks and simpler methods forecast the rows held back."""
    units = {"loss": "{:.4f}", "error": "{:.4f}", "coverage": "{:.1%}", "seconds": "{:.1f}"}
    units = {of: how for of, how in units.items() if of in table and table[of].notna().any()}
    rows = [
        [
            str(name),
            *("" if row[of] != row[of] else how.format(row[of]) for of, how in units.items()),
        ]
        for name, row in table.iterrows()
    ]
    title = f"On the rows held back of {table.attrs['series']:,} series"
    print_table(title, ["by", *units], rows, numbers=True)


def _networks(model: "forecasting.Model", report: "pd.DataFrame") -> str:
    """Return the number of networks, their kind and their start, or why no series has any."""
    config, by = model.config, report[forecasting.FORECAST_BY]
    if config.is_classical:
        return f"none; the model is {config.model}"
    if trained := int((by == forecasting.Method.OWN).sum()):
        start = "started from one trained on all" if config.start == "pooled" else "independent"
        return f"{config.members} {config.column} for each of {trained} series, {start}"
    if config.transform == "last_value":
        return "none"
    needed = forecasting.rows_for_networks(config) if model.target == "y" else config.rows_to_fit
    long = report["rows"][report["rows"] >= needed]
    asked = "--model lstm trains them all the same"
    if len(long) >= forecasting.FEWEST_LONG * len(report) and long.sum() < forecasting.FEWEST_ROWS:
        return f"none; {long.sum()} rows in all are fewer than {forecasting.FEWEST_ROWS}; {asked}"
    return (
        f"none; {len(long)} of {len(report)} series have the {needed} rows that networks need. "
        f"Where at least {forecasting.FEWEST_LONG:.0%} have and change, they are trained; {asked}"
    )


def _chosen(report: "pd.DataFrame") -> str:
    """Return what a search has chosen: each value, with the number of series that have it."""
    counts = {name: report[name].value_counts() for name in ("hidden", "learning_rate",
              "weight_decay") if name in report}  # fmt: skip
    return "; ".join(
        f"{name.replace('_', ' ')} " + ", ".join(f"{value:.3g} ({n})" for value, n in its.items())
        for name, its in counts.items()
    )


def _covariates(model: "forecasting.Model", report: "pd.DataFrame") -> str:
    """Return the covariates; those known in advance each with its effect, if one was found."""
    transform, known = model.transform, model.transform.covariates
    ahead, of = list(known.future), forecasting.Method
    networks = report[forecasting.FORECAST_BY].isin([of.OWN, of.COMMON])
    if factors := transform.learned.events:
        ahead = [
            name if factor == 1 else f"{name}, which widens moves {factor:.1f} times"
            for name, factor in zip(ahead, factors, strict=True)
        ]
    elif responses := transform.usual_responses():
        ahead = [
            f"{name}, about {response:+.1%} for each 1 more"
            for name, response in zip(ahead, responses, strict=True)
        ]
    elif model.target == "y" and ahead and not networks.any():
        ahead[-1] += ": no effect was found, so not used"
    parts = {"known ahead": ahead, "of each series": [*known.numbers, *known.words]}
    return "; ".join(f"{', '.join(names)} ({what})" for what, names in parts.items() if names)
