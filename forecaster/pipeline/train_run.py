"""Fit stored series shard by shard: read, fit, write, forget.

If all series fit into memory together, there is one shard. With several shards, what all series
share is learned beforehand from a sample. The forecasts are the same; see
:mod:`forecaster.forecasting.fitting.fit`.

Networks train on all cores by themselves. Classical models and their combination are computed by
Python and NumPy, on one core, so shards of such series are handed to several processes.
"""

import collections
import concurrent.futures
import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from forecaster import swarm
from forecaster.errors import ForecasterError, NoSeries
from forecaster.forecasting import Common, Sampling, fit_part, learn_common
from forecaster.machine import cores, end_with_parent
from forecaster.pipeline.beginning import Begun, OnTraining
from forecaster.pipeline.blocks import Reader, Scanned, shards_of
from forecaster.series import Panel
from forecaster.storage import (
    FitRequest,
    SavedPart,
    checkpoint_of,
    forget_checkpoint,
    read_part,
    save_part,
)

WORTH_PROCESSES = 2_000
"""The fewest series for which further processes are started, each of which takes seconds."""


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
        sampling = Sampling.of(request.config, scanned.ids, scanned.trained, scanned.steps)
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
