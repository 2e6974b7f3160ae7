"""Store unfinished fits and evaluations, so that they can be resumed after an interruption.

unfinished/<name>/request.json       data, settings, seed, and versions that the bits depend on
unfinished/<name>/swarm.checkpoint*  state of the networks of a shard in training
unfinished/<name>/shards/            finished shards, see forecaster.storage.unfinished.parts
unfinished/<name>/.lock              held by the process that trains

A folder counts as an unfinished fit from the moment it has a request until its run is saved. Its
process holds the lock before it writes the request, so a fit that is not locked was interrupted.
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from forecaster.errors import ModelError, StoreError, UsageError, WriteError
from forecaster.files import LOCK, FolderLock, Home, atomic, is_held, run_name
from forecaster.ingest import Store, masked_rows
from forecaster.storage.runs.request import FitRequest, data_digest, read_request, write_request
from forecaster.storage.runs.run_index import SHARDS, shard_name
from forecaster.storage.unfinished.parts import PART

if TYPE_CHECKING:  # unfinished fits are listed without JAX
    from forecaster.swarm import Checkpoint

_EVALUATION = "evaluation"  # the kind of model in the name of an unfinished evaluation
_REQUEST, _CHECKPOINT = "request.json", "swarm.checkpoint"
_TRIES = 100
_LOOKED_AT = 0.5  # seconds to wait for a process that only tests whether a lock is free


def command_of(name: str) -> str:
    """Return the command that continues the unfinished work of this name."""
    return "evaluate" if name.endswith(f"-{_EVALUATION}") else "fit"


class UnfinishedStatus(NamedTuple):
    """The status of an unfinished fit.

    - ``name``: the name to resume it by; ``command``: the command that continues it
    - ``what``: series, source and kind of network, or why it cannot be read
    - ``progress``: in words
    - ``running``: whether a process trains it
    """

    name: str
    command: str
    what: str
    progress: str
    running: bool


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
            with contextlib.suppress(WriteError):  # a later fit removes it
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
        model = _EVALUATION if request.evaluation else request.config.column.lower()
        with atomic.as_write_error(home.unfinished):
            for _ in range(_TRIES):
                folder = home.new_unfinished(model, run)
                # Another fit may begin in the same millisecond, or end and remove the parent.
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    folder.mkdir(parents=True)
                    # Another command may look at it in between, and remove it as empty.
                    if (lock := FolderLock(folder)).try_acquire():
                        break
                time.sleep(0.001)
            else:
                raise OSError("too many fits begin at the same time")
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
        it cannot be read.
        """
        folder, lock = _held(home, name, command)
        try:
            return UnfinishedFit(folder, read_request(folder / _REQUEST), lock)
        except BaseException:
            lock.release()
            raise

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
        return bool(_progress(self.folder))

    def masked_rows(self, store: Store) -> pd.DataFrame:
        """Return the flagged rows that the fit leaves out.

        Raises ModelError when anything has changed since the request that the bits depend on.
        """
        request, command = self.request, command_of(self.name)
        masked = None
        with contextlib.suppress(StoreError):  # the flags are out of date: the prices have changed
            masked = masked_rows(store, request.read, request.mask, request.end)
            stored = set(request.read) <= set(store.ids)
            if not stored or data_digest(store, request.read, masked) != request.data_sha256:
                masked = None
        changed = ["the stored data"] if masked is None else request.changed()
        if masked is not None and not changed:
            return masked
        raise ModelError(
            f"{', '.join(changed)} have changed since the {command} was interrupted, so that it "
            f"would not end with the same bits. Restore them, or run `forecaster {command}` "
            f"without --resume ({_how_to_discard(self.name)})"
        )

    def shard(self, number: int) -> Path:
        """Return the folder of a finished shard."""
        return self.folder / SHARDS / shard_name(number)

    def stage(self, number: int) -> "UnfinishedFit":
        """Return the unfinished fit of one of several trainings; the first is this itself."""
        if number == 0:
            return self
        folder = self.folder / SHARDS / f"after-{shard_name(number)}"
        with atomic.as_write_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return dataclasses.replace(self, folder=folder)

    def measured(self, number: int) -> Path:
        """Return the folder of a measured part of an evaluation."""
        return self.folder / SHARDS / f"measured-{shard_name(number)}"

    def checkpoint_of(self, shard: int) -> "Checkpoint":
        """Return the checkpoint of a shard, to be resumed from if there is one."""
        from forecaster.swarm import Checkpoint

        path = self.folder / f"{_CHECKPOINT}-{shard_name(shard)}"
        return Checkpoint(
            path, resume=any(self.folder.glob(f"{path.name}*")),
            replace=atomic.write_file, remove=atomic.remove_file,  # which raise WriteError
        )  # fmt: skip

    def forget_checkpoint(self, shard: int) -> None:
        """Remove the checkpoint of a shard that is finished."""
        for path in self.folder.glob(f"{_CHECKPOINT}-{shard_name(shard)}*"):
            with contextlib.suppress(OSError):  # it is not used again
                path.unlink()

    def discard(self) -> None:
        """Remove the fit, once its model is saved or another try would end the same way."""
        _remove(self.folder, self.lock)


