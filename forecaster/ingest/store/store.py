"""Read and update a price store: a Parquet file for each series, and an index of them.

    prices/<source>/<series>.<hash>.parquet   unique_id, ds, channels... as they were delivered
    prices/<source>/index.sqlite              file, rows, SHA-256, corrections... of each series
    prices/<source>/quarantine/               damaged files, kept aside
    prices/<source>/.lock                     held by the process that updates the store

The new file of a series is written beside the old one, and is valid once the index names it. The
index changes in one transaction, so an interruption leaves either the old state or the new one.

Rows are stored as they were delivered; reading a series applies its corrections, which are in its
entry of the index, and in its file so that a lost index can be rebuilt.

Locking a store of an older version converts it, see :mod:`forecaster.ingest.store.older`.
"""

import contextlib
import dataclasses
import errno
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pandas as pd

from forecaster.errors import StoreError, WriteError, warn
from forecaster.files import atomic, locked_folder, read_parquet_file, read_plain
from forecaster.home import INDEX, MANIFEST, Home
from forecaster.ingest.store import older
from forecaster.ingest.store.corrections import Corrections
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
    is_index,
    is_later,
)
from forecaster.ingest.store.series_file import (
    FLAGS_FILE,
    Arrays,
    Encoded,
    Schema,
    arrays,
    decode,
    described_by,
    encode,
    schema_of,
    series_of_file,
    sha256,
)
from forecaster.processes import cores
from forecaster.spelling import spelled, spellings
from forecaster.threads import by_parts

_QUARANTINE = "quarantine"
_AGAIN = "`forecaster ingest` sets it aside and fetches the series again"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_READ_AT_ONCE = 8  # the most files that a thread reads before it asks for more
# Age in seconds at which no reader uses an index that names an old file any more.
_SWEPT_AFTER = 3600.0

_T = TypeVar("_T")


