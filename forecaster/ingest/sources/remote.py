"""Read series from files in an object store or on a web server, by fsspec.

The files are copied to a folder, and read from there like the user's own files. What an object
store tells of a file, such as its size, ETag and time, is kept beside the copy as a hash, and the
file is copied again if any of it has changed. The file of a web server is always copied again.

    downloads/<source>/files/...       the copies, under the names below the URL
    downloads/<source>/copied.json     these hashes, by the name of the copy
"""

import contextlib
import functools
import hashlib
import json
import re
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from forecaster.errors import DataError, ForecasterError, SourceError
from forecaster.files import atomic, file_name, locked_folder, read_plain
from forecaster.ingest.sources.compared import Lost, Whole
from forecaster.ingest.sources.files import Files
from forecaster.ingest.sources.remote_url import WEB, read_remote_url
from forecaster.ingest.sources.source import Fetched
from forecaster.ingest.tables.file_reader import ENDINGS
from forecaster.ingest.tables.roles import Columns

_COPIED = "copied.json"
_FOLDER = "files"
_AT_ONCE = 8  # files that are copied at the same time


class Remote(Whole):
    """CSV or Parquet files below a URL, which may end in a pattern such as ``*.csv``.

    - ``url``: of a file, a folder or a pattern; ``${NAME}`` is taken from the environment
    - ``columns``, ``lost``: as in :class:`forecaster.ingest.sources.files.Files`
    - ``downloads``: where copies are kept until the next time; None: as long as this object is

    ``name`` holds no user, password or query. Raises UsageError for a URL that is not understood,
    and if a library is missing. The files are listed and copied when they are first asked for.
    """

    def __init__(
        self,
        url: str,
        columns: Columns | None = None,
        *,
        lost: Lost = "suspect",
        downloads: Path | None = None,
    ):
        self._url = read_remote_url(url)
        self.name = f"files:{self._url.shown}"
        self._system, self._path = self._url.open(self.name)
        self._columns, self.lost = columns, lost
        if downloads is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="forecaster-")
            self._folder = Path(self._temporary.name)
        else:
            self._folder = downloads / file_name(self.name)
        self._base = ""  # of the names of messages

    def tickers(self) -> list[str]:
        """Return all series, including those of unreadable files in a folder."""
        with self._named():
            return self._files.tickers()

    def rows(self, tickers: Sequence[str]) -> Iterator[Fetched]:
        """Yield each series as the files have it."""
        with self._named():
            for item in self._files.rows(tickers):
                self.unreadable = self._files.unreadable
                yield item._replace(reason=item.reason and self._in_words(item.reason))

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
        return self._url.hidden(text.replace(str(self._folder / _FOLDER), self._base))

    @functools.cached_property
    def _files(self) -> Files:
        """The copies, brought up to date."""
        with locked_folder(self._folder):
            single, found = self._listed()
            self._copy(found)
        path = self._folder / _FOLDER
        return Files(str(path / single if single else path), self._columns)

    def _listed(self) -> tuple[str | None, dict[str, tuple[str, dict[str, Any]]]]:
        """Return the remote files by their names here: the path and what the store tells of each.

        The first result is the name of the only file, where the URL is of a file.
        """
        if self._url.kind in WEB:
            self._base = self._url.shown.partition("?")[0].rpartition("/")[0]
            name = urllib.parse.urlsplit(self._path).path.rpartition("/")[2]
            return name, {name: (self._path, {})}
        path, is_pattern = self._path, not set(self._path).isdisjoint("*[")
        with self._as_error(self.name):
            found = (self._system.glob if is_pattern else self._system.find)(path, detail=True)
        is_single = list(found) == [path]
        base = path
        if is_pattern or is_single:
            base = re.split(r"[*[]", path)[0].rpartition("/")[0]
        self._base = f"{self._url.kind}://{base.lstrip('/')}".rstrip("/")
        files = {
            self._name_below(base, each): (each, info)
            for each, info in sorted(found.items())
            if info["type"] == "file"
            and (is_single or _is_wanted(each.removeprefix(base).lstrip("/")))
        }
        if not files:
            raise DataError(f"{self.name}: no .csv or .parquet file there")
        return next(iter(files)) if is_single else None, files

    def _name_below(self, base: str, path: str) -> str:
        """Return the name of a remote file below a folder. Raises DataError for one that leaves it.

        The names of objects are any text; as those of copies they must not lead elsewhere.
        """
        name = path.removeprefix(base).lstrip("/")
        if re.search(r"(^|/)\.{0,2}(/|$)|[\\:\0]", name) or not path.startswith(base):
            raise DataError(
                f"{self.name}: there is a file {path!r}, whose name cannot be that of a file "
                "here; rename it, or name others by a pattern such as *.csv"
            )
        return name

    def _copy(self, files: dict[str, tuple[str, dict[str, Any]]]) -> None:
        """Copy the files that are new or have changed, and remove copies of those that are gone."""
        copies, before = self._folder / _FOLDER, _read_state(self._folder)
        told = {name: json.dumps(info, default=str, sort_keys=True).encode()
                for name, (_, info) in files.items()}  # fmt: skip
        # Only their hashes are kept, as they hold paths, which may be secret.
        state = {name: hashlib.sha256(text).hexdigest() for name, text in told.items()}

        def copy(name: str) -> None:
            info, here = files[name][1], copies / name
            size = here.stat().st_size if here.is_file() else None
            if info and (before.get(name), size) == (state[name], info["size"]):
                return
            atomic.write_file(here, lambda to: self._get(name, files[name], to), last=False)

        with atomic.as_write_error(self._folder):
            for here in [path for path in copies.rglob("*") if path.is_file()]:
                if here.relative_to(copies).as_posix() not in files:
                    here.unlink()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(copy, files))
        text = json.dumps(state)
        atomic.write_file(self._folder / _COPIED, lambda to: to.write_text(text, "utf-8"))

    def _get(self, name: str, file: tuple[str, dict[str, Any]], to: Path) -> None:
        path, info = file
        with self._as_error(f"files:{self._base}/{name}"):
            self._system.get_file(path, str(to))
            if info and (got := to.stat().st_size) != info["size"]:
                raise EOFError(f"{got:,} bytes came, where {info['size']:,} were expected")

    @contextlib.contextmanager
    def _as_error(self, where: str) -> Iterator[None]:
        """Raise SourceError, in one line and without secrets, for whatever fails in the block."""
        try:
            yield
        except ForecasterError:
            raise
        except Exception as error:  # each kind of store has errors of its own
            raise SourceError(f"{where}: {self._url.reason(error)}") from None


def _is_wanted(name: str) -> bool:
    """Return whether a file of a folder is read; those whose names begin with a dot are not."""
    hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    return name.lower().endswith(ENDINGS) and not hidden


def _read_state(folder: Path) -> dict[str, Any]:
    """Return what the copies are of; empty where it is not known, so that all is copied again."""
    try:
        return dict(json.loads(read_plain(folder / _COPIED)))
    except (OSError, ValueError, TypeError):
        return {}
