"""Read series from a database: PostgreSQL, SQLite or DuckDB, by a query that only reads.

No name or message holds a secret of its URL.
"""

import hashlib
import re
import sqlite3
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from forecaster.errors import DataError, SourceError, UsageError, require
from forecaster.files import as_text
from forecaster.ingest.sources.secrets import HIDDEN, fill_in, hide
from forecaster.ingest.sources.source import Lost, Whole
from forecaster.ingest.tables.cells import TableLocation
from forecaster.ingest.tables.layout import each_series, tidy
from forecaster.ingest.tables.options import INFERRED, Columns

if TYPE_CHECKING:
    import sqlalchemy as sa

DRIVERS = {"postgresql": "psycopg[binary]", "sqlite": "", "duckdb": "duckdb-engine"}
"""What to install for each database, beside SQLAlchemy."""
_DEFAULT_DRIVER = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
_PUBLIC = ("host", "port", "service", "dbname")  # other parts of a query may hold secrets
_EXPECTED = (
    "expected one such as postgresql://USER:${PGPASSWORD}@HOST/DATABASE, sqlite:///FILE or "
    "duckdb:///FILE, where ${NAME} is taken from the environment"
)
_READER = 4  # raise it when rows are read differently
_CHUNK = 20_000  # rows that are in memory as Python objects
_WAIT = 10.0  # seconds to wait for a server, or for a file that another program has locked
_SELECT = re.compile(r"\b(select|from)\b|\bvalues\s*\(", re.IGNORECASE)


class DatabaseUrl(NamedTuple):
    """The URL of a database.

    - ``url``: the URL with all secrets
    - ``shown``: the URL without user, password and options, for names and messages
    - ``file``: the file of SQLite or DuckDB; None for a server, or a database in memory
    """

    url: "sa.URL"
    shown: str
    file: Path | None

    def hidden(self, text: str) -> str:
        """Return text without the password and the values of options that may hold a secret."""
        options = [v for k, v in self.url.normalized_query.items() if k not in _PUBLIC]
        return hide(text, [str(self.url.password or ""), *(v for some in options for v in some)])

    def open(self, wait: float, *, writable: bool = False) -> "sa.Engine":
        """Return an engine that connects when it is used, by default only to read.

        - ``wait``: seconds to wait for a server, or for a file of SQLite that is locked
        - ``writable``: whether it may write. With SQLite, the caller must then begin transactions
          by ``BEGIN``: sqlite3 itself would begin them too late to keep other writers out

        Raises UsageError without a driver.
        """
        import sqlalchemy as sa
        from sqlalchemy.exc import NoSuchModuleError

        url, backend = self.url, self.url.get_backend_name()
        options: dict[str, Any] = {}
        if backend == "sqlite":
            file = urllib.parse.quote(str(self.file))
            url = sa.make_url("sqlite://").set(
                database=f"file:{file}", query={"mode": "rwc" if writable else "ro", "uri": "true"}
            )
            options = {"timeout": wait} | ({"isolation_level": None} if writable else {})
        elif backend == "duckdb":
            options = {"read_only": self.file is not None and not writable}
        elif "connect_timeout" not in url.query:
            options = {"connect_timeout": round(wait)}
        try:
            return sa.create_engine(
                url, poolclass=sa.NullPool, hide_parameters=True, connect_args=options
            )
        except (ImportError, NoSuchModuleError):
            driver = DRIVERS[backend] or url.drivername
            raise UsageError(
                f'sql:{self.shown} needs a driver, which is not installed: `pip install "{driver}"`'
            ) from None

    def reason(self, error: BaseException) -> str:
        """Return the first line of a database's error message, without secrets and users."""
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        line = self.hidden(lines[0] if lines else type(error).__name__)
        line = re.sub(r"\b(user|role) (\"[^\"]*\"|'[^']*')", rf"\1 {HIDDEN}", line)
        if self.url.username:  # in any language of the server
            line = re.sub(rf"(?<!\w){re.escape(self.url.username)}(?!\w)", HIDDEN, line)
        return line


def read_database_url(
    text: str, what: str = "--source sql:URL", *, create: bool = False
) -> DatabaseUrl:
    """Read a URL, with ``${NAME}`` replaced from the environment.

    - ``what``: the option, for messages
    - ``create``: whether the file of a database need not exist yet; a database in memory is then an
      error

    Raises UsageError for a URL that is not understood, a variable that is not set, a file that does
    not exist, and if SQLAlchemy is not installed. No message holds the URL.
    """
    require("sqlalchemy", "sql", what)
    import sqlalchemy as sa
    from sqlalchemy.exc import ArgumentError

    try:
        url = sa.make_url(fill_in(text, what))
    except (ArgumentError, ValueError, TypeError):
        raise UsageError(f"{what}: the URL is not understood; {_EXPECTED}") from None
    url = url.set(drivername=_DEFAULT_DRIVER.get(url.drivername, url.drivername))
    backend, name, file = url.get_backend_name(), url.database or "", None
    if backend not in DRIVERS:
        raise UsageError(f"{what}: databases of this kind are not supported; {_EXPECTED}")
    if "@" in (url.host or "") or (backend == "postgresql" and "@" in name):
        raise UsageError(
            f"{what}: more than one @ in the URL. Write @ as %40, / as %2F and : as %3A "
            "within a password, or take it from the environment by ${NAME}, where nothing needs "
            "to be replaced"
        )
    if backend != "postgresql" and name in ("", ":memory:"):
        if backend == "sqlite" or create:
            raise UsageError(f"{what}: expected a file, as in {backend}:////data/prices.db")
    elif backend != "postgresql" and not name.startswith(("md:", "motherduck:")):
        # The full path, since later commands may be started in another folder.
        file = Path(name).expanduser().resolve()
        if create and not file.parent.is_dir():
            raise UsageError(f"{what}: no such folder: {file.parent}; make it first")
        # In this order: another process may make it meanwhile.
        if not ((create and not file.exists()) or file.is_file()):
            raise UsageError(f"{what}: no such file: {file}")
        url = url.set(database=as_text(file))
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    shown = f"{backend}://{host}{'' if url.port is None else f':{url.port}'}/{url.database or ''}"
    options = {name: url.query[name] for name in _PUBLIC if name in url.query}
    if options:
        shown += f"?{urllib.parse.urlencode(options, doseq=True, safe='/')}"
    return DatabaseUrl(url, shown.replace("#", "%23"), file)


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
