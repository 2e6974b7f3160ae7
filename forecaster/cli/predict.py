"""``forecaster predict``."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from forecaster import forecasting, ingest, pipeline, series
from forecaster.cli.forecasts import (
    Outputs,
    draw,
    print_forecasts,
    print_paths,
    write_page,
)
from forecaster.cli.options import (
    PARTLY,
    READING,
    covariate_options,
    covariates_of,
    groups_option,
    home_option,
    overwrite_option,
    reading_options,
    refuse,
    was_given,
)
from forecaster.cli.output import say
from forecaster.files import FORMATS, Home, from_text, is_database

_PICTURED = 252  # the fewest latest rows of each series for pages and pictures


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All series of the model, and newcomers.")
@click.option("--newcomers/--no-newcomers", default=None, help="With --all, also stored series "
              "that the fit did not have, by the common network.  [default: if the fit was without "
              "--tickers]")  # fmt: skip
@click.option("--run", metavar="NAME", help="Name of the run (see `runs`).  [default: the latest "
              "run on real data that knows the tickers]")  # fmt: skip
@click.option(
    "--level", type=float, multiple=True, default=(80, 95), show_default=True,
    help="Coverage of a band in percent; repeat for more bands.",
)  # fmt: skip
@click.option(
    "--quantile", type=float, multiple=True, metavar="P",
    help="Also the value that is not exceeded with this probability, such as 0.95; repeat for "
    "more.",
)  # fmt: skip
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", *FORMATS]),
    help="[default: table, or by the ending of --output]",
)
@click.option(
    "--layout",
    type=click.Choice(["wide", "fixed"]),
    help="Columns of the output: wide, named by the model and its bands, as in Nixtla's libraries; "
    "fixed, always the same, with quantiles q05 to q95, run, origin, step and flags.  "
    "[default: wide; fixed in a database]",
)
@click.option("--output", metavar="FILE|URL|sql:URL#TABLE", help="Write to a file, here or in an "
              "object store (.csv, .json, .parquet or .xlsx), or to a table of a database, in "
              "place of the same forecasts.")  # fmt: skip
@click.option(
    "--paths", "n_paths", type=click.IntRange(1),
    help="Draw this many sample paths of all series together, instead of bands.",
)  # fmt: skip
@click.option("--sum", "sums", metavar="FILE.csv", help="Forecast the sums of groups, such as "
              "portfolios: a CSV with the columns ticker, group and, if wanted, "
              "weight.")  # fmt: skip
@click.option(
    "--end",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Forecast from this day, as if later rows were unknown; not added to the record.  "
    "[default: the latest row]",
)
@click.option(
    "--max-late",
    type=click.IntRange(0),
    metavar="N",
    help="Leave out series that lack more than the latest N sessions, name them, and exit with 3.  "
    "[default: forecast them, with a warning]",
)
@click.option("--report", type=click.Path(path_type=Path), help="Write a page: .html.")
@groups_option("for the page")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw a PNG, SVG or PDF.")
@click.option("--history", type=click.IntRange(2), help="Number of latest rows that --plot shows.  "
              "[default: 63]")  # fmt: skip
@covariate_options
@reading_options
@overwrite_option
@home_option
@click.pass_context
def predict(
    ctx: click.Context,
    *,
    home: Home,
    tickers: tuple[str, ...],
    everything: bool,
    level: tuple[float, ...],
    quantile: tuple[float, ...],
    form: str | None,
    layout: str | None,
    output: str | None,
    overwrite: bool,
    n_paths: int | None,
    sums: str | None,
    end: datetime | None,
    report: Path | None,
    groups: "ingest.Groups | None",
    plot: Path | None,
    history: int | None,
    **more: Any,
) -> int:
    """Forecast with a saved model and the stored series.

    Forecasts start from the latest stored rows. Series that end before the others are named, and
    the exit code is 3. --all leaves out retired tickers (see `tickers`). If several runs know the
    tickers, standard error names the one that is used.

    --paths draws joint futures of all series, such as for the risk of a basket, and shows a
    summary, or writes the paths to --output. --sum forecasts sums of values times weights, such as
    the shares in a portfolio, from such futures, by default 2,000.

    \b
    Examples:
      forecaster predict AAPL
      forecaster predict AAPL MSFT --level 50 --level 90 --plot fan.png
      forecaster predict --all --quantile 0.95 --output stock.csv
      forecaster predict --all --run tech-weekly --layout fixed --output forecasts.parquet
      forecaster predict --all --output 'sql:postgresql://me:${PGPASSWORD}@db.example/desk#forecasts'
      forecaster predict --all --report forecasts.html --groups sectors.csv
      forecaster predict AAPL MSFT --paths 1000 --output paths.parquet
      forecaster predict --sum portfolios.csv --level 90
      forecaster predict --all --end 2024-06-28
    """
    _check(ctx.params)
    drawn = "--sum" if sums is not None else None if n_paths is None else "--paths"
    outputs = Outputs.checked(
        output, plot, report, form=form, layout=layout, overwrite=overwrite, drawn=drawn
    )
    levels, quantiles = forecasting.check_levels(level), forecasting.check_quantiles(quantile)
    asked = outputs.quantiles(levels if was_given(ctx, "level") else (), quantiles)
    weights = None
    if sums is not None:
        weights = ingest.read_weights(from_text(sums))
        tickers = tuple(dict.fromkeys(name for its in weights.values() for name in its))
    pictured = outputs.page is not None or outputs.picture is not None
    result = pipeline.predict_from_home(
        home, None if everything else tickers, levels,
        run=more["run"], newcomers=more["newcomers"], max_late=more["max_late"], end=end,
        n_paths=n_paths, sums=weights, covariates=covariates_of(ctx.params), on_notice=say,
        quantiles=asked,
        history=max(history or 0, _PICTURED) if pictured else 0,
    )  # fmt: skip
    _warn(result)
    outputs.write(result)
    if outputs.file is None and outputs.form is None and (outputs.page is None or not everything):
        print_paths(result) if drawn == "--paths" else print_forecasts(result, levels, quantiles)
    if outputs.page is not None:
        # What the bands of assumed covariates are made of is not what is stored.
        assumed = more["future"] is not None or more["static"] is not None or result.summed
        write_page(home, result, levels, groups, outputs.page, explained=not assumed)
    if outputs.picture is not None:
        draw(result, outputs.picture, history)
    for name, reason in result.unknown.items():
        say(f"{name}: {reason}")
    return PARTLY if result.unknown or result.found("behind") else 0


def _check(given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not go together."""
    reading = [name for name in READING if given.get(name)]
    roles = [said.split("=")[0] for said in given["columns"]]
    # Forecasts on a condition would replace real ones in a database.
    condition = [f"--{name}" for name in ("end", "future", "static") if given[name] is not None]
    database = given["output"] is not None and is_database(given["output"])
    refuse(
        ((given["sums"] is not None) + given["everything"] + bool(given["tickers"]) != 1,
         "name tickers, use --all for every series of the model, or --sum for those of a file (one "
         "of the three)"),
        (given["newcomers"] is not None and not given["everything"],
         "--newcomers is for --all; name the tickers, or leave it out"),
        (given["history"] is not None and given["plot"] is None,
         "--history is for the picture; add --plot FILE.png"),
        (given["groups"] is not None and given["report"] is None,
         "--groups is for the page; add --report FILE.html"),
        (given["quantile"] and given["n_paths"] is not None and given["sums"] is None,
         "--quantile is of single dates, and --paths draws paths; leave one out"),
        (reading and given["future"] is None and given["static"] is None,
         f"--{''.join(reading[:1]).replace('_', '-')} says how to read files of covariates; add "
         "--future FILE or --static FILE (stored series were read by `ingest` or `fit`)"),
        ("target" in roles or "wide" in roles,
         "--columns: covariates only take id=NAME and time=NAME"),
        (condition and database,
         f"{''.join(condition[:1])} makes forecasts on a condition, and a table of a database "
         "holds those that were really made; leave it out, or write to a file, as with a run "
         "outside the home, which needs its files of covariates"),
    )  # fmt: skip


def _warn(result: "pipeline.Prediction") -> None:
    if result.simulated:
        return say("Simulated prices: these are forecasts of an invented market.")
    update = (
        f"Once there are new rows of {result.model.provenance.get('source')}, `forecaster ingest` "
        "with the options of before reads them."
    )
    # The latest come first: those that were late before would hide what is new.
    stored = sorted((one for one in result.findings if one.of_stored), key=lambda one: one.rows)
    for kind, said in series.findings_in_words(stored, len(result.panel.ids)).items():
        say(f"Warning: {said}{'. ' + update if kind in ('late', 'behind') else ''}")
