"""``forecaster explain``."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forecaster.cli.options import PARTLY, home_option, overwrite_option, refuse
from forecaster.cli.output import say, show
from forecaster.errors import UsageError
from forecaster.files import check_output, from_text

if TYPE_CHECKING:
    from forecaster.files import Home


class _Time(click.ParamType):
    """A day, or the number of a row of series whose times are whole numbers."""

    name = "day"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime | int:
        """Return the time of a text."""
        if str(value).lstrip("-").isdecimal():
            return int(value)
        return click.DateTime(["%Y-%m-%d"]).convert(value, param, ctx)


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All series of the model.")
@click.option("--run", metavar="NAME", help="Name of the run (see `runs`).  [default: as for "
              "`predict`]")  # fmt: skip
@click.option("--at", type=_Time(), metavar="YYYY-MM-DD|N", help="Explain the forecast from this "
              "day, or row of this number, as if later rows were unknown.  [default: the latest "
              "row]")  # fmt: skip
@click.option("--since", type=_Time(), metavar="YYYY-MM-DD|N", help="The day, or the number of the "
              "row, to compare with.  [default: the row before]")  # fmt: skip
@click.option("--step", type=click.IntRange(min=1), default=1, show_default=True, help="The step "
              "ahead that is shown.")  # fmt: skip
@click.option("--level", type=float, default=80.0, help="Level of the band, in percent.  "
              "[default: 80]")  # fmt: skip
@click.option("--implied", multiple=True, metavar="TICKER=PERCENT|FILE.csv", help="Volatility a "
              "year that options imply, to set beside; or a CSV with the columns ticker and "
              "implied.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), help="Write all factors, terms and "
              "changes to a file: .csv, .json, .parquet or .xlsx.")  # fmt: skip
@overwrite_option
@home_option
def explain(
    *,
    tickers: tuple[str, ...],
    everything: bool,
    run: str | None,
    at: datetime | int | None,
    since: datetime | int | None,
    step: int,
    level: float,
    implied: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    home: "Home",
) -> int:
    """Say why a band is as wide as it is, and what changed since yesterday.

    The width of a band of prices is a product of factors: own volatility, the market, volume,
    reports, falls, the networks, the spread of past errors. Each is shown with its usual size and
    its percentile in the last year, and with what it did to the change since the day before, or
    --since. The median is a sum; of other series in their own units: latest season, trend,
    calendar, networks. EWMA and realised volatility stand beside, and GARCH for up to five series.

    \b
    Examples:
      forecaster explain AAPL
      forecaster explain AAPL --since 2024-06-03 --step 3 --level 95
      forecaster explain AAPL --at 2024-06-28
      forecaster explain AAPL --implied AAPL=31
      forecaster explain --all --output factors.parquet
    """
    both: list[Any] = [time for time in (since, at) if time is not None]
    late = len(both) == 2 and (type(since) is not type(at) or both[0] >= both[1])
    refuse(
        (everything == bool(tickers), "name tickers, or use --all for every series of the model"),
        (late, "--since must lie before --at, a day before a day or a number before a number"),
    )
    file = output and check_output(output, overwrite=overwrite)
    given = _implied(implied)
    from forecaster.pipeline import Question, explain_from_home

    question = Question(at, since, level, step, given)
    found = explain_from_home(
        home, None if everything else tickers, question, run=run, on_notice=say
    )
    made, chosen, unknown = found
    if file is not None:
        file.write_table(found.table())
        say(f"Wrote {file.path}")
    if chosen.source == "simulated":
        say("Simulated prices: this explains forecasts of an invented market.")
    if not everything:
        show("\n\n".join(map(made.text, made.ids)))
    elif file is None:
        for name in made.ids:
            show(made.sentence(name))
    for name, reason in unknown.items():
        say(f"{name}: {reason}")
    named = {one.rpartition("=")[0] for one in implied}  # a file may hold more
    lacking = [name for name in given if name in named and name not in made.ids]
    for name in lacking:
        say(f"--implied {name}: not among the series that are explained; name its ticker as it is")
    return PARTLY if unknown or lacking else 0


def _implied(given: tuple[str, ...]) -> dict[str, float]:
    """Return implied volatilities by ticker, in percent a year."""
    found: dict[str, float] = {}
    for one in given:
        name, sign, number = one.rpartition("=")
        if sign:
            pairs = [(name, number)]
        else:
            import pandas as pd

            try:
                table = pd.read_csv(from_text(one), dtype=str)
                pairs = [*zip(table["ticker"], table["implied"], strict=True)]
            except (OSError, ValueError, KeyError) as error:
                raise UsageError(
                    f"--implied {one}: expected TICKER=PERCENT, such as AAPL=31, or a CSV with the "
                    f"columns ticker and implied; {error}"
                ) from None
        for name, number in pairs:
            try:
                found[name] = float(number)
                if not found[name] >= 1:
                    raise ValueError
            except ValueError:
                raise UsageError(
                    f"--implied {one}: {name}: expected a volatility in percent a year, such as "
                    f"31; got {number!r}"
                ) from None
    return found
