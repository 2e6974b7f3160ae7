"""Fit a model to the series of a source, and continue a fit that was interrupted.

Series are fitted shard by shard: read, fit, write, forget. If all fit into memory together, there
is one shard. With several shards, what all series share is learned beforehand from a sample. The
forecasts are the same; see :mod:`forecaster.forecasting.fitting.fit`.

Networks train on all cores by themselves. Classical models and their combination are computed by
Python and NumPy, on one core, so shards of such series are handed to several processes.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import gc
import multiprocessing
import os
import platform
import signal
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from forecaster import __version__, swarm
from forecaster.errors import ForecasterError, ModelError, NoSeries
from forecaster.files import Home
from forecaster.forecasting import (
    Common,
    Config,
    Model,
    Sampling,
    check_static,
    coverage_of,
    fit_part,
    forecast_frame,
    learn_common,
    prepared,
    widths_of,
)
from forecaster.machine import cores, end_with_parent
from forecaster.pipeline.beginning import Begun, Callbacks, DataRequest, OnTraining, begun, resumed
from forecaster.pipeline.blocks import Reader, Scanned, reader_of_fit, scan, shards_of
from forecaster.series import Panel, findings_in_words, show_time
from forecaster.storage import (
    FitRequest,
    Run,
    SavedPart,
    checkpoint_of,
    forget_checkpoint,
    read_part,
    save_part,
    save_shards,
)
from forecaster.swarm.recurrence import products_of

WORTH_PROCESSES = 2_000
"""The fewest series for which further processes are started, each of which takes seconds."""


class SavedFit(NamedTuple):
    """A fit that was saved as a run, with the seconds it took.

    - ``model``: a model of one of its series
    - ``stale``: series that could not be updated before, with the reason
    - ``again``: the unfinished fit that tries series with lost workers again, if there are any
    """

    run: Run
    model: Model
    seconds: float
    stale: Mapping[str, str]
    again: str | None


def fit_to_home(
    home: Home,
    data: DataRequest,
    config: Config,
    seed: int,
    *,
    tune: bool = False,
    run: str | None = None,
    memory: int | None = None,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Fetch series into the store, train, and save the model as a new run under ``home``.

    - ``home``: where prices and models are stored
    - ``data``: the series to learn from, and their rows
    - ``config``, ``seed``, ``tune``: as for :func:`forecaster.fit`
    - ``run``: the name of the run; by default its time
    - ``memory``: bytes to work in; by default a share of the free memory. Series that need more are
      trained in shards, with the same forecasts; the store then stays locked until the end
    - ``executor``: where networks train, as for :func:`forecaster.fit`
    - ``callbacks``: see :class:`Callbacks`

    A fit that is interrupted during training is continued by :func:`resume_fit`. Other fits under
    the same home, running or interrupted, are not affected.

    Raises DataError if no series can be used, UsageError if the run's name is taken, or if the
    memory is too small or cannot be limited, WriteError if nothing can be written.
    """
    began, callbacks = time.perf_counter(), callbacks or Callbacks()
    with begun(
        home, data, config, seed,
        tune=tune, run=run, memory=memory, executor=executor, callbacks=callbacks,
    ) as work:  # fmt: skip
        return _train_and_save(home, work, began)


