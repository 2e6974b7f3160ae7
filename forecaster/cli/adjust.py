"""``forecaster adjust``."""

from datetime import datetime

import click

from forecaster import ingest
from forecaster.cli.shared import home_option, refuse, say, show, stored_option
from forecaster.files import Home


@click.command()
@click.argument("tickers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All tickers with a proposal.")
@click.option("--undo", is_flag=True, help="Forget the adjustments of these tickers.")  # fmt: skip
@click.option("--dismiss", is_flag=True, help="The moves of these tickers are real: leave the rows "
              "as they are, and propose this no more.")  # fmt: skip
@click.option("--factor", type=float, help="Adjust a ticker by this factor, such as 0.25 for a "
              "split 4 for 1, whether it is proposed or not; with --before.")  # fmt: skip
@click.option("--before", type=click.DateTime(["%Y-%m-%d"]), help="The first day with the new "
              "prices; earlier ones are multiplied by --factor.")  # fmt: skip
@click.option("--volume/--no-volume", default=True, help="With --factor: divide earlier volumes by "
              "it, as of a split.  [default: --volume]")  # fmt: skip
@stored_option
@home_option
def adjust(
    *,
    tickers: tuple[str, ...],
    everything: bool,
    undo: bool,
    dismiss: bool,
    factor: float | None,
    before: datetime | None,
    volume: bool,
    source: str | None,
    home: Home,
) -> None:
    """Adjust stored prices for splits and changes of currency that the source has left out.

    Without tickers, lists proposals and changes nothing. Proposed are moves by an exact ratio, such
    as that of a split, and moves of all tickers by the same amount. Rows that arrive again are
    adjusted again, unless the source has restated them, and `ingest` says so.

    \b
    Examples:
      forecaster adjust
      forecaster adjust AAPL
      forecaster adjust --all
      forecaster adjust AAPL --undo
      forecaster adjust AAPL --dismiss
      forecaster adjust AAPL --factor 0.25 --before 2024-06-10
    """
    chosen, by = everything or bool(tickers), factor is not None
    refuse(
        (everything and tickers, "name tickers, or use --all for every proposal (not both)"),
        (undo and not chosen, "--undo: name tickers, or use --all"),
        (dismiss and not chosen, "--dismiss: name tickers, or use --all"),
        (by and (undo or dismiss), "--factor adjusts; leave out --undo and --dismiss"),
        (by != (before is not None),
         "--factor and --before go together: by how much, and before which day"),
        (by and len(tickers) != 1, "--factor: name one ticker, without --all"),
        (undo and dismiss, "--undo forgets, and --dismiss remembers; leave one of them out"),
    )  # fmt: skip
    if factor is not None and before is not None:
        day, name = before.date(), tickers[0]
        _, made = ingest.adjust_by(home, name, factor, day, source, split=volume, on_wait=say)
        return _show(made)
    if not chosen:
        found = ingest.proposed(ingest.find_store(home, source))
        for name, one in found.items():
            show(f"{name}: rows before {one.time} times {one.factor:.6g}: {one.why}")
        if not found:
            show("Nothing to adjust")
        return
    store, applied = ingest.adjust(
        home, None if everything else tickers, source, undo=undo, dismiss=dismiss, on_wait=say
    )  # fmt: skip
    if dismiss:
        for name, one in applied.items():
            show(f"{name}: the move of {one.time} is left as it is, and proposed no more")
        return
    _show(applied)
    if undo:
        show(
            "Forgotten: the rows are as they were delivered. Where an earlier version adjusted "
            f"them, `forecaster ingest --source {store.source} --refresh` reads the prices again"
        )


def _show(applied: "dict[str, ingest.Proposal]") -> None:
    for name, one in applied.items():
        show(f"{name}: rows before {one.time} times {one.factor:.6g}")
