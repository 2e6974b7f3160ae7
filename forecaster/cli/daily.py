"""``forecaster daily`` and ``scorecard``: the work of each day, and how good forecasts were."""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forecaster import pipeline
from forecaster import record as room
from forecaster import report as pages
from forecaster.cli.options import home_option, overwrite_option
from forecaster.cli.output import print_table, say, show
from forecaster.cli.risk import print_backtests
from forecaster.errors import UsageError
from forecaster.files import PAGES, Home, check_output

if TYPE_CHECKING:
    import pandas as pd


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


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--run", metavar="NAME", help="Only the forecasts of this run.  [default: all runs]")
@click.option("--source", metavar="NAME", help="Only the forecasts of this source, such as yahoo "
              "or files:prices.csv.  [default: all sources]")  # fmt: skip
@click.option("--span", type=click.Choice(["month", "quarter", "all"]), default="all",
              show_default=True, help="Latest forecasts to score.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), help="Write the table to a file: .csv, "
              ".json, .parquet or .xlsx.")  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), help="Write a page: .html.")
@overwrite_option
@home_option
def scorecard(
    *,
    tickers: tuple[str, ...],
    run: str | None,
    source: str | None,
    span: str,
    output: Path | None,
    report: Path | None,
    overwrite: bool,
    home: Home,
) -> None:
    """Score the past forecasts of `predict` against the outcomes.

    `predict` records forecasts. After `ingest` has stored the outcomes, this shows the share that
    the bands covered, and CRPS and absolute error relative to "unchanged" (below 1 is better).
    Forecasts are adjusted for later splits and dividends. If a run forecast more than once from
    the same day, the last forecast before the outcome counts; forecasts made after the outcome are
    counted apart.

    Series whose bands have stopped covering are marked with "!" and named. On average at most one
    mark a month is false, over all series together.

    \b
    Examples:
      forecaster scorecard
      forecaster scorecard AAPL MSFT --run tech-weekly
      forecaster scorecard --output scores.csv --report scorecard.html
    """
    file = output and check_output(output, overwrite=overwrite)
    page = report and check_output(report, PAGES, overwrite=overwrite, option="--report")
    record = room.read_record(home, source)
    for path, why in record.damaged.items():
        say(f"Warning: {path}: left out, since it cannot be read: {why}")
    if not record.frames:
        return show(f"No forecast under {home} yet; `forecaster predict` makes some.")
    whole = room.score_record(home, record.of(tickers, run))
    alarms = room.forecast_alarms(whole)
    since = {alarm.series: alarm.since for alarm in alarms if alarm.series is not None}
    card = whole.over(span)
    if card.simulated:
        say("Simulated prices: these are forecasts of an invented market.")
    if file is None and page is None and len(card.known):
        _print(card, since)
    if file is not None:
        file.write_table(_exported(card, since))
        say(f"Wrote {file.path}")
    if page is not None:
        page.write(lambda to: pages.build_scorecard(card, to))
        say(f"Wrote {page.path}")
    for line in [*card.lines(), *card.recent_lines(), *room.alarm_lines(alarms)]:
        show(line)
    for kind in record.frames:
        print_backtests(pipeline.backtests(pipeline.recorded_risk(home, kind)))


def _print(card: "room.Scorecard", marked: Container[str]) -> None:
    """Print the table; ``marked``: series whose bands have stopped covering."""
    scores = card.table()
    rows = [
        (name + (" !" if name in marked else ""), *_cells(row, card.levels))
        for name, (_, row) in zip(scores["by"].astype(str), scores.iterrows(), strict=True)
    ]
    held = (f"{level} % coverage" for level in card.levels)
    print_table(
        "Forecasts that were made, and what came; CRPS and error of 'unchanged' = 1",
        ("series", "forecasts", "outcomes", "open", *held, "CRPS", "abs. error"),
        rows, numbers=True,
        total=("all", *_cells(card.total(), card.levels)) if len(scores) > 1 else None,
    )  # fmt: skip


def _cells(row: "pd.Series", levels: Sequence[str]) -> list[str]:
    counts = [f"{row[name]:.0f}" for name in ("forecasts", "outcomes", "open")]
    held = ["" if row[f"held-{lv}"] != row[f"held-{lv}"] else f"{row[f'held-{lv}']:.0%}" for lv in
            levels]  # fmt: skip
    scores = ["" if row[name] != row[name] else f"{row[name]:.3f}" for name in ("crps", "mae")]
    return [*counts, *held, *scores]


def _exported(card: "room.Scorecard", since: Mapping[str, str]) -> "pd.DataFrame":
    """Return the table by series, after a row of all series together, called "(all)".

    Where there are several sources, it has the column ``source``.

    ``since``: of series whose bands have stopped covering, from when on
    """
    import pandas as pd

    total = card.total().to_frame().T.assign(by="(all)")
    table = pd.concat([total, card.table()], ignore_index=True)
    counts = dict.fromkeys(("forecasts", "outcomes", "open"), int)
    rest = {name: float for name in table.columns if name not in ("by", *counts)}
    table = table.astype(counts | rest)
    if since:
        table["uncovered_since"] = table["by"].map(since)
    of = (
        card.rows.drop_duplicates("series").set_index("series")[["unique_id", "source"]].astype(str)
    )
    if card.simulated or of["source"].nunique() > 1:
        table["source"] = "simulated" if card.simulated else table["by"].map(of["source"])
    table.insert(0, "unique_id", table.pop("by").replace(of["unique_id"].to_dict()))
    return table
