"""``forecaster predict``."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from forecaster.cli.forecast_outputs import Outputs
from forecaster.cli.shared import (
    PARTLY,
    columns_option,
    covariate_options,
    date_format_option,
    decimal_option,
    home_option,
    overwrite_option,
    say,
)
from forecaster.errors import UsageError
from forecaster.files import FORMATS, Output, from_text, is_database

if TYPE_CHECKING:
    from forecaster.files import Home
    from forecaster.ingest import CovariateFiles, Groups
    from forecaster.pipeline import Prediction

_PICTURED = 252  # the fewest latest rows of each series for pages and pictures
_DRAWN = 5  # most series in a picture


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All series of the model, and newcomers.")
@click.option("--newcomers/--no-newcomers", default=None, help="With --all, also stored series "
              "that are new since the fit, or were too short for it; they are forecast by the "
              "network of all.  [default: if the fit was without --tickers]")  # fmt: skip
@click.option("--run", metavar="NAME", help="Name of the run (see `runs`).  [default: the latest "
              "run on real data that knows the tickers]")  # fmt: skip
@click.option(
    "--level", type=float, multiple=True, default=(80, 95), show_default=True,
    help="Coverage of a band in percent; repeat for more bands.",
)  # fmt: skip
@click.option(
    "--quantile", type=float, multiple=True, metavar="P",
    help="Also the value that is not exceeded with this probability, such as 0.95: the stock that "
    "covers 95 % of the days; repeat for more.",
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
    help="Columns of the output: named by the model and its bands, as in Nixtla's libraries; or "
    "always the same, with quantiles q05 to q95, run, origin, step and flags.  "
    "[default: wide; fixed in a database]",
)
@click.option("--output", metavar="FILE|URL|sql:URL#TABLE", help="Write to a file, here or in an "
              "object store: .csv, .json, .parquet or .xlsx; or to a table of a database, in one "
              "transaction: a repeated run leaves each forecast once.")  # fmt: skip
@click.option(
    "--paths", "n_paths", type=click.IntRange(1),
    help="Draw this many sample paths of all series together, instead of bands.",
)  # fmt: skip
@click.option("--sum", "sums", metavar="FILE.csv", help="Forecast the sums of groups instead, such "
              "as portfolios or regions, from paths: a CSV with the columns ticker, group and, if "
              "wanted, weight.")  # fmt: skip
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
@click.option("--groups", metavar="FILE.csv", help="Groups for the page, such as sectors: a CSV "
              "with the columns ticker and group.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), help="Draw a PNG, SVG or PDF.")
@click.option("--history", type=click.IntRange(2), help="Number of latest rows that --plot shows.  "
              "[default: 63]")  # fmt: skip
@covariate_options
@date_format_option
@columns_option
@decimal_option
@overwrite_option
@home_option
@click.pass_context
def predict(
    ctx: click.Context,
    *,
    tickers: tuple[str, ...],
    everything: bool,
    newcomers: bool | None,
    run: str | None,
    level: tuple[float, ...],
    quantile: tuple[float, ...],
    form: str | None,
    layout: str | None,
    output: str | None,
    n_paths: int | None,
    sums: str | None,
    end: datetime | None,
    max_late: int | None,
    report: Path | None,
    groups: str | None,
    plot: Path | None,
    history: int | None,
    covariates: "CovariateFiles",
    overwrite: bool,
    home: "Home",
    **reading: str | tuple[str, ...] | None,
) -> None:
    """Forecast with a saved model and the stored series.

    If several runs know the tickers, standard error says which one was taken, and which newer ones
    were not.

    --paths draws joint futures of all series, which give the risk of a basket or the spread of a
    sum. It shows a summary, or writes the paths to --output. --sum forecasts the sums of groups
    from such futures, by default 2,000: each group's values times their weights, such as shares
    held.

    Forecasts are made from the latest stored rows, also of a model that `fit --end` trained on
    earlier ones. With --all, tickers that were retired (see `tickers`) are left out. Series that
    end before the others are named, and the exit code is 3.

    \b
    Examples:
      forecaster predict AAPL
      forecaster predict AAPL MSFT --level 50 --level 90 --plot fan.png
      forecaster predict --all --quantile 0.95 --output stock.csv
      forecaster predict --all --run tech-weekly --output forecasts.csv
      forecaster predict --all --layout fixed --output forecasts.parquet
      forecaster predict --all --output s3://bucket/forecasts.parquet --overwrite
      forecaster predict --all --output sql:sqlite:///desk.db#forecasts
      forecaster predict --all --output 'sql:postgresql://me:${PGPASSWORD}@db.example/desk#forecasts'
      forecaster predict --all --report forecasts.html --groups sectors.csv
      forecaster predict AAPL MSFT --paths 1000 --output paths.parquet
      forecaster predict --sum portfolios.csv --level 90
      forecaster predict --all --end 2024-06-28
      forecaster predict --all --no-newcomers
      forecaster predict --all --max-late 0 --output forecasts.csv
    """
    if (sums is not None) + everything + bool(tickers) != 1:
        raise UsageError(
            "name tickers, use --all for every series of the model, or --sum for those of a file "
            "(one of the three)"
        )
    for given, lacks, why in (
        (newcomers, not everything, "--newcomers is for --all; name the tickers, or leave it out"),
        (history, plot is None, "--history is for the picture; add --plot FILE.png"),
        (groups, report is None, "--groups is for the page; add --report FILE.html"),
        (quantile or None, n_paths is not None and sums is None,
         "--quantile is of single dates, and --paths draws paths; leave one out"),
    ):  # fmt: skip
        if given is not None and lacks:
            raise UsageError(why)
    _check_reading(reading, covariates)
    _check_real(output, end, covariates)
    drawn = "--sum" if sums is not None else None if n_paths is None else "--paths"
    outputs = Outputs.checked(
        output, plot, report, form=form, layout=layout, overwrite=overwrite, drawn=drawn
    )
    from forecaster.forecasting import check_levels, check_quantiles
    from forecaster.pipeline import predict_from_home

    grouped = weights = None
    if groups is not None:
        from forecaster.ingest import read_groups

        grouped = read_groups(from_text(groups))
    if sums is not None:
        from forecaster.ingest import read_weights

        weights = read_weights(from_text(sums))
        tickers = tuple(dict.fromkeys(name for its in weights.values() for name in its))
    levels, quantiles = check_levels(level), check_quantiles(quantile)
    chosen = ctx.get_parameter_source("level") is ParameterSource.COMMANDLINE
    outputs.check_held(levels if chosen else (), quantiles)
    fixed: Sequence[float] = ()
    if outputs.layout == "fixed":
        from forecaster.pipeline import FIXED_QUANTILES as fixed
    pictured = outputs.page is not None or outputs.picture is not None
    result = predict_from_home(
        home, None if everything else tickers, levels, run, n_paths, covariates,
        history=max(history or 0, _PICTURED) if pictured else 0, on_notice=say, end=end,
        newcomers=newcomers, quantiles=sorted({*quantiles, *fixed}), max_late=max_late,
        sums=weights,
    )  # fmt: skip
    _warn(result)
    outputs.write(result)
    if outputs.file is None and outputs.form is None and (outputs.page is None or not everything):
        from forecaster.cli.forecast_printing import print_forecasts, print_paths

        print_paths(result) if drawn == "--paths" else print_forecasts(result, levels, quantiles)
    if outputs.page is not None:
        _write_page(home, result, levels, grouped, outputs.page)
    if outputs.picture is not None:
        _draw(result, outputs.picture, history)
    for name, reason in result.unknown.items():
        say(f"{name}: {reason}")
    ctx.exit(PARTLY if result.unknown or result.found("behind") else 0)


def _warn(result: "Prediction") -> None:
    from forecaster.series import findings_in_words

    if result.simulated:
        return say("Simulated prices: these are forecasts of an invented market.")
    update = (
        f"Once there are new rows of {result.model.provenance.get('source')}, `forecaster ingest` "
        "with the options of before reads them."
    )
    # The latest come first: those that were late before would hide what is new.
    stored = sorted((one for one in result.findings if one.of_stored), key=lambda one: one.rows)
    for kind, said in findings_in_words(stored, len(result.panel.ids)).items():
        say(f"Warning: {said}{'. ' + update if kind in ('late', 'behind') else ''}")


def _check_reading(
    reading: dict[str, str | tuple[str, ...] | None], covariates: "CovariateFiles"
) -> None:
    """Raise UsageError for options on reading files if there is no file, or they do not fit it."""
    if not covariates and (given := [name for name, value in reading.items() if value]):
        raise UsageError(
            f"--{given[0].replace('_', '-')} says how to read files of covariates; add --future "
            "FILE or --static FILE (stored series were read by `ingest` or `fit`)"
        )
    if any(said.split("=")[0] in ("target", "wide") for said in reading["columns"] or ()):
        raise UsageError("--columns: covariates only take id=NAME and time=NAME")


def _check_real(output: str | None, end: datetime | None, covariates: "CovariateFiles") -> None:
    """Raise UsageError for forecasts on a condition that would replace real ones in a database."""
    given = {"--end": end, "--future": covariates.future, "--static": covariates.static}
    named = [option for option, value in given.items() if value is not None]
    if named and output is not None and is_database(output):
        raise UsageError(
            f"{named[0]} makes forecasts on a condition, and a table of a database holds those "
            "that were really made; leave it out, or write to a file, as with a run outside the "
            "home, which needs its files of covariates"
        )


def _write_page(
    home: "Home",
    result: "Prediction",
    levels: Sequence[float],
    grouped: "Groups | None",
    page: Output,
) -> None:
    from forecaster.report import build_forecasts, forecasts_of

    made = forecasts_of(home, result, levels, grouped, on_notice=say)
    page.write(lambda to: build_forecasts(made, to))
    say(f"Wrote {page.path}")


def _draw(result: "Prediction", picture: Output, history: int | None) -> None:
    from forecaster.plotting import HISTORY, plot_forecasts
    from forecaster.series import show_time

    names = list(result.panel.ids)[:_DRAWN]
    first, last = (show_time(when) for when in (result.frame["ds"].min(), result.frame["ds"].max()))
    title = f"Forecasts for {first}" + (f" to {last}" if last != first else "")
    title += "   (simulated, not real prices)" if result.simulated else ""
    figure = plot_forecasts(result.panel, result.frame, names, title, history or HISTORY)
    picture.write(lambda to: figure.savefig(to, format=picture.form, dpi=130))
    more = len(result.panel.ids) - len(names)
    rest = f" (not the {more} others; --report shows all)" if more else ""
    say(f"Drew {', '.join(names)} in {picture.path}{rest}")
