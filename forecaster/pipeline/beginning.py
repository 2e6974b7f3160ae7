"""Begin a fit or an evaluation: fetch its series, and see that they fit into memory."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pandas as pd

from forecaster import swarm
from forecaster.errors import NoSeries, UsageError, listed, near, spelled, spellings
from forecaster.files import Home
from forecaster.forecasting import Config, bytes_of_combining, bytes_of_sample, bytes_of_series
from forecaster.ingest import (
    WRONG,
    CovariateFiles,
    Ingested,
    Source,
    Store,
    check_flags,
    ingested,
    normalise,
)
from forecaster.machine import check_guarded, cores, free_memory
from forecaster.series import Date, end_of_day, nearest_time
from forecaster.storage import (
    EvaluationRequest,
    FitRequest,
    UnfinishedFit,
    rows_left_out,
    tell_of_others,
    versions,
)

if TYPE_CHECKING:
    from forecaster.evaluation import Evaluation

OnTraining: TypeAlias = Callable[[swarm.Progress], None]
# Maximum number of series in a shard for every two lanes. `predict` reads a shard whole.
MOST_PER_SHARD = 2_000
_FEWEST = 20
_PROGRAM = 800 * 2**20  # bytes that the program needs without any series, including compilation
_PROCESS = 400 * 2**20  # bytes of a process that fits shards, without any series
_WITHOUT_NETWORKS = 4  # such a series takes at most 1/4 of the memory of one that is trained
_SHARE = 0.6  # default share of the free memory
_UNITS = {"": 1, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """The series to work on, and their rows.

    - ``source``: where the series come from
    - ``tickers``: the series to take; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``covariates``: files of further data about the series
    - ``mask``: flags whose rows are left out of training; see
      :mod:`forecaster.ingest.review.quality`
    """

    source: Source
    tickers: Sequence[str] | None = None
    start: Date | None = None
    end: Date | None = None
    mask: Sequence[str] = WRONG
    covariates: CovariateFiles = dataclasses.field(default_factory=CovariateFiles)


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Functions that are called while series are fetched and networks trained.

    - ``on_series(done, total)``: after each series that has arrived from the source
    - ``on_training(progress)``: from time to time while networks train
    - ``on_shard(done, total)``: before each shard, if there are several
    - ``on_begin(fit)``: when training begins, with the unfinished fit, which can be resumed
    - ``on_notice(message)``: about other, interrupted fits, which can be resumed, and when the
      program waits for another process
    - ``on_torch(done, total)``, ``on_forecast(done, total)``: in an evaluation after series that
      PyTorch has trained, or that were forecast
    - ``on_evaluation(evaluation)``: adds files to its folder before it appears
    """

    on_series: Callable[[int, int], None] | None = None
    on_training: OnTraining | None = None
    on_begin: Callable[[UnfinishedFit], None] = lambda fit: None
    on_notice: Callable[[str], None] = lambda message: None
    on_shard: Callable[[int, int], None] | None = None
    on_torch: Callable[[int, int], None] | None = None
    on_forecast: Callable[[int, int], None] = lambda done, total: None
    on_evaluation: Callable[["Evaluation"], None] | None = None


class Begun(NamedTuple):
    """A fit or an evaluation that has begun, and the stored series that it works on.

    - ``masked``: the rows that are left out
    - ``lock``: keeps the store unchanged until it is closed
    - ``executor``: where networks train; it and ``callbacks`` may differ when it is resumed
    """

    unfinished: UnfinishedFit
    store: Store
    masked: pd.DataFrame
    lock: contextlib.ExitStack
    executor: swarm.Executor | None
    callbacks: Callbacks


