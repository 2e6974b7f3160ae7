"""Read the URL of files in an object store or on a web server, and name them without secrets."""

import hashlib
import importlib
import re
import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from forecaster.errors import UsageError
from forecaster.extras import require
from forecaster.ingest.sources.secrets import fill_in, hide, values_in

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

DRIVERS = {
    "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs",
    "http": "aiohttp", "https": "aiohttp", "memory": "fsspec",
}  # fmt: skip
"""The package that fsspec needs for each kind of URL."""
WEB = ("http", "https")
_WHAT = "--source files:URL"
_EXPECTED = (
    "expected s3://BUCKET/FOLDER, gs://BUCKET/*.csv, az://CONTAINER/FOLDER or https://HOST/FILE.csv"
)
_AZURE = ("az", "abfs", "abfss")
_CONNECT, _READ = 30, 60  # seconds to wait for a web server
_LONGEST = 300  # characters of what a library says of a failure


class RemoteUrl(NamedTuple):
    """The URL of files in an object store or on a web server.

    - ``kind``: one of :data:`DRIVERS`
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

    def open(self, name: str) -> "AbstractFileSystem":
        """Return the file system of the URL, without asking the store.

        ``name``: names the URL in messages. Raises UsageError if a library is missing, or does not
        know whom to ask, such as the account of a store, or would ask another account than the URL
        names.
        """
        require("fsspec", "remote", name)
        import fsspec

        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        try:
            kind = fsspec.get_filesystem_class(self.kind)
            if self.kind in WEB:
                client: Any = importlib.import_module("aiohttp")
                timeout = client.ClientTimeout(total=None, connect=_CONNECT, sock_read=_READ)
                options["client_kwargs"] = {"trust_env": True, "timeout": timeout}
            else:
                options |= kind._get_kwargs_from_urls(self.url)  # such as the account at Azure
            system: Any = kind(**options)
        except ImportError:
            driver = DRIVERS[self.kind]
            raise UsageError(
                f"{name} needs {driver}, which is not installed: `pip install {driver}`"
            ) from None
        except Exception as error:  # each kind of store has errors of its own
            raise UsageError(f"{name}: {self.reason(error)}") from None
        if self.kind in _AZURE:
            _check_account(system, self.url, name)
        return system

    def reason(self, error: BaseException) -> str:
        """Return what failed, in one line and without secrets.

        It is the first cause, as fsspec calls many failures a missing file.
        """
        while error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, FileNotFoundError):
            return "no such file or folder"
        if isinstance(error, TimeoutError):
            return "the connection was lost: no answer in time"
        text = " ".join(str(error).split()) or type(error).__name__

        def query(match: re.Match[str]) -> str:  # of a URL to which a server redirected
            return match[0] if self.shown.endswith(match[0]) else "?***"

        return re.sub(r"\?[^\s'\"]+", query, self.hidden(text))[:_LONGEST]


def read_remote_url(text: str, what: str = _WHAT, expected: str = _EXPECTED) -> RemoteUrl:
    """Read a URL, with ``${NAME}`` replaced from the environment.

    - ``what``: the option, for messages
    - ``expected``: what the option takes, for messages

    Raises UsageError for a kind of URL that is not known, for a variable that is not set, and for a
    password or a query where a store takes none. No message holds user, password or query.
    """
    kind = text.partition("://")[0].lower()
    if kind not in DRIVERS or "::" in text:
        raise UsageError(f"{what}: URLs of this kind are not supported; {expected}")
    url = f"{kind}://{fill_in(text, what).partition('://')[2]}"
    typed = f"{kind}://{text.partition('://')[2]}"
    values = values_in(text)
    if kind not in WEB:
        _check_store_url(kind, url, what)
        return RemoteUrl(kind, url.rstrip("/"), typed.rstrip("/"), _quoted(values))
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError:  # such as a password with / in it, of which no message may hold a part
        raise UsageError(
            f"{what}: host and port are not understood; expected https://HOST:PORT/FILE.csv. "
            "Write / as %2F and @ as %40 within a password, or take it from the environment by "
            "${NAME}, where nothing needs to be replaced"
        ) from None
    name = parts.path.rpartition("/")[2]
    if not parts.hostname or "*" in parts.path or name in ("", ".", ".."):
        raise UsageError(
            f"{what}: a web server does not tell which files it has; expected the URL of one "
            "file, such as https://HOST/prices.csv"
        )
    as_typed = urllib.parse.urlsplit(typed)
    place = as_typed.netloc.rpartition("@")[2]
    query = text.partition("?")[2]
    mark = f"?{hashlib.sha256(query.encode()).hexdigest()[:8]}" if query else ""
    shown = f"{kind}://{place}{as_typed.path}{mark}"
    return RemoteUrl(kind, url, shown, _quoted([*_secrets(parts), *values]))


def _check_store_url(kind: str, url: str, what: str) -> None:
    """Raise UsageError for the URL of a store with a user, a password or a query in it."""
    rest = url.partition("://")[2]
    # A password may hold a slash. The names of S3's access points hold colons: arn:aws:s3:...
    if "?" in rest or re.match(r"[^/]*:[^/]*@|(?!arn:)[^/]*:.*@", rest, re.DOTALL):
        raise UsageError(
            f"{what}: a URL of {kind}:// holds no user, password or query; give credentials, keys "
            "and signatures to the store's library by its environment variables or its "
            "configuration. In a pattern, write * or [a-z] in place of ?"
        )


def _check_account(system: Any, url: str, name: str) -> None:
    """Raise UsageError if a URL names another account of Azure than the one that would be asked.

    It does where credentials, such as a connection string in the environment, are of another.
    """
    _, has_account, host = url.partition("://")[2].partition("/")[0].lower().rpartition("@")
    wanted = host.partition(".")[0]
    asked = urllib.parse.urlsplit(system.service_client.url).hostname or ""
    given = re.search(r"accountname=([^;]+)", system.connection_string or "", re.IGNORECASE)
    account = (given[1] if given else asked.partition(".")[0]).lower()
    if has_account and account != wanted:
        raise UsageError(
            f"{name}: the URL names the account {wanted!r}, but the credentials of the environment "
            f"are of {account!r} at {asked}; expected the same, such as "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FILE.csv"
        )


def _secrets(parts: urllib.parse.SplitResult) -> list[str]:
    """Return user, password, query and its values."""
    values = [parts.username, parts.password, parts.query, parts.netloc.rpartition("@")[0]]
    values += [value for _, value in urllib.parse.parse_qsl(parts.query)]
    return [value for value in values if value]


def _quoted(values: Iterable[str]) -> tuple[str, ...]:
    """Return texts as they are and as in a URL; two characters or fewer tell nothing."""
    texts = list(values)
    texts += [urllib.parse.unquote(text) for text in texts]
    quoted = [urllib.parse.quote(text, safe=safe) for text in texts for safe in ("", "/")]
    return tuple(text for text in dict.fromkeys([*texts, *quoted]) if len(text) > 2)
