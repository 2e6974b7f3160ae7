"""Read series from files in an object store or on a web server, by fsspec.

The files are copied to a folder, and read from there like the user's own files. The size, the ETag
and the time of the last change of the remote file are kept beside each copy. A file is copied again
if one of them has changed, and always if the server tells nothing but a size and an ETag, which may
be constant:

    downloads/<source>/files/...       the copies, under the names below the URL
    downloads/<source>/copied.json     these facts, by the name of the copy
"""

import contextlib
import json
import re
import shutil
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from forecaster.errors import DataError, ForecasterError, SourceError, WriteError
from forecaster.files import atomic, locked_folder, read_plain
from forecaster.home import file_name
from forecaster.ingest.sources.compared import Lost, Whole
from forecaster.ingest.sources.files import Files
from forecaster.ingest.sources.remote_url import WEB, read_remote_url
from forecaster.ingest.sources.source import Fetched
from forecaster.ingest.tables.file_reader import ENDINGS
from forecaster.ingest.tables.roles import Columns

_COPIED = "copied.json"
_FOLDER = "files"
_AT_ONCE = 8  # files that are copied at the same time
_RESERVE = 500_000_000  # bytes of the disk that are left free
_CHANGES = {  # what tells that a file has changed, by the names of all kinds of stores
    "etag", "lastmodified", "mtime", "updated", "generation", "md5hash", "contentmd5", "digest",
    "versionid", "created",
}  # fmt: skip


