"""``forecaster fit``."""

from typing import TYPE_CHECKING, Any

import click

from forecaster.cli.fit_options import (
    THE_LATEST,
    THE_ONLY,
    Data,
    cluster,
    data_options,
    refuse_others,
    settings_options,
    working,
)
from forecaster.cli.printing import print_table, show_facts
from forecaster.cli.shared import (
    PARTLY,
    bars,
    home_option,
    name_stale,
    read_tickers,
    say,
    say_reasons,
    show,
    was_given,
)
from forecaster.errors import UsageError, listed, printable

if TYPE_CHECKING:
    import pandas as pd

    from forecaster.files import Home
    from forecaster.forecasting import Model
    from forecaster.pipeline import SavedFit


@click.command()
@data_options
@settings_options()
@click.option("--tune", is_flag=True, help="Search each series' learning rate, weight "
              "decay and hidden size. Takes several times as long.")  # fmt: skip
@click.option("--run", metavar="NAME", help="Name of the run.  [default: its time]")
@click.option("--resume", is_flag=False, flag_value=THE_ONLY, metavar="[NAME]", help="Continue an "
              "interrupted fit; NAME chooses one of several (see `status`).")  # fmt: skip
@click.option("--update", is_flag=False, flag_value=THE_LATEST, metavar="[RUN]", help="Train the "
              "networks of a run, by default the latest, on with rows stored since, as a new run. "
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
    home: "Home",
    data: Data,
    settings: dict[str, Any],
    resume: str | None,
    update: str | None,
    older_than: int | None,
    alarmed: bool,
    discard: str | None,
    ray: str | None,
    **more: Any,
) -> int:
    """Train the networks of all series at the same time.

    The latest rows (--validation) of each series are held back: they decide when its training
    stops, and they calibrate its bands. After an interruption by Ctrl-C, SIGTERM or a crash,
    --resume continues the fit, and the model is the same as without the interruption. Several fits
    may run under one home at the same time, but only one in shards (--memory) per source.

    \b
    Examples:
      forecaster fit --tickers sp500.txt
      forecaster fit --tickers dow30.txt --source simulated
      forecaster fit --source files:sales.csv --columns id=store,time=day,target=net --horizon 10
      forecaster fit --source 'sql:postgresql://me:${PGPASSWORD}@db/market' --query prices
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
        from forecaster.storage import discard as remove

        refuse_others(ctx, "discard", "trains nothing")
        remove(home, discard)
        show(f"Removed {discard}")
        return 0
    from forecaster.files import make_folder
    from forecaster.forecasting import Config
    from forecaster.pipeline import fit_to_home, resume_fit

    if resume is not None:
        why = "continues with the settings and the shards that the fit began with"
        refuse_others(ctx, "resume", why, "ray")
        with working("fit", ray) as work:
            result = resume_fit(
                home, resume or None, executor=work.executor, callbacks=work.callbacks
            )
        return _finish(result)
    if more["tune"]:
        _check_tuned(settings)
    if more["run"] is not None:
        home.check_new_name(more["run"], fits=False)
    checked = Config.from_dict(settings, ctx.params["config"] or "options")
    request, _ = data.open()
    make_folder(home.folder)
    with working("fit", ray) as work:
        result = fit_to_home(
            home, request, checked, executor=work.executor, callbacks=work.callbacks, **more
        )
    return _finish(result)


def _update(ctx: click.Context, home: "Home", before: str | None, ray: str | None) -> int:
    """Train the networks of a run on."""
    refuse_others(
        ctx, "update", "trains with the settings of the run and what is stored",
        "ray", "older_than", "alarmed", "tickers", "run", "seed",
    )  # fmt: skip
    from forecaster.files import run_name
    from forecaster.forecasting import comparison
    from forecaster.pipeline import update_run
    from forecaster.series import names_in_short

    params = ctx.params
    wanted, _ = read_tickers(params["tickers"])
    with cluster(ray) as executor, bars() as bar:
        result = update_run(
            home, before, wanted, older_than=params["older_than"], alarmed=params["alarmed"],
            seed=params["seed"] if was_given(ctx, "seed") else None, name=params["run"],
            executor=executor, on_training=bar.training, on_notice=say,
        )  # fmt: skip
    report, names, folder = result.run.index.report, result.series, result.run.folder
    rest = len(report) - len(names)
    show_facts(
        {
            "Continues": f"run {result.before}",
            "Updated": f"{len(names):,} series: {names_in_short(names)}",
            "As before": f"{rest:,} series",
            "Time": f"{result.seconds:.1f} s",
            "Run": run_name(folder),
            "Saved": str(folder),
        }
    )
    _print_comparison(comparison(report.loc[names], result.seconds))
    name_stale(result.gone)
    return PARTLY if result.gone else 0


def _check_tuned(settings: dict[str, Any]) -> None:
    """Raise UsageError for settings that contradict a search."""
    for name, searched in (("start", "independent"), ("members", 1)):
        if settings.get(name, searched) != searched:
            raise UsageError(
                f"--tune searches settings of one independent network per series, so {name} has to "
                f"be {searched}. Leave out {name} = {settings[name]}, or --tune"
            )


def _finish(fit: "SavedFit") -> int:
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


def _print_summary(fit: "SavedFit") -> None:
    from forecaster.files import run_name
    from forecaster.forecasting import FORECAST_BY, comparison, counted, worse_than_simple

    model, report, shards = fit.model, fit.report, len(fit.run.index.folders)
    config, made, counts = model.config, model.provenance, report["status"].value_counts()
    diverged = report.index[report["status"] == "diverged"]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in (made.get("masked") or {}).items())
    wrong = f"sessions that look wrong: {kinds} (`forecaster status`, --mask)"
    shown = {
        "Source": made["source"] + (" (not real prices)" if made["source"] == "simulated" else ""),
        "Prices" if model.target != "y" else "Series": f"{made['first']} to {made['last']}",
        "Networks": _networks(model, report),
        "Shards": str(shards) if shards > 1 else "",
        "Products": str(made["products"]) if config.precision != "float32" else "",
        "Forecast by": counted(report[FORECAST_BY]),
        "Stopped early": str(counts.get("stopped_early", 0)),
        "Diverged": ", ".join([str(len(diverged)), *diverged]),
        "Skipped": str(len(model.skipped)),
        "Left out": wrong if kinds else "",
        "Market": listed(config.indices),
        "Covariates": _covariates(model, report),
        "Time": f"{fit.seconds:.1f} s, {made['training_seconds']:.1f} s of it training",
        "Run": run_name(fit.folder),
        "Saved": str(fit.folder),
    }
    show_facts({name: text for name, text in shown.items() if text})
    _print_comparison(comparison(report, made["training_seconds"]))
    if worse := worse_than_simple(report):
        click.secho(printable(worse), fg="red")


def _print_comparison(table: "pd.DataFrame") -> None:
    """Print how well networks and simpler methods forecast the rows held back."""
    units = {"loss": "{:.4f}", "error": "{:.4f}", "coverage": "{:.1%}", "seconds": "{:.1f}"}
    rows = [
        [
            str(name),
            *("" if row[of] != row[of] else how.format(row[of]) for of, how in units.items()),
        ]
        for name, row in table.iterrows()
    ]
    title = f"On the rows held back of {table.attrs['series']:,} series"
    print_table(title, ["by", *units], rows, numbers=True)


def _networks(model: "Model", report: "pd.DataFrame") -> str:
    """Return the number of networks, their kind and their start, or why no series has any."""
    from forecaster.forecasting import FEWEST_LONG, FORECAST_BY, Method, rows_for_networks

    config = model.config
    if config.is_classical:
        return f"none; the model is {config.model}"
    if trained := int((report[FORECAST_BY] == Method.OWN).sum()):
        start = "started from one trained on all" if config.start == "pooled" else "independent"
        return f"{config.members} {config.column} for each of {trained} series, {start}"
    if config.transform == "last_value":
        return "none"
    needed = rows_for_networks(config) if model.target == "y" else config.rows_to_fit
    long = int((report["rows"] >= needed).sum())
    return (
        f"none; {long} of {len(report)} series have the {needed} rows that networks need. Where at "
        f"least {FEWEST_LONG:.0%} have and change, networks are trained; --model lstm trains them "
        "all the same"
    )


def _covariates(model: "Model", report: "pd.DataFrame") -> str:
    """Return the covariates; those known in advance each with its effect, if one was found."""
    from forecaster.forecasting import FORECAST_BY, Method

    transform, known = model.transform, model.transform.covariates
    ahead, networks = list(known.future), report[FORECAST_BY].isin([Method.OWN, Method.COMMON])
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
