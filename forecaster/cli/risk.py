"""``forecaster risk``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forecaster import pipeline, portfolio
from forecaster import report as pages
from forecaster.cli.options import PARTLY, home_option, overwrite_option
from forecaster.cli.output import print_table, say, show
from forecaster.errors import UsageError
from forecaster.files import PAGES, Home, check_output, from_text

if TYPE_CHECKING:
    import pandas as pd

_ALARM = 4  # exit code of a book over its limit
_LITTLE = 10_000  # a book worth less is shown with digits
_SHOWN, _NAMED = 10, 3  # positions in a table, and in a line
_COLUMNS = {"value": "value", "es_alone": "ES alone", "var": "part of VaR", "es": "part of ES"}


@click.command()
@click.argument("book")
@click.option("--run", metavar="NAME", help="Name of the run (see `runs`).  [default: the latest "
              "run on real data that knows the tickers]")  # fmt: skip
@click.option("--level", type=float, multiple=True, default=(95, 97.5, 99), show_default=True,
              help="Probability in percent that a loss stays below the value at risk; repeat for "
              "more.")  # fmt: skip
@click.option("--horizon", metavar="N,N,...", help="Numbers of sessions.  [default: those of 1, 5, "
              "10 and 21 that the model forecasts]")  # fmt: skip
@click.option("--if", "moves", multiple=True, metavar="TICKER=PERCENT", help="What if the next "
              "session of a ticker closes so, as in SPY=-5%; repeat for more. The model's market "
              "moves the others by their betas.")  # fmt: skip
@click.option("--stress", multiple=True, metavar="DAY[:DAY]", help="The joint moves of a past day, "
              "or of a span, on the positions of today; repeat for more.")  # fmt: skip
@click.option("--limit", metavar="PERCENT%|MONEY", help="Exit with 4 if the value at risk of the "
              "first horizon at the highest level is larger: 5%, or 50000.")  # fmt: skip
@click.option("--paths", "n_paths", type=click.IntRange(1), default=5000, show_default=True,
              help="Number of joint futures.")  # fmt: skip
@click.option("--end", type=click.DateTime(["%Y-%m-%d"]), help="Measure from this day, as if later "
              "rows were unknown.  [default: the latest row]")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), help="Write all figures of all "
              "positions to a file: .csv, .json, .parquet or .xlsx.")  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), help="Write a page: .html.")
@overwrite_option
@home_option
def risk(
    *,
    book: str,
    horizon: str | None,
    moves: tuple[str, ...],
    limit: str | None,
    output: Path | None,
    report: Path | None,
    overwrite: bool,
    home: Home,
    **asked: Any,
) -> int:
    """Say what a book of positions may lose, and which positions carry it.

    BOOK is a CSV with the column ticker and one of shares, value and weight; with the column book
    it holds several. Positions that are short are negative, and cash has the ticker CASH. Value at
    risk (VaR) and expected shortfall (ES) come from joint futures of all positions, each horizon
    from its own step. The contributions of positions add up to the whole. A book is diversified by
    as much as its ES lies below the sum of those of its positions alone. Nothing is recorded.

    \b
    Examples:
      forecaster risk book.csv
      forecaster risk book.csv --horizon 1,10 --level 99 --limit 5%
      forecaster risk book.csv --if SPY=-5% --stress 2025-04-03:2025-04-08
      forecaster risk book.csv --output risk.json
    """
    file = output and check_output(output, overwrite=overwrite)
    page = report and check_output(report, PAGES, overwrite=overwrite, option="--report")
    most = None if limit is None else pipeline.Limit.parse(limit)
    steps = None if horizon is None else _steps(horizon)
    found = pipeline.risk_from_home(
        home, from_text(book), horizon=steps, moves=[*map(_move, moves)], on_notice=say, **asked
    )
    over = [_print(found, name, most) for name in found.base]
    periods = ", ".join(f"{found.origins // step:,} of {step}" for step in found.until)
    show(f"The paths rest on {found.origins} past sessions: independent periods {periods}.")
    if steps is None and 21 not in found.until:
        show("Longer horizons need a model that forecasts them: `forecaster fit --horizon 21`.")
    if moves:
        show(
            "What if: the market of the model (`fit --market`) moves the others by their betas; "
            "any other series moves alone. A quiet session, on which nothing moves, shows "
            "what one more session changes by itself."
        )
    if file is not None:
        file.write_table(found.frame)
        say(f"Wrote {file.path}")
    if page is not None:
        page.write(lambda to: pages.build_risk(found, to, most))
        say(f"Wrote {page.path}")
    for name, reason in found.problems.items():
        say(f"{name}: {reason}")
    return _ALARM if any(over) else PARTLY if found.problems else 0


def _print(found: "pipeline.Risk", name: str, limit: "pipeline.Limit | None") -> bool:
    """Print what one book may lose; return whether it is over its limit."""
    base, its = found.base[name], found.frame[found.frame["book"] == name]
    first = found.first(name)
    book, positions = first.iloc[0], first.iloc[1:].sort_values("es", ascending=False)
    at = f"{book['level']:g} %, {_sessions(book['horizon'])}"
    most = limit and limit.money(base)
    over = most is not None and book["var"] > most
    per = "" if round(base - book["value"]) == 0 else f", per cent are of {_number(base, base)}"
    show(f"{name}: {_number(book['value'], base)} on {found.since}{per}.")
    if positions.empty:
        show("It is all cash, which has no risk.")
        return False
    show(
        f"With a probability of {book['level']:g} % it loses less than "
        f"{_money(book['var'], base)} over {_sessions(book['horizon'])}; "
        f"{positions['unique_id'].iloc[0]} carries "
        f"{positions['es'].iloc[0] / book['es']:.0%} of the expected shortfall."
    )
    if most is not None:
        said = "OVER" if over else "Within"
        error = _number(book["var_error"], base)
        show(f"{said} the limit of {_money(most, base)}, by VaR at {at} (± {error}).")
    _print_measures(found, its[its["unique_id"] == "(all)"], base)
    _print_positions(positions, book, base, f"Contributions at {at}")
    _print_profits(its[its["profit"].notna()], base)
    return over


def _print_profits(profits: "pd.DataFrame", base: float) -> None:
    """Print a line for each worst path, move and stress, with the positions that count most."""
    for scenario, rows in profits.groupby("scenario", sort=False):
        moved = rows[1:][rows["profit"][1:].abs() > 0]
        of = moved.sort_values("profit", key=abs, ascending=False)
        pairs = zip(of["unique_id"][:_NAMED], of["profit"][:_NAMED], strict=True)
        parts = [f"{name} {_number(profit, base, '+')}" for name, profit in pairs]
        total = _money(rows["profit"].iloc[0], base, "+")
        show(f"{scenario}: {total}{'; ' if parts else ''}{', '.join(parts)}")


def _print_measures(found: "pipeline.Risk", totals: "pd.DataFrame", base: float) -> None:
    """Print a row for each horizon and level; what would be after a move stands beside."""
    measured = totals[totals["level"].notna()]
    quiet = measured[measured["scenario"] == portfolio.QUIET]
    after = measured[~measured["scenario"].isin(["now", portfolio.QUIET])]
    rows = [
        (
            f"{_sessions(row['horizon'])}, to {found.until[row['horizon']]}", f"{row['level']:g} %",
            _money(row["var"], base), _number(row["var_error"], base), _money(row["es"], base),
            f"{1 - row['es'] / row['es_alone']:.0%}",
        )
        for _, row in measured[measured["scenario"] == "now"].iterrows()
    ]  # fmt: skip
    heads = ["over", "level", "VaR", "±", "ES", "diversified"]
    if len(after):
        heads += ["VaR after a quiet session", "VaR after the move"]
        both = zip(rows, quiet["var"], after["var"], strict=True)
        rows = [(*row, _money(calm, base), _money(var, base)) for row, calm, var in both]
    print_table("", heads, rows, numbers=True)


def _print_positions(positions: "pd.DataFrame", book: "pd.Series", base: float, title: str) -> None:
    """Print what positions carry, the largest first, and those that take most away."""
    few = len(positions) <= _SHOWN
    shown = positions if few else positions.iloc[[*range(_SHOWN - _NAMED), *range(-_NAMED, 0)]]
    rest = positions.drop(shown.index)
    cells = shown.to_dict("records")
    if len(rest):
        sums = rest[[*_COLUMNS]].sum().to_dict()
        cells.insert(_SHOWN - _NAMED, {"unique_id": f"{len(rest)} others"} | sums)
    rows = [
        (
            str(row["unique_id"]),
            *(_number(row[name], base) for name in _COLUMNS),
            f"{row['es'] / book['es']:.1%}",
        )
        for row in cells
    ]
    print_table(title, ("position", *_COLUMNS.values(), "share of ES"), rows, numbers=True)


def _sessions(count: float) -> str:
    return "1 session" if count == 1 else f"{count:.0f} sessions"


def _money(amount: float, base: float, sign: str = "") -> str:
    return f"{_number(amount, base, sign)} ({amount / base:{sign}.2%})"


def _number(amount: float, base: float, sign: str = "") -> str:
    """Return an amount, with digits where the whole book is worth little, as 100 by weights."""
    return f"{amount:{sign},.{0 if base >= _LITTLE else 2}f}"


def _steps(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--horizon {text}: expected whole numbers, such as 1,5,10") from error


def _move(text: str) -> tuple[str, float]:
    """Return a ticker and its simple move, of ``SPY=-5%``."""
    name, _, number = text.rpartition("=")
    try:
        move = float(number.strip().removesuffix("%"))
    except ValueError:
        move = float("nan")
    if not (name and number.strip().endswith("%") and -100 < move < float("inf")):
        raise UsageError(f"--if {text}: expected a ticker and a move above -100 %, as in SPY=-5%")
    return name, move / 100


def print_backtests(table: "pd.DataFrame") -> None:
    """Print how the risk of books compares with what came; see ``pipeline.backtests``."""
    rows = [
        (
            str(row["book"]), _sessions(row["horizon"]), f"{row['level']:g} %",
            f"{row['periods']:,.0f}", f"{row['breaches']:.0f}", f"{row['expected']:.1f}",
            *(f"{row[name]:.3f}" for name in ("kupiec", "independence", "both")),
            str(row["zone"]), f"{row['shortfall']:+.2f}",
        )
        for row in table.to_dict("records")
    ]  # fmt: skip
    heads = ("book", "over", "level", "periods", "breaches", "expected", "p of as many",
             "p of independent", "p of both", "zone", "ES: Z2")  # fmt: skip
    print_table("Losses of books above their value at risk", heads, rows, numbers=True)
