"""Read series from files in an object store or on a web server, by fsspec.

The files are copied to a temporary folder, and read from there like the user's own files. No name
or message holds a secret of their URL.
"""

import contextlib
import functools
import hashlib
import importlib
import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from forecaster.errors import DataError, ForecasterError, SourceError, UsageError, require
from forecaster.ingest.sources.files import Files
from forecaster.ingest.sources.secrets import fill_in, hide, values_in
from forecaster.ingest.sources.source import Lost, Whole
from forecaster.ingest.tables.file_reader import ENDINGS
from forecaster.ingest.tables.options import INFERRED, Columns

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


class Remote(Whole):
    """CSV or Parquet files below a URL, which may end in a pattern such as ``*.csv``.

    - ``url``: of a file, a folder or a pattern; ``${NAME}`` is taken from the environment
    - ``columns``, ``lost``: as in :class:`forecaster.ingest.sources.files.Files`

    ``name`` holds no user, password or query. Raises UsageError for a URL that is not understood,
    and if a library is missing. The files are listed and copied when they are first asked for.
    """

    def __init__(self, url: str, columns: Columns = INFERRED, *, lost: Lost = "suspect"):
        self._url = read_remote_url(url)
        self.where = self._url.shown
        self.frequency = columns.frequency
        self.name = f"files:{self.where}"
        self._system, self._path = self._url.open(self.name)
        self._columns, self.lost = columns, lost
        self._temporary = tempfile.TemporaryDirectory(prefix="forecaster-")
        self._folder = Path(self._temporary.name)
        self._base = ""  # of the names of messages

    def read(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Read all series by name, and why others cannot be used."""
        with self._named():
            frames, failed = self._files.read()
        self.unreadable = self._files.unreadable
        return frames, {name: self._in_words(why) for name, why in failed.items()}

    def fingerprint(self) -> str:
        """Return a hash of the names and contents of all files and the version of their reader."""
        with self._named():
            return self._files.fingerprint()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the remote files in errors, not the copies."""
        try:
            yield
        except ForecasterError as error:
            error.args = tuple(self._in_words(str(text)) for text in error.args)
            raise

    def _in_words(self, text: str) -> str:
        return self._url.hidden(text.replace(str(self._folder), self._base))

    @functools.cached_property
    def _files(self) -> Files:
        """The copies."""
        try:
            single, found = self._listed()
            here = [self._folder / name for name in found]
            for path in here:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._system.get([path for path, _ in found.values()], [str(path) for path in here])
            for (path, size), copy in zip(found.values(), here, strict=True):
                if size is not None and (got := copy.stat().st_size) != size:
                    raise EOFError(f"{path}: {got:,} bytes came, where {size:,} were expected")
        except ForecasterError:
            raise
        except Exception as error:  # each kind of store has errors of its own
            raise SourceError(f"{self.name}: {self._url.reason(error)}") from None
        return Files(str(self._folder / single if single else self._folder), self._columns)

    def _listed(self) -> tuple[str | None, dict[str, tuple[str, int | None]]]:
        """Return the remote files by their names here: the path, and the size if it is known.

        The first result is the name of the only file, where the URL is of a file.
        """
        if self._url.kind in WEB:
            self._base = self._url.shown.partition("?")[0].rpartition("/")[0]
            name = urllib.parse.urlsplit(self._path).path.rpartition("/")[2]
            return name, {name: (self._path, None)}
        path, is_pattern = self._path, not set(self._path).isdisjoint("*[")
        found = (self._system.glob if is_pattern else self._system.find)(path, detail=True)
        is_single = list(found) == [path]
        base = path
        if is_pattern or is_single:
            base = re.split(r"[*[]", path)[0].rpartition("/")[0]
        self._base = f"{self._url.kind}://{base.lstrip('/')}".rstrip("/")
        files = {
            self._name_below(base, each): (each, info["size"])
            for each, info in sorted(found.items())
            if info["type"] == "file"
            and (is_single or _is_wanted(each.removeprefix(base).lstrip("/")))
        }
        if not files:
            raise DataError(f"{self.name}: no .csv or .parquet file there")
        return next(iter(files)) if is_single else None, files

    def _name_below(self, base: str, path: str) -> str:
        """Return the name of a remote file below a folder. Raises DataError for one that leaves it.

        An object may have any name, such as ``../x``; its copy must stay in the folder.
        """
        name = path.removeprefix(base).lstrip("/")
        if re.search(r"(^|/)\.{0,2}(/|$)|[\\:\0]", name) or not path.startswith(base):
            raise DataError(
                f"{self.name}: there is a file {path!r}, whose name cannot be that of a file "
                "here; rename it, or name others by a pattern such as *.csv"
            )
        return name


def _is_wanted(name: str) -> bool:
    """Return whether a file of a folder is read; those whose names begin with a dot are not."""
    hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    return name.lower().endswith(ENDINGS) and not hidden
