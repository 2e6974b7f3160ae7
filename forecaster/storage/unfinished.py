"""Store unfinished fits and evaluations, so that they can be resumed after an interruption.

unfinished/<name>/request.json        data, settings, seed, and versions that the bits depend on
unfinished/<name>/shards/             finished shards, see forecaster.storage.parts
unfinished/<name>/shards/*.checkpoint*  state of the networks of a shard, or of each training of an
                                      evaluation
unfinished/<name>/.lock               held by the process that trains

A folder counts as an unfinished fit from the moment it has a request until its run is saved. Its
process holds the lock before it writes the request, so a fit that is not locked was interrupted.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

from forecaster import __version__
from forecaster.errors import ModelError, Skipped, StoreError, UsageError, WriteError
from forecaster.files import FolderLock, Home, atomic, is_held, read_plain, run_name
from forecaster.forecasting import Config
from forecaster.ingest import CovariateFiles, Store, masked_rows
from forecaster.series import Date
from forecaster.storage.run import SHARDS, ids_to_read, shard_name

if TYPE_CHECKING:  # unfinished fits are listed without JAX
    from forecaster.swarm import Checkpoint

_LIBRARIES = ("jax", "jaxlib", "flax", "optax")
_SCHEMA = 6  # version 5 kept the options of an evaluation in another form
_EVALUATION = "evaluation"  # the kind of model in the name of an unfinished evaluation
_REQUEST, _CHECKPOINT = "request.json", ".checkpoint"
_LOOKED_AT = 0.5  # seconds to wait for a process that only tests whether a lock is free


def versions(precision: str = "float32") -> dict[str, str]:
    """Return what the computed bits depend on: versions of programs, JAX's backend, the kernel."""
    from forecaster.swarm import arithmetic, use_all_cores

    libraries = {name: version(name) for name in _LIBRARIES}
    use_all_cores()  # before anything starts JAX
    return {"forecaster": __version__, **libraries, **arithmetic(precision)}


@dataclasses.dataclass(frozen=True)
class EvaluationRequest:
    """What an evaluation asks for beside the training of its networks.

    - ``folder``, ``overwrite``: where it is written; see :func:`forecaster.files.as_text`
    - ``options``: of :class:`forecaster.evaluation.BacktestOptions`, as plain values
    """

    folder: str
    overwrite: bool
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class FitRequest:
    """What a fit asks for, once its data have arrived in the store.

    - ``source``, ``ids``: the store and the series in it
    - ``skipped``: series that could not be fetched, with the reason
    - ``stale``: stored series that could not be updated before, with the reason
    - ``data_sha256``: of the stored series, see :func:`rows_left_out`
    - ``config``, ``seed``, ``tune``: how to train
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``mask``: flags whose rows are left out
    - ``covariates``, ``covariates_sha256``: the files of covariates, and a hash of their content
    - ``versions``: see :func:`versions`
    - ``series_per_shard``: number of series that are trained and saved together; None: all
    - ``processes``: the number of processes that fit shards without networks
    - ``whole_source``: whether no tickers were named; later tickers of the source then belong to
      the fit
    - ``evaluation``: set for an evaluation, whose networks are trained on the data known at its
      cutoffs
    """

    source: str
    ids: tuple[str, ...]
    skipped: dict[str, Skipped]
    data_sha256: str
    config: Config
    seed: int
    tune: bool = False
    start: str | None = None
    end: str | None = None
    mask: tuple[str, ...] = ()
    covariates: CovariateFiles = dataclasses.field(default_factory=CovariateFiles)
    covariates_sha256: str | None = None
    series_per_shard: int | None = None
    processes: int = 1
    whole_source: bool = False
    stale: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    evaluation: EvaluationRequest | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def changed(self) -> list[str]:
        """Return what the bits depend on and is no longer the same, apart from the stored data."""
        files = {"the files of covariates": (self.covariates_sha256, self.covariates.sha256())}
        now = versions(self.config.precision)
        return [what for what, (was, is_now) in files.items() if was != is_now] + [
            f"{name} {was} (now {now.get(name, 'not installed')})"
            for name, was in self.versions.items()
            if now.get(name) != was
        ]

    def __str__(self) -> str:
        hidden = "" if self.config.is_classical else f" {self.config.hidden}"
        kind = f"{self.config.column}{hidden}{', tuned' if self.tune else ''}"
        what = "" if self.evaluation is None else "an evaluation of "
        return f"{what}{len(self.ids)} series of {self.source}, {kind}"