def resume_fit(
    home: Home,
    name: str | None = None,
    *,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Continue a fit that was interrupted; the model is the same as without the interruption.

    - ``name``: as listed by :func:`forecaster.storage.unfinished_fits`; by default the only
      unfinished fit that is not running
    - ``executor``: where the rest trains; it may differ from before

    Raises UsageError if there is none, it is running, or there are several; ModelError if data,
    settings or program have changed since.
    """
    began, callbacks = time.perf_counter(), callbacks or Callbacks()
    with resumed(home, name, "fit", executor, callbacks) as work:
        try:
            return _train_and_save(home, work, began)
        except ValueError as error:
            raise ModelError(
                f"cannot resume: {error}. Run `forecaster fit` without --resume"
            ) from error


def _train_and_save(home: Home, work: Begun, began: float) -> SavedFit:
    """Train, save the model as a new run, and discard the unfinished fit.

    If series were lost with their workers, the other series are saved, and the fit is kept to try
    the lost series again.
    """
    unfinished, request = work.unfinished, work.unfinished.request
    reader, scanned = scan(reader_of_fit(work.store, request, work.masked))
    if reader.held is not None:
        check_static(reader.held, reader.request.config, tune=request.tune)
    scanned.say(latest=True)
    if request.series_per_shard is None:
        work.lock.close()  # all series have been read
    parts = train_shards(reader, scanned, work)
    skipped = scanned.skipped | {name: why for part in parts for name, why in part.skipped.items()}
    lost = any(part.lost for part in parts)
    scores = [part.scores for part in parts]
    widths = widths_of(request.config, scores, tune=request.tune)
    provenance = _provenance(scanned, parts, work) | {"coverage": coverage_of(scores, widths)}
    folder = save_shards(home, parts, widths, skipped, provenance, unfinished.run)
    if not lost:
        unfinished.discard()
    run = Run.read(folder)
    model = run.model(run.ids[:1])
    # A forecast tests the saved model, and compiles the program for the first `predict`. Covariates
    # may not yet be known beyond the end of the fit.
    unknown = [ModelError] if request.covariates.future else []
    with contextlib.suppress(*unknown):
        forecast_frame(*prepared(model, reader.panel(model.ids)), [], [])
    seconds = time.perf_counter() - began
    return SavedFit(run, model, seconds, request.stale, unfinished.name if lost else None)


def _provenance(scanned: Scanned, parts: Sequence[SavedPart], work: Begun) -> dict[str, Any]:
    """Return the record that a run stores of its training, its data and the program."""
    request, flags = work.unfinished.request, work.masked["flag"]
    return {
        "seed": request.seed,
        "training_seconds": sum(part.seconds for part in parts),
        "tuned": request.tune,
        "products": products_of(request.config.precision),
        "source": request.source,
        "start": request.start,
        "end": request.end,
        "whole_source": request.whole_source,
        "mask": list(request.mask),
        "findings": [*findings_in_words(scanned.findings, scanned.series).values()],
        "masked": {str(flag): int(count) for flag, count in flags.value_counts().items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "first": show_time(scanned.first),
        "last": show_time(scanned.last),
        "data_sha256": request.data_sha256,
        "future": request.covariates.future,
        "static": request.covariates.static,
        "reading": dataclasses.asdict(request.covariates.reading),
        "python": platform.python_version(),
        "versions": {
            "forecaster": __version__,
            **{name: version(name) for name in ("jax", "flax", "optax")},
        },
    }


def train_shards(reader: Reader, scanned: Scanned, work: Begun) -> list[SavedPart]:
    """Fit all shards that are not finished yet; return all shards.

    A shard is fitted again if some of its series were lost with their workers. Raises NoSeries if
    no series of any shard can be used.
    """
    request, callbacks = reader.request, work.callbacks
    names = list(shards_of(scanned.ids, request.series_per_shard))
    folders = [work.unfinished.shard(number) for number in range(len(names))]
    parts = [read_part(each) for each in folders]
    waiting = [number for number, part in enumerate(parts) if part is None or part.lost]
    common, processes = None, 1
    if waiting and request.series_per_shard is not None:
        sampling = Sampling.draw(request.config, scanned.ids, scanned.trained, scanned.steps)
        common = learn_common(
            reader.panel(sampling.ids), request.config, request.seed, sampling,
            tune=request.tune, on_progress=callbacks.on_training,
        )  # fmt: skip
        series = len(waiting) * request.series_per_shard
        local = work.executor is None or work.executor.is_local
        if sampling.networks is False and local and series >= WORTH_PROCESSES:
            processes = min(request.processes, cores(), len(waiting))
    shards = (Shard(reader.panel(names[n]), request, common, folders[n]) for n in waiting)
    if processes > 1:
        made = fit_side_by_side(shards, processes)
    else:
        made = (shard.finish(work.executor, callbacks.on_training) for shard in shards)
    for number in waiting:
        if callbacks.on_shard is not None and common is not None:
            callbacks.on_shard(number, len(names))
        parts[number] = next(made)
        if common is not None:
            gc.collect()
    done = [part for part in parts if part is not None]
    if not any(part.ids for part in done):
        lost = [name for part in done for name in part.lost]
        retry = "`forecaster fit --resume` tries the series again whose workers were lost"
        reasons = {name: why for part in done for name, why in part.skipped.items()}
        raise NoSeries({**scanned.skipped, **reasons}, retry if lost else "", lost)
    if waiting and common is not None and common.pooled is not None:
        first = done[waiting[0]]
        done[waiting[0]] = first._replace(seconds=first.seconds + common.pooled.seconds)
    return done


class Shard(NamedTuple):
    """Some series that are fitted and saved together.

    - ``panel``: holds the series, and perhaps indices beside them
    - ``request``: how to fit
    - ``common``: what all series of the fit share; None: these are all of them
    - ``folder``: the folder of the finished shard
    """

    panel: Panel
    request: FitRequest
    common: Common | None
    folder: Path

    def finish(
        self, executor: swarm.Executor | None = None, on_progress: OnTraining | None = None
    ) -> SavedPart:
        """Fit and write the shard. Raises NoSeries if that is the end of the whole fit."""
        request = self.request
        try:
            part = fit_part(
                self.panel, request.config, request.seed, self.common, tune=request.tune,
                checkpoint=checkpoint_of(self.folder), executor=executor, on_progress=on_progress,
            )  # fmt: skip
            skipped, lost = part.model.skipped, part.lost
        except NoSeries as error:
            if self.common is None and not error.lost:
                raise  # there is nothing to keep, and nothing to try again
            part, skipped, lost = None, error.skipped, error.lost
        members = set(request.ids)  # the panel may hold an index beside them
        own = {name: why for name, why in skipped.items() if name in members}
        saved = save_part(self.folder, part, own, lost)
        if not lost:  # otherwise the checkpoint serves to try the lost series again
            forget_checkpoint(self.folder)
        return saved


def fit_side_by_side(shards: Iterable[Shard], processes: int) -> Iterator[SavedPart]:
    """Yield the finished shards, in order, fitted by several processes.

    At most ``processes + 1`` shards are in memory at once. Raises ForecasterError if a process is
    killed. ``shards``: their series have no networks
    """
    waiting = collections.deque[concurrent.futures.Future[SavedPart]]()
    context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
    with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start
    ) as pool:
        try:
            for shard in shards:
                waiting.append(pool.submit(Shard.finish, shard))
                if len(waiting) > processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except (BrokenProcessPool, BrokenPipeError) as error:
            raise ForecasterError(
                "a process that fits series ended unexpectedly. If it was for want of memory, "
                "begin again with a smaller --memory, which takes fewer processes"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start() -> None:
    """Make a process end with its parent, and silently at Ctrl-C, unless that is put aside."""
    end_with_parent()
    warnings.simplefilter("ignore")  # of libraries; what users are warned of was found before
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))


def _read_only(items: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(items)


# Pickle does not know read-only mappings, such as the properties of series.
ForkingPickler.register(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))
