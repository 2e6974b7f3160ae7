"""The price store: one Parquet file a series under the home folder, and a manifest.

    prices/<source>/<series>.<hash>.parquet   unique_id, ds, channels...; page checksums
    prices/<source>/manifest.json             file, rows, first, last and SHA-256 of each series
    prices/<source>/quarantine/               damaged files, kept aside
    prices/<source>/.lock                     held by the process that updates the store

A series' new file is written beside the old one, and counts once the manifest names it, which is
replaced whole: whatever is interrupted, a reader finds the old state or the new one.
"""

import contextlib
import dataclasses
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster.errors import StoreError, WriteError
from forecaster.files import atomic, locked_folder
from forecaster.home import Home
from forecaster.ingest.store import manifest as manifests
from forecaster.ingest.store.manifest import (
    Manifest,
    NewerStore,
    Origin,
    Quality,
    Quarantined,
    SeriesEntry,
    stems,
)
from forecaster.ingest.store.series_file import (
    FLAGS_FILE,
    Arrays,
    Encoded,
    arrays,
    described_by,
    encode,
    open_parquet,
    series_of_file,
    sha256,
)
from forecaster.spelling import spelled, spellings

_QUARANTINE = "quarantine"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_THREADS = min(8, os.cpu_count() or 1)
_SWEPT_AFTER = 3600.0  # seconds; until then a reader may have a manifest that names the file


