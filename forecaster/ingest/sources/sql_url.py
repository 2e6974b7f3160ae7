"""Read the URL of a database, name the database without its secrets, and open it."""

import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forecaster.errors import UsageError, require
from forecaster.files import as_text
from forecaster.ingest.sources.secrets import HIDDEN, fill_in, hide

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
