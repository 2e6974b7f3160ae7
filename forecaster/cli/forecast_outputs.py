"""Where ``forecaster predict`` writes its forecasts."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from forecaster import pipeline
from forecaster.cli.shared import refuse, say
from forecaster.errors import UsageError, printable
from forecaster.files import (
    PAGES,
    PICTURES,
    Output,
    as_json,
    check_output,
    is_database,
    write_csv,
)

_PIPED = ("csv", "json")  # formats for standard output


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
