"""Store unfinished fits and evaluations, so that they can be resumed after an interruption.

unfinished/<name>/request.json       data, settings, seed, and versions that the bits depend on
unfinished/<name>/swarm.checkpoint   state of the networks in training; a search has one per stage,
                                     several shards have swarm.checkpoint-0007, ...
unfinished/<name>/shards/            finished shards, see forecaster.storage.unfinished.parts
unfinished/<name>/.lock              held by the process that trains

A folder counts as an unfinished fit from the moment it has a request until a run with its name is
saved. Its process holds the lock before it writes the request, so a fit that is not locked was
interrupted. (Version 0.2 had one fit, in ``unfinished`` itself.)
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import ModelError, StoreError, UsageError, WriteError
from forecaster.files import HOLDER, LOCK, FolderLock, atomic, holder_of, is_held
from forecaster.home import Home, run_name
from forecaster.ingest import Store, masked_rows
from forecaster.storage.model.files import runs_by_fit
from forecaster.storage.runs.index import SHARDS, shard_name
from forecaster.storage.runs.request import (
    FitRequest,
    check_versions,
    data_digest,
    read_request,
    write_request,
)
from forecaster.storage.unfinished.parts import finished_parts, remove_parts

EVALUATION = "evaluation"
"""The kind of model in the name of an unfinished evaluation."""


class OutdatedFit(ModelError):
    """The data of an interrupted fit have changed, so that it cannot be resumed."""


def command_of(name: str) -> str:
    """Return the command that continues the unfinished work of this name."""
    return "evaluate" if name.endswith(f"-{EVALUATION}") else "fit"


@dataclasses.dataclass(frozen=True)
class UnfinishedStatus:
    """The status of an unfinished fit.

    - ``name``: the name to resume it by
    - ``what``: series, source and kind of network, or why it cannot be read
    - ``saved``: when its progress was last stored, in seconds since 1970; None: there is none yet
    - ``running``: whether a process trains it
    - ``holder``: the process that trains it, if known
    - ``shards``: for a fit of several shards, the numbers of finished and of all shards; else None
    """

    name: str
    what: str
    saved: float | None
    running: bool
    holder: str
    shards: tuple[int, int] | None = None

    @property
    def command(self) -> str:
        """The command that continues it."""
        return command_of(self.name)

    @property
    def progress(self) -> str:
        """Its progress in words."""
        if self.saved is None:
            return "none yet"
        done = "" if self.shards is None else "{} of {} shards done, ".format(*self.shards)
        return f"{done}kept at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.saved))}"

    def __str__(self) -> str:
        return f"{self.name}: {self.what}, progress {self.progress}"


if TYPE_CHECKING:  # unfinished fits are listed without JAX
    from forecaster.swarm import Checkpoint

_REQUEST, _CHECKPOINT = "request.json", "swarm.checkpoint"
_SWEPT_AFTER = 3600.0  # seconds; a younger folder may still get its request
_TRIES = 100
_LOOKED_AT = 0.5  # seconds to wait for a process that only tests whether a lock is free


@dataclasses.dataclass(frozen=True)
class UnfinishedFit:
    """A fit that has begun and is not saved yet, held by this process.

    No other process can resume it until this context or the process ends. ``new``: it begins in
    this process, and is not resumed.
    """

    folder: Path
    request: FitRequest
    lock: FolderLock = dataclasses.field(repr=False, compare=False)
    new: bool = False

    def __enter__(self) -> "UnfinishedFit":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        # A fit that was refused, or stopped before it had any progress, leaves nothing behind.
        if error is not None and self.new and not self.has_progress and self.folder.is_dir():
            with contextlib.suppress(WriteError):  # a later sweep removes it
                return _remove(self.folder, self.lock)
        self.lock.release()

    @staticmethod
    def begin(home: Home, request: FitRequest, run: str | None = None) -> "UnfinishedFit":
        """Begin a fit: write its request into a new folder.

        ``run``: the name of its run; by default its time. Raises UsageError when a run or another
        unfinished fit has that name, WriteError when the request cannot be written.
        """
        if run is not None:
            home.check_new_name(run)
        with atomic.as_write_error(home.unfinished):
            folder, lock = _new_folder(home, request, run)
        try:
            write_request(folder / _REQUEST, request)
        except BaseException:
            _remove(folder, lock)
            raise
        return UnfinishedFit(folder, request, lock, new=True)

    @staticmethod
    def find(home: Home, name: str | None = None, *, command: str = "fit") -> "UnfinishedFit":
        """Take up a fit to resume: the one of this name, or the only one that is not running.

        ``command``: the command that resumes it, ``fit`` or ``evaluate``.

        Raises UsageError when there is none, it is running, or there are several; ModelError when
        it cannot be read, or was begun by other versions of the program or another kernel.
        """
        folder = _choose(home, name, command)
        lock = _locked(folder)
        try:
            request = read_request(folder / _REQUEST)
            check_versions(request)
        except BaseException:
            lock.release()
            raise
        return UnfinishedFit(folder, request, lock)

    @property
    def name(self) -> str:
        """The name to resume it by."""
        return self.folder.name

    @property
    def run(self) -> str | None:
        """The name of its run; None: its time."""
        return None if run_name(self.folder) == self.name else run_name(self.folder)

    @property
    def has_progress(self) -> bool:
        """Whether it has a checkpoint or a finished shard."""
        return _has_progress(self.folder)

    def masked_rows(self, store: Store) -> pd.DataFrame:
        """Return the flagged rows that the fit leaves out.

        Raises OutdatedFit when they, or the stored prices, have changed since the request.
        """
        request = self.request
        try:
            masked = masked_rows(store, request.read, request.mask, request.end)
            stored = set(request.read) <= set(store.ids)
            if stored and data_digest(store, request.read, masked) == request.data_sha256:
                return masked
        except StoreError:
            pass  # the flags are out of date, so the prices have changed
        raise OutdatedFit(
            f"the stored data have changed since the {command_of(self.name)} was interrupted; run "
            f"`forecaster {command_of(self.name)}` without --resume ({_how_to_discard(self.name)})"
        )

    @property
    def shards(self) -> Path:
        """The folder of the finished shards."""
        return self.folder / SHARDS

    def stage(self, number: int) -> "UnfinishedFit":
        """Return the unfinished fit of one of several trainings; the first is this itself."""
        if number == 0:
            return self
        folder = self.shards / f"after-{shard_name(number)}"
        with atomic.as_write_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return dataclasses.replace(self, folder=folder)

    def measured(self, number: int) -> Path:
        """Return the folder of a measured part of an evaluation."""
        return self.shards / f"measured-{shard_name(number)}"

    def checkpoint_of(self, shard: int) -> "Checkpoint":
        """Return the checkpoint of a shard, to be resumed from if there is one."""
        from forecaster.swarm import Checkpoint

        path = self.folder / self._checkpoint_name(shard)
        there = any(self.folder.glob(f"{path.name}*"))
        return Checkpoint(
            path, resume=there and not self.new,
            replace=atomic.write_file, remove=atomic.remove_file,  # which raise WriteError
        )  # fmt: skip

    def finish_shard(self, shard: int) -> None:
        """Remove the progress of a shard that is finished."""
        for path in self.folder.glob(f"{self._checkpoint_name(shard)}*"):
            with contextlib.suppress(OSError):  # it is not used again
                path.unlink()

    def _checkpoint_name(self, shard: int) -> str:
        whole = self.request.series_per_shard is None
        return _CHECKPOINT if whole else f"{_CHECKPOINT}-{shard_name(shard)}"

    def discard(self) -> None:
        """Remove the fit, once its model is saved or it is no longer wanted."""
        _remove(self.folder, self.lock)


def unfinished_fits(home: Home) -> list[UnfinishedStatus]:
    """Return the status of all unfinished fits, the oldest first.

    A fit whose process was killed after its model was saved is removed instead.
    """
    return [_describe(folder) for folder in _not_saved(home, home.unfinished_fits())]


def take_saved(home: Home, name: str | None = None) -> Path | None:
    """Return the run of a fit whose process was killed after saving it, and remove the fit.

    ``name``: as for :meth:`UnfinishedFit.find`. Returns None for a fit without a run. Raises
    UsageError when there is none, it is running, or there are several.
    """
    folder = _choose(home, name, "fit")
    run = _runs(home).get(folder.name)
    if run is not None:
        _remove(folder, _locked(folder))
    return run


def discard(home: Home, name: str) -> None:
    """Remove an interrupted fit, even if it cannot be read.

    Raises UsageError when there is none of this name, or it is running.
    """
    folder = _choose(home, name, None)
    _remove(folder, _locked(folder))


def sweep(home: Home) -> list[str]:
    """Remove fits whose process ended before they had any progress; return their names."""
    removed: list[str] = []
    for folder in home.unfinished.glob("*/"):
        begun = (folder / _REQUEST).exists()
        lock = FolderLock(folder)
        with contextlib.suppress(OSError):
            old = folder.stat().st_mtime < time.time() - _SWEPT_AFTER
            if not _has_progress(folder) and (begun or old) and lock.try_acquire():
                if _has_progress(folder):  # another process has just released it
                    lock.release()
                    continue
                _remove(folder, lock)
                removed += [folder.name] if begun else []
    return removed


def tell_of_others(home: Home, on_notice: Callable[[str], None]) -> None:
    """Give notice of interrupted fits; those without any progress or with other data are removed.

    A fit is only resumed on the data that it began with. If its series have been updated since, it
    could never be resumed.
    """
    for name in sweep(home):
        on_notice(f"Removed {name}: that fit ended before it had any progress to keep.")
    for name in _sweep_outdated(home):
        on_notice(
            f"Removed {name}: that {command_of(name)} was interrupted, and its data have changed "
            "since, so that it could not be continued."
        )
    for other in unfinished_fits(home):
        if not other.running:
            on_notice(
                f"Kept an interrupted fit, {other}. `forecaster {other.command} --resume "
                f"{other.name}` "
                f"continues it, `forecaster fit --discard {other.name}` removes it."
            )


def _sweep_outdated(home: Home) -> list[str]:
    """Remove interrupted fits whose data have changed since; return their names."""
    removed: list[str] = []
    for folder in _not_saved(home, home.unfinished_fits()):
        lock = FolderLock(folder)
        try:
            if not lock.try_acquire():
                continue
        except OSError:  # the home is read-only
            continue
        if not (folder / _REQUEST).exists():  # another process was just removing it
            _remove(folder, lock)
            continue
        try:
            request = read_request(folder / _REQUEST)
            store = Store.open(home, request.source)
            UnfinishedFit(folder, request, lock).masked_rows(store)
        except OutdatedFit:
            _remove(folder, lock)
            removed.append(folder.name)
            continue
        except (ModelError, StoreError):
            pass  # it is told of, with the reason
        lock.release()
    return removed


def _new_folder(home: Home, request: FitRequest, run: str | None) -> tuple[Path, FolderLock]:
    """Make a folder that no other fit has; return it with its lock."""
    for _ in range(_TRIES):
        # Another fit may begin in the same millisecond, or end and remove the parent folder, even
        # while mkdir examines it.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            home.unfinished.mkdir(parents=True, exist_ok=True)
            model = EVALUATION if request.evaluation else request.config.column.lower()
            folder = home.new_unfinished(model, run)
            folder.mkdir()
            lock = FolderLock(folder)
            if lock.try_acquire():
                return folder, lock
        time.sleep(0.001)
    home.unfinished.mkdir(parents=True, exist_ok=True)  # raises if it is a file
    raise OSError("too many fits begin at the same time")


def _choose(home: Home, name: str | None, command: str | None) -> Path:
    """Return the folder of the fit of a name, or of the only fit that is not running.

    ``command``: the command that resumes it; None: any.
    """
    folders = {folder.name: folder for folder in home.unfinished_fits()}
    if name is not None:
        named = {run_name(folder): folder.name for folder in folders.values()}
        name = named.get(name, name)
        if name not in folders:
            there = f"; there are {', '.join(folders)}" if folders else ""
            raise UsageError(f"no unfinished fit {name!r} under {home}{there}")
        if command not in (None, right := command_of(name)):
            raise UsageError(f"{name}: `forecaster {right} --resume {name}` continues it")
        return folders[name]
    of_kind = [folder for folder in folders.values() if command in (None, command_of(folder.name))]
    idle = [folder for folder in of_kind if not is_held(folder)]
    if len(idle) > 1:
        idle = _not_saved(home, idle)
    if len(idle) == 1:
        return idle[0]
    if idle:
        lines = "\n".join(f"  {_describe(folder)}" for folder in idle)
        raise UsageError(
            f"{len(idle)} unfinished fits under {home}; name one, --resume NAME:\n{lines}"
        )
    if of_kind:
        raise _still_running(of_kind[0])
    what = "evaluation" if command == "evaluate" else "fit"
    raise UsageError(
        f"no unfinished {what} under {home}; run `forecaster {command}` without --resume"
    )


def _runs(home: Home) -> dict[str, Path]:
    """Return runs by the names of their fits, except a name that several fits had."""
    runs = runs_by_fit(home)
    runs.pop(home.unfinished.name, None)  # the name of every fit of version 0.2
    return runs


def _not_saved(home: Home, folders: Sequence[Path]) -> list[Path]:
    """Return the fits without a run; others whose process has ended are removed, if possible."""
    runs = _runs(home) if folders else {}
    saved = [folder for folder in folders if folder.name in runs and not is_held(folder)]
    for folder in saved:
        with contextlib.suppress(OSError, WriteError, UsageError):  # a home may be read-only
            _remove(folder, _locked(folder))
    return [folder for folder in folders if folder not in saved]


def _locked(folder: Path) -> FolderLock:
    """Lock an unfinished fit for this process. Raises UsageError when another process has it."""
    lock = FolderLock(folder)
    with atomic.as_write_error(folder):
        if not lock.try_acquire(_LOOKED_AT):
            raise _still_running(folder)
    if not (folder / _REQUEST).exists():  # its model has just been saved
        _remove(folder, lock)
        raise UsageError(f"{folder.name}: this fit has ended meanwhile; see `forecaster status`")
    return lock


def _still_running(folder: Path) -> UsageError:
    return UsageError(
        f"{folder.name}: this fit is still running{holder_of(folder)}; wait for its end, or "
        "interrupt it first"
    )


def _describe(folder: Path) -> UnfinishedStatus:
    parts, shards = list[Path](), None
    try:
        parts = finished_parts(folder)
        request = read_request(folder / _REQUEST)
        what = str(request)
        if request.series_per_shard is not None:
            shards = len(parts), -(-len(request.ids) // request.series_per_shard)
    except ModelError:
        what = f"cannot be read; {_how_to_discard(folder.name)}"
    saved: float | None = None
    with contextlib.suppress(OSError):
        kept = [*_checkpoints(folder), *parts]
        saved = max((path.stat().st_mtime for path in kept), default=None)
    running = is_held(folder)
    holder = holder_of(folder).strip(" ()") if running else ""
    return UnfinishedStatus(folder.name, what, saved, running, holder, shards)


def _how_to_discard(name: str) -> str:
    return f"`forecaster fit --discard {name}` removes it"


def _checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob(f"{_CHECKPOINT}*"))


def _has_progress(folder: Path) -> bool:
    return bool(_checkpoints(folder)) or (folder / SHARDS).exists()


def _remove(folder: Path, lock: FolderLock) -> None:
    """Remove a fit that this process holds, beginning with the request.

    Version 0.2 had its only fit beside the folders of others, which stay.
    """
    with atomic.as_write_error(folder):
        (folder / _REQUEST).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a later sweep removes the rest
        for path in [*_checkpoints(folder), *folder.glob(f"{atomic.PREFIX}*")]:
            path.unlink()
        remove_parts(folder)
        lock.release()
        for name in (LOCK, HOLDER):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
        if folder.parent.name == "unfinished":
            folder.parent.rmdir()  # if it was the last
    lock.release()
