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
import os
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster import atomic
from forecaster.errors import StoreError
from forecaster.ingest import manifest as manifests
from forecaster.ingest.series_file import (
    Arrays,
    Encoded,
    arrays,
    described_by,
    encode,
    file_name,
    open_parquet,
    sha256,
)

_QUARANTINE = "quarantine"
_FLAGS = "flags."
_THREADS = min(8, os.cpu_count() or 1)


@dataclasses.dataclass
class Store:
    """The series of one source."""

    folder: Path
    manifest: dict[str, Any]
    _written: dict[str, Any] = dataclasses.field(default_factory=dict)  # not committed yet

    @staticmethod
    def open(home: Path, source: str) -> "Store":
        """Open a source's store; an empty one where there is none yet. Reads the manifest only.

        Raises StoreError when the manifest is damaged or of a newer version.
        """
        folder = home / "prices" / file_name(source)
        if not (folder / manifests.NAME).exists():
            return Store(folder, manifests.empty(source))
        return Store(folder, manifests.read(folder / manifests.NAME))

    @staticmethod
    def open_or_recover(home: Path, source: str) -> "Store":
        """The same for a writer: a damaged manifest is made anew once the store is locked."""
        try:
            return Store.open(home, source)
        except manifests.NewerStore:
            raise
        except StoreError:
            return Store(home / "prices" / file_name(source), manifests.empty(source))

    @staticmethod
    def all_of(home: Path, on_damage: Callable[[str], None] | None = None) -> Iterator["Store"]:
        """All stores under a home folder. ``on_damage(message)`` is told of one whose manifest is
        damaged; without it, raises StoreError."""
        for path in sorted((home / "prices").glob(f"*/{manifests.NAME}")):
            try:
                yield Store(path.parent, manifests.read(path))
            except StoreError as error:
                if on_damage is None:
                    raise
                on_damage(str(error))

    @property
    def ids(self) -> list[str]:
        """All series in the store."""
        return list(self.manifest["series"])

    def spelled(self, name: str) -> str:
        """A series' name as it is stored, whatever its letter case; as it is when there is none."""
        if name in self.manifest["series"]:
            return name
        return next((known for known in self.ids if known.upper() == name.upper()), name)

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
        """Keep other processes from updating the store; read the manifest as it is then.

        A damaged manifest is set aside, and made anew from the files. ``on_wait(message)`` is told
        when another process has to be waited for.
        """
        import filelock

        with atomic.as_write_error(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.folder / ".lock")
            holder = self.folder / ".lock-holder"
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                if on_wait:
                    on_wait(f"Waiting for another forecaster{_said(holder)} that updates the store")
                lock.acquire(poll_interval=0.1)
        try:
            since = datetime.now().strftime("%H:%M:%S")
            with contextlib.suppress(OSError):
                holder.write_text(f"process {os.getpid()}, since {since}")
            self._reread()
            yield
        finally:
            with contextlib.suppress(OSError):
                holder.unlink(missing_ok=True)
            lock.release()

    def _reread(self) -> None:
        """The manifest as it is on disk; one that is damaged or lost is made anew."""
        path = self.folder / manifests.NAME
        why = "the manifest is lost"
        if path.exists():
            try:
                self.manifest = manifests.read(path)
                return
            except manifests.NewerStore:
                raise
            except StoreError as error:
                why = str(error)
        elif not self._series_files():
            return
        self.manifest = manifests.empty(self.manifest["source"]) | {"series": self._recovered()}
        if path.exists():
            self._set_aside(manifests.NAME, manifests.NAME, why, copy=True)
        self._set_strangers_aside(why)
        manifests.write(path, self.manifest)

    def write(
        self,
        name: str,
        frame: pd.DataFrame,
        *,
        asked_from: str | None = None,
        timezone: str | None = None,
    ) -> None:
        """Put one series in the store; it counts once :meth:`commit` is called.

        The file carries its hash in its name: until then readers find the old one untouched.
        """
        self.write_encoded(encode(name, frame, asked_from=asked_from, timezone=timezone))

    def write_encoded(self, series: Encoded, fingerprint: str | None = None) -> None:
        """The same, of a series that was encoded before, in another thread for instance.

        ``fingerprint``: of the source it was read from.
        """
        name, raw, entry = series
        entry: dict[str, Any] = entry | {"fingerprint": fingerprint}
        old = self.manifest["series"].get(name)
        path = self.folder / entry["file"]
        if old is None or old["sha256"] != entry["sha256"] or not path.exists():
            atomic.write_file(path, lambda temporary: temporary.write_bytes(raw), last=False)
        self._written[name] = entry

    def suspect(self, name: str, reason: str) -> None:
        """Note that the source has contradicted what is stored, which is kept."""
        entry = self._written.get(name) or self.manifest["series"].get(name)
        if entry is not None and entry["reason"] != reason:
            self._written[name] = entry | {"state": "suspect", "reason": reason}

    def commit(self, **top: Any) -> None:
        """Let what was written count, and remove what it replaces.

        ``top``: other parts of the manifest to set. What another process has committed meanwhile
        is kept.
        """
        path = self.folder / manifests.NAME
        if path.exists():
            self.manifest = manifests.read(path)
        if not self._written and all(self.manifest.get(part) == top[part] for part in top):
            return
        series = self.manifest["series"]
        replaced = {series[name]["file"] for name in self._written if name in series}
        series |= self._written
        self.manifest |= top
        with atomic.as_write_error(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sync(self.folder)  # what the manifest will name must be there before it
        manifests.write(path, self.manifest)
        self._written = {}
        for file in replaced - {entry["file"] for entry in series.values()}:
            with contextlib.suppress(OSError):  # the next sweep takes it
                (self.folder / file).unlink()

    def sweep(self) -> None:
        """Remove what interrupted runs left behind: temporary files, flags and other versions of
        series that the manifest names. Only while the store is locked."""
        quality = self.manifest["quality"] or {}
        known = {entry["file"] for entry in self.manifest["series"].values()}
        stems = {file.rsplit(".", 2)[0] for file in known}
        known.add(quality.get("file"))
        for path in self.folder.glob("*"):
            ours = path.name.startswith((atomic.PREFIX, _FLAGS))
            superseded = path.suffix == ".parquet" and path.name.rsplit(".", 2)[0] in stems
            # Not at once: a reader may still have the manifest that names it.
            with contextlib.suppress(OSError):
                old = path.stat().st_mtime < time.time() - 3600
                if (ours or superseded) and path.name not in known and old:
                    path.unlink()

    def _series_files(self) -> list[Path]:
        """All files of series, whether the manifest names them or not, the oldest first."""
        found = self.folder.glob("*.parquet")
        found = [p for p in found if not p.name.startswith((atomic.PREFIX, _FLAGS))]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def _set_strangers_aside(self, why: str) -> None:
        """Set aside what a manifest made anew could not name, but for older versions of series."""
        files = {entry["file"] for entry in self.manifest["series"].values()}
        stems = {file.rsplit(".", 2)[0] for file in files}
        for path in self._series_files():
            if path.name not in files and path.name.rsplit(".", 2)[0] not in stems:
                name = urllib.parse.unquote(path.name.rsplit(".", 2)[0])
                self._set_aside(name, path.name, f"cannot be read, and {why}")

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
            whys = pool.map(check, names)
            return {name: why for name, why in zip(names, whys, strict=True) if why}

    def quarantine(self, damaged: dict[str, str]) -> None:
        """Set damaged files aside and forget their series, so that they are fetched again."""
        series = self.manifest["series"]
        for name, why in damaged.items():
            entry = series.pop(name)
            self._set_aside(name, entry["file"], why, asked_from=entry["asked_from"])
            self._written.pop(name, None)
        if damaged:
            self.manifest["origin"] = None
            manifests.write(self.folder / manifests.NAME, self.manifest)

    def lost(self, name: str) -> dict[str, Any] | None:
        """What was known of a series that is not there because its file was set aside."""
        if name in self.manifest["series"]:
            return None
        aside = [record for record in self.manifest["quarantine"] if record["series"] == name]
        return aside[-1] if aside else None

    def _set_aside(
        self, name: str, file: str, why: str, copy: bool = False, asked_from: str | None = None
    ) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        place = self.folder / _QUARANTINE / f"{stamp}-{file}"
        with atomic.as_write_error(place):
            place.parent.mkdir(exist_ok=True)
            if copy:
                atomic.write_file(
                    place, lambda to: to.write_bytes((self.folder / file).read_bytes())
                )
            elif (self.folder / file).exists():
                (self.folder / file).replace(place)
        kept = place.name if place.exists() else None  # None: there was no file any more
        self.manifest["quarantine"].append(
            {"series": name, "file": kept, "reason": why, "asked_from": asked_from}
        )

    def _recovered(self) -> dict[str, Any]:
        """Entries of all sound series files; of two for one series the newer."""
        found = {}
        for path in self._series_files():
            raw = path.read_bytes()
            if sha256(raw)[:12] == path.name.split(".")[-2]:
                with contextlib.suppress(Exception):
                    name, entry = described_by(raw)
                    found[name] = entry | {"file": path.name}
        return found

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """These series as one long frame.

        Raises StoreError, naming the file, when one is missing or not what was written.
        """
        return pd.concat([self.read_one(name) for name in names], ignore_index=True)

    def digest(self, names: Sequence[str]) -> str:
        """A hash over the content of these series."""
        lines = "\n".join(f"{n} {self.manifest['series'][n]['sha256']}" for n in sorted(names))
        return sha256(lines.encode())

    def read_one(self, name: str) -> pd.DataFrame:
        """One series; errors as in :meth:`read`."""
        return open_parquet(self._raw(name)).read(use_threads=False).to_pandas()

    def read_arrays(self, names: Sequence[str]) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Series as arrays, and of those that cannot be read the reason."""
        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip(names, pool.map(self._arrays, names), strict=True))
        good = {name: part for name, part in found.items() if isinstance(part, Arrays)}
        return good, {name: part for name, part in found.items() if isinstance(part, str)}

    def _arrays(self, name: str) -> Arrays | str:
        try:
            return arrays(self._raw(name))
        except StoreError as error:
            return str(error)

    @property
    def looked_through(self) -> bool:
        """Whether there are flags of the prices as they are stored now."""
        quality = self.manifest["quality"]
        return quality is not None and quality["of"] == self.digest(self.ids)

    def flags(self) -> pd.DataFrame:
        """Flagged rows of all series, see :mod:`forecaster.ingest.quality`.

        Raises StoreError when they are damaged, or of other prices than those that are stored.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        quality = self.manifest["quality"]
        advice = "run `forecaster ingest` to look through the prices again"
        if quality is None or not self.looked_through:
            raise StoreError(f"{self.folder}: the prices have not been looked through; {advice}")
        path = self.folder / quality["file"]
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}; {advice}") from error
        if sha256(raw) != quality["sha256"]:
            raise StoreError(f"{path}: damaged; {advice}")
        return pq.read_table(pa.BufferReader(raw)).to_pandas()

    def _raw(self, name: str) -> bytes:
        """A series' file, checked against its hash. Raises StoreError."""
        entry = self.manifest["series"][name]
        path = self.folder / entry["file"]
        advice = "`forecaster ingest` sets it aside and fetches the series again"
        try:
            raw = path.read_bytes()
        except OSError as error:
            newer = self._committed(name)
            if newer is not None and newer["file"] != entry["file"]:
                self.manifest["series"][name] = newer
                return self._raw(name)  # another process has updated it meanwhile
            raise StoreError(f"{path}: cannot be read: {error.strerror}. {advice}") from error
        if sha256(raw) != entry["sha256"]:
            raise StoreError(
                f"{path}: damaged; its content is not what was written ({len(raw)} bytes). {advice}"
            )
        return raw

    def _committed(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(StoreError):
            return manifests.read(self.folder / manifests.NAME)["series"].get(name)
        return None


def _said(holder: Path) -> str:
    """Who holds the lock, as far as can be read."""
    with contextlib.suppress(OSError):
        return f" ({holder.read_text()[:60]})"
    return ""
