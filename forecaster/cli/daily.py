"""``forecaster daily``."""

from pathlib import Path

import click

from forecaster.cli.shared import home_option, say, show
from forecaster.errors import UsageError
from forecaster.files import Home, check_output


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--quiet", is_flag=True, help="Print nothing if all is well.")
@click.option("--json", "json_file", metavar="FILE", help="Write the summary as JSON to a file, or "
              "to standard output for -.")  # fmt: skip
@click.option("--wait", type=click.FloatRange(0), default=600.0, show_default=True,
              metavar="SECONDS", help="Time to wait for another daily run to end.")  # fmt: skip
@click.option("--example", is_flag=True, help="Print a file with all settings.")
@home_option
def daily(
    *,
    file: Path | None,
    quiet: bool,
    json_file: str | None,
    wait: float,
    example: bool,
    home: Home,
) -> int:
    """Update prices, forecast, score past forecasts and raise alarms, all in one.

    Fit a model first. FILE.toml has the settings; --example prints one. After an interruption, run
    the same command again; a second run on the same rows changes nothing. `status` shows how the
    last run ended.

    Exit codes: 0 all is well; 1 failed; 2 wrong usage; 3 some series were left out or not updated,
    and are named; 4 there are alarms, perhaps also series left out.

    \b
    Examples:
      forecaster daily --example > daily.toml
      forecaster daily daily.toml
      forecaster daily daily.toml --quiet --json summary.json
    """
    from forecaster.daily import EXAMPLE, read_watch, run_day

    if example:
        click.echo(EXAMPLE, nl=False)
        return 0
    if file is None:
        raise UsageError(
            "name the file that says what is watched, such as `forecaster daily daily.toml`; "
            "`forecaster daily --example` prints one"
        )
    watch = read_watch(file)
    to_file = None if json_file in (None, "-") else Path(json_file)
    if to_file is not None:
        check_output(to_file, {".json": "json"}, overwrite=True, option="--json")
    summary = run_day(home, watch, wait=wait)
    if to_file is not None:
        summary.write(to_file)
    if json_file == "-":
        click.echo(summary.as_json(), nl=False)
    for line in [] if quiet or json_file == "-" else summary.lines():
        show(line)
    for line in [*([] if quiet else summary.notices), *summary.wrong()]:
        say(line)
    return summary.exit_code
