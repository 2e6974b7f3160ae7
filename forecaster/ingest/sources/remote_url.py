"""Read the URL of files in an object store or on a web server, and name them without secrets."""

import hashlib
import importlib
import os
import re
import urllib.parse
from typing import Any, NamedTuple

from forecaster.errors import UsageError, require
from forecaster.ingest.sources.secrets import fill_in, hide, values_in

WEB = ("http", "https")
_AZURE = ("az", "abfs", "abfss")
_KINDS = ("s3", "gs", "gcs", *_AZURE, "memory", *WEB)
_WHAT = "--source files:URL"
_EXPECTED = (
    "expected s3://BUCKET/FOLDER, gs://BUCKET/*.csv, az://CONTAINER/FOLDER or https://HOST/FILE.csv"
)
_ACCOUNT = re.compile(r"[^/:@]+@([^/:@.]+)[^/:@]*(/|$)")  # CONTAINER@ACCOUNT.dfs.core.windows.net/
_CONNECT, _READ = 30, 60  # seconds to wait for a web server
_LONGEST = 300  # characters of what a library says of a failure


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


def read_remote_url(text: str, what: str = _WHAT, expected: str = _EXPECTED) -> RemoteUrl:
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
