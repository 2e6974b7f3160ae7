"""``forecaster tickers``."""

import click

from forecaster import ingest, record
from forecaster.cli.shared import home_option, say, show, stored_option
from forecaster.files import Home


@click.group()
@home_option
def tickers(*, home: Home) -> None:
    """Rename stored tickers, retire the ones that get no more rows, and restore them.

    \b
    Examples:
      forecaster tickers rename FB META
      forecaster tickers retire FB GE
      forecaster tickers restore GE --source yahoo
    """


@tickers.command()
@click.argument("names", nargs=-1, required=True)
@stored_option
@home_option
def retire(*, names: tuple[str, ...], source: str | None, home: Home) -> None:
    """Expect no more rows of tickers that were delisted, renamed or given up.

    `ingest` no longer misses them, and `predict --all` leaves them out. Rows and record are kept,
    and `fit` and `evaluate` use them while the source has them. If rows arrive, they are restored.

    \b
    Example:
      forecaster tickers retire FB GE
    """
    store, chosen = ingest.retire(home, names, source, on_wait=say)
    show(f"Retired {', '.join(chosen)} of {store.source}; {len(store.index.retired)} in all")


@tickers.command()
@click.argument("names", nargs=-1, required=True)
@stored_option
@home_option
def restore(*, names: tuple[str, ...], source: str | None, home: Home) -> None:
    """Expect further rows of retired tickers again, and forecast them.

    \b
    Example:
      forecaster tickers restore GE --source yahoo
    """
    store, chosen = ingest.retire(home, names, source, retired=False, on_wait=say)
    left = len(store.index.retired)
    show(f"Restored {', '.join(chosen)} of {store.source}; {left} still retired")


@tickers.command()
@click.argument("old")
@click.argument("new")
@stored_option
@home_option
def rename(*, old: str, new: str, source: str | None, home: Home) -> None:
    """Give a ticker another name, with its history, network and record.

    Rows under the old name are put in front of the rows under the new one. Rows that arrive later
    under the old name are another series. If both names have different values on the same days,
    they are two series, and nothing is changed.

    \b
    Example:
      forecaster tickers rename FB META
    """
    store, name = ingest.rename_ticker(home, old, new, source, on_wait=say)
    files = record.rename_in_record(home, store.source, name, new.strip())
    entry = store.index.series[new.strip()]
    show(
        f"{name} of {store.source} is now called {new.strip()}: {entry.rows:,} rows, {entry.first} "
        f"to {entry.last}; {files} files of the record changed"
    )
