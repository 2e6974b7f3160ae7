"""Fits that are under way, kept on disk so that they can be resumed after an interruption.

unfinished/<name>/request.json       data, settings, seed, and what decides the bits beside them
unfinished/<name>/swarm.checkpoint   state of all networks, once there is any; a search has one a
                                     stage
unfinished/<name>/.lock              held by the process that trains

A folder counts once it has a request, and the process that writes it holds the lock by then: one
that is not locked belongs to nobody. (Version 0.2 had one fit, in ``unfinished`` itself.)
"""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType

import pandas as pd

from forecaster import __version__, atomic
from forecaster.config import Config
from forecaster.errors import ModelError, StoreError, UsageError
from forecaster.home import Home
from forecaster.ingest import Store, masked_rows
from forecaster.locking import HOLDER, LOCK, FolderLock, holder_of, is_held
from forecaster.swarm import Checkpoint, arithmetic, use_all_cores

_SCHEMA = 2  # version 1 did not say by which versions of the program
_REQUEST, _CHECKPOINT = "request.json", "swarm.checkpoint"
_LIBRARIES = ("jax", "jaxlib", "flax", "optax")
_SWEPT_AFTER = 3600.0  # seconds; until then a folder without a request may be about to get one
_TRIES = 100
_LOOKED_AT = 0.5  # seconds for which another process may hold a lock only to see whether it is free


def versions() -> dict[str, str]:
    """What decides the bits that are computed: versions of programs, JAX's backend, the kernel."""
    libraries = {name: version(name) for name in _LIBRARIES}
    use_all_cores()  # before anything starts JAX
    return {"forecaster": __version__, **libraries, **arithmetic()}


@dataclasses.dataclass(frozen=True)
class FitRequest:
    """What a fit was asked to do, once its data have arrived in the store.

    - ``source``, ``ids``: the store and the series in it
    - ``skipped``: series that could not be had, with the reason
    - ``data_sha256``: the :func:`data_digest` of the stored series
    - ``config``, ``seed``, ``tune``: how to train
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``mask``: flags whose rows are left out
    - ``versions``: of the program, and which code computes; what an older program did not say is
      missing
    """

    source: str
    ids: tuple[str, ...]
    skipped: dict[str, str]
    data_sha256: str
    config: Config
    seed: int
    tune: bool = False
    start: str | None = None
    end: str | None = None
    mask: tuple[str, ...] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=versions)

    def __str__(self) -> str:
        kind = f"{self.config.column} {self.config.hidden}{', tuned' if self.tune else ''}"
        return f"{len(self.ids)} series of {self.source}, {kind}"


@dataclasses.dataclass(frozen=True)
class UnfinishedFit:
    """A fit that has begun and is not saved yet: its request, and where its progress is kept.

    No other process can take it up until it is released, which leaving it as a context does, or
    this process ends.
    """

    folder: Path
    request: FitRequest
    checkpoint: Checkpoint
    lock: FolderLock = dataclasses.field(repr=False, compare=False)

    def __enter__(self) -> "UnfinishedFit":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.lock.release()

    @staticmethod
    def begin(home: Home, request: FitRequest) -> "UnfinishedFit":
        """Write the request down in a folder of its own, beside those of other fits.

        Raises WriteError when it cannot be written.
        """
        with atomic.as_write_error(home.unfinished):
            folder, lock = _new_folder(home, request)
        try:
            fields = {"schema": _SCHEMA, **dataclasses.asdict(request)}
            text = json.dumps(fields, indent=1, allow_nan=False)
            atomic.write_file(folder / _REQUEST, lambda to: to.write_text(text))
        except BaseException:
            _remove(folder, lock)
            raise
        return UnfinishedFit(folder, request, Checkpoint(folder / _CHECKPOINT), lock)

    @staticmethod
    def find(home: Home, name: str | None = None) -> "UnfinishedFit":
        """The fit to resume: the one of this name, or the only one that is not running.

        Raises UsageError when there is none, it is running, or there are several; ModelError when
        it cannot be read, or was begun by other versions of the program or another kernel.
        """
        folder = _choose(home, name)
        lock = _locked(folder)
        try:
            request = _read_request(folder / _REQUEST)
            _check_versions(request)
        except BaseException:
            lock.release()
            raise
        checkpoint = Checkpoint(folder / _CHECKPOINT, resume=_has_progress(folder))
        return UnfinishedFit(folder, request, checkpoint, lock)

    @property
    def name(self) -> str:
        """What it is resumed by."""
        return self.folder.name

    @property
    def has_progress(self) -> bool:
        """Whether it has come far enough to leave a checkpoint."""
        return _has_progress(self.folder)

    def masked_rows(self, store: Store) -> pd.DataFrame:
        """The flagged rows that the fit leaves out.

        Raises ModelError when they, or the stored prices, are no longer those of the request.
        """
        request = self.request
        try:
            masked = masked_rows(store, request.ids, request.mask, request.end)
            stored = set(request.ids) <= set(store.ids)
            if stored and data_digest(store, request.ids, masked) == request.data_sha256:
                return masked
        except StoreError:
            pass  # prices whose flags are out of date have changed too
        raise ModelError(
            "the stored prices have changed since the fit was interrupted; run `forecaster fit` "
            f"without --resume ({_how_to_discard(self.name)})"
        )

    def discard(self) -> None:
        """Remove it, once its model is saved or nobody wants it."""
        _remove(self.folder, self.lock)


