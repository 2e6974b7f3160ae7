"""Read the URLs of remote files and of databases, and keep their secrets out of messages."""

import hashlib
import importlib
import os
import re
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forecaster.errors import UsageError, require
from forecaster.files import as_text

if TYPE_CHECKING:
    import sqlalchemy as sa

HIDDEN = "***"
"""The text that stands for a secret in names and messages."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_USERINFO = re.compile(r"^[\w+]+://[^/@]*@")
WEB = ("http", "https")
_AZURE = ("az", "abfs", "abfss")
_KINDS = ("s3", "gs", "gcs", *_AZURE, "memory", *WEB)
_WHAT = "--source files:URL"
_FILES = (
    "expected s3://BUCKET/FOLDER, gs://BUCKET/*.csv, az://CONTAINER/FOLDER or https://HOST/FILE.csv"
)
_ACCOUNT = re.compile(r"[^/:@]+@([^/:@.]+)[^/:@]*(/|$)")  # CONTAINER@ACCOUNT.dfs.core.windows.net/
_CONNECT, _READ = 30, 60  # seconds to wait for a web server
_LONGEST = 300  # characters of what a library says of a failure
DRIVERS = {"postgresql": "psycopg[binary]", "sqlite": "", "duckdb": "duckdb-engine"}
"""What to install for each database, beside SQLAlchemy."""
_DEFAULT_DRIVER = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
_PUBLIC = ("host", "port", "service", "dbname")  # other parts of a query may hold secrets
_DATABASES = (
    "expected one such as postgresql://USER:${PGPASSWORD}@HOST/DATABASE, sqlite:///FILE or "
    "duckdb:///FILE, where ${NAME} is taken from the environment"
)


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return text with :data:`HIDDEN` in place of secrets, as they are and as in a URL.

    Two characters or fewer tell nothing, and stay.
    """
    texts = {form for secret in secrets for form in (secret, urllib.parse.unquote(secret))}
    texts |= {urllib.parse.quote(secret, safe=safe) for secret in texts for safe in ("", "/")}
    for secret in sorted(texts, key=len, reverse=True):
        if len(secret) > 2:
            text = text.replace(secret, HIDDEN)
    return text


def fill_in(text: str, what: str) -> str:
    """Return a URL with ``${NAME}`` replaced from the environment, quoted where a URL needs it.

    ``what``: the option, for the error if a variable is not set
    """

    def value(match: re.Match[str]) -> str:
        if (value := os.environ.get(name := match[1])) is None:
            raise UsageError(
                f"{what}: the URL names ${{{name}}}, which is not set in the environment"
            )
        is_quoted = match.start() < end or "?" in text[end : match.start()]
        return urllib.parse.quote(value, safe="") if is_quoted else value

    end = found.end() if (found := _USERINFO.match(text)) else 0
    return _VARIABLE.sub(value, text)


def values_in(text: str) -> list[str]:
    """Return the values of ``${NAME}`` in a URL, as far as the environment has them."""
    return [os.environ[name] for name in _VARIABLE.findall(text) if os.environ.get(name)]


def hide_secrets(source: str) -> str:
    """Return the name of a source as typed, without what may be a secret."""
    if "://" not in source:
        return source
    source = re.sub(r"://.*@", f"://{HIDDEN}@", source, flags=re.DOTALL)
    return re.sub(r"\?[^#]*", "", source)


