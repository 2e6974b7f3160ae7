"""``forecaster explain``."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forecaster.cli.shared import PARTLY, home_option, overwrite_option, refuse, say, show
from forecaster.errors import UsageError
from forecaster.files import check_output, from_text

if TYPE_CHECKING:
    from forecaster.files import Home

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All series of the model.")
@click.option("--run", metavar="NAME", help="Name of the run (see `runs`).  [default: as for "
              "`predict`]")  # fmt: skip
@click.option("--at", type=_DAY, help="Explain the forecast from this day, as if later rows were "
              "unknown.  [default: the latest row]")  # fmt: skip
@click.option("--since", type=_DAY, help="The day to compare with.  [default: the row before]")
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
    at: datetime | None,
    since: datetime | None,
    implied: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    home: "Home",
) -> int:
    """Say why a band is as wide as it is, and what changed since yesterday.

    The width of a band of prices is a product of factors: own volatility, the market, volume,
    reports, falls, the networks, the spread of past errors. Each is shown with its usual size and
    its percentile in the last year, and with what it did to the change since the day before, or
    --since. The median is a sum; of other series in their own units: latest season, trend, known
    effects, networks. GARCH, EWMA and realised volatility stand beside, for up to five series.

    \b
    Examples:
      forecaster explain AAPL
      forecaster explain AAPL --since 2024-06-03
      forecaster explain AAPL --at 2024-06-28
      forecaster explain AAPL --implied AAPL=31
      forecaster explain --all --output factors.parquet
    """
    refuse(
        (everything == bool(tickers), "name tickers, or use --all for every series of the model"),
        (at is not None and since is not None and since >= at, "--since must lie before --at"),
    )
    file = output and check_output(output, overwrite=overwrite)
    given = _implied(implied)
    from forecaster.pipeline import explain_from_home

    made, chosen, unknown = explain_from_home(
        home, None if everything else tickers, run=run, at=at, since=since, implied=given,
        on_notice=say,
    )  # fmt: skip
    if file is not None:
        file.write_table(made.frame)
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
