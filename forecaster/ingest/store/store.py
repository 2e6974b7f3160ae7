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
import functools
import itertools
import urllib.parse
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import pandas as pd

from forecaster.errors import StoreError, UsageError, WriteError, spelled, spellings
from forecaster.files import (
    INDEX,
    OLDER_INDEX,
    Home,
    as_text,
    atomic,
    check_output,
    locked_folder,
    read_parquet_file,
    read_plain,
)
from forecaster.ingest.store import older, series_file
from forecaster.ingest.store.corrections import Corrections
from forecaster.ingest.store.index import (
    Index,
    NotRebuilt,
    Quarantined,
    SeriesEntry,
    begins_like_an_index,
    is_later,
)
from forecaster.ingest.store.series_file import FLAGS_FILE, Arrays, Encoded, sha256
from forecaster.machine import by_parts, cores

_QUARANTINE = "quarantine"
_AGAIN = "`forecaster ingest` sets it aside and fetches the series again"
_READ_AT_ONCE = 8  # the most files that a thread reads before it asks for more

_T = TypeVar("_T")
_AT_ONCE = 200  # number of series in memory at once


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
        """Set a damaged index aside, and make one from the files of series, the newest of each."""
        index, damaged = Index(self.source), list[Path]()
        for file in (INDEX, OLDER_INDEX):
            if (self.folder / file).exists():
                index.quarantine.append(self._move_aside(file, file, why))
        for path in self._series_files():
            try:
                name, entry = series_file.described_by(read_plain(path), path.name)
                index.series[name] = entry
            except Exception:  # Arrow and JSON fail in many ways
                damaged.append(path)
        for path in damaged:
            (stem,) = _stems([path.name])
            if stem not in _stems(index.files):
                name = urllib.parse.unquote(stem)  # of names in small letters with a hash
                aside = self._move_aside(name, path.name, f"cannot be read, and {why}")
                index.quarantine.append(aside)
        self.index = index
        older.add_corrections(index, self.folder)
        self._convert(older.older_files(self.folder))

    def _convert(self, left: Sequence[Path]) -> None:
        """Write the index, and then remove the files of older versions.

        Series with corrections are written again, to have them in their files, too.
        """
        for name, its in self.index.corrections.items():
            with contextlib.suppress(KeyError, StoreError):
                self.correct(name, its)
        self.commit()
        for path in left:
            if path.name != INDEX:
                atomic.remove_file(path)

    def correct(self, name: str, corrections: Corrections) -> None:
        """Give a stored series other corrections.

        Raises KeyError if it is not stored, StoreError if its file is damaged.
        """
        entry = self.index.series[name]
        series = series_file.encode(
            name, self.read_delivered(name), asked_from=entry.asked_from, corrections=corrections
        )
        self.write_file_of(series)
        self.index.series[name] = msgspec.structs.replace(
            series.entry, fingerprint=entry.fingerprint, state=entry.state, reason=entry.reason
        )

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

    def mark(self, name: str, state: str, reason: str | None = None) -> None:
        """Change the state of a stored series, see :class:`SeriesEntry`."""
        entry = self.index.series[name]
        self.index.series[name] = msgspec.structs.replace(entry, state=state, reason=reason)

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
        self.index.write(self.folder / INDEX)
        for file in (before.files if before else set()) - self.index.files:
            with contextlib.suppress(OSError):  # the next sweep removes the file
                self.path_of(file).unlink()

    def sweep(self) -> None:
        """Remove files that killed processes have left. The store must be locked.

        They are those of stored series, and of flags, that the index does not name.
        """
        files = self.index.files
        series = _stems(files)
        atomic.sweep(self.folder)
        for path in self.folder.glob("*.parquet"):
            superseded = FLAGS_FILE.fullmatch(path.name) or _stems([path.name]) & series
            if superseded and path.name not in files:
                with contextlib.suppress(OSError):
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
        return self._read_each(self.ids if names is None else names, lambda *_: None)[1]

    def quarantine(self, damaged: Mapping[str, str]) -> None:
        """Move damaged files to the quarantine, remove their series from the index, and commit.

        ``damaged``: the damage by series
        """
        for name, why in damaged.items():
            entry = self.index.series[name]
            record = self._move_aside(name, entry.file, why)
            self.index.quarantine.append(
                record._replace(asked_from=entry.asked_from, corrections=entry.corrections)
            )
            del self.index.series[name]
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

    def channels(self, name: str) -> tuple[str, ...]:
        """Return the channels of a series; errors as in :meth:`read`."""
        return self._decoded(name, series_file.arrays).channels

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
            raw = read_plain(path)
            if sha256(raw) != quality.sha256:
                raise ValueError("damaged")
            return read_parquet_file(raw).to_pandas()
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

        at_once = max(1, min(_READ_AT_ONCE, len(names) // (4 * cores())))  # of few, all read some
        parts = by_parts(lambda some: [read(name) for name in names[some]], len(names), at_once)
        results = dict(zip(names, itertools.chain.from_iterable(parts), strict=True))
        damaged = {name: str(one) for name, one in results.items() if isinstance(one, StoreError)}
        return {n: one for n, one in results.items() if not isinstance(one, StoreError)}, damaged

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


def is_store(folder: Path) -> bool:
    """Return whether a folder is a price store, judged from the beginning of its index."""
    return any(begins_like_an_index(folder / file) for file in (INDEX, OLDER_INDEX))


def _read_index(folder: Path) -> Index:
    """Read a store's index, also that of an older version; errors as in :meth:`Index.read`."""
    path = folder / INDEX
    if not begins_like_an_index(path, of_this_version=True) and older.older_files(folder):
        with contextlib.suppress(FileNotFoundError):  # it was converted meanwhile, or is not there
            return older.read_index(folder)
    return Index.read(path)


def _stems(files: Iterable[str]) -> set[str]:
    """Return names of files without hash and ending, which all versions of a series share."""
    return {file.rsplit(".", 2)[0] for file in files}


def export_prices(
    home: Home,
    output: Path,
    tickers: Sequence[str] | None = None,
    *,
    form: str | None = None,
    source: str | None = None,
    overwrite: bool = False,
    adjusted: bool = False,
) -> int:
    """Write stored series as one table, whole or not at all; return its number of rows.

    - ``tickers``: the series to export; None: all
    - ``form``: ``csv``, ``json``, ``parquet`` or ``excel``; None: the format of the ending of
      ``output``. In a CSV, a quote precedes text that a spreadsheet would take for a formula
    - ``source``: the source whose store is exported; None: the only source
    - ``overwrite``: whether ``output`` may exist
    - ``adjusted``: convert open, high, low and close to the scale of ``adj_close``, and leave
      ``adj_close`` out

    The store is not locked: a series that is updated meanwhile is written as it then is.

    Raises UsageError if the source, a ticker, the format or the folder does not exist, or if the
    file exists, StoreError if a series is damaged.
    """
    file = check_output(output, form=form, overwrite=overwrite, formats=True)
    store = find_store(home, source)
    names = list(dict.fromkeys(map(store.spelled, tickers))) if tickers else store.ids
    if missing := [name for name in names if name not in store]:
        raise UsageError(
            f"{', '.join(missing[:5])}: not among the {len(store.ids)} series of {store.source}"
        )
    if not names:
        raise UsageError(f"no series are stored of {store.source}")
    columns = list(dict.fromkeys(column for name in names for column in store.read_delivered(name)))

    def parts() -> Iterator[pd.DataFrame]:
        for low in range(0, len(names), _AT_ONCE):
            frame = store.read(names[low : low + _AT_ONCE])
            frame = frame.reindex(columns=columns)
            yield _adjusted(frame) if adjusted else frame

    file.write_parts(parts())
    return sum(store.index.series[name].rows for name in names)


def _adjusted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return prices adjusted for dividends, if the table has close and ``adj_close``.

    As in panels, the first row decides whether a series is adjusted. An adjusted series gets no
    price on a day without ``adj_close``, since an unadjusted price would be a false jump.
    """
    if not {"close", "adj_close"} <= set(frame.columns):
        return frame
    priced = frame[frame[["adj_close", "close"]].notna().any(axis=1)]
    first = priced.drop_duplicates("unique_id").set_index("unique_id")
    is_adjusted = frame["unique_id"].map(first["adj_close"].notna())
    factor = (frame["adj_close"] / frame["close"]).where(is_adjusted, 1.0)
    prices = [name for name in ("open", "high", "low", "close") if name in frame]
    scaled = {name: frame[name] * factor for name in prices}
    return frame.assign(**scaled).drop(columns="adj_close")


def known_source(source: str, known: Container[str]) -> str:
    """Return a known source as it is; take any other text for the path of a file."""
    if source in known:
        return source
    return f"files:{as_text(Path(source.removeprefix('files:')).expanduser().resolve())}"


def find_store(home: Home, source: str | None) -> Store:
    """Return the store of a source; None: the store of the only source. Raises UsageError."""
    stores = {store.source: store for store in Store.all_of(home)}
    if not stores:
        raise UsageError(f"nothing is stored under {home}; run `forecaster ingest` first")
    if source is None and len(stores) > 1:
        raise UsageError(f"several sources are stored; add --source, one of {', '.join(stores)}")
    wanted = next(iter(stores)) if source is None else known_source(source, stores)
    if wanted not in stores:
        # A URL may contain a password.
        said = "of this URL" if "://" in str(source) else repr(source)
        raise UsageError(f"source {said} is not stored; there are {', '.join(stores)}")
    return stores[wanted]