@dataclasses.dataclass(eq=False)
class Store:
    """The series of one source in a folder, with the index as it was last read or committed."""

    folder: Path
    index: Index
    # Entries that are not committed yet.
    _written: dict[str, SeriesEntry] = dataclasses.field(default_factory=dict)

    @staticmethod
    def open(home: Home, source: str) -> "Store":
        """Open a source's store, empty if it does not exist yet. Only the index is read.

        Raises StoreError if the index is damaged or belongs to a newer version.
        """
        folder = home.store(source)
        try:
            return Store(folder, _read_index(folder))
        except FileNotFoundError:
            return Store(folder, Index.new(source))

    @staticmethod
    def open_or_recover(home: Home, source: str) -> "Store":
        """Open a store for writing. A damaged index is rebuilt when the store is locked."""
        try:
            return Store.open(home, source)
        except NotRebuilt:
            raise
        except StoreError:
            return Store(home.store(source), Index.new(source))

    @staticmethod
    def all_of(home: Home, on_damage: Callable[[str], None] | None = None) -> Iterator["Store"]:
        """Yield all stores under a home folder.

        ``on_damage(message)`` is called for each store with a damaged index; without it, such a
        store raises StoreError.
        """
        for folder in home.stores():
            try:
                index = _read_index(folder)
                index.check()
                yield Store(folder, index)
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

    @contextlib.contextmanager
    def locked_to_read(self) -> Iterator[None]:
        """Lock the store for the block, unless its folder may only be read."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.locked())
            except WriteError as error:
                reason = error.__cause__
                if not (isinstance(reason, OSError) and reason.errno in _READ_ONLY):
                    raise
            yield

    def _reread(self) -> None:
        """Read the index from disk; convert it if it is older, rebuild it if damaged or lost."""
        why, broken = "the index is lost", None
        try:
            self.index = _read_index(self.folder)
            self.index.check()
            if self.index.is_older:
                with contextlib.suppress(WriteError):  # the older files remain valid
                    self._write_whole()
            return
        except NotRebuilt:
            raise
        except FileNotFoundError:
            if not self._series_files():
                return
        except StoreError as error:
            why, broken = str(error), _index_of(self.folder).name
        self.index = Index.new(self.source)
        self.index.put(self._recovered())
        aside = [] if broken is None else [self._move_aside(broken, broken, why, copy=True)]
        self.index.set_aside([*aside, *self._move_strangers_aside(why)])
        older.add_corrections(self.index, self.folder)
        self._write_whole()

    def _write_whole(self) -> None:
        """Replace the whole index on disk, and then remove the files of older versions.

        Series with corrections are written again, to have them in their files, too.
        """
        left = older.older_files(self.folder)
        if left:
            for name, its in self.index.corrections.items():
                with contextlib.suppress(KeyError, StoreError):
                    self.correct(name, its)
            self.index.put(self._written)
            self._written = {}
        self.index.write(self.folder / INDEX, read_back=True)
        self.index.is_older = False
        if pending := older.unfinished_renaming(self.index, self.folder):
            warn(
                f"the renaming of {pending[0]} to {pending[1]} was interrupted before it changed "
                f"anything; run `forecaster tickers rename {' '.join(pending)}` again"
            )
        for path in left:
            atomic.remove_file(path)
        if left:
            with atomic.as_write_error(self.folder):
                atomic.sync(self.folder)  # they must not return once the index has changed

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Index]:
        """Yield the index as it is on disk, to be changed and written; the store must be locked."""
        with atomic.as_write_error(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sync(self.folder)  # files must be on disk before the index names them
        try:
            self.index = _read_index(self.folder)
            if self.index.is_older:
                self._write_whole()
            index = Index.read(self.folder / INDEX)
            index.check()  # a new checksum would hide damage
        except FileNotFoundError:
            index = Index.new(self.source)
        yield index
        index.write(self.folder / INDEX)
        self.index = index

    def write(
        self,
        name: str,
        frame: pd.DataFrame,
        *,
        asked_from: str | None = None,
        timezone: str | None = None,
    ) -> None:
        """Write one series to the store; it is valid after :meth:`commit`."""
        series = encode(name, frame, asked_from=asked_from, timezone=timezone)
        self.write_file_of(series)
        self.note_written(series)

    def correct(self, name: str, corrections: Corrections) -> None:
        """Give a stored series other corrections, valid after :meth:`commit`.

        Raises KeyError if it is not stored, StoreError if its file is damaged.
        """
        entry = self.index.series[name]
        series = encode(
            name, self.read_delivered(name), asked_from=entry.asked_from, timezone=entry.timezone,
            corrections=corrections,
        )  # fmt: skip
        self.write_file_of(series)
        self._written[name] = series.entry._replace(
            fingerprint=entry.fingerprint, state=entry.state, reason=entry.reason
        )

    def write_file_of(self, series: Encoded) -> None:
        """Write the file of an encoded series, unless it exists; several threads may do so."""
        name, raw, entry = series
        old = self.index.series.get(name)
        path = self.path_of(entry.file)
        if old is None or old.sha256 != entry.sha256 or not path.exists():
            atomic.write_file(path, lambda temporary: temporary.write_bytes(raw), last=False)

    def note_written(self, series: Encoded, fingerprint: str | None = None) -> None:
        """Make a series whose file has been written valid after the next :meth:`commit`.

        A retired series stays retired until it has later rows.

        ``fingerprint``: the fingerprint of the source that the series was read from
        """
        entry = series.entry._replace(fingerprint=fingerprint)
        old = self.index.series.get(series.name)
        if old is not None and old.retired and not is_later(entry.last, old.last):
            entry = entry.as_retired()
        self._written[series.name] = entry

    def replace(self, name: str, series: Encoded) -> None:
        """Put a series in the place of another one, and commit; the store must be locked."""
        file = self.index.series[name].file
        self.write_file_of(series)
        self.note_written(series)
        with self._committing() as index:
            index.remove([name])
        with contextlib.suppress(OSError):  # the next sweep removes the file
            self.path_of(file).unlink()

    def retire(self, names: Iterable[str], *, retired: bool = True) -> None:
        """Mark stored series as retired, or as not retired; the store must be locked."""
        for name in names:
            entry = self.index.series[name]
            if entry.retired != retired:  # otherwise a suspect series would no longer be suspect
                self._written[name] = entry.as_retired(retired=retired)
        self.commit()

    def suspect(self, name: str, reason: str) -> None:
        """Mark a stored series as contradicted by the source, and keep it; skip retired series."""
        entry = self._written.get(name) or self.index.series.get(name)
        if entry is not None and entry.reason != reason and not entry.retired:
            self._written[name] = entry.as_suspect(reason)

    def commit(self) -> None:
        """Put the written series into the index, and remove the files that they replace.

        Series that another process has committed meanwhile stay.
        """
        if self._written:
            with self._committing():
                pass

    def commit_origin(self, origin: Origin) -> None:
        """Commit written series and the present content of the source."""
        if self._written or origin != self.index.origin:
            with self._committing() as index:
                index.set_origin(origin)

    def commit_quality(
        self, quality: Quality | None, counts: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Commit written series and the result of a review; see :meth:`Index.set_quality`."""
        if self._written or quality != self.index.quality or (counts or {}) != self.index.counts:
            with self._committing() as index:
                index.set_quality(quality, counts)

    @contextlib.contextmanager
    def _committing(self) -> Iterator[Index]:
        """Commit written series in one transaction with the block's changes of the index."""
        with self._changing() as index:
            replaced = index.put(self._written)
            yield index
        self._written = {}
        for file in replaced:
            with contextlib.suppress(OSError):  # the next sweep removes the file
                self.path_of(file).unlink()

    def sweep(self) -> None:
        """Remove old files that the index does not name. The store must be locked."""
        quality, files = self.index.quality, self.index.files
        named = files | ({quality.file} if quality else set())
        series = _stems(files)
        for path in self.folder.glob("*"):
            leftover = path.name.startswith(atomic.PREFIX) or FLAGS_FILE.fullmatch(path.name)
            superseded = path.suffix == ".parquet" and bool(_stems([path.name]) & series)
            with contextlib.suppress(OSError):
                old = path.stat().st_mtime < time.time() - _SWEPT_AFTER
                if (leftover or superseded) and path.name not in named and old:
                    path.unlink()

    def _series_files(self) -> list[Path]:
        """Return all files of series, the oldest first, including those that the index lacks."""
        files = [
            path
            for path in self.folder.glob("*.parquet")
            if not path.name.startswith(atomic.PREFIX) and not FLAGS_FILE.fullmatch(path.name)
        ]
        return sorted(files, key=lambda path: path.stat().st_mtime)

    def _move_strangers_aside(self, why: str) -> Iterator[Quarantined]:
        """Move files of series that a rebuilt index lacks aside; yield their records."""
        series = _stems(self.index.files)
        for path in self._series_files():
            (stem,) = _stems([path.name])
            if stem not in series:
                name = series_of_file(stem)
                yield self._move_aside(name, path.name, f"cannot be read, and {why}")

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
        """Move damaged files to the quarantine, and remove their series from the index.

        ``damaged``: the damage by series
        """
        if not damaged:
            return
        records = []
        for name, why in damaged.items():
            entry = self.index.series[name]
            aside = self._move_aside(name, entry.file, why, asked_from=entry.asked_from)
            records.append(aside._replace(corrections=entry.corrections))
            self._written.pop(name, None)
        with self._changing() as index:
            index.remove(damaged)
            index.set_aside(records)
            index.set_origin(None)

    def _move_aside(
        self, name: str, file: str, why: str, *, copy: bool = False, asked_from: str | None = None
    ) -> Quarantined:
        """Move or copy a file of a series to the quarantine; return its record."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        path, aside = self.path_of(file), self.quarantine_folder / f"{stamp}-{file}"
        with atomic.as_write_error(aside):
            aside.parent.mkdir(exist_ok=True)
            if copy:
                atomic.write_file(aside, lambda to: to.write_bytes(path.read_bytes()))
            elif path.exists():
                path.replace(aside)
        return Quarantined(name, aside.name if aside.exists() else None, why, asked_from)

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

    def digest(self, names: Sequence[str]) -> str:
        """Return a hash of the content of these series."""
        return self.index.digest(names)

    def read_one(self, name: str) -> pd.DataFrame:
        """Return one series, corrected; errors as in :meth:`read`."""
        return self._decoded(name, lambda raw, its: its.applied(decode(raw)))

    def read_delivered(self, name: str) -> pd.DataFrame:
        """Return the rows of a series as they were delivered; errors as in :meth:`read`."""
        return self._decoded(name, lambda raw, _: decode(raw))

    def corrections_of(self, name: str) -> Corrections:
        """Return the corrections of a series, also of one that was set aside."""
        entry = self.index.known(name)
        return Corrections.read(None if entry is None else entry.corrections)

    def read_arrays(self, names: Sequence[str]) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Return series as arrays, and the reason for each series that cannot be read."""
        results = dict(_of_each(self._arrays, names))
        sound = {name: series for name, series in results.items() if isinstance(series, Arrays)}
        return sound, {name: why for name, why in results.items() if isinstance(why, str)}

    def schemas(self, names: Sequence[str]) -> Iterator[Schema]:
        """Yield the schemas of the series that can be read."""
        for name in names:
            with contextlib.suppress(StoreError):
                yield self._decoded(name, lambda raw, _: schema_of(raw))

    def channels(self, name: str) -> int:
        """Return the number of channels of a series; errors as in :meth:`read`."""
        return len(self._decoded(name, lambda raw, _: schema_of(raw)).channels)

    def _arrays(self, name: str) -> Arrays | str:
        try:
            return self._decoded(name, arrays)
        except StoreError as error:
            return str(error)

    @property
    def is_reviewed(self) -> bool:
        """Whether the present prices have been reviewed."""
        quality = self.index.quality
        return quality is not None and quality.prices_digest is not None

    def flags(self) -> pd.DataFrame:
        """Return the flagged rows of all series, see :mod:`forecaster.ingest.review.quality`.

        The frame's ``attrs["rules"]`` is the version of the rules of the review.

        Raises StoreError if flags are damaged, or are about other prices than those that are
        stored.
        """
        quality = self.index.quality
        advice = "run `forecaster ingest` to review them again"
        if quality is None or not self.is_reviewed:
            raise StoreError(f"{self.folder}: its rows have not been reviewed; {advice}")
        path = self.path_of(quality.file)
        try:
            raw = read_plain(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}; {advice}") from error
        if sha256(raw) != quality.sha256:
            raise StoreError(f"{path}: damaged; {advice}")
        try:
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
            return decode(raw, Corrections.read(corrections))
        except (OSError, ValueError) as error:
            path = self.path_of(self.index.series[name].file)
            raise StoreError(f"{path}: cannot be read: {error}. {_AGAIN}") from error

    def _raw(self, name: str, entry: SeriesEntry | None = None) -> tuple[bytes, str | None]:
        """Return the bytes of a series' file, checked against its hash, and its corrections.

        Raises StoreError.
        """
        entry = entry or self.index.series[name]
        path = self.path_of(entry.file)
        try:
            raw = read_plain(path)
        except OSError as error:
            newer = self._committed(name)
            if newer is not None and newer.file != entry.file:
                return self._raw(name, newer)  # another process has updated the file meanwhile
            raise StoreError(f"{path}: cannot be read: {error.strerror}. {_AGAIN}") from error
        if sha256(raw) != entry.sha256:
            raise StoreError(
                f"{path}: damaged; its content is not what was written ({len(raw)} bytes). {_AGAIN}"
            )
        return raw, entry.corrections

    def _committed(self, name: str) -> SeriesEntry | None:
        """Return a series' entry on disk; None if it cannot be read."""
        with contextlib.suppress(StoreError, FileNotFoundError):
            return _read_index(self.folder).series.get(name)
        return None


