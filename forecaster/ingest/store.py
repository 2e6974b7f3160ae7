"""The price store: one Parquet file a series under the home folder, and a manifest.

    prices/<source>/<series>.<hash>.parquet   unique_id, ds, channels...; page checksums
    prices/<source>/manifest.json             file, rows, first, last and SHA-256 of each series

A series' new file is written beside the old one, and counts once the manifest names it, which is
replaced whole: whatever is interrupted, a reader finds the old state or the new one.
"""

import dataclasses
import hashlib
import json
import re
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster import atomic
from forecaster.errors import StoreError
from forecaster.panel import show_time

SCHEMA = 1
_RESERVED = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$", re.IGNORECASE)


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
        if not (folder / "manifest.json").exists():
            return Store(folder, {"schema": SCHEMA, "source": source, "series": {}})
        return Store._in(folder)

    @staticmethod
    def all_of(home: Path) -> Iterator["Store"]:
        """All stores under a home folder."""
        for path in sorted((home / "prices").glob("*/manifest.json")):
            yield Store._in(path.parent)

    @staticmethod
    def _in(folder: Path) -> "Store":
        path = folder / "manifest.json"
        try:
            manifest = json.loads(path.read_bytes())
            schema = int(manifest["schema"])
            for entry in manifest["series"].values():
                [entry[part] for part in ("file", "rows", "first", "last", "sha256")]
            str(manifest["source"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{path}: the manifest cannot be read ({error}). Move the folder away and run "
                "`forecaster ingest` again"
            ) from error
        if schema != SCHEMA:
            raise StoreError(
                f"{path}: written in version {schema} of the store; this program reads version "
                f"{SCHEMA}. Update forecaster, or choose another --home"
            )
        return Store(folder, manifest)

    @property
    def ids(self) -> list[str]:
        """All series in the store."""
        return list(self.manifest["series"])

    def write(self, name: str, frame: pd.DataFrame) -> None:
        """Put one series in the store; it counts once :meth:`commit` is called.

        The file carries its hash in its name: until then readers find the old one untouched.
        """
        raw = frame.to_parquet(index=False, write_page_checksum=True)
        digest = _hash(raw)
        file = f"{file_name(name)}.{digest[:12]}.parquet"
        atomic.write_file(self.folder / file, lambda temporary: temporary.write_bytes(raw))
        self._written[name] = {
            "file": file,
            "rows": len(frame),
            "first": show_time(frame["ds"].iloc[0]),
            "last": show_time(frame["ds"].iloc[-1]),
            "sha256": digest,
        }

    def commit(self) -> None:
        """Let what was written count, and remove what it replaces.

        What another process has committed meanwhile is kept.
        """
        if (self.folder / "manifest.json").exists():
            self.manifest = Store._in(self.folder).manifest
        series = self.manifest["series"]
        replaced = {series[name]["file"] for name in self._written if name in series}
        series |= self._written
        text = json.dumps(self.manifest, indent=1, allow_nan=False)
        atomic.write_file(
            self.folder / "manifest.json", lambda temporary: temporary.write_text(text)
        )
        self._written = {}
        for file in replaced - {entry["file"] for entry in series.values()}:
            (self.folder / file).unlink(missing_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what interrupted runs left behind, when it is a day old or more."""
        known = {entry["file"] for entry in self.manifest["series"].values()} | {"manifest.json"}
        for path in self.folder.iterdir():
            if path.name not in known and path.stat().st_mtime < time.time() - 86_400:
                path.unlink(missing_ok=True)

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """These series as one long frame.

        Raises StoreError, naming the file, when one is missing or not what was written.
        """
        return pd.concat([self.read_one(name) for name in names], ignore_index=True)

    def digest(self, names: Sequence[str]) -> str:
        """A hash over the content of these series."""
        lines = "\n".join(f"{n} {self.manifest['series'][n]['sha256']}" for n in sorted(names))
        return _hash(lines.encode())

    def read_one(self, name: str) -> pd.DataFrame:
        """One series; errors as in :meth:`read`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.folder / self.manifest["series"][name]["file"]
        advice = "Run `forecaster ingest` again to replace it"
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}. {advice}") from error
        if _hash(raw) != self.manifest["series"][name]["sha256"]:
            raise StoreError(
                f"{path}: damaged; its content is not what was written ({len(raw)} bytes). {advice}"
            )
        return pq.read_table(pa.BufferReader(raw), page_checksum_verification=True).to_pandas()


def file_name(name: str) -> str:
    """A file name for any series name: no separators, no reserved names, not too long."""
    quoted = urllib.parse.quote(name, safe="^= +@")
    if quoted.startswith(".") or _RESERVED.match(quoted):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    # Where file names know no upper case, "a" and "A" would be one file.
    if name != name.upper():
        quoted = f"{quoted}~{_hash(name.encode())[:8]}"
    if len(quoted) > 120:
        quoted = f"{quoted[:80]}~{_hash(name.encode())[:24]}"
    return quoted


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