@contextlib.contextmanager
def begun(
    home: Home,
    data: DataRequest,
    config: Config,
    seed: int,
    *,
    tune: bool = False,
    run: str | None = None,
    evaluation: EvaluationRequest | None = None,
    memory: int | None = None,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks,
) -> Iterator[Begun]:
    """Fetch series into the store, and begin to work on them.

    Arguments as of :func:`forecaster.pipeline.fit_to_home`; ``evaluation``: None for a fit. If the
    block ends by an error, what has progress is kept, and can be taken up by :func:`resumed`.
    """
    check_guarded("a fit" if evaluation is None else "an evaluation")
    if memory is not None and data.covariates:
        raise UsageError(
            "--memory: a fit with --future or --static needs all series in memory, since the "
            "features of these files are learned from all of them; leave out --memory or the files"
        )
    check_flags(data.mask)
    swarm.keep_compiled(home.programs)
    with contextlib.ExitStack() as lock:
        arrived, ids, config = _fetched(home, data, config, callbacks, lock)
        store, shard, processes = arrived.store, None, 1
        if evaluation is not None:
            check_fits(store, ids, config)
        elif not data.covariates:  # features of covariates are learned from all series together
            shard, processes = portions(store, ids, config, memory, executor)
        masked, digest = rows_left_out(store, ids, config, data.mask, data.end)
        request = FitRequest(
            source=data.source.name,
            ids=tuple(ids),
            skipped=dict(arrived.skipped),
            stale=dict(arrived.stale),
            data_sha256=digest,
            config=config,
            seed=seed,
            tune=tune,
            start=None if data.start is None else str(nearest_time(data.start).date()),
            end=None if data.end is None else str(end_of_day(data.end).date()),
            mask=tuple(data.mask),
            covariates=data.covariates,
            covariates_sha256=data.covariates.sha256(),
            evaluation=evaluation,
            whole_source=data.tickers is None,
            series_per_shard=shard,
            processes=processes,
            versions=versions(config.precision),
        )
        tell_of_others(home, callbacks.on_notice)
        with UnfinishedFit.begin(home, request, run) as unfinished:
            callbacks.on_begin(unfinished)
            yield Begun(unfinished, store, masked, lock, executor, callbacks)


def _fetched(
    home: Home, data: DataRequest, config: Config, callbacks: Callbacks, lock: contextlib.ExitStack
) -> tuple[Ingested, Sequence[str], Config]:
    """Fetch series, locked; return what arrived, the series to work on, and the settings.

    An index is among the series only if the user listed it. In a file it need not be a ticker.
    """
    named = spellings(data.tickers or ())
    others = [name for name in config.indices if spelled(named, name) is None]
    wanted = None if data.tickers is None else [*data.tickers, *map(_as_ticker, others)]
    arrived = lock.enter_context(
        ingested(
            home, data.source, wanted,
            start=data.start, on_series=callbacks.on_series, on_wait=callbacks.on_notice,
        )
    )  # fmt: skip
    if config.indices:
        config = _with_market(arrived, data.source, config)
    if wanted is None:
        return arrived, arrived.ids, config
    ids = [n for n in arrived.ids if n not in config.indices or spelled(named, n) is not None]
    if not ids:
        raise NoSeries(arrived.skipped)
    return arrived, ids, config


def _with_market(arrived: Ingested, source: Source, config: Config) -> Config:
    """Return the settings with the stored names of indices. Raises UsageError if one is missing."""
    names = spellings(arrived.ids)
    market: list[str] = []
    for name in config.indices:
        if (stored := spelled(names, name)) is None:
            why = arrived.skipped.get(spelled(spellings(arrived.skipped), name) or "")
            there = [*arrived.ids]
            with contextlib.suppress(UsageError):  # not every source can list its tickers
                there = source.tickers()
            raise UsageError(
                f"market: {source.name} has no series {name!r}{f' ({why})' if why else ''}. There "
                f"are e.g. {listed(near(there, name) or there)}"
            )
        market.append(stored)
    return dataclasses.replace(config, market=tuple(market))


def _as_ticker(name: str) -> str:
    with contextlib.suppress(UsageError):
        return normalise(name)
    return name


