"""Read and update a price store: a Parquet file for each series, and an index of them.

    prices/<source>/<series>.<hash>.parquet   unique_id, ds, channels... as they were delivered
    prices/<source>/manifest.json             file, rows, SHA-256, corrections... of each series
    prices/<source>/quarantine/               damaged files, kept aside
    prices/<source>/.lock                     held by the process that updates the store

The new file of a series is written beside the old one, and is valid once the index names it. The
index is replaced whole, so an interruption leaves either the old state or the new one.

Rows are stored as they were delivered; reading a series applies its corrections, which are in its
entry of the index, and in its file so that a lost index can be rebuilt.

Locking a store of an older version converts it, see :mod:`forecaster.ingest.store.older`.
"""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import pandas as pd

from forecaster.errors import StoreError, WriteError, spelled, spellings
from forecaster.files import (
    INDEX,
    OLDER_INDEX,
    Home,
    atomic,
    locked_folder,
    read_parquet_file,
    read_plain,
)
from forecaster.ingest.store import older
from forecaster.ingest.store.corrections import Corrections
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Quarantined,
    SeriesEntry,
    begins_like_an_index,
    is_later,
)
from forecaster.ingest.store.series_file import (
    FLAGS_FILE,
    Arrays,
    Encoded,
    arrays,
    decode,
    described_by,
    encode,
    series_of_file,
    sha256,
)
from forecaster.machine import by_parts, cores

_QUARANTINE = "quarantine"
_AGAIN = "`forecaster ingest` sets it aside and fetches the series again"
_READ_AT_ONCE = 8  # the most files that a thread reads before it asks for more
# Age in seconds at which no reader uses an index that names an old file any more.
_SWEPT_AFTER = 3600.0

_T = TypeVar("_T")