def unfinished_fits(home: Home) -> list[UnfinishedStatus]:
    """Return the status of all unfinished fits, the oldest first."""
    return [_describe(folder) for folder in home.unfinished_fits()]


def discard(home: Home, name: str) -> None:
    """Remove an interrupted fit, even if it cannot be read.

    Raises UsageError when there is none of this name, or it is running.
    """
    _remove(*_held(home, name, None))


def tell_of_others(home: Home, on_notice: Callable[[str], None]) -> None:
    """Give notice of interrupted fits; those without any progress are removed."""
    for fit in unfinished_fits(home):
        folder = home.unfinished / fit.name
        lock = FolderLock(folder)
        # Another process has removed it, or it cannot be written.
        with contextlib.suppress(OSError):
            if not lock.try_acquire():
                continue
            if _progress(folder):
                lock.release()
                on_notice(
                    f"Kept an interrupted fit, {_in_words(fit)}. `forecaster {fit.command} "
                    f"--resume {fit.name}` continues it, {_how_to_discard(fit.name)}."
                )
            else:
                _remove(folder, lock)
                on_notice(f"Removed {fit.name}: it had ended before it had any progress")


def _held(home: Home, name: str | None, command: str | None) -> tuple[Path, FolderLock]:
    """Lock the fit of a name, or the only fit that is not running; return its folder, too.

    ``command``: the command that resumes it; None: any. Raises UsageError when there is none,
    another process has it, or there are several.
    """
    fits = [f for f in home.unfinished_fits() if command in (None, command_of(f.name))]
    named = [folder for folder in fits if name in (None, folder.name, run_name(folder))]
    found = [folder for folder in named if not is_held(folder)] or named[:1]
    there = "".join(f"\n  {_in_words(_describe(folder))}" for folder in found or fits)
    if not found:
        kind = "evaluation" if command == "evaluate" else "fit"
        what = kind if name is None else f"{kind} {name!r}"
        others = f"; there are:{there}" if there else ""
        raise UsageError(f"no unfinished {what} under {home}{others}")
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} unfinished fits under {home}; name one, --resume NAME:{there}"
        )
    (folder,) = found
    lock = FolderLock(folder)
    with atomic.as_write_error(folder):
        if not lock.try_acquire(_LOOKED_AT):
            raise UsageError(
                f"{folder.name}: this fit is still running; wait for its end, or interrupt it first"
            )
    if not (folder / _REQUEST).exists():  # its model has just been saved
        _remove(folder, lock)
        raise UsageError(f"{folder.name}: this fit has ended meanwhile; see `forecaster status`")
    return folder, lock


def _in_words(fit: UnfinishedStatus) -> str:
    return f"{fit.name}: {fit.what}, progress {fit.progress}"


def _describe(folder: Path) -> UnfinishedStatus:
    progress, shards = "none yet", ""
    kept = _progress(folder)
    try:
        request = read_request(folder / _REQUEST)
        what = str(request)
        if request.series_per_shard is not None:
            done = sum(path.name == PART for path in kept)
            shards = f"{done} of {-(-len(request.ids) // request.series_per_shard)} shards done, "
    except ModelError:
        what = f"cannot be read; {_how_to_discard(folder.name)}"
    with contextlib.suppress(OSError, ValueError):  # it may be removed meanwhile; none yet
        saved = time.localtime(max(path.stat().st_mtime for path in kept))
        progress = f"{shards}kept at {time.strftime('%Y-%m-%d %H:%M:%S', saved)}"
    name = folder.name
    return UnfinishedStatus(name, command_of(name), what, progress, is_held(folder))


def _how_to_discard(name: str) -> str:
    return f"`forecaster fit --discard {name}` removes it"


def _progress(folder: Path) -> list[Path]:
    """Return the checkpoints, and the ``part.json`` of each finished shard."""
    return [*folder.glob(f"{_CHECKPOINT}*"), *folder.glob(f"{SHARDS}/*/{PART}")]


def _remove(folder: Path, lock: FolderLock) -> None:
    """Remove a fit that this process holds, beginning with the request."""
    with atomic.as_write_error(folder):
        (folder / _REQUEST).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for path in folder.glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink(missing_ok=True)
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)  # what is left, a later fit removes
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # if it was the last
