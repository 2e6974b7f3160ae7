"""Open a source by name. Each is imported only when it is used: yfinance takes a second."""

from typing import TYPE_CHECKING, Any

from forecaster.errors import UsageError
from forecaster.files import is_url
from forecaster.ingest.sources.secrets import hide_secrets
from forecaster.ingest.sources.source import Source
from forecaster.ingest.tables.options import INFERRED, Columns

if TYPE_CHECKING:
    from forecaster.ingest.sources.source import Lost


def open_source(
    name: str,
    *,
    seed: int = 0,
    columns: Columns = INFERRED,
    append: bool = False,
    query: str | None = None,
    **options: Any,
) -> Source:
    """Open the source ``yahoo``, ``simulated``, ``files:PATH``, ``files:URL`` or ``sql:URL``.

    - ``seed``: of the simulated market
    - ``columns``: how files and databases are read, as far as they do not show it
    - ``append``: add the rows of files or of a database to the stored ones, which they need not
      repeat
    - ``query``: of a database: one SELECT, or the name of a table
    - ``options``: of :class:`forecaster.ingest.sources.yahoo.Yahoo`; with ``refresh`` the rows of
      files and databases, too, take the place of the stored ones, even if they are fewer

    Raises UsageError for any other name or sign, for options of files with another source, and for
    ``append`` with ``refresh``. No message holds a password.
    """
    kind, _, path = name.partition(":")
    shown, refresh = hide_secrets(name), options.get("refresh", False)
    for option, kinds, what in (
        ("--append" if append else columns.first_option, ("files", "sql"), "files and databases"),
        (None if query is None else "--query", ("sql",), "databases"),
    ):
        if option is not None and kind not in kinds:
            raise UsageError(f"{option} is for {what}; leave it out with source {shown!r}")
    if append and refresh:
        raise UsageError(
            "--append keeps stored rows that a file lacks, and --refresh gives them up; leave one "
            "of them out"
        )
    lost: Lost = "keep" if append else "replace" if refresh else "suspect"
    if kind == "files" and is_url(path):
        from forecaster.ingest.sources.remote import Remote

        return Remote(path, columns, lost=lost)
    if kind == "files" and path:
        from forecaster.ingest.sources.files import Files

        return Files(path, columns, lost=lost)
    if kind == "sql" and path:
        from forecaster.ingest.sources.sql import Database

        if query is None:
            raise UsageError(
                "--source sql:URL needs --query (in Python query=): a SELECT, or the name of a "
                "table"
            )
        return Database(path, query, columns, lost=lost)
    if name == "yahoo":
        from forecaster.ingest.sources.yahoo import Yahoo

        return Yahoo(**options)
    if name == "simulated":
        from forecaster.ingest.sources.simulated import Simulated

        return Simulated(seed)
    raise UsageError(
        f"source {shown!r}: expected yahoo, simulated or files:PATH, where PATH is a CSV file, a "
        "Parquet file or a folder of them, here or at a URL (s3://, gs://, https://); or "
        "sql:URL, a database"
    )