class _File(NamedTuple):
    """A remote file.

    - ``path``: its path for fsspec
    - ``name``: its name below the URL
    - ``size``: its bytes; None if they are not known
    - ``state``: a text that changes with the file; None if the store gives no such facts
    """

    path: str
    name: str
    size: int | None
    state: str | None


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
        self._system = self._url.open(self.name)
        self._columns, self.lost = columns, lost
        self._folder = None if downloads is None else downloads / file_name(self.name)
        self._files: Files | None = None
        self._base = ""  # of the names of messages
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def tickers(self) -> list[str]:
        """Return all series, including those of unreadable files in a folder."""
        with self._named() as files:
            return files.tickers()

    def rows(self, tickers: Sequence[str]) -> Iterator[Fetched]:
        """Yield each series as the files have it."""
        with self._named() as files:
            for item in files.rows(tickers):
                self.unreadable = files.unreadable
                yield item._replace(reason=item.reason and self._in_words(item.reason))

    def fingerprint(self) -> str:
        """Return a hash of the names and contents of all files and the version of their reader."""
        with self._named() as files:
            return files.fingerprint()

    @contextlib.contextmanager
    def _named(self) -> Iterator[Files]:
        """Yield the copies; name the remote files in errors, not the copies."""
        if self._files is None:
            self._files = self._copied()
        try:
            yield self._files
        except ForecasterError as error:
            error.args = tuple(self._in_words(str(text)) for text in error.args)
            raise

    def _in_words(self, text: str) -> str:
        assert self._folder is not None
        return self._url.hidden(text.replace(str(self._folder / _FOLDER), self._base))

    def _copied(self) -> Files:
        """Bring the copies up to date, and open them."""
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="forecaster-")
            self._folder = Path(self._temporary.name)
        with locked_folder(self._folder):
            single, files = self._listed()
            self._copy(self._folder, files)
        path = self._folder / _FOLDER
        return Files(str(path / single if single else path), self._columns)

    def _listed(self) -> tuple[str | None, list[_File]]:
        """Return the remote files, and the name of the only one where the URL is of a file."""
        url = self._url.url
        system: Any = self._system  # its methods are typed as what they return in all cases
        with self._as_error():
            if self._url.kind in WEB:
                self._base = self._url.shown.partition("?")[0].rpartition("/")[0]
                name = urllib.parse.urlsplit(url).path.rpartition("/")[2]
                return name, [_file(url, name, system.info(url))]
            path = str(system._strip_protocol(url))
            is_pattern = not set(path).isdisjoint("*[")
            found = (system.glob if is_pattern else system.find)(path, detail=True)
        is_single = list(found) == [path]
        base = path
        if is_pattern or is_single:
            base = re.split(r"[*[]", path)[0].rpartition("/")[0]
        self._base = f"{self._url.kind}://{base.lstrip('/')}".rstrip("/")
        files = [
            _file(each, self._name_below(base, each), info)
            for each, info in sorted(found.items())
            if info["type"] == "file"
            and (is_single or _is_wanted(each.removeprefix(base).lstrip("/")))
        ]
        if not files:
            raise DataError(f"{self.name}: no .csv or .parquet file there")
        return files[0].name if is_single else None, files

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

    def _copy(self, folder: Path, files: list[_File]) -> None:
        """Copy the files that are new or have changed, and remove copies of those that are gone."""
        copies, before = folder / _FOLDER, _read_state(folder)
        names = {file.name for file in files}
        with atomic.as_write_error(folder):
            copies.mkdir(parents=True, exist_ok=True)
            here = {path.relative_to(copies).as_posix(): path.stat().st_size
                    for path in copies.rglob("*") if path.is_file()}  # fmt: skip
            for name in here.keys() - names:
                (copies / name).unlink()
        wanted = [
            file for file in files
            if file.state is None or before.get(file.name) != file.state
            or here.get(file.name) != file.size
        ]  # fmt: skip
        self._check_space(folder, wanted)
        gone = {file.name for file in wanted}
        state = {name: each for name, each in before.items() if name in names - gone}
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                copied = pool.map(lambda file: self._copy_one(file, copies), wanted)
                for file, _ in zip(wanted, copied, strict=True):
                    if file.state is not None:
                        state[file.name] = file.state
        finally:  # what was copied before a failure is not copied again
            text = json.dumps(state)
            atomic.write_file(folder / _COPIED, lambda to: to.write_text(text, "utf-8"))

    def _check_space(self, folder: Path, wanted: list[_File]) -> None:
        """Raise WriteError if the disk cannot hold the copies, as far as their sizes are known."""
        free = max(shutil.disk_usage(folder).free - _RESERVE, 0)
        if (needed := sum(file.size or 0 for file in wanted)) > free:
            raise WriteError(
                f"{self.name}: {needed:,} bytes are to be copied to {folder}, where "
                f"{free:,} bytes are free; make room, or choose another --home"
            )

    def _copy_one(self, file: _File, copies: Path) -> None:
        """Copy a file, whole or not at all."""

        def copy(to: Path) -> None:
            with self._as_error(file):
                self._system.get_file(file.path, str(to))
                if file.size is not None and (got := to.stat().st_size) != file.size:
                    raise EOFError(f"{got:,} bytes came, where {file.size:,} were expected")

        atomic.write_file(copies / file.name, copy, last=False)

    @contextlib.contextmanager
    def _as_error(self, file: _File | None = None) -> Iterator[None]:
        """Raise SourceError, in one line and without secrets, for whatever fails in the block."""
        where = self.name if file is None else f"files:{self._base}/{file.name}"
        try:
            yield
        except ForecasterError:
            raise
        except Exception as error:  # each kind of store has errors of its own
            raise SourceError(f"{where}: {self._url.reason(error)}") from None


def _file(path: str, name: str, info: Mapping[str, Any]) -> _File:
    size = info.get("size")
    told = {
        key: str(value) for key, value in sorted(info.items())
        if key.lower().replace("-", "").replace("_", "") in _CHANGES and value
    }  # fmt: skip
    # Some web servers send the same ETag for ever, so it needs a second fact beside it.
    alone = [key.lower() for key in told] == ["etag"]
    state = json.dumps({"size": size, **told}) if told and not alone and size is not None else None
    return _File(path, name, size, state)


def _is_wanted(name: str) -> bool:
    """Return whether a file of a folder is read; those whose names begin with a dot are not."""
    hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    return name.lower().endswith(ENDINGS) and not hidden


def _read_state(folder: Path) -> dict[str, str]:
    """Return what the copies are of; empty where it is not known, so that all is copied again."""
    try:
        content = json.loads(read_plain(folder / _COPIED))
        return {str(name): str(state) for name, state in content.items()}
    except (OSError, ValueError, AttributeError):
        return {}
