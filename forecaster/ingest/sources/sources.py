"""Open a source by name. Each is imported only when it is used: yfinance takes a second."""

from collections.abc import Callable
from typing import TypedDict, Unpack

from forecaster.errors import UsageError
from forecaster.ingest.sources.source import Source
from forecaster.ingest.tables.numbers import as_decimal
from forecaster.ingest.tables.roles import Columns


class YahooOptions(TypedDict, total=False):
    """The options of :class:`forecaster.ingest.sources.yahoo.Yahoo`."""

    requests_per_second: float
    workers: int
    refresh: bool
    cool_down: float
    on_wait: Callable[[float], None] | None
    rewrite: Callable[[str], str] | None


def open_source(
    name: str,
    *,
    seed: int = 0,
    decimal: str | None = None,
    columns: Columns | None = None,
    **options: Unpack[YahooOptions],
) -> Source:
    """Open the source ``yahoo``, ``simulated`` or ``files:PATH``.

    - ``seed``: of the simulated market
    - ``decimal``: the decimal sign in CSV files, a point or a comma; None: inferred for each file
    - ``columns``: which columns of files hold series, times and target, if their names do not show
      it
    - ``options``: of :class:`forecaster.ingest.sources.yahoo.Yahoo`

    Raises UsageError for any other name or sign, and for options of files with another source.
    """
    sign = as_decimal(decimal)
    kind, _, path = name.partition(":")
    if decimal is not None and kind != "files":
        raise UsageError(f"--decimal {decimal} is for files; leave it out with source {name!r}")
    if kind != "files" and (option := columns and columns.first_option):
        raise UsageError(f"{option} is for files; leave it out with source {name!r}")
    if kind == "files" and path:
        from forecaster.ingest.sources.files import Files

        return Files(path, sign, columns)
    if name == "yahoo":
        from forecaster.ingest.sources.yahoo import Yahoo

        return Yahoo(**options)
    if name == "simulated":
        from forecaster.ingest.sources.simulated import Simulated

        return Simulated(seed)
    raise UsageError(
        f"source {name!r}: expected yahoo, simulated or files:PATH, where PATH is a CSV file, a "
        "Parquet file or a folder of them"
    )
