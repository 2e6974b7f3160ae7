"""Sources by name, each imported when it is asked for: yfinance alone takes a second."""

from collections.abc import Callable
from typing import TypedDict, Unpack

from forecaster.errors import UsageError
from forecaster.ingest.sources.source import Source
from forecaster.ingest.tables.numbers import as_decimal
from forecaster.ingest.tables.roles import Columns


class YahooOptions(TypedDict, total=False):
    """How Yahoo is asked, see :class:`forecaster.ingest.sources.yahoo.Yahoo`."""

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
    """The source that a name stands for: ``yahoo``, ``simulated`` or ``files:PATH``.

    - ``seed``: of the simulated market
    - ``decimal``: the sign before a fraction in CSV files, a point or a comma; None: each file
      shows it
    - ``columns``: what the columns of files are, where their names do not say so
    - ``options``: those of :class:`forecaster.ingest.sources.yahoo.Yahoo`

    Raises UsageError for any other name or sign.
    """
    sign = as_decimal(decimal)
    kind, _, path = name.partition(":")
    if decimal is not None and kind != "files":
        raise UsageError(f"--decimal {decimal} is of files; leave it out with source {name!r}")
    if kind != "files" and (said := columns and columns.said):
        raise UsageError(f"{said} is of files; leave it out with source {name!r}")
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
        f"source {name!r}: expected yahoo, simulated or files:PATH, PATH being a CSV, a Parquet "
        "file or a folder of them"
    )
