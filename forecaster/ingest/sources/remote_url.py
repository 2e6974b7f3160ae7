"""Read the URL of files in an object store or on a web server, and name them without secrets."""

import hashlib
import re
import urllib.parse
from typing import NamedTuple

from forecaster.errors import UsageError
from forecaster.ingest.sources.secrets import fill_in, hide

DRIVERS = {
    "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs",
    "http": "aiohttp", "https": "aiohttp", "memory": "fsspec",
}  # fmt: skip
"""The package that fsspec needs for each kind of URL."""
WEB = ("http", "https")
_URL = re.compile(r"[a-zA-Z][\w+.:-]*://")
_WHAT = "--source files:URL"


class RemoteUrl(NamedTuple):
    """The URL of files in an object store or on a web server.

    - ``kind``: one of :data:`DRIVERS`
    - ``url``: the URL with all secrets, without a slash at the end
    - ``shown``: the URL without user and password, for names and messages; a hash of the query, as
      it was typed, takes the place of the query, so that different queries have different names
    - ``secrets``: texts that no message may hold
    """

    kind: str
    url: str
    shown: str
    secrets: tuple[str, ...]

    def hidden(self, text: str) -> str:
        """Return text without the secrets."""
        return hide(text.replace(self.url, self.shown), self.secrets)


def is_remote(path: str) -> bool:
    """Return whether what follows ``files:`` is a URL, not a path."""
    return _URL.match(path) is not None


def read_remote_url(text: str) -> RemoteUrl:
    """Read a URL, with ``${NAME}`` replaced from the environment.

    Raises UsageError for a kind of URL that is not known, and for a variable that is not set. No
    message holds user, password or query.
    """
    kind = text.partition("://")[0].lower()
    if kind not in DRIVERS or "::" in text:
        raise UsageError(
            f"{_WHAT}: URLs of this kind are not supported; expected s3://BUCKET/FOLDER, "
            "gs://BUCKET/*.csv, az://CONTAINER/FOLDER or https://HOST/FILE.csv"
        )
    url = f"{kind}://{fill_in(text, _WHAT).partition('://')[2]}"
    if kind not in WEB:
        return RemoteUrl(kind, url.rstrip("/"), url.rstrip("/"), ())
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError:  # such as a password with / in it, of which no message may hold a part
        raise UsageError(
            f"{_WHAT}: host and port are not understood; expected https://HOST:PORT/FILE.csv. "
            "Write / as %2F and @ as %40 within a password, or take it from the environment by "
            "${NAME}, where nothing needs to be replaced"
        ) from None
    name = parts.path.rpartition("/")[2]
    if not parts.hostname or "*" in parts.path or name in ("", ".", ".."):
        raise UsageError(
            f"{_WHAT}: a web server does not tell which files it has; expected the URL of one "
            "file, such as https://HOST/prices.csv"
        )
    place = parts.netloc.rpartition("@")[2]
    query = text.partition("?")[2]
    mark = f"?{hashlib.sha256(query.encode()).hexdigest()[:8]}" if query else ""
    return RemoteUrl(kind, url, f"{kind}://{place}{parts.path}{mark}", _secrets(parts))


def _secrets(parts: urllib.parse.SplitResult) -> tuple[str, ...]:
    """Return user, password, query and its values, as they are and as in a URL."""
    values = [parts.username, parts.password, parts.query, parts.netloc.rpartition("@")[0]]
    values += [value for _, value in urllib.parse.parse_qsl(parts.query)]
    texts = [value for value in values if value]
    texts += [urllib.parse.unquote(text) for text in texts]
    quoted = [urllib.parse.quote(text, safe=safe) for text in texts for safe in ("", "/")]
    return tuple(text for text in dict.fromkeys([*texts, *quoted]) if len(text) > 2)