@contextlib.contextmanager
def resumed(
    home: Home,
    name: str | None,
    command: str,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> Iterator[Begun]:
    """Take up an interrupted fit or evaluation: the ``command`` that continues it.

    Raises UsageError if there is none of this name, it is running, or there are several; ModelError
    if anything has changed since that its bits depend on.
    """
    swarm.keep_compiled(home.programs)
    with (
        UnfinishedFit.find(home, name, command=command) as unfinished,
        contextlib.ExitStack() as lock,
    ):
        store = Store.open(home, unfinished.request.source)
        lock.enter_context(store.locked(callbacks.on_notice))
        masked = unfinished.masked_rows(store)
        callbacks.on_begin(unfinished)
        yield Begun(unfinished, store, masked, lock, executor, callbacks)


def parse_memory(text: str) -> int:
    """Return the bytes of a size such as ``2GB`` or ``1500 MiB``.

    Raises UsageError for any other text, and for less than the program alone needs.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B?\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(f"--memory {text}: expected a size such as 2GB or 1500MB")
    number, unit, binary = match.groups()
    size = int(float(number) * (1024 if binary else 1000) ** _UNITS[unit.upper()])
    if size <= _PROGRAM:
        raise UsageError(
            f"--memory {text}: the program alone takes about {_PROGRAM / 1e9:.1f} GB; expected more"
        )
    return size


def check_fits(store: Store, ids: Sequence[str], config: Config) -> None:
    """Raise UsageError unless these stored series fit into the free memory together."""
    steps, channels = _largest(store, ids)
    need = len(ids) * bytes_of_series(config, steps, channels) + bytes_of_combining(config, steps)
    if need > (free := free_memory()):
        raise UsageError(
            f"{len(ids):,} series, the longest of {steps:,} rows, take up to {need / 1e9:.1f}GB "
            f"together, and {free / 1e9:.1f}GB is free; take fewer series (--tickers), fewer rows "
            "(--start), or a machine with more memory"
        )


def _largest(store: Store, ids: Sequence[str]) -> tuple[int, int]:
    """Return the rows of the longest series, and the channels of the first."""
    return max(store.index.series[name].rows for name in ids), len(store.channels(ids[0]))


def portions(
    store: Store,
    ids: Sequence[str],
    config: Config,
    memory: int | None,
    executor: swarm.Executor | None = None,
) -> tuple[int | None, int]:
    """Return how many of these stored series are trained and saved together; None: all.

    The second number is that of processes that fit shards without networks, one shard each.

    - ``memory``: bytes for the fit; by default a share of the free memory
    - ``executor``: where they train; a large cluster gets larger shards, if they fit into memory,
      because it waits for the last series of each

    Raises UsageError, with the smallest sufficient memory, if the memory, by default all that is
    free, is too small for a few series, or for the sample from which all series' networks start.
    """
    steps, channels = _largest(store, ids)
    each = bytes_of_series(config, steps, channels)
    more = max(0, bytes_of_combining(config, steps) - each)  # of one series at a time
    sample = bytes_of_sample(config, len(ids), steps, channels)
    few = min(_FEWEST, len(ids)) * each + more
    least = _PROGRAM + max(sample, few)
    if (free_memory() + _PROGRAM if memory is None else memory) < least:  # a part is taken already
        what = "the networks that all start from"
        if few > sample:
            what = "a few of them" if len(ids) > 1 else "it"
        size = f"{math.ceil(least / 1e8) / 10:g}GB"
        given = "--memory" if memory is not None else "the free memory"
        raise UsageError(
            f"{given} of {(memory or free_memory()) / 1e9:.2f}GB is too little for {len(ids):,} "
            f"series, the longest of {steps:,} rows: training {what} takes up to {size}; take "
            f"fewer rows (--start), a shorter horizon, or --memory {size} or more"
        )
    budget = int(_SHARE * free_memory()) if memory is None else memory
    fit = max(_FEWEST, (budget - _PROGRAM - more) // each)
    lanes = 2 if executor is None or executor.is_local else sum(executor.lanes())
    most = min(fit, MOST_PER_SHARD * max(1, lanes // 2))
    if len(ids) <= most:
        return None, 1
    each_shard = math.ceil(len(ids) / math.ceil(len(ids) / most))
    processes = (budget - _PROGRAM) // (_PROCESS + each_shard * each // _WITHOUT_NETWORKS)
    return each_shard, max(1, min(processes, cores()))
