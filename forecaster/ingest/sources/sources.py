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
    append: bool = False,
    **options: Unpack[YahooOptions],
) -> Source:
    """Open the source ``yahoo``, ``simulated`` or ``files:PATH``.

    - ``seed``: of the simulated market
    - ``decimal``: the decimal sign in CSV files, a point or a comma; None: inferred for each file
    - ``columns``: which columns of files hold series, times and target, if their names do not show
      it
    - ``append``: add the rows of files to the stored ones, which they need not repeat
    - ``options``: of :class:`forecaster.ingest.sources.yahoo.Yahoo`; with ``refresh`` the rows of
      files, too, take the place of the stored ones, even if they are fewer

    Raises UsageError for any other name or sign, for options of files with another source, and for
    ``append`` with ``refresh``.
    """
    sign = as_decimal(decimal)
    kind, _, path = name.partition(":")
    if decimal is not None and kind != "files":
        raise UsageError(f"--decimal {decimal} is for files; leave it out with source {name!r}")
    if kind != "files" and (option := columns and columns.first_option):
        raise UsageError(f"{option} is for files; leave it out with source {name!r}")
    refresh = options.get("refresh", False)
    if append and kind != "files":
        raise UsageError(f"--append is for files; leave it out with source {name!r}")
    if append and refresh:
        raise UsageError(
            "--append keeps stored rows that a file lacks, and --refresh gives them up; leave one "
            "of them out"
        )
    if kind == "files" and path:
        from forecaster.ingest.sources.files import Files

        lost = "keep" if append else "replace" if refresh else "suspect"
        return Files(path, sign, columns, lost=lost)
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