def rows_left_out(
    store: Store, ids: Sequence[str], config: Config, mask: Sequence[str], end: Date | None
) -> tuple[pd.DataFrame, str]:
    """Return the flagged rows that a fit leaves out, and a hash of them and of the stored series.

    - ``ids``: the series to fit; the hash is also of the indices beside them
    - ``mask``: the flags of rows to leave out; ``end``: the last day
    """
    read = ids_to_read(ids, config)
    masked = masked_rows(store, read, mask, end)
    # What is digested is not written.
    rows = masked[["unique_id", "ds", "flag"]].astype(str).to_csv(index=False)
    return masked, hashlib.sha256(f"{store.index.digest(read)}\n{rows}".encode()).hexdigest()


def write_request(path: Path, request: FitRequest) -> None:
    """Write a request, whole or not at all."""
    said = json.dumps(msgspec.to_builtins(request)).encode()
    head = f"{_SCHEMA} {hashlib.sha256(said).hexdigest()}\n".encode()
    atomic.write_file(path, lambda to: to.write_bytes(head + said))


def read_request(path: Path) -> FitRequest:
    """Read a request. Raises ModelError when it cannot be read, or is of another version."""
    try:
        head, _, said = read_plain(path).partition(b"\n")
        if head != f"{_SCHEMA} {hashlib.sha256(said).hexdigest()}".encode():
            raise ValueError("of another version of forecaster, or not what was written")
        return msgspec.convert(json.loads(said), FitRequest)
    except (OSError, ValueError, UsageError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fit without --resume") from error


@dataclasses.dataclass(frozen=True)
class UnfinishedFit:
    """A fit that has begun and is not saved yet.

    While a process holds its lock, no other can resume it.
    """

    folder: Path
    lock: FolderLock = dataclasses.field(repr=False, compare=False)

    @staticmethod
    @contextlib.contextmanager
    def begin(home: Home, request: FitRequest, run: str | None = None) -> "Iterator[UnfinishedFit]":
        """Begin a fit: write its request into a new folder.

        If the block ends by an error before the fit has any progress, the folder is removed.

        ``run``: the name of its run; by default its time. Raises UsageError when a run or another
        unfinished fit has that name, WriteError when the request cannot be written.
        """
        if run is not None:
            home.check_new_name(run)
        atomic.sweep(home.unfinished)
        model = _EVALUATION if request.evaluation else request.config.column.lower()
        with atomic.as_write_error(home.unfinished):
            while True:  # names differ by the millisecond; another fit may remove the parent
                folder = home.new_unfinished(model, run)
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    folder.mkdir(parents=True)
                    # Another command may look at it in between, and remove it as empty.
                    if (lock := FolderLock(folder)).try_acquire():
                        break
        unfinished = UnfinishedFit(folder, lock)
        try:
            write_request(folder / _REQUEST, request)
            yield unfinished
        except BaseException:
            if not unfinished.has_progress:
                with contextlib.suppress(WriteError):
                    unfinished.discard()
            raise
        finally:
            lock.release()

    @staticmethod
    @contextlib.contextmanager
    def find(
        home: Home, name: str | None = None, *, command: str = "fit"
    ) -> "Iterator[UnfinishedFit]":
        """Take up a fit to resume: the one of this name, or the only one that is not running.

        ``command``: the command that resumes it, ``fit`` or ``evaluate``.

        Raises UsageError when there is none, it is running, or there are several; ModelError when
        it cannot be read.
        """
        unfinished = _held(home, name, command)
        try:
            _ = unfinished.request  # raises before the work begins
            yield unfinished
        finally:
            unfinished.lock.release()

    @functools.cached_property
    def request(self) -> FitRequest:
        """What it asks for. Raises ModelError when that cannot be read."""
        return read_request(self.folder / _REQUEST)

    @property
    def name(self) -> str:
        """The name to resume it by."""
        return self.folder.name

    @property
    def command(self) -> str:
        """The command that continues it."""
        return "evaluate" if self.name.endswith(f"-{_EVALUATION}") else "fit"

    @property
    def running(self) -> bool:
        """Whether a process works on it."""
        return is_held(self.folder)

    @property
    def what(self) -> str:
        """Its series, their source and the kind of network; or that it cannot be read."""
        try:
            return str(self.request)
        except ModelError:
            return f"cannot be read; {self.how_to_discard}"

    @property
    def how_to_discard(self) -> str:
        """The command that removes it, as part of a sentence."""
        return f"`forecaster fit --discard {self.name}` removes it"

    @property
    def progress(self) -> str:
        """How much of it is done, and since when."""
        kept, done = self._kept(), ""
        with contextlib.suppress(ModelError):
            if (size := self.request.series_per_shard) is not None:
                shards = -(-len(self.request.ids) // size)
                done = f"{sum(path.is_dir() for path in kept)} of {shards} shards done, "
        with contextlib.suppress(OSError, ValueError):  # it may be removed meanwhile; none yet
            saved = time.localtime(max(path.stat().st_mtime for path in kept))
            return f"{done}kept at {time.strftime('%Y-%m-%d %H:%M:%S', saved)}"
        return "none yet"

    def __str__(self) -> str:
        return f"{self.name}: {self.what}, progress {self.progress}"

    @property
    def run(self) -> str | None:
        """The name of its run; None: its time."""
        return None if run_name(self.folder) == self.name else run_name(self.folder)

    @property
    def has_progress(self) -> bool:
        """Whether it has a checkpoint or a finished shard."""
        return bool(self._kept())

    def _kept(self) -> list[Path]:
        """Return the checkpoints and the finished shards."""
        return [*self.folder.glob(f"{SHARDS}/[!.]*")]

    def masked_rows(self, store: Store) -> pd.DataFrame:
        """Return the flagged rows that the fit leaves out.

        Raises ModelError when anything has changed since the request that the bits depend on.
        """
        request, command = self.request, self.command
        masked, digest = pd.DataFrame(), ""
        with contextlib.suppress(StoreError, KeyError):  # no longer stored, or not yet reviewed
            masked, digest = rows_left_out(
                store, request.ids, request.config, request.mask, request.end
            )
        changed = request.changed() if digest == request.data_sha256 else ["the stored data"]
        if changed:
            raise ModelError(
                f"{', '.join(changed)} have changed since the {command} was interrupted, so that "
                f"it would not end with the same bits. Restore them, or run `forecaster {command}` "
                f"without --resume ({self.how_to_discard})"
            )
        return masked

    def shard(self, number: int) -> Path:
        """Return the folder of a shard, or of one of several trainings of an evaluation."""
        return self.folder / SHARDS / shard_name(number)

    def discard(self) -> None:
        """Remove the fit, once its model is saved or another try would end the same way."""
        self.lock.release()  # Windows renames no folder in which a file is open
        atomic.remove_folder(self.folder)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()  # if it was the last


def checkpoint_of(shard: Path) -> "Checkpoint":
    """Return the checkpoint of a shard in training, to be resumed from if there is one."""
    from forecaster.swarm import Checkpoint

    path = shard.with_name(f"{shard.name}{_CHECKPOINT}")
    return Checkpoint(
        path, resume=any(path.parent.glob(f"{path.name}*")),
        replace=atomic.write_file, remove=atomic.remove_file,  # which raise WriteError
    )  # fmt: skip


def forget_checkpoint(shard: Path) -> None:
    """Remove the checkpoint of a shard that is finished."""
    for path in shard.parent.glob(f"{shard.name}{_CHECKPOINT}*"):
        with contextlib.suppress(OSError):  # it is not used again
            path.unlink()


def unfinished_fits(home: Home) -> list[UnfinishedFit]:
    """Return all unfinished fits, the oldest first."""
    return [UnfinishedFit(folder, FolderLock(folder)) for folder in home.unfinished_fits()]


def discard(home: Home, name: str) -> None:
    """Remove an interrupted fit, even if it cannot be read.

    Raises UsageError when there is none of this name, or it is running.
    """
    _held(home, name, None).discard()


def tell_of_others(home: Home, on_notice: Callable[[str], None]) -> None:
    """Give notice of interrupted fits; those without any progress are removed."""
    for fit in unfinished_fits(home):
        # Another process has removed it, or it cannot be written.
        with contextlib.suppress(OSError):
            if not fit.lock.try_acquire():
                continue
            if fit.has_progress:
                fit.lock.release()
                on_notice(
                    f"Kept an interrupted fit, {fit}. `forecaster {fit.command} "
                    f"--resume {fit.name}` continues it, {fit.how_to_discard}."
                )
            else:
                fit.discard()
                on_notice(f"Removed {fit.name}: it had ended before it had any progress")


def _held(home: Home, name: str | None, command: str | None) -> UnfinishedFit:
    """Lock the fit of a name, or the only fit that is not running.

    ``command``: the command that resumes it; None: any. Raises UsageError when there is none,
    another process has it, or there are several.
    """
    fits = [fit for fit in unfinished_fits(home) if command in (None, fit.command)]
    named = [fit for fit in fits if name in (None, fit.name, run_name(fit.folder))]
    found = [fit for fit in named if not fit.running] or named[:1]
    there = "".join(f"\n  {fit}" for fit in found or fits)
    if not found:
        kind = "evaluation" if command == "evaluate" else "fit"
        what = kind if name is None else f"{kind} {name!r}"
        others = f"; there are:{there}" if there else ""
        raise UsageError(f"no unfinished {what} under {home}{others}")
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} unfinished fits under {home}; name one, --resume NAME:{there}"
        )
    with atomic.as_write_error(found[0].folder):
        if not found[0].lock.try_acquire(_LOOKED_AT):
            raise UsageError(
                f"{found[0].name}: this fit is still running; wait for its end, or interrupt it "
                "first"
            )
    return found[0]
