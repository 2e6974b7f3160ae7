"""Where ``forecaster predict`` writes its forecasts."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from forecaster.cli.shared import say
from forecaster.errors import UsageError, printable
from forecaster.files import (
    PAGES,
    PICTURES,
    Output,
    as_json,
    check_output,
    is_database,
    is_url,
    write_csv,
)

if TYPE_CHECKING:
    from forecaster.pipeline import ForecastTable, Prediction

_PIPED = ("csv", "json")  # formats for standard output


class Outputs(NamedTuple):
    """Where forecasts go: a file, a database or standard output, a picture and a page."""

    form: str | None
    layout: str
    file: Output | None
    database: "ForecastTable | None"
    picture: Output | None
    page: Output | None

    @staticmethod
    def checked(
        output: str | None,
        plot: Path | None,
        report: Path | None,
        *,
        form: str | None,
        layout: str | None,
        overwrite: bool,
        drawn: str | None,
    ) -> "Outputs":
        """Check that all can be written. Raises UsageError where one cannot.

        ``drawn``: the option that draws paths, which pictures and pages do not show
        """
        for path, option in ((plot, "--plot draws"), (report, "--report shows")):
            if drawn and path is not None:
                raise UsageError(f"{option} bands, and {drawn} makes none; leave one of them out")
        form = None if form == "table" else form
        if output is not None and is_database(output):
            database, file = _checked_table(output, form, layout, drawn), None
            layout = "fixed"
        else:
            database = None
            file = output and _checked_file(output, form, overwrite=overwrite)
        picture = plot and check_output(plot, PICTURES, overwrite=overwrite, option="--plot")
        page = report and check_output(report, PAGES, overwrite=overwrite, option="--report")
        if file is None and form not in (None, *_PIPED):
            raise UsageError(f"--format {form} needs --output FILE")
        if layout == "fixed" and database is None:
            if drawn:
                raise UsageError(f"--layout fixed is of quantiles; leave it out, or {drawn}")
            if file is None and form is None:
                raise UsageError(
                    "--layout fixed is of files; add --output FILE, or --format csv or json"
                )
        return Outputs(form, layout or "wide", file or None, database, picture, page)

    def check_held(self, levels: Sequence[float], quantiles: Sequence[float]) -> None:
        """Raise UsageError if the fixed layout lacks quantiles that were asked for.

        - ``levels``: in percent, those that the user chose; a picture or a page shows any level
        - ``quantiles``: probabilities
        """
        if self.layout != "fixed":
            return
        from forecaster.pipeline import FIXED_QUANTILES

        shown = self.picture is not None or self.page is not None
        asked = {f"--quantile {q:g}": [q] for q in quantiles}
        for level in () if shown else levels:
            asked[f"--level {level:g}"] = [0.5 - level / 200, 0.5 + level / 200]
        held = {round(q, 9) for q in FIXED_QUANTILES}
        if lacking := [name for name, its in asked.items() if {round(q, 9) for q in its} - held]:
            where = "--layout fixed has" if self.database is None else "a table of a database has"
            raise UsageError(
                f"{', '.join(lacking)}: {where} the quantiles 0.05, 0.1 ... 0.95 and no others, "
                "which are the bounds of levels 10, 20 ... 90; leave out what it does not hold, or "
                "write a file without --layout"
            )

    def table(self, result: "Prediction", *, whole: bool) -> bool:
        """Write forecasts where they are to go; return whether to show a table instead.

        ``whole``: whether to show it beside a page, too
        """
        if self.file is not None or self.database is not None or self.form is not None:
            _export(result, self)
            return False
        return self.page is None or whole


def _checked_file(output: str, form: str | None, *, overwrite: bool) -> Output:
    """Return a file to write to, here or in an object store, once it is known that it can be."""
    if not is_url(output):
        return check_output(Path(output), form=form, overwrite=overwrite, formats=True)
    from forecaster.pipeline import check_remote_output

    return check_remote_output(output, form=form, overwrite=overwrite, formats=True)


def _checked_table(
    output: str, form: str | None, layout: str | None, drawn: str | None
) -> "ForecastTable":
    """Return the table of a database to write to, once it is known that it can be written to."""
    from forecaster.pipeline import ForecastTable

    if form is not None:
        raise UsageError(f"--format {form} is of files; leave it out with --output sql:URL#TABLE")
    if layout == "wide":
        raise UsageError(
            "--layout wide is of files, as its columns change with the model; leave it out with "
            "--output sql:URL#TABLE"
        )
    if drawn:
        raise UsageError(
            f"--output sql:URL#TABLE holds quantiles of single dates, and {drawn} draws paths; "
            "write them to a file"
        )
    table = ForecastTable(output)
    table.check()
    return table


def _export(result: "Prediction", outputs: Outputs) -> None:
    form, file = outputs.form, outputs.file
    if outputs.layout == "fixed":
        from forecaster.pipeline import fixed_columns

        frame = fixed_columns(result)
    else:
        frame = result.frame.assign(source="simulated") if result.simulated else result.frame
    if outputs.database is not None:
        outputs.database.write(frame)
        return say(f"Wrote {len(frame):,} rows into {outputs.database.shown}")
    if file is not None:
        file.write_table(frame)
        if not file.streamed:
            say(f"Wrote {file.shown}")
        return
    text = (write_csv(frame) if form == "csv" else as_json(frame)).rstrip("\n")
    # Files and programs get the text as it is; a terminal would obey control characters in it.
    click.echo(printable(text) if sys.stdout.isatty() else text)
