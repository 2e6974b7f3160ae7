"""Fit shards whose series have no networks, in several processes at the same time.

Networks train on all cores by themselves. Classical models and their combination are computed by
Python and NumPy, on one core. So such shards are handed to processes, one shard at a time. The bits
are those of one process, since no series of a shard depends on another shard.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ForecasterWarning, NoSeries
from forecaster.forecasting import Common, Part, fit_part
from forecaster.processes import end_with_parent
from forecaster.series import Panel
from forecaster.storage import SavedPart, save_part, shard_name


class Group(NamedTuple):
    """Some shards that are fitted together.

    - ``panel``: their series
    - ``names``: the series of each shard
    - ``config``, ``seed``, ``tune``: how to fit, as for :func:`forecaster.fit`
    - ``common``: the facts that all series of the fit share; None: these shards hold all series
    - ``folder``: the folder of the finished shards
    - ``first``: the number of the first shard, which stores all seconds of training
    - ``seconds``: seconds that are added to the seconds of training
    """

    panel: Panel
    names: Sequence[Sequence[str]]
    config: Config
    seed: int
    tune: bool
    common: Common | None
    folder: Path
    first: int
    seconds: float = 0.0

    def fit(
        self,
        checkpoint: swarm.Checkpoint | None = None,
        executor: swarm.Executor | None = None,
        on_progress: Callable[[swarm.Progress], None] | None = None,
    ) -> Part:
        """Fit the series. Raises NoSeries if no network of them can be used."""
        return fit_part(
            self.panel, self.config, self.seed, self.common, tune=self.tune,
            checkpoint=checkpoint, executor=executor, on_progress=on_progress,
        )  # fmt: skip

    def save(self, part: Part | NoSeries) -> list[SavedPart]:
        """Write each shard of a fit; ``part``: what was fitted, or why nothing could be."""
        found = None if isinstance(part, NoSeries) else part
        skipped = part.skipped if isinstance(part, NoSeries) else part.model.skipped
        lost, seconds = set(part.lost), self.seconds
        if found is not None:
            seconds += found.model.provenance["training_seconds"]
        saved: list[SavedPart] = []
        for number, names in enumerate(self.names):
            own = None if found is None else found.only(names)
            members = set(names)
            reasons = {name: why for name, why in skipped.items() if name in members}
            folder = self.folder / shard_name(self.first + number)
            gone = [name for name in names if name in lost]
            saved.append(save_part(folder, own, reasons, gone, seconds))
            seconds = 0.0
        return saved


class _Made(NamedTuple):
    """The shards that a process has written, and the warnings that it would have shown."""

    parts: list[SavedPart]
    warned: list[str]


def fit_side_by_side(groups: Iterable[Group], processes: int) -> Iterator[list[SavedPart]]:
    """Yield the finished shards of each group, in order, fitted by several processes.

    If one of them is killed, the rest is fitted by this process.

    - ``groups``: their series have no networks; at most ``processes + 1`` groups are in memory at
      once
    - ``processes``: number of processes
    """
    context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
    groups = iter(groups)
    waiting: collections.deque[Group] = collections.deque()
    futures: collections.deque[concurrent.futures.Future[_Made]] = collections.deque()

    def next_made() -> list[SavedPart]:
        parts = _shown(futures[0].result())
        futures.popleft()
        waiting.popleft()
        return parts

    with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start, initargs=(_heeds_interrupts(),)
    ) as pool:
        try:
            for group in groups:
                waiting.append(group)
                futures.append(_submitted(pool, group))
                if len(waiting) > processes:
                    yield next_made()
            while waiting:
                yield next_made()
        except BrokenProcessPool:
            warnings.warn(
                "a process that fits series ended unexpectedly; the rest is fitted by one process. "
                "If it was for want of memory, a smaller --memory takes fewer processes",
                ForecasterWarning,
                stacklevel=2,
            )
            for group in itertools.chain(waiting, groups):
                yield _shown(_fit(group))
        finally:
            pool.shutdown(cancel_futures=True)


def _submitted(
    pool: concurrent.futures.ProcessPoolExecutor, group: Group
) -> concurrent.futures.Future[_Made]:
    """Hand a group to the pool. Raises BrokenProcessPool if one of its processes was killed."""
    try:
        with _without_interrupts():  # a process that starts is deaf until it has its own handler
            return pool.submit(_fit, group)
    except OSError as error:  # its pipe to the processes is closed
        raise BrokenProcessPool(str(error)) from error


def _heeds_interrupts() -> bool:
    """Return whether Ctrl-C stops this process; it does not where a shell put it aside."""
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in the block, as do the processes that it starts.

    Only the main thread can; in others it stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _read_only(items: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(items)


# Pickle does not know read-only mappings, such as the properties of series.
ForkingPickler.register(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


def _start(heeds_interrupts: bool) -> None:  # noqa: FBT001 - of an initializer
    """Make a process end with its parent, and silently at Ctrl-C if that stops its parent."""
    end_with_parent()
    if heeds_interrupts:
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))


def _fit(group: Group) -> _Made:
    """Fit and save a group of shards."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ForecasterWarning)
        try:
            part: Part | NoSeries = group.fit()
        except NoSeries as error:
            part = error
    warned = [str(one.message) for one in caught if issubclass(one.category, ForecasterWarning)]
    return _Made(group.save(part), warned)


def _shown(made: _Made) -> list[SavedPart]:
    """Return the shards, after the warnings of their process are shown here."""
    for message in made.warned:
        warnings.warn(message, ForecasterWarning, stacklevel=3)
    return made.parts