@dataclasses.dataclass(frozen=True)
class UnfinishedStatus:
    """What can be told of an unfinished fit from outside.

    - ``name``: what it is resumed by
    - ``what``: series, source and kind of network, or why it cannot be read
    - ``saved``: seconds since 1970 when its progress was last kept; None: there is none yet
    - ``running``: whether a process trains it
    - ``holder``: which process, where that can be told
    """

    name: str
    what: str
    saved: float | None
    running: bool
    holder: str

    @property
    def progress(self) -> str:
        """Since when it has some."""
        if self.saved is None:
            return "none yet"
        return f"kept at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.saved))}"

    def __str__(self) -> str:
        return f"{self.name}: {self.what}, progress {self.progress}"


def unfinished_fits(home: Home) -> list[UnfinishedStatus]:
    """All fits that are under way or were interrupted, the oldest first."""
    return [_describe(folder) for folder in home.unfinished_fits()]


def discard(home: Home, name: str) -> None:
    """Remove an interrupted fit, also one that cannot be read.

    Raises UsageError when there is none of this name, or it is running.
    """
    folder = _choose(home, name)
    _remove(folder, _locked(folder))


def sweep(home: Home) -> list[str]:
    """Remove fits whose process ended before they had any progress; returns their names."""
    removed: list[str] = []
    for folder in home.unfinished.glob("*/"):
        begun = (folder / _REQUEST).exists()
        lock = FolderLock(folder)
        with contextlib.suppress(OSError):
            old = folder.stat().st_mtime < time.time() - _SWEPT_AFTER
            if not _has_progress(folder) and (begun or old) and lock.try_acquire():
                if _has_progress(folder):  # it was another's until just now
                    lock.release()
                    continue
                _remove(folder, lock)
                removed += [folder.name] if begun else []
    return removed


def tell_of_others(home: Home, on_notice: Callable[[str], None]) -> None:
    """Name the fits that were interrupted; those without any progress are removed."""
    for name in sweep(home):
        on_notice(f"Removed {name}: that fit ended before it had any progress to keep.")
    for other in unfinished_fits(home):
        if not other.running:
            on_notice(
                f"Kept an interrupted fit, {other}. `forecaster fit --resume {other.name}` "
                f"continues it, `forecaster fit --discard {other.name}` removes it."
            )


def data_digest(store: Store, ids: Sequence[str], masked: pd.DataFrame) -> str:
    """A hash over stored series and the rows of them that are left out."""
    rows = masked[["unique_id", "ds", "flag"]].astype(str).to_csv(index=False)
    return hashlib.sha256(f"{store.digest(ids)}\n{rows}".encode()).hexdigest()


def _new_folder(home: Home, request: FitRequest) -> tuple[Path, FolderLock]:
    """A folder that no other fit has, and its lock."""
    for _ in range(_TRIES):
        home.unfinished.mkdir(parents=True, exist_ok=True)
        folder = home.new_unfinished(request.config.model)
        # Another fit may begin in the same millisecond, or end and take the folder above with it.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            folder.mkdir()
            lock = FolderLock(folder)
            if lock.try_acquire():
                return folder, lock
        time.sleep(0.001)
    raise OSError("too many fits begin at the same time")


