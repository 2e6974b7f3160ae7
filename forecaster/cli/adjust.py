"""``forecaster adjust``."""

from typing import TYPE_CHECKING

import click

from forecaster.cli.shared import home_option, say, show
from forecaster.errors import UsageError

if TYPE_CHECKING:
    from forecaster.home import Home


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All tickers with a proposal.")
@click.option("--undo", is_flag=True, help="Forget the adjustments of these tickers; `ingest "
              "--refresh` then reads the source's prices again.")  # fmt: skip
@click.option("--source", help="Name of the stored source.  [default: the only one]")
@home_option
def adjust(
    *, tickers: tuple[str, ...], everything: bool, undo: bool, source: str | None, home: "Home"
) -> None:
    """Adjust stored prices for splits and changes of currency that the source has left out.

    Without tickers, it lists what is proposed and changes nothing: moves by an exact ratio, as of a
    split, and moves of all tickers by the same amount. Adjustments are kept, and applied to rows
    that arrive later as long as these still show the jump.

    \b
    Examples:
      forecaster adjust
      forecaster adjust AAPL
      forecaster adjust --all
      forecaster adjust AAPL --undo
    """
    from forecaster.ingest import adjust as apply
    from forecaster.ingest import find_store, proposed

    if everything and tickers:
        raise UsageError("name tickers, or use --all for every proposal (not both)")
    if undo and not (everything or tickers):
        raise UsageError("--undo: name tickers, or use --all")
    if not (everything or tickers):
        found = proposed(find_store(home, source))
        for name, one in found.items():
            show(f"{name}: rows before {one.time} times {one.factor:.6g}: {one.why}")
        if not found:
            show("Nothing to adjust")
        return
    store, applied = apply(
        home, None if everything else tickers, source, undo=undo, on_wait=say
    )  # fmt: skip
    for name, one in applied.items():
        show(f"{name}: rows before {one.time} times {one.factor:.6g}")
    if undo:
        show(
            f"Forgotten; `forecaster ingest --source {store.source} --refresh` reads the prices "
            "as they are in the source"
        )