def _of_each(function: Callable[[str], _T], names: Sequence[str]) -> Iterator[tuple[str, _T]]:
    """Yield each name with the result of a function that reads its file; threads call it."""
    at_once = max(1, min(_READ_AT_ONCE, len(names) // (4 * cores())))  # of few files, all read some
    parts = by_parts(lambda some: [function(name) for name in names[some]], len(names), at_once)
    yield from zip(names, itertools.chain.from_iterable(parts), strict=True)


def is_store(folder: Path) -> bool:
    """Return whether a folder is a price store, judged from the beginning of its index."""
    return is_index(folder / INDEX) or older.is_manifest(folder / MANIFEST)


def _read_index(folder: Path) -> Index:
    """Read a store's index, that of an older version if there is one.

    Errors as in :meth:`Index.read`.
    """
    try:
        index = older.read_manifest(folder / MANIFEST)
    except FileNotFoundError:
        index = Index.read(folder / INDEX)
    if older.older_files(folder):
        older.add_corrections(index, folder)
        index.is_older = True
    return index


def _index_of(folder: Path) -> Path:
    """Return the file that holds a store's valid index."""
    manifest = folder / MANIFEST
    return manifest if manifest.exists() else folder / INDEX


def _stems(files: Iterable[str]) -> set[str]:
    """Return names of files without hash and ending, which all versions of a series share."""
    return {file.rsplit(".", 2)[0] for file in files}