class RemoteUrl(NamedTuple):
    """The URL of files in an object store or on a web server.

    - ``kind``: what stands before ``://``
    - ``url``: the URL with all secrets, without a slash at the end
    - ``shown``: the URL as it was typed, with ``${NAME}``, without user and password, for names and
      messages; a hash of the query, as it was typed, takes the place of the query, so that
      different queries have different names
    - ``secrets``: texts that no message may hold
    """

    kind: str
    url: str
    shown: str
    secrets: tuple[str, ...]

    def hidden(self, text: str) -> str:
        """Return text without the secrets."""
        return hide(text.replace(self.url, self.shown), self.secrets)

    def open(self, name: str) -> tuple[Any, str]:
        """Return the file system of fsspec and the path in it, without asking the store.

        ``name``: names the URL in messages. Raises UsageError if a library is missing, or does not
        know whom to ask, such as the account of a store.
        """
        require("fsspec", "remote", name)
        import fsspec

        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        try:
            fsspec.get_filesystem_class(self.kind)
            if self.kind in WEB:
                client: Any = importlib.import_module("aiohttp")
                timeout = client.ClientTimeout(total=None, connect=_CONNECT, sock_read=_READ)
                options["client_kwargs"] = {"trust_env": True, "timeout": timeout}
            return fsspec.url_to_fs(self.url, **options)
        except ImportError as error:  # its text says what to install
            raise UsageError(f"{name}: {error}") from None
        except Exception as error:  # each kind of store has errors of its own
            raise UsageError(f"{name}: {self.reason(error)}") from None

    def reason(self, error: BaseException) -> str:
        """Return what failed, in one line and without secrets.

        It is the first cause, as fsspec calls many failures a missing file.
        """
        while error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, FileNotFoundError):
            return "no such file or folder"
        text = " ".join(str(error).split()) or type(error).__name__
        # A server may have redirected to a URL with a signature.
        return re.sub(r"\?[^\s'\"]+", "?***", self.hidden(text))[:_LONGEST]


def read_remote_url(text: str, what: str = _WHAT, expected: str = _FILES) -> RemoteUrl:
    """Read a URL, with ``${NAME}`` replaced from the environment.

    - ``what``: the option, for messages
    - ``expected``: what the option takes, for messages

    Raises UsageError for a kind of URL that is not known, for a variable that is not set, and for
    a user, a password or a query where a store takes none, and for another account of Azure than
    that of the environment. No message holds any of them.
    """
    kind, _, rest = text.partition("://")
    kind = kind.lower()
    if kind not in _KINDS or "::" in text:
        raise UsageError(f"{what}: URLs of this kind are not supported; {expected}")
    url, typed, secrets = fill_in(f"{kind}://{rest}", what), f"{kind}://{rest}", values_in(text)
    if kind not in WEB:
        rest = url.partition("://")[2]
        azure = _ACCOUNT.match(rest) if kind in _AZURE else None
        own = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if azure and own and azure[1].lower() != own.lower():
            raise UsageError(
                f"{what}: the URL names another account than AZURE_STORAGE_ACCOUNT_NAME; expected "
                "the same"
            )
        # A password may hold a slash. The names of S3's access points hold colons: arn:aws:s3:...
        if "?" in rest or (not azure and re.match(r"[^/]*@|(?!arn:)[^/]*:.*@", rest, re.DOTALL)):
            raise UsageError(
                f"{what}: a URL of {kind}:// holds no user, password or query; give the account, "
                "credentials, keys and signatures to the store's library by its environment "
                "variables or its configuration. In a pattern, write * or [a-z] in place of ?"
            )
        return RemoteUrl(kind, url.rstrip("/"), typed.rstrip("/"), tuple(secrets))
    try:
        parts, as_typed = urllib.parse.urlsplit(url), urllib.parse.urlsplit(typed)
        _ = parts.port
    except ValueError:  # such as a password with / in it, of which no message may hold a part
        raise UsageError(
            f"{what}: host and port are not understood; expected https://HOST:PORT/FILE.csv. "
            "Write / as %2F and @ as %40 within a password, or take it from the environment by "
            "${NAME}, where nothing needs to be replaced"
        ) from None
    if not parts.hostname or re.search(r"\*|(^|/)\.{0,2}$", parts.path):
        raise UsageError(
            f"{what}: a web server does not tell which files it has; expected the URL of one "
            "file, such as https://HOST/prices.csv"
        )
    user, _, place = as_typed.netloc.rpartition("@")
    query = text.partition("?")[2]
    mark = f"?{hashlib.sha256(query.encode()).hexdigest()[:8]}" if query else ""
    secrets += [parts.username, parts.password, parts.query, user]
    secrets += [value for _, value in urllib.parse.parse_qsl(parts.query)]
    shown = f"{kind}://{place}{as_typed.path}{mark}"
    return RemoteUrl(kind, url, shown, tuple(filter(None, secrets)))


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
        raise UsageError(f"{what}: the URL is not understood; {_DATABASES}") from None
    url = url.set(drivername=_DEFAULT_DRIVER.get(url.drivername, url.drivername))
    backend, name, file = url.get_backend_name(), url.database or "", None
    if backend not in DRIVERS:
        raise UsageError(f"{what}: databases of this kind are not supported; {_DATABASES}")
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
