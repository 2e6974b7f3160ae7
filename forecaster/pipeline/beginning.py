"""What a fit or an evaluation asks for; begin one, or take up one that was interrupted."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pandas as pd

from forecaster import swarm
from forecaster.errors import NoSeries, UsageError, listed, near, spelled, spellings
from forecaster.files import Home
from forecaster.forecasting import Config
from forecaster.ingest import (
    WRONG,
    CovariateFiles,
    Ingested,
    Source,
    Store,
    check_flags,
    ingested,
    masked_rows,
    normalise,
)
from forecaster.machine import check_guarded
from forecaster.pipeline.budget import check_fits, portions
from forecaster.series import Date, end_of_day, nearest_time
from forecaster.storage import (
    EvaluationRequest,
    FitRequest,
    UnfinishedFit,
    data_digest,
    ids_to_read,
    tell_of_others,
    versions,
)

if TYPE_CHECKING:
    from forecaster.evaluation import Evaluation

OnTraining: TypeAlias = Callable[[swarm.Progress], None]


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
    # An index is among the series only if the user listed it. In a file it need not be a ticker.
    named, wanted = spellings(data.tickers or ()), None
    if data.tickers is not None:
        others = [name for name in config.indices if spelled(named, name) is None]
        wanted = [*data.tickers, *map(_as_ticker, others)]
    with contextlib.ExitStack() as lock:
        arrived = lock.enter_context(
            ingested(
                home, data.source, wanted,
                start=data.start, on_series=callbacks.on_series, on_wait=callbacks.on_notice,
            )
        )  # fmt: skip
        store, ids = arrived.store, arrived.ids
        if config.indices:
            config = _with_market(arrived, data.source, config)
        if wanted is not None:
            ids = [n for n in ids if n not in config.indices or spelled(named, n) is not None]
            if not ids:
                raise NoSeries(arrived.skipped)
        shard, processes = None, 1
        if evaluation is not None:
            check_fits(store, ids, config)
        elif not data.covariates:  # features of covariates are learned from all series together
            shard, processes = portions(store, ids, config, memory, executor)
        read = ids_to_read(ids, config)
        masked = masked_rows(store, read, data.mask, data.end)
        request = FitRequest(
            source=data.source.name,
            ids=tuple(ids),
            skipped=dict(arrived.skipped),
            stale=dict(arrived.stale),
            data_sha256=data_digest(store, read, masked),
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
