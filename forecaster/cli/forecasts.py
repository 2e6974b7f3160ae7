"""Where ``predict`` puts its forecasts: tables on the terminal, files, pictures, pages."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import click

from forecaster import forecasting, ingest, pipeline, series
from forecaster import report as pages
from forecaster.cli.options import refuse
from forecaster.cli.output import print_table, say
from forecaster.errors import UsageError, printable
from forecaster.files import (
    PAGES,
    PICTURES,
    Home,
    Output,
    as_json,
    check_output,
    is_database,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd

_PIPED = ("csv", "json")  # formats for standard output
_DRAWN = 5  # most series in a picture
FULL_TABLES = 5
"""For more series than this, one line each."""
_SHOWN = [0.1, 0.5, 0.9, 0.05, 0.025, 0.975]  # quantiles of paths; 0.05 is the tail of risk
_BASKET, _SUM = "equal weights", "sum"


class Outputs(NamedTuple):
    """Where forecasts go: to a file, a database or standard output, a picture and a page."""

    form: str | None
    layout: str
    file: "Output | pipeline.ForecastTable | None"
    picture: Output | None
    page: Output | None

    @staticmethod
    def checked(
        output: str | None, plot: Path | None, report: Path | None, *,
        form: str | None, layout: str | None, overwrite: bool, drawn: str | None,
    ) -> "Outputs":  # fmt: skip
        """Check that all can be written. Raises UsageError where one cannot.

        ``drawn``: the option that draws paths, which pictures and pages do not show
        """
        form = None if form == "table" else form
        database = output is not None and is_database(output)
        fixed = layout == "fixed" and not database
        refuse(
            (drawn and plot,
             f"--plot draws bands, and {drawn} makes none; leave one of them out"),
            (drawn and report,
             f"--report shows bands, and {drawn} makes none; leave one of them out"),
            (database and form,
             f"--format {form} is of files; leave it out with --output sql:URL#TABLE"),
            (database and layout == "wide",
             "--layout wide is of files, as its columns change with the model; leave it out with "
             "--output sql:URL#TABLE"),
            (database and drawn,
             f"--output sql:URL#TABLE holds quantiles of single dates, and {drawn} draws paths; "
             "write them to a file"),
            (output is None and form not in (None, *_PIPED),
             f"--format {form} needs --output FILE"),
            (fixed and drawn, f"--layout fixed is of quantiles; leave it out, or {drawn}"),
            (fixed and output is None and form is None,
             "--layout fixed is of files; add --output FILE, or --format csv or json"),
        )  # fmt: skip
        file = None
        if output is not None:
            file = pipeline.check_forecast_output(
                output, form=form, overwrite=overwrite, formats=True
            )
        picture = plot and check_output(plot, PICTURES, overwrite=overwrite, option="--plot")
        page = report and check_output(report, PAGES, overwrite=overwrite, option="--report")
        return Outputs(form, "fixed" if database else layout or "wide", file, picture, page)

    def quantiles(self, levels: Sequence[float], asked: Sequence[float]) -> list[float]:
        """Return the probabilities to forecast: those asked for, and those of the fixed layout.

        - ``levels``: in percent, those that the user chose; a picture or a page shows any level
        - ``asked``: probabilities

        Raises UsageError if the fixed layout lacks one that was asked for.
        """
        if self.layout != "fixed":
            return sorted(asked)
        shown = self.picture is not None or self.page is not None
        bounds = {f"--quantile {q:g}": [q] for q in asked}
        for level in () if shown else levels:
            bounds[f"--level {level:g}"] = [0.5 - level / 200, 0.5 + level / 200]
        held = {round(q, 9) for q in pipeline.FIXED_QUANTILES}
        if lacking := [name for name, its in bounds.items() if {round(q, 9) for q in its} - held]:
            a_file = self.file is None or isinstance(self.file, Output)
            where = "--layout fixed has" if a_file else "a table of a database has"
            raise UsageError(
                f"{', '.join(lacking)}: {where} the quantiles 0.05, 0.1 ... 0.95 and no others, "
                "which are the bounds of levels 10, 20 ... 90; leave out what it does not hold, or "
                "write a file without --layout"
            )
        return sorted({*asked, *pipeline.FIXED_QUANTILES})

    def write(self, result: "pipeline.Prediction") -> None:
        """Write forecasts to the file, the database or standard output, if they are to go there."""
        if self.file is None and self.form is None:
            return
        frame, file = pipeline.as_written(result, self.layout), self.file
        if file is None:
            text = (write_csv(frame) if self.form == "csv" else as_json(frame)).rstrip("\n")
            # Files and programs get the text as it is; a terminal would obey control characters.
            click.echo(printable(text) if sys.stdout.isatty() else text)
            return
        file.write_table(frame)
        if not isinstance(file, Output):
            say(f"Wrote {len(frame):,} rows into {file.shown}")
        elif not file.streamed:
            say(f"Wrote {file.shown}")


def write_page(
    home: Home,
    result: "pipeline.Prediction",
    levels: Sequence[float],
    grouped: "ingest.Groups | None",
    page: Output,
    *,
    explained: bool,
) -> None:
    """Write the page of forecasts; ``explained``: with what their bands are made of."""
    why = pipeline.explain_prediction(home, result, levels) if explained else None
    made = pages.forecasts_of(home, result, levels, grouped, explained=why, on_notice=say)
    page.write(lambda to: pages.build_forecasts(made, to))
    say(f"Wrote {page.path}")


def draw(result: "pipeline.Prediction", picture: Output, history: int | None) -> None:
    """Draw the first forecasts, after ``history`` rows of each series."""
    from forecaster.plotting import HISTORY, plot_forecasts

    names = list(result.panel.ids)[:_DRAWN]
    first, last = (
        series.show_time(when) for when in (result.frame["ds"].min(), result.frame["ds"].max())
    )
    title = f"Forecasts for {first}" + (f" to {last}" if last != first else "")
    title += "   (simulated, not real prices)" if result.simulated else ""
    figure = plot_forecasts(result.panel, result.frame, names, title, history or HISTORY)
    picture.write(lambda to: figure.savefig(to, format=picture.form, dpi=130))
    more = len(result.panel.ids) - len(names)
    rest = f" (not the {more} others; --report shows all)" if more else ""
    say(f"Drew {', '.join(names)} in {picture.path}{rest}")


def print_forecasts(
    result: "pipeline.Prediction", levels: Sequence[float], quantiles: Sequence[float]
) -> None:
    """Print a table of dates for each series, or for many series one table of their last dates.

    ``levels``, ``quantiles``: the bands, in percent, and the quantiles to show
    """
    frame, model, ids = result.frame, result.model.config.column, result.panel.ids
    each = not result.summed and len(ids) <= FULL_TABLES
    known = {} if result.summed else dict(zip(ids, _latest(result), strict=True))
    methods = frame.get(forecasting.FORECAST_BY)
    by = methods is not None and bool((methods != forecasting.Method.OWN).any())
    bands = {f"{level:g} % band": forecasting.bounds_of(model, level) for level in levels}
    columns = {"median": (model,), **bands}
    columns |= {f"quantile {q:g}": (forecasting.quantile_column(model, q),) for q in quantiles}
    headings, lines = ("date", *columns, "P(rise)"), []
    for group, part in frame.groupby("unique_id", sort=False):
        name = str(group)
        part = part if each else part[-1:]
        rows = [
            (
                time,
                *(_band(row[list(its)].tolist()) for its in columns.values()),
                f"{row[forecasting.RISE]:.0%}",
            )
            for time, (_, row) in zip(series.show_times(part["ds"]), part.iterrows(), strict=True)
        ]
        method = str(part[forecasting.FORECAST_BY].iloc[0]) if by else ""
        if each:
            title = f"{name}   last {'value' if result.panel.target == 'y' else 'close'} "
            title += f"{_number(known[name])} on {result.ends[name]}"
            title += "   (simulated)" if result.simulated else ""
            title += f"   forecast by {method}" if by else ""
            print_table(title, headings, rows, numbers=True)
        else:
            first = f"{part['series'].iloc[0]:,}" if result.summed else _number(known[name])
            lines.append((name, first, *rows[0], *([method] if by else [])))
    if not each:
        first = ("group", "series") if result.summed else ("series", "last")
        headings = (*first, *headings, *(["forecast by"] if by else []))
        print_table("", headings, lines, numbers=True)


def print_paths(result: "pipeline.Prediction") -> None:
    """Print values at the last step of paths; of prices the risk of the returns until then.

    Rows: the first series, and the sum of all values, or a basket of all prices.
    """
    ends, prices, count = at_the_end(result), result.panel.target != "y", len(result.panel.ids)
    rows = []
    for number, (name, its) in enumerate(ends.items()):
        if FULL_TABLES <= number < count:
            continue
        low, median, high, tail, lowest, highest = its.quantile(_SHOWN)
        if prices:
            shortfall = its[its <= tail].mean()
            cells = (
                f"{median:+.1%}", f"{low:+.1%} to {high:+.1%}", f"{-tail:.1%}", f"{-shortfall:.1%}",
            )  # fmt: skip
        else:
            cells = _number(median), _band([low, high]), _band([lowest, highest])
        rows.append((f"{name} of {count}" if number == count else str(name), *cells))
    steps = result.model.config.horizon
    ahead = "one step" if steps == 1 else f"{steps} steps"
    title = f"Returns over {ahead}" if prices else f"Values {ahead} ahead"
    more = ("value at risk 95 %", "expected shortfall 95 %") if prices else ("95 % band",)
    print_table(
        f"{title}, {len(ends):,} paths", ("series", "median", "80 % band", *more), rows,
        numbers=True,
    )  # fmt: skip
    if (times := _different_ends(result)) is not None:
        say(
            f"The paths end at different times, {times[0]} to {times[1]}. "
            + ("So the returns, also those of the basket, are over different days." if prices
               else "So there is no sum; --sum FILE.csv adds up the values of each date.")
        )  # fmt: skip


def at_the_end(result: "pipeline.Prediction") -> "pd.DataFrame":
    """Return values at the last step; of prices simple returns from the latest one: (path, series).

    Of several series the last column is the sum of the values, unless they are of different times,
    or a basket with equal amounts of money in all prices.
    """
    frame, names = result.frame, list(result.panel.ids)
    last = frame.groupby(["unique_id", "sample_id"], sort=False)[result.model.config.column].last()
    values = cast("pd.DataFrame", last.unstack("unique_id"))[names]
    if result.panel.target != "y":
        values = values / _latest(result) - 1
        return values.assign(**{_BASKET: values.mean(axis=1)}) if len(names) > 1 else values
    if len(names) == 1 or _different_ends(result) is not None:
        return values
    return values.assign(**{_SUM: values.sum(axis=1)})


def _different_ends(result: "pipeline.Prediction") -> tuple[str, str] | None:
    """Return the first and the last of the times at which paths end; None where all are one."""
    ends = result.frame.groupby("unique_id")["ds"].max()
    if ends.nunique() == 1:
        return None
    return series.show_time(ends.min()), series.show_time(ends.max())


def _latest(result: "pipeline.Prediction") -> list[float]:
    """Return the latest value of each series, in quoted prices."""
    values = result.panel.channel(result.panel.target)
    return [
        float(its[seen][-1]) * result.factors[name]
        for name, its, seen in zip(result.panel.ids, values, result.panel.mask, strict=True)
    ]


def _band(bounds: Sequence[float]) -> str:
    return " to ".join(map(_number, bounds))


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}"
