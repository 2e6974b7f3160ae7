"""``forecaster predict``."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from forecaster.cli.forecast_outputs import Outputs
from forecaster.cli.printing import print_table
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
    import pandas as pd

    from forecaster.files import Home
    from forecaster.ingest import CovariateFiles, Groups
    from forecaster.pipeline import Prediction

_PICTURED = 252  # the fewest latest rows of each series for pages and pictures
_FULL_TABLES = 5  # for more series than this, one line each


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
    weights = None
    if sums is not None:
        from forecaster.ingest import read_weights

        weights = read_weights(from_text(sums))
        tickers = tuple(dict.fromkeys(name for its in weights.values() for name in its))
    if newcomers is not None and not everything:
        raise UsageError("--newcomers is for --all; name the tickers, or leave it out")
    if history is not None and plot is None:
        raise UsageError("--history is for the picture; add --plot FILE.png")
    if quantile and n_paths is not None and weights is None:
        raise UsageError("--quantile is of single dates, and --paths draws paths; leave one out")
    _check_reading(reading, covariates)
    drawn = "--sum" if weights is not None else None if n_paths is None else "--paths"
    _check_real(output, end, covariates)
    outputs = Outputs.checked(
        output, plot, report, form=form, layout=layout, overwrite=overwrite, drawn=drawn
    )
    grouped = _read_groups(groups, report)
    from forecaster.forecasting import check_levels, check_quantiles
    from forecaster.pipeline import FIXED_QUANTILES, predict_from_home

    shown = _Shown(check_levels(level), check_quantiles(quantile))
    chosen = ctx.get_parameter_source("level") is ParameterSource.COMMANDLINE
    outputs.check_held(shown.levels if chosen else (), shown.quantiles)
    fixed = FIXED_QUANTILES if outputs.layout == "fixed" else ()
    pictured = outputs.page is not None or outputs.picture is not None
    result = predict_from_home(
        home, None if everything else tickers, shown.levels, run, n_paths, covariates,
        history=max(history or 0, _PICTURED) if pictured else 0, on_notice=say, end=end,
        newcomers=newcomers, quantiles=sorted({*shown.quantiles, *fixed}), max_late=max_late,
        sums=weights,
    )  # fmt: skip
    _warn(result)
    if outputs.table(result, whole=not everything):
        _print_tables(result, shown, drawn=drawn == "--paths")
    if outputs.page is not None:
        _write_page(home, result, shown.levels, grouped, outputs.page)
    if outputs.picture is not None:
        _draw(result, outputs.picture, history)
    for name, reason in result.unknown.items():
        say(f"{name}: {reason}")
    ctx.exit(PARTLY if result.unknown or result.found("behind") else 0)


def _warn(result: "Prediction") -> None:
    from forecaster.series import findings_in_words

    if result.simulated:
        say("Simulated prices: these are forecasts of an invented market.")
        return
    update = (
        f"Once there are new rows of {result.model.provenance.get('source')}, `forecaster ingest` "
        "with the options of before reads them."
    )
    stored = [one for one in result.findings if one.of_stored]
    # The latest come first: those that were late before would hide what is new.
    stored.sort(key=lambda one: one.rows)
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


class _Shown(NamedTuple):
    """The levels of bands in percent, and the quantiles, that a table shows."""

    levels: Sequence[float]
    quantiles: Sequence[float]

    @property
    def headings(self) -> list[str]:
        return [
            *(f"{level:g} % band" for level in self.levels),
            *(f"quantile {q:g}" for q in self.quantiles),
        ]


def _print_tables(result: "Prediction", shown: _Shown, *, drawn: bool) -> None:
    """Print forecasts, or a summary of paths where these are ``drawn``."""
    if drawn:
        from forecaster.cli.risk import different_ends, print_risk, print_values

        values = result.panel.target == "y"
        (print_values if values else print_risk)(result, _FULL_TABLES)
        if ends := different_ends(result):
            say(
                f"The paths end at different times, {ends[0]} to {ends[1]}. "
                + ("So there is no sum; --sum FILE.csv adds up the values of each date." if values
                   else "So the returns, also those of the basket, are over different days.")
            )  # fmt: skip
    elif not result.summed and len(result.panel.ids) <= _FULL_TABLES:
        for name in result.panel.ids:
            _print_series(result, name, shown)
    else:
        _print_overview(result, shown)


def _print_series(result: "Prediction", name: str, shown: _Shown) -> None:
    """Print one series' forecasts, a row per date."""
    from forecaster.series import show_times

    last, when = _lasts(result)[name]
    kind = "value" if result.panel.target == "y" else "close"
    title = f"{name}   last {kind} {_number(last)} on {when}"
    title += "   (simulated)" if result.simulated else ""
    title += f"   forecast by {_rungs(result)[name]}" if _rungs(result) else ""
    part = result.frame[result.frame["unique_id"] == name]
    rows = [
        (time, *_cells(result, row, shown))
        for time, (_, row) in zip(show_times(part["ds"]), part.iterrows(), strict=True)
    ]
    print_table(title, ("date", "median", *shown.headings, "P(rise)"), rows, numbers=True)


