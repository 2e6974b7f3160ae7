"""Read and update a price store: a Parquet file for each series, and an index of them.

    prices/<source>/<series>.<hash>.parquet   unique_id, ds, channels... as they were delivered
    prices/<source>/manifest.json             file, rows, SHA-256, corrections... of each series
    prices/<source>/manifest-copy.json        the same, read where that is damaged or lost
    prices/<source>/quarantine/               damaged files, kept aside
    prices/<source>/.lock                     held by the process that updates the store

The new file of a series is written beside the old one, and is valid once the index names it. The
index is replaced whole, so an interruption leaves either the old state or the new one. Its copy is
written first.

Rows are stored as they were delivered; reading a series applies its corrections, which are in its
entry of the index.

Locking a store of an older version converts it, see :mod:`forecaster.ingest.store.older`.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import pandas as pd

from forecaster.errors import (
    StoreError,
    UsageError,
    WriteError,
    listed,
    near,
    spelled,
    spellings,
    warn,
)
from forecaster.files import (
    INDEX,
    INDEX_COPY,
    OLDER_INDEX,
    Home,
    atomic,
    locked_folder,
    read_parquet_file,
    read_plain,
)
from forecaster.ingest.store import older, series_file
from forecaster.ingest.store.corrections import Corrections
from forecaster.ingest.store.index import (
    Index,
    NewerStore,
    Quarantined,
    SeriesEntry,
    begins_like_an_index,
    is_later,
    unreadable,
)
from forecaster.ingest.store.series_file import Arrays, Encoded, sha256
from forecaster.machine import by_parts

_AGAIN = "`forecaster ingest` sets it aside and fetches the series again"
_READ_AT_ONCE = 8  # the most files that a thread reads before it asks for more

_T = TypeVar("_T")


@dataclasses.dataclass(eq=False)
class Store:
    """The series of one source in a folder, with the index as it was last read or committed.

    The index is changed while the store is locked, and is valid once it is committed.
    """

    folder: Path
    index: Index

    @staticmethod
    def open(home: Home, source: str) -> "Store":
        """Open a source's store, empty if it does not exist yet. Only the index is read.

        Raises StoreError if the index and its copy are damaged, or belong to a newer version.
        """
        folder = home.store(source)
        try:
            return Store(folder, read_index(folder))
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
                yield Store(folder, read_index(folder))
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
        return self.folder / "quarantine"

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

    def find(self, names: Sequence[str]) -> list[str]:
        """Return the stored series for names in any spelling, each once. Raises UsageError."""
        known = spellings(self.ids)
        found = {name: spelled(known, name) for name in names}
        if unknown := [name for name, series in found.items() if series is None]:
            similar = near(self.ids, unknown[0])
            hint = f"near: {listed(similar)}" if similar else "`forecaster status --all` lists them"
            what = f"the {len(self.ids)} stored series of {self.source}"
            raise UsageError(f"{listed(unknown)}: not among {what}; {hint}")
        return [series for series in dict.fromkeys(found.values()) if series is not None]

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
        """Lock the store for the block and read its index again.

        A damaged or lost index is replaced by its copy, an index of an older version is converted.
        ``on_wait(message)`` is called before waiting for another process.
        """
        with locked_folder(self.folder, on_wait):
            atomic.sweep(self.folder)
            try:
                self.index = read_index(self.folder)
            except FileNotFoundError:
                if any(self.folder.glob("*.parquet")):
                    lost = unreadable(self.folder / INDEX, "it is lost")
                    warn(f"{lost}. They are left as they are")
            else:
                self._renew()
            yield

    def _renew(self) -> None:
        """Write the index anew if it was damaged or of an older version."""
        with contextlib.suppress(WriteError):  # what was read remains valid
            self.commit()
            for path in older.older_files(self.folder):
                atomic.remove_file(path)

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
        self.index.series[series.name] = msgspec.structs.replace(
            series.entry, fingerprint=fingerprint, state=state
        )

    def change(self, name: str, **facts: object) -> None:
        """Change the entry of a stored series, see :class:`SeriesEntry`."""
        self.index.series[name] = msgspec.structs.replace(self.index.series[name], **facts)

    def commit(self, **facts: object) -> None:
        """Write the index, if it has changed, and remove files that only the one before named.

        The store must be locked.

        ``facts``: what else to change, such as ``origin``; see :class:`Index`
        """
        before = None
        with contextlib.suppress(StoreError, FileNotFoundError):
            before = Index.read(self.folder / INDEX)
        for name, value in facts.items():
            setattr(self.index, name, value)
        if self.index == before:
            return
        with atomic.as_write_error(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sync(self.folder)  # files must be on disk before the index names them
        for file in (INDEX_COPY, INDEX):  # so that the copy is never behind the index
            self.index.write(self.folder / file)
        for file in (before.files if before else set()) - self.index.files:
            with contextlib.suppress(OSError):
                self.path_of(file).unlink()

    def damages(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Read series' files, by default all; return the damage of each damaged series by name."""
        return self._read_each(self.ids if names is None else names, lambda *_: None)[1]

    def quarantine(self, damaged: Mapping[str, str]) -> None:
        """Move damaged files to the quarantine, remove their series from the index, and commit.

        ``damaged``: the damage by series
        """
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        for name, why in damaged.items():
            entry = self.index.series.pop(name)
            path, aside = self.path_of(entry.file), self.quarantine_folder / f"{stamp}-{entry.file}"
            with atomic.as_write_error(aside):
                aside.parent.mkdir(exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    path.replace(aside)
            self.index.quarantine.append(
                Quarantined(
                    name, aside.name if aside.exists() else None, why,
                    asked_from=entry.asked_from, corrections=entry.corrections,
                )
            )  # fmt: skip
        if damaged:
            self.commit(origin=None)

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these series as one long frame.

        Raises StoreError with the file's name if a file is missing or not what was written.
        """
        return pd.concat([self.read_one(name) for name in names], ignore_index=True)

    def read_one(self, name: str) -> pd.DataFrame:
        """Return one series, corrected; errors as in :meth:`read`."""
        return self._decoded(name, lambda raw, its: its.applied(series_file.decode(raw)))

    def read_delivered(self, name: str) -> pd.DataFrame:
        """Return the rows of a series as they were delivered; errors as in :meth:`read`."""
        return self._decoded(name, lambda raw, _: series_file.decode(raw))

    def corrections_of(self, name: str) -> Corrections:
        """Return the corrections of a series, also of one that was set aside."""
        entry = self.index.known(name)
        return Corrections() if entry is None else entry.corrections

    def read_arrays(
        self, names: Sequence[str], channels: Collection[str] | None = None
    ) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Return series as arrays, and the reason for each series that cannot be read.

        ``channels``: those to read; None: all
        """
        return self._read_each(names, functools.partial(series_file.arrays, wanted=channels))

    def channels(self, name: str) -> int:
        """Return the number of channels of a series; errors as in :meth:`read`."""
        return len(self._decoded(name, series_file.arrays).channels)

    def flags(self) -> pd.DataFrame:
        """Return the flagged rows of all series, see :mod:`forecaster.ingest.review.quality`.

        Raises StoreError if flags are damaged, by earlier rules, or about other prices than those
        that are stored.
        """
        quality = self.index.quality
        advice = "run `forecaster ingest` to review them again"
        if quality is None or quality.prices_digest != self.index.reviewed:
            raise StoreError(f"{self.folder}: its rows have not been reviewed; {advice}")
        path = self.path_of(quality.file)
        try:
            return read_parquet_file(_checked(path, quality.sha256)).to_pandas()
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read: {error}; {advice}") from error

    def _read_each(
        self, names: Sequence[str], decode: Callable[[bytes, Corrections], _T]
    ) -> tuple[dict[str, _T], dict[str, str]]:
        """Return ``decode`` of series, and the damage of others, by name; threads read them."""

        def read(name: str) -> _T | StoreError:
            try:
                return self._decoded(name, decode)
            except StoreError as error:
                return error

        parts = by_parts(lambda some: [*map(read, names[some])], len(names), _READ_AT_ONCE)
        results = dict(zip(names, itertools.chain.from_iterable(parts), strict=True))
        damaged = {name: str(one) for name, one in results.items() if isinstance(one, StoreError)}
        return {n: one for n, one in results.items() if not isinstance(one, StoreError)}, damaged

    def _decoded(
        self,
        name: str,
        decode: Callable[[bytes, Corrections], _T],
        entry: SeriesEntry | None = None,
    ) -> _T:
        """Return ``decode`` of a series' file and its corrections; errors as in :meth:`read`."""
        entry = entry or self.index.series[name]
        path, newer = self.path_of(entry.file), None
        try:
            return decode(_checked(path, entry.sha256), entry.corrections)
        except (OSError, ValueError) as error:
            with contextlib.suppress(StoreError, FileNotFoundError):
                newer = read_index(self.folder).series.get(name)
            if newer is not None and newer.file != entry.file:  # it was updated meanwhile
                return self._decoded(name, decode, newer)
            why = getattr(error, "strerror", None) or error
            raise StoreError(f"{path}: cannot be read: {why}. {_AGAIN}") from error


def _checked(path: Path, digest: str) -> bytes:
    """Return the bytes of a file. Raises OSError, ValueError if they are not what was written."""
    raw = read_plain(path)
    if sha256(raw) != digest:
        raise ValueError(f"damaged; its content is not what was written ({len(raw)} bytes)")
    return raw


def is_store(folder: Path) -> bool:
    """Return whether a folder is a price store, judged from the beginning of its index."""
    return any(begins_like_an_index(folder / file) for file in (INDEX, OLDER_INDEX))


def read_index(folder: Path) -> Index:
    """Read a store's index, its copy if it is damaged or lost, or one of an older version.

    Errors as in :meth:`Index.read`.
    """
    if older.is_older(folder):
        with contextlib.suppress(FileNotFoundError):  # it was converted meanwhile
            return older.read_index(folder)
    try:
        return Index.read(folder / INDEX)
    except NewerStore:
        raise
    except (FileNotFoundError, StoreError):
        with contextlib.suppress(FileNotFoundError, StoreError):
            return Index.read(folder / INDEX_COPY)
        raise
