"""Read series from files in an object store or on a web server, by fsspec.

The files are copied to a temporary folder, and read from there like the user's own files.
"""

import contextlib
import functools
import re
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, ForecasterError, SourceError
from forecaster.ingest.sources.compared import Lost, Whole
from forecaster.ingest.sources.files import Files
from forecaster.ingest.sources.remote_url import WEB, read_remote_url
from forecaster.ingest.tables.file_reader import ENDINGS
from forecaster.ingest.tables.options import INFERRED, Columns


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
