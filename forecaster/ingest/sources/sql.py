"""Read series from a database: PostgreSQL, SQLite or DuckDB, by a query that only reads."""

import hashlib
import re
import sqlite3

import pandas as pd

from forecaster.errors import DataError, SourceError, UsageError
from forecaster.ingest.sources.source import Lost, Whole
from forecaster.ingest.sources.urls import read_database_url
from forecaster.ingest.tables.cells import TableLocation
from forecaster.ingest.tables.layout import each_series, tidy
from forecaster.ingest.tables.options import INFERRED, Columns

_READER = 4  # raise it when rows are read differently
_CHUNK = 20_000  # rows that are in memory as Python objects
_WAIT = 10.0  # seconds to wait for a server, or for a file that another program has locked
_SELECT = re.compile(r"\b(select|from)\b|\bvalues\s*\(", re.IGNORECASE)


class Database(Whole):
    """The rows that a query of a database returns, in any layout that files may have.

    The query runs in a transaction that can only read, and all its rows are read at each update.

    - ``url``: as SQLAlchemy writes it; ``${NAME}`` is taken from the environment
    - ``query``: one SELECT, or the name of a table
    - ``columns``, ``lost``: as in :class:`forecaster.ingest.sources.files.Files`

    ``name`` holds neither user nor password. Raises UsageError for a URL that is not understood,
    and if a library is missing.
    """

    def __init__(
        self, url: str, query: str, columns: Columns = INFERRED, *, lost: Lost = "suspect"
    ):
        self._url = read_database_url(url)
        if not (said := " ".join(query.split())):
            raise UsageError("--query is empty; expected a SELECT, or the name of a table")
        self.where = f"sql:{self._url.shown}"
        self.name = f"{self.where}#{said}"
        self._query = query.strip().rstrip(";")
        self._columns = columns
        self.lost, self.frequency = lost, columns.frequency
        self._engine = self._url.open(_WAIT)
        self._fingerprint = ""

    def fingerprint(self) -> str:
        """Return a hash of all rows, in any order, and of the version of their reader."""
        self.tickers()  # which reads them
        return self._fingerprint

    def read(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Read all series by name; the database is asked once."""
        table = self._table()
        if table.empty:
            raise DataError(f"{self.where}: the query returns no rows")
        where = TableLocation(str(self.where), counts_rows=True)
        rows = tidy(table, where, columns=self._columns)
        how = (_READER, self._columns, list(rows), [*map(str, rows.dtypes)])
        hashes = pd.util.hash_pandas_object(rows, index=False).to_numpy()
        self._fingerprint = hashlib.sha256(f"{how}".encode() + hashes.tobytes()).hexdigest()
        return dict(each_series(rows)), {}

    def _table(self) -> pd.DataFrame:
        """Run the query; return its rows."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._engine.connect() as connection:
                if self._engine.dialect.name == "postgresql":
                    connection.execution_options(postgresql_readonly=True)
                connection.execution_options(
                    no_parameters=True, stream_results=True, max_row_buffer=_CHUNK
                )
                rows = pd.read_sql_query(self._statement(), connection, chunksize=_CHUNK)
                return pd.concat([part.apply(_in_utc) for part in rows], ignore_index=True)
        except (SQLAlchemyError, OSError, ValueError, RuntimeError, sqlite3.Warning) as error:
            # Not "from error": drivers put passwords into their messages.
            raise self._failed(error.__cause__ or error) from None

    def _statement(self) -> str:
        """Return the statement to run: the query as a part of another, so that it can be only one.

        A second statement in it is then an error of its syntax. SQLite never runs more than one.
        """
        if not _SELECT.search(self._query):
            quote = self._engine.dialect.identifier_preparer.quote
            return f"SELECT * FROM {'.'.join(map(quote, self._query.split('.')))}"
        if self._engine.dialect.name == "sqlite":
            return self._query
        return f"SELECT * FROM ({self._query}\n) AS forecaster_query"

    def _failed(self, error: BaseException) -> SourceError:
        """Return the error of a database in one line, without secrets."""
        reason, advice = self._url.reason(error), ""
        if re.search("no such table|not exist|yntax", reason):
            advice = ". --query takes one SELECT, or the name of a table"
        elif "locked" in reason or "lock on file" in reason:
            advice = ". Another program is writing to it; run the same again when it has ended"
        return SourceError(f"{self.where}: {reason}{advice}")


def _in_utc(column: pd.Series) -> pd.Series:
    """Return a column with its times in UTC, if they have time zones, and so may differ in them."""
    is_times = column.dtype == object and pd.api.types.infer_dtype(column) == "datetime"
    return pd.to_datetime(column, utc=True) if is_times else column