@dataclasses.dataclass
class Store:
    """The series of one source, in a folder, as its manifest lists them."""

    folder: Path
    manifest: Manifest
    _written: dict[str, SeriesEntry] = dataclasses.field(default_factory=dict)  # not committed yet

    @staticmethod
    def open(home: Home, source: str) -> "Store":
        """Open a source's store; an empty one where there is none yet. Reads the manifest only.

        Raises StoreError when the manifest is damaged or of a newer version.
        """
        folder = home.store(source)
        path = folder / manifests.NAME
        return Store(folder, Manifest.read(path) if path.exists() else Manifest(source))

    @staticmethod
    def open_or_recover(home: Home, source: str) -> "Store":
        """The same for a writer: a damaged manifest is rebuilt once the store is locked."""
        try:
            return Store.open(home, source)
        except NewerStore:
            raise
        except StoreError:
            return Store(home.store(source), Manifest(source))

    @staticmethod
    def all_of(home: Home, on_damage: Callable[[str], None] | None = None) -> Iterator["Store"]:
        """All stores under a home folder.

        ``on_damage(message)`` is called for one whose manifest is damaged; without it, that raises
        StoreError.
        """
        for folder in home.stores():
            try:
                yield Store(folder, Manifest.read(folder / manifests.NAME))
            except StoreError as error:
                if on_damage is None:
                    raise
                on_damage(str(error))

    @property
    def source(self) -> str:
        """The name of the source."""
        return self.manifest.source

    @property
    def ids(self) -> list[str]:
        """All series in the store."""
        return list(self.manifest.series)

    @property
    def quarantine_folder(self) -> Path:
        """Where damaged files are set aside."""
        return self.folder / _QUARANTINE

    def __contains__(self, name: str) -> bool:
        return name in self.manifest.series

    def spelled(self, name: str) -> str:
        """A series' name as it is stored, however it is spelled; unchanged if there is none."""
        return name if name in self else spelled(spellings(self.ids), name) or name

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
        """Keep other processes from updating the store; read the manifest as it is then.

        A damaged manifest is set aside and rebuilt from the files. ``on_wait(message)`` is called
        when another process has to be waited for.
        """
        with locked_folder(self.folder, on_wait):
            self._reread()
            yield

    @contextlib.contextmanager
    def locked_to_read(self) -> Iterator[None]:
        """The same for a reader, for whom a home that may only be read will do."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.locked())
            except WriteError as error:
                reason = error.__cause__
                if not (isinstance(reason, OSError) and reason.errno in _READ_ONLY):
                    raise
            yield

    def _reread(self) -> None:
        """Read the manifest from disk; rebuild one that is damaged or lost."""
        path = self.folder / manifests.NAME
        why = "the manifest is lost"
        if path.exists():
            try:
                self.manifest = Manifest.read(path)
                return
            except NewerStore:
                raise
            except StoreError as error:
                why = str(error)
        elif not self._series_files():
            return
        self.manifest = Manifest(self.source, self._recovered())
        if path.exists():
            self._set_aside(manifests.NAME, manifests.NAME, why, copy=True)
        self._set_strangers_aside(why)
        self.manifest.write(path)

    def write(
        self,
        name: str,
        frame: pd.DataFrame,
        *,
        asked_from: str | None = None,
        timezone: str | None = None,
    ) -> None:
        """Put one series in the store; it counts once :meth:`commit` is called, not before."""
        self.write_encoded(encode(name, frame, asked_from=asked_from, timezone=timezone))

    def write_encoded(self, series: Encoded, fingerprint: str | None = None) -> None:
        """The same for a series that is encoded already, by another thread for instance.

        ``fingerprint``: of the source it was read from.
        """
        name, raw, entry = series
        old = self.manifest.series.get(name)
        path = self.folder / entry.file
        if old is None or old.sha256 != entry.sha256 or not path.exists():
            atomic.write_file(path, lambda temporary: temporary.write_bytes(raw), last=False)
        self._written[name] = entry._replace(fingerprint=fingerprint)

    def suspect(self, name: str, reason: str) -> None:
        """Note that the source has contradicted what is stored, which is kept."""
        entry = self._written.get(name) or self.manifest.series.get(name)
        if entry is not None and entry.reason != reason:
            self._written[name] = entry.as_suspect(reason)

    def commit(self) -> None:
        """Let what was written count, and remove what it replaces.

        What another process has committed meanwhile is kept.
        """
        self._commit({})

    def commit_origin(self, origin: Origin) -> None:
        """The same, and note what the source holds now."""
        self._commit({"origin": origin})

    def commit_quality(self, quality: Quality | None) -> None:
        """The same, and note the result of a review."""
        self._commit({"quality": quality})

    def _commit(self, changes: dict[str, Any]) -> None:
        path = self.folder / manifests.NAME
        if path.exists():
            self.manifest = Manifest.read(path)
        if not self._written and dataclasses.replace(self.manifest, **changes) == self.manifest:
            return
        old = self.manifest.series
        replaced = {old[name].file for name in self._written if name in old}
        series = {**old, **self._written}
        self.manifest = dataclasses.replace(self.manifest, series=series, **changes)
        with atomic.as_write_error(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sync(self.folder)  # what the manifest will name must be there before it
        self.manifest.write(path)
        self._written = {}
        for file in replaced - self.manifest.files:
            with contextlib.suppress(OSError):  # the next sweep takes it
                (self.folder / file).unlink()

    def sweep(self) -> None:
        """Remove files that the manifest does not name and no run needs. Only while locked."""
        quality = self.manifest.quality
        named = self.manifest.files | ({quality.file} if quality else set())
        series = stems(self.manifest.files)
        for path in self.folder.glob("*"):
            leftover = path.name.startswith(atomic.PREFIX) or FLAGS_FILE.fullmatch(path.name)
            superseded = path.suffix == ".parquet" and bool(stems([path.name]) & series)
            with contextlib.suppress(OSError):
                old = path.stat().st_mtime < time.time() - _SWEPT_AFTER
                if (leftover or superseded) and path.name not in named and old:
                    path.unlink()

    def _series_files(self) -> list[Path]:
        """All files of series, whether the manifest names them or not, the oldest first."""
        files = [
            path
            for path in self.folder.glob("*.parquet")
            if not path.name.startswith(atomic.PREFIX) and not FLAGS_FILE.fullmatch(path.name)
        ]
        return sorted(files, key=lambda path: path.stat().st_mtime)

    def _set_strangers_aside(self, why: str) -> None:
        """Set aside what a rebuilt manifest could not name, but for older versions of series."""
        series = stems(self.manifest.files)
        for path in self._series_files():
            (stem,) = stems([path.name])
            if stem not in series:
                self._set_aside(series_of_file(stem), path.name, f"cannot be read, and {why}")

    def damages(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Series, by default all, whose file is not what was written, and why; hashes all files."""

        def check(name: str) -> str | None:
            try:
                self._raw(name)
            except StoreError as error:
                return str(error)
            return None

        names = self.ids if names is None else names
        with ThreadPoolExecutor(_THREADS) as pool:
            reasons = pool.map(check, names)
            return {name: why for name, why in zip(names, reasons, strict=True) if why}

    def quarantine(self, damaged: dict[str, str]) -> None:
        """Set damaged files aside and forget their series, so that they are fetched again."""
        for name, why in damaged.items():
            entry = self.manifest.series.pop(name)
            self._set_aside(name, entry.file, why, asked_from=entry.asked_from)
            self._written.pop(name, None)
        if damaged:
            self.manifest = dataclasses.replace(self.manifest, origin=None)
            self.manifest.write(self.folder / manifests.NAME)

    def _set_aside(
        self, name: str, file: str, why: str, *, copy: bool = False, asked_from: str | None = None
    ) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        path, aside = self.folder / file, self.quarantine_folder / f"{stamp}-{file}"
        with atomic.as_write_error(aside):
            aside.parent.mkdir(exist_ok=True)
            if copy:
                atomic.write_file(aside, lambda to: to.write_bytes(path.read_bytes()))
            elif path.exists():
                path.replace(aside)
        kept = aside.name if aside.exists() else None
        self.manifest.quarantine.append(Quarantined(name, kept, why, asked_from))

    def _recovered(self) -> dict[str, SeriesEntry]:
        """Entries of all sound series files; the newest where a series has several."""
        entries = {}
        for path in self._series_files():
            raw = path.read_bytes()
            if sha256(raw)[:12] == path.name.split(".")[-2]:
                with contextlib.suppress(Exception):
                    name, entry = described_by(raw, path.name)
                    entries[name] = entry
        return entries

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """These series as one long frame.

        Raises StoreError, naming the file, when one is missing or not what was written.
        """
        return pd.concat([self.read_one(name) for name in names], ignore_index=True)

    def digest(self, names: Sequence[str]) -> str:
        """A hash over the content of these series."""
        names = sorted(names)
        hashes = self.manifest.sha256_of(names)
        return sha256("\n".join(map(" ".join, zip(names, hashes, strict=True))).encode())

    def read_one(self, name: str) -> pd.DataFrame:
        """One series; errors as in :meth:`read`."""
        return open_parquet(self._raw(name)).read(use_threads=False).to_pandas()

    def read_arrays(self, names: Sequence[str]) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Series as arrays, and the reason for each that cannot be read."""
        with ThreadPoolExecutor(_THREADS) as pool:
            results = dict(zip(names, pool.map(self._arrays, names), strict=True))
        sound = {name: series for name, series in results.items() if isinstance(series, Arrays)}
        return sound, {name: why for name, why in results.items() if isinstance(why, str)}

    def channels(self, name: str) -> int:
        """How many columns of numbers a series has; errors as in :meth:`read`."""
        return len(open_parquet(self._raw(name)).schema_arrow) - 2

    def _arrays(self, name: str) -> Arrays | str:
        try:
            return arrays(self._raw(name))
        except StoreError as error:
            return str(error)

    @property
    def is_reviewed(self) -> bool:
        """Whether there are flags of the prices as they are stored now."""
        quality = self.manifest.quality
        return quality is not None and quality.prices_digest == self.digest(self.ids)

    def flags(self, *, reviewed: bool | None = None) -> pd.DataFrame:
        """Flagged rows of all series, see :mod:`forecaster.ingest.review.quality`.

        ``attrs["rules"]`` of the frame is the version of the rules they were found by.
        ``reviewed``: :attr:`is_reviewed`, where that was asked for already.

        Raises StoreError when they are damaged, or of other prices than those that are stored.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        quality = self.manifest.quality
        advice = "run `forecaster ingest` to review them again"
        if quality is None or not (self.is_reviewed if reviewed is None else reviewed):
            raise StoreError(f"{self.folder}: its rows have not been reviewed; {advice}")
        path = self.folder / quality.file
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}; {advice}") from error
        if sha256(raw) != quality.sha256:
            raise StoreError(f"{path}: damaged; {advice}")
        table = pq.ParquetFile(pa.BufferReader(raw)).read()
        flags = table.to_pandas()
        flags.attrs["rules"] = int((table.schema.metadata or {}).get(b"rules", 1))
        return flags

    def _raw(self, name: str) -> bytes:
        """A series' file, checked against its hash. Raises StoreError."""
        entry = self.manifest.series[name]
        path = self.folder / entry.file
        advice = "`forecaster ingest` sets it aside and fetches the series again"
        try:
            raw = path.read_bytes()
        except OSError as error:
            newer = self._committed(name)
            if newer is not None and newer.file != entry.file:
                self.manifest.series[name] = newer
                return self._raw(name)  # another process has updated it meanwhile
            raise StoreError(f"{path}: cannot be read: {error.strerror}. {advice}") from error
        if sha256(raw) != entry.sha256:
            raise StoreError(
                f"{path}: damaged; its content is not what was written ({len(raw)} bytes). {advice}"
            )
        return raw

    def _committed(self, name: str) -> SeriesEntry | None:
        """A series' entry as it is on disk now."""
        with contextlib.suppress(StoreError):
            return Manifest.read(self.folder / manifests.NAME).series.get(name)
        return None