@dataclasses.dataclass(eq=False)
class Store:
    """The series of one source in a folder, with the index as it was last read or committed.

    Changes are made while the store is locked, and are valid once they are committed.
    """

    folder: Path
    index: Index
    # Files that are to be removed once the index on disk no longer names them; None: no change.
    _replaced: set[str] | None = None

    @staticmethod
    def open(home: Home, source: str) -> "Store":
        """Open a source's store, empty if it does not exist yet. Only the index is read.

        Raises StoreError if the index is damaged or belongs to a newer version.
        """
        folder = home.store(source)
        try:
            return Store(folder, _read_index(folder))
        except FileNotFoundError:
            return Store(folder, Index(source))

    @staticmethod
    def all_of(home: Home, on_damage: Callable[[str], None] | None = None) -> Iterator["Store"]:
        """Yield all stores under a home folder.

        ``on_damage(message)`` is called for each store with a damaged index; without it, such a
        store raises StoreError.
        """
        for folder in home.stores():
            try:
                yield Store(folder, _read_index(folder))
            except FileNotFoundError:
                continue  # the store was removed meanwhile
            except StoreError as error:
                if on_damage is None:
                    raise
                on_damage(str(error))

    @property
    def source(self) -> str:
        """The name of the source."""
        return self.index.source

    @property
    def ids(self) -> list[str]:
        """The names of all series in the store."""
        return list(self.index.series)

    @property
    def quarantine_folder(self) -> Path:
        """The folder of damaged files."""
        return self.folder / _QUARANTINE

    def __contains__(self, name: str) -> bool:
        return name in self.index.series

    def path_of(self, file: str) -> Path:
        """Return the path of a file that the index names.

        Raises StoreError if it is outside of the store, which only a forged index can cause.
        """
        if set(file) & {"/", "\\", ":"} or file in ("", ".", ".."):
            raise StoreError(f"{self.folder}: its index names the file {file!r}, outside of it")
        return self.folder / file

    def spelled(self, name: str) -> str:
        """Return the stored name for any spelling of a series' name; unchanged if not stored."""
        return name if name in self else spelled(spellings(self.ids), name) or name

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
        """Lock the store for the block and read its index again.

        A damaged or lost index is rebuilt from the files, an index of an older version is
        converted.
        ``on_wait(message)`` is called before waiting for another process.
        """
        with locked_folder(self.folder, on_wait):
            self._reread()
            yield

    def _reread(self) -> None:
        """Read the index from disk; convert it if it is older, rebuild it if damaged or lost."""
        self._replaced = None
        try:
            self.index = _read_index(self.folder)
            if left := older.older_files(self.folder):
                with contextlib.suppress(WriteError):  # the older files remain valid
                    self._convert(left)
        except NotRebuilt:
            raise
        except FileNotFoundError:
            if self._series_files():
                self._rebuild("the index is lost")
        except StoreError as error:
            self._rebuild(str(error))

    def _rebuild(self, why: str) -> None:
        """Set a damaged index aside, and make one from the files of series."""
        index = self.index = Index(self.source, self._recovered())
        for file in (INDEX, OLDER_INDEX):
            if (self.folder / file).exists():
                index.quarantine.append(self._move_aside(file, file, why))
        stems = _stems(index.files)
        for path in self._series_files():
            (stem,) = _stems([path.name])
            if stem not in stems:
                name, reason = series_of_file(stem), f"cannot be read, and {why}"
                index.quarantine.append(self._move_aside(name, path.name, reason))
        older.add_corrections(index, self.folder)
        self._convert(older.older_files(self.folder))

    def _convert(self, left: Sequence[Path]) -> None:
        """Write the index, and then remove the files of older versions.

        Series with corrections are written again, to have them in their files, too.
        """
        for name, its in self.index.corrections.items():
            with contextlib.suppress(KeyError, StoreError):
                self.correct(name, its)
        self._replaced = self._replaced or set()
        self.commit()
        for path in left:
            if path.name != INDEX:
                atomic.remove_file(path)

    def correct(self, name: str, corrections: Corrections) -> None:
        """Give a stored series other corrections.

        Raises KeyError if it is not stored, StoreError if its file is damaged.
        """
        entry = self.index.series[name]
        series = encode(
            name, self.read_delivered(name), asked_from=entry.asked_from, corrections=corrections
        )
        self.write_file_of(series)
        self.put(name, msgspec.structs.replace(
            series.entry, fingerprint=entry.fingerprint, state=entry.state, reason=entry.reason
        ))  # fmt: skip

    def write_file_of(self, series: Encoded) -> None:
        """Write the file of an encoded series, unless it exists; several threads may do so."""
        name, raw, entry = series
        old = self.index.series.get(name)
        path = self.path_of(entry.file)
        if old is None or old.sha256 != entry.sha256 or not path.exists():
            atomic.write_file(path, lambda temporary: temporary.write_bytes(raw), last=False)

    def note_written(self, series: Encoded, fingerprint: str | None = None) -> None:
        """Put a series whose file has been written into the index.

        A retired series stays retired until it has later rows.

        ``fingerprint``: the fingerprint of the source that the series was read from
        """
        old, state = self.index.series.get(series.name), "ok"
        if old is not None and old.retired and not is_later(series.entry.last, old.last):
            state = old.state
        entry = msgspec.structs.replace(series.entry, fingerprint=fingerprint, state=state)
        self.put(series.name, entry)

    def put(self, name: str, entry: SeriesEntry | None) -> None:
        """Change the entry of a series in the index; None: remove it."""
        old = self.index.series.get(name)
        self._replaced = self._replaced or set()
        if old is not None:
            self._replaced.add(old.file)
        if entry is None:
            del self.index.series[name]
        else:
            self.index.series[name] = entry

    def retire(self, names: Iterable[str], *, retired: bool = True) -> None:
        """Mark stored series as retired, or as not retired, and commit."""
        for name in names:
            entry = self.index.series[name]
            if entry.retired != retired:  # otherwise a suspect series would no longer be suspect
                state = "retired" if retired else "ok"
                self.put(name, msgspec.structs.replace(entry, state=state, reason=None))
        self.commit()

    def suspect(self, name: str, reason: str) -> None:
        """Mark a stored series as contradicted by the source, and keep it; skip retired series."""
        entry = self.index.series.get(name)
        if entry is not None and entry.reason != reason and not entry.retired:
            self.put(name, msgspec.structs.replace(entry, state="suspect", reason=reason))

    def commit(self, **facts: object) -> None:
        """Write the index, if it has changed, and remove files that it does not name any more.

        The store must be locked.

        ``facts``: what else to change, such as ``origin``; see :class:`Index`
        """
        if self._replaced is None and all(getattr(self.index, k) == v for k, v in facts.items()):
            return
        for name, value in facts.items():
            setattr(self.index, name, value)
        with atomic.as_write_error(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sync(self.folder)  # files must be on disk before the index names them
        self.index.write(self.folder / INDEX)
        for file in (self._replaced or set()) - self.index.files:
            with contextlib.suppress(OSError):  # the next sweep removes the file
                self.path_of(file).unlink()
        self._replaced = None

    def sweep(self) -> None:
        """Remove old files that the index does not name. The store must be locked."""
        quality, files = self.index.quality, self.index.files
        named = files | ({quality.file} if quality else set())
        series = _stems(files)
        atomic.sweep(self.folder)
        for path in self.folder.glob("*.parquet"):
            superseded = FLAGS_FILE.fullmatch(path.name) or _stems([path.name]) & series
            with contextlib.suppress(OSError):
                old = path.stat().st_mtime < time.time() - _SWEPT_AFTER
                if superseded and path.name not in named and old:
                    path.unlink()

    def _series_files(self) -> list[Path]:
        """Return all files of series, the oldest first, including those that the index lacks."""
        files = [
            path
            for path in self.folder.glob("*.parquet")
            if not path.name.startswith(atomic.PREFIX) and not FLAGS_FILE.fullmatch(path.name)
        ]
        return sorted(files, key=lambda path: path.stat().st_mtime)

    def damages(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Read series' files, by default all; return the damage of each damaged series by name."""

        def check(name: str) -> str | None:
            try:
                self._raw(name)
            except StoreError as error:
                return str(error)
            return None

        names = self.ids if names is None else names
        return {name: why for name, why in _of_each(check, names) if why}

    def quarantine(self, damaged: Mapping[str, str]) -> None:
        """Move damaged files to the quarantine, remove their series from the index, and commit.

        ``damaged``: the damage by series
        """
        for name, why in damaged.items():
            entry = self.index.series[name]
            self.index.quarantine.append(
                self._move_aside(name, entry.file, why)._replace(
                    asked_from=entry.asked_from, corrections=entry.corrections
                )
            )
            self.put(name, None)
        if damaged:
            self.commit(origin=None)

    def _move_aside(self, name: str, file: str, why: str) -> Quarantined:
        """Move a file of a series to the quarantine; return its record."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        path, aside = self.path_of(file), self.quarantine_folder / f"{stamp}-{file}"
        with atomic.as_write_error(aside):
            aside.parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.replace(aside)
        return Quarantined(name, aside.name if aside.exists() else None, why)

    def _recovered(self) -> dict[str, SeriesEntry]:
        """Return entries from all sound files; if a series has several, from the newest."""
        entries: dict[str, SeriesEntry] = {}
        for path in self._series_files():
            raw = read_plain(path)
            if sha256(raw)[:12] == path.name.split(".")[-2]:
                with contextlib.suppress(Exception):
                    name, entry = described_by(raw, path.name)
                    entries[name] = entry
        return entries

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these series as one long frame.

        Raises StoreError with the file's name if a file is missing or not what was written.
        """
        return pd.concat([self.read_one(name) for name in names], ignore_index=True)

    def read_one(self, name: str) -> pd.DataFrame:
        """Return one series, corrected; errors as in :meth:`read`."""
        return self._decoded(name, lambda raw, its: its.applied(decode(raw)))

    def read_delivered(self, name: str) -> pd.DataFrame:
        """Return the rows of a series as they were delivered; errors as in :meth:`read`."""
        return self._decoded(name, lambda raw, _: decode(raw))

    def corrections_of(self, name: str) -> Corrections:
        """Return the corrections of a series, also of one that was set aside."""
        entry = self.index.known(name)
        return Corrections() if entry is None else entry.corrections

    def read_arrays(self, names: Sequence[str]) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Return series as arrays, and the reason for each series that cannot be read."""

        def read(name: str) -> Arrays | str:
            try:
                return self._decoded(name, arrays)
            except StoreError as error:
                return str(error)

        results = dict(_of_each(read, names))
        sound = {name: series for name, series in results.items() if isinstance(series, Arrays)}
        return sound, {name: why for name, why in results.items() if isinstance(why, str)}

    def channels(self, name: str) -> int:
        """Return the number of channels of a series; errors as in :meth:`read`."""
        return len(self._decoded(name, arrays).channels)

    def flags(self) -> pd.DataFrame:
        """Return the flagged rows of all series, see :mod:`forecaster.ingest.review.quality`.

        The frame's ``attrs["rules"]`` is the version of the rules of the review.

        Raises StoreError if flags are damaged, or are about other prices than those that are
        stored.
        """
        quality = self.index.quality
        advice = "run `forecaster ingest` to review them again"
        if quality is None or quality.prices_digest != self.index.digest():
            raise StoreError(f"{self.folder}: its rows have not been reviewed; {advice}")
        path = self.path_of(quality.file)
        try:
            raw = read_plain(path)
            if sha256(raw) != quality.sha256:
                raise ValueError("damaged")
            table = read_parquet_file(raw)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read: {error}; {advice}") from error
        flags = table.to_pandas()
        flags.attrs["rules"] = int((table.schema.metadata or {}).get(b"rules", 1))
        return flags

    def _decoded(self, name: str, decode: Callable[[bytes, Corrections], _T]) -> _T:
        """Return ``decode`` of a series' file and its corrections; errors as in :meth:`read`."""
        raw, corrections = self._raw(name)
        try:
            return decode(raw, corrections)
        except (OSError, ValueError) as error:
            path = self.path_of(self.index.series[name].file)
            raise StoreError(f"{path}: cannot be read: {error}. {_AGAIN}") from error

    def _raw(self, name: str, entry: SeriesEntry | None = None) -> tuple[bytes, Corrections]:
        """Return the bytes of a series' file, checked against its hash, and its corrections.

        Raises StoreError.
        """
        entry = entry or self.index.series[name]
        path = self.path_of(entry.file)
        try:
            raw = read_plain(path)
        except OSError as error:
            newer = None
            with contextlib.suppress(StoreError, FileNotFoundError):
                newer = _read_index(self.folder).series.get(name)
            if newer is not None and newer.file != entry.file:
                return self._raw(name, newer)  # another process has updated the file meanwhile
            raise StoreError(f"{path}: cannot be read: {error.strerror}. {_AGAIN}") from error
        if sha256(raw) != entry.sha256:
            raise StoreError(
                f"{path}: damaged; its content is not what was written ({len(raw)} bytes). {_AGAIN}"
            )
        return raw, entry.corrections


def _of_each(function: Callable[[str], _T], names: Sequence[str]) -> Iterator[tuple[str, _T]]:
    """Yield each name with the result of a function that reads its file; threads call it."""
    at_once = max(1, min(_READ_AT_ONCE, len(names) // (4 * cores())))  # of few files, all read some
    parts = by_parts(lambda some: [function(name) for name in names[some]], len(names), at_once)
    yield from zip(names, itertools.chain.from_iterable(parts), strict=True)


def is_store(folder: Path) -> bool:
    """Return whether a folder is a price store, judged from the beginning of its index."""
    return any(begins_like_an_index(folder / file) for file in (INDEX, OLDER_INDEX))


def _read_index(folder: Path) -> Index:
    """Read a store's index, also that of an older version; errors as in :meth:`Index.read`."""
    path = folder / INDEX
    if not begins_like_an_index(path, of_this_version=True):
        with contextlib.suppress(FileNotFoundError):  # it was converted meanwhile, or is not there
            return older.read_index(folder)
    return Index.read(path)


def _stems(files: Iterable[str]) -> set[str]:
    """Return names of files without hash and ending, which all versions of a series share."""
    return {file.rsplit(".", 2)[0] for file in files}