def _choose(home: Home, name: str | None) -> Path:
    """The folder of a name, or of the only fit that is not running."""
    folders = {folder.name: folder for folder in home.unfinished_fits()}
    if name is not None:
        if name not in folders:
            there = f"; there are {', '.join(folders)}" if folders else ""
            raise UsageError(f"no unfinished fit {name!r} under {home}{there}")
        return folders[name]
    idle = [folder for folder in folders.values() if not is_held(folder)]
    if len(idle) == 1:
        return idle[0]
    if idle:
        lines = "\n".join(f"  {_describe(folder)}" for folder in idle)
        raise UsageError(
            f"{len(idle)} unfinished fits under {home}; name one, --resume NAME:\n{lines}"
        )
    if folders:
        raise _still_running(next(iter(folders.values())))
    raise UsageError(f"no unfinished fit under {home}; run `forecaster fit` without --resume")


def _locked(folder: Path) -> FolderLock:
    """The lock of an unfinished fit, for this process. Raises UsageError when another has it."""
    lock = FolderLock(folder)
    with atomic.as_write_error(folder):
        if not lock.try_acquire(_LOOKED_AT):
            raise _still_running(folder)
    if not (folder / _REQUEST).exists():  # its model was saved just now
        _remove(folder, lock)
        raise UsageError(f"{folder.name}: this fit has ended meanwhile; see `forecaster status`")
    return lock


def _still_running(folder: Path) -> UsageError:
    return UsageError(
        f"{folder.name}: this fit is still running{holder_of(folder)}; wait for its end, or "
        "interrupt it first"
    )


def _describe(folder: Path) -> UnfinishedStatus:
    try:
        what = str(_read_request(folder / _REQUEST))
    except ModelError:
        what = f"cannot be read; {_how_to_discard(folder.name)}"
    saved: float | None = None
    with contextlib.suppress(OSError):
        saved = max((path.stat().st_mtime for path in _checkpoints(folder)), default=None)
    running = is_held(folder)
    holder = holder_of(folder).strip(" ()") if running else ""
    return UnfinishedStatus(folder.name, what, saved, running, holder)


def _how_to_discard(name: str) -> str:
    return f"`forecaster fit --discard {name}` removes it"


def _checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob(f"{_CHECKPOINT}*"))


def _has_progress(folder: Path) -> bool:
    return bool(_checkpoints(folder))


def _remove(folder: Path, lock: FolderLock) -> None:
    """Remove a fit that this process holds: first the request, without which there is no fit.

    Also from where version 0.2 kept its only one, beside the folders of others.
    """
    with atomic.as_write_error(folder):
        (folder / _REQUEST).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a later sweep takes what is left
        for path in [*_checkpoints(folder), *folder.glob(f"{atomic.PREFIX}*")]:
            path.unlink()
        lock.release()
        for name in (LOCK, HOLDER):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
        if folder.parent.name == "unfinished":
            folder.parent.rmdir()  # where it was the last
    lock.release()


def _read_request(path: Path) -> FitRequest:
    try:
        fields = json.loads(path.read_bytes())
        schema = fields.pop("schema")
        fields["ids"], fields["mask"] = tuple(fields["ids"]), tuple(fields["mask"])
        fields["config"] = Config(**fields["config"])
        fields.setdefault("versions", {})
        request = FitRequest(**fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fit without --resume") from error
    if not 1 <= schema <= _SCHEMA:
        raise ModelError(f"{path}: of another version of forecaster; fit without --resume")
    return request


def _check_versions(request: FitRequest) -> None:
    """Raise ModelError where the program would compute something else than before."""
    now = versions()
    changed = [
        f"{name} {was} (now {now.get(name, 'not installed')})"
        for name, was in request.versions.items()
        if now.get(name) != was
    ]
    if changed:
        raise ModelError(
            f"the fit was begun with {', '.join(changed)}, and would not end with the same bits; "
            "to continue, have these again (versions installed; FORECASTER_KERNEL and "
            "JAX_PLATFORMS unset or as they were, on such a machine), or run `forecaster fit` "
            "without --resume"
        )