def _print_overview(result: "Prediction", shown: _Shown) -> None:
    """Print the last date's forecasts, a row per series or group."""
    from forecaster.series import show_time

    rungs = _rungs(result)
    lasts = {} if result.summed else _lasts(result)
    rows = []
    for name, part in result.frame.groupby("unique_id", sort=False):
        row = part.iloc[-1]
        known = f"{row['series']:,}" if result.summed else _number(lasts[str(name)][0])
        rung = [rungs[str(name)]] if rungs else []
        rows.append((str(name), known, show_time(row["ds"]), *_cells(result, row, shown), *rung))
    first = ("group", "series") if result.summed else ("series", "last")
    headings = (*first, "date", "median", *shown.headings, "P(rise)")
    print_table("", (*headings, *(["forecast by"] if rungs else [])), rows, numbers=True)


def _rungs(result: "Prediction") -> dict[str, str]:
    """Return what the forecast of each series rests on; empty where all have own networks."""
    from forecaster.forecasting import FORECAST_BY, Method

    if FORECAST_BY not in result.frame:
        return {}
    each = result.frame.drop_duplicates("unique_id").set_index("unique_id")[FORECAST_BY]
    return {str(n): str(rung) for n, rung in each.items()} if (each != Method.OWN).any() else {}


def _cells(result: "Prediction", row: "pd.Series", shown: _Shown) -> list[str]:
    from forecaster.forecasting import RISE, bounds_of, quantile_column

    model = result.model.config.column
    bands = [
        " to ".join(_number(row[bound]) for bound in bounds_of(model, level))
        for level in shown.levels
    ]
    quantiles = [_number(row[quantile_column(model, q)]) for q in shown.quantiles]
    return [_number(row[model]), *bands, *quantiles, f"{row[RISE]:.0%}"]


def _lasts(result: "Prediction") -> dict[str, tuple[float, str]]:
    """Return the latest value of each series, and its time."""
    from forecaster.series import show_time

    panel = result.panel
    latest = panel.mask.shape[1] - 1 - panel.mask[:, ::-1].argmax(1)
    values = panel.channel(panel.target)[range(len(latest)), latest]
    return {
        name: (float(value) * result.factors[name], show_time(panel.times[at]))
        for name, value, at in zip(panel.ids, values, latest, strict=True)
    }


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}"


def _read_groups(groups: str | None, report: Path | None) -> "Groups | None":
    if groups is None:
        return None
    if report is None:
        raise UsageError("--groups is for the page; add --report FILE.html")
    from forecaster.ingest import read_groups

    return read_groups(from_text(groups))


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

    names = list(result.panel.ids)[:_FULL_TABLES]
    first, last = (show_time(when) for when in (result.frame["ds"].min(), result.frame["ds"].max()))
    title = f"Forecasts for {first}" + (f" to {last}" if last != first else "")
    title += "   (simulated, not real prices)" if result.simulated else ""
    figure = plot_forecasts(result.panel, result.frame, names, title, history or HISTORY)
    picture.write(lambda to: figure.savefig(to, format=picture.form, dpi=130))
    more = len(result.panel.ids) - len(names)
    rest = f" (not the {more} others; --report shows all)" if more else ""
    say(f"Drew {', '.join(names)} in {picture.path}{rest}")
