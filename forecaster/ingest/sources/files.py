"""Read series from the user's own files, CSV or Parquet, here or at a URL.

Remote files are copied to a temporary folder by fsspec, and read from there like the others.
"""

import contextlib
import functools
import hashlib
import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, ForecasterError, SourceError, UsageError, listed, warn
from forecaster.files import Home, as_bytes, as_text, check_plain, from_text
from forecaster.ingest.sources.source import Lost, Whole
from forecaster.ingest.sources.urls import WEB, read_remote_url
from forecaster.ingest.store.store import is_store
from forecaster.ingest.tables.file_reader import (
    ENDINGS,
    TABLES,
    join,
    keys_of,
    read_series,
    series_name,
)
from forecaster.ingest.tables.options import INFERRED, Columns

_READER = 12  # raise it when files are read differently


class Files(Whole):
    """A CSV or Parquet file with any number of series, or a folder of such files.

    In a folder, a file without a ticker column holds the series that the file, or a folder
    ``ticker=NAME`` or ``store=A`` above it, is named after. Parts of one series in several files
    are joined, and a key that holds dates (``date=2026-10-01``) is the time of files without one.

    - ``columns``: which columns hold series, times and target, if their names do not show it
    - ``lost``: what becomes of a series that lacks stored rows: ``suspect``, the stored series is
      kept and the file's rejected; ``keep``, the file's rows are added to the stored ones, as from
      a file with only the latest day; ``replace``, the file's rows take the place of all stored
    """

    def __init__(self, path: str, columns: Columns = INFERRED, *, lost: Lost = "suspect"):
        self.path = self.where = from_text(path).expanduser()
        self._columns = columns
        self.lost, self.frequency = lost, columns.frequency
        self._content = ""
        # The full path, since later commands may be started in another folder.
        self.name = f"files:{as_text(self.path.resolve())}"
        if not self.path.exists():
            raise UsageError(f"files:{path}: no such file or folder")

    def fingerprint(self) -> str:
        """Return a hash of the names and contents of all files and the version of their reader.

        It is that of the files when it was first asked for.
        """
        self._content = self._content or self._hash()
        return self._content

    def _hash(self) -> str:
        reader = f"reader {_READER}{self._columns if self._columns.first_option else ''}\n"
        digest = hashlib.sha256(reader.encode("utf-8", "surrogateescape"))
        for file in self._files():
            try:
                check_plain(file)
                with file.open("rb") as opened:
                    content = hashlib.file_digest(opened, "sha256").hexdigest()
            except OSError as error:
                content = f"cannot be read: {error.strerror}"
            name = as_text(file.relative_to(self.path))
            digest.update(as_bytes(f"{name}\n{content}\n"))
        return digest.hexdigest()

    def read(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Read all series by name, and why others cannot be used."""
        before = self.fingerprint()
        if self.path.is_dir():
            series = self._read_folder()
        else:
            series = read_series(self.path, columns=self._columns), dict[str, str]()
        if self._hash() != before:
            raise DataError(f"{self.path}: changed while it was read; run the same again")
        return series

    def _files(self) -> list[Path]:
        """Return the file itself, or all files of the folder that are read, by name."""
        if not self.path.is_dir():
            return [self.path]
        files = list(filter(_is_read, self._visible()))
        if not files:
            raise DataError(f"{self.path}: no .csv, .tsv or .parquet file in this folder")
        return files

    def _visible(self) -> list[Path]:
        """Return what is in the folder and those below it, except hidden files and our own.

        A broken link is there, too, so that it is named.
        """
        kept = _kept_by_homes(self.path)
        return sorted(
            file
            for file in self.path.rglob("*")
            if not file.is_dir()
            and kept.isdisjoint(file.parents)
            and not any(part.startswith(".") for part in file.relative_to(self.path).parts)
        )

    def _read_folder(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Read all series of all files; join the parts of a series in several files."""
        parts: dict[str, list[pd.DataFrame]] = {}
        frames, failed = dict[str, pd.DataFrame](), dict[str, str]()
        files = self._files()
        others = [
            as_text(file.relative_to(self.path))
            for file in self._visible()
            if file.name.lower().endswith(TABLES)
            and not _is_read(file)
            and not file.name.lower().startswith(("readme", "license"))
        ]
        if others:
            warn(
                f"{self.path}: not read: {listed(others)}. In a folder .csv and .tsv (also packed, "
                "as .csv.gz), .parquet, and .txt from Stooq are read; rename or convert them, or "
                "move them elsewhere"
            )
        # Two threads more than cores, since some wait for the disk.
        with ThreadPoolExecutor((os.cpu_count() or 1) + 2) as pool:
            for file, series in zip(files, pool.map(self._try_file, files), strict=True):
                if isinstance(series, str):
                    failed[series_name(file, self.path)] = series
                    self.unreadable = True
                    continue
                for name, frame in series.items():
                    parts.setdefault(name, []).append(frame)
        for name in [name for name in parts if name not in failed]:
            try:
                frames[name] = join(parts[name])
            except DataError as error:
                failed[name] = str(error)
        return frames, failed

    def _try_file(self, file: Path) -> dict[str, pd.DataFrame] | str:
        """Return the series of a file, or the reason why it cannot be read."""
        try:
            name = series_name(file, self.path)
            keys = keys_of(file, self.path)
            return read_series(file, name, columns=self._columns, keys=keys)
        except DataError as error:
            return str(error)


def _kept_by_homes(folder: Path) -> set[Path]:
    """Return the folders below a folder that belong to homes of this program."""
    homes = (Home(prices.parent) for prices in folder.rglob("prices"))
    return {kept for home in homes if any(map(is_store, home.stores())) for kept in home.folders}


def _is_read(path: Path) -> bool:
    """Return whether a file of a folder is read, by its ending; of text files those from Stooq."""
    if path.suffix.lower() != ".txt" or not path.is_file():  # a pipe would be waited for
        return path.name.lower().endswith(ENDINGS)
    with contextlib.suppress(OSError), path.open("rb") as file:
        return b"<date>" in file.read(200).lower()
    return False


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
