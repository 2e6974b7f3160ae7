"""Begin a fit or an evaluation, or take up one that was interrupted."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.files import Home
from forecaster.forecasting import Config
from forecaster.ingest import Store, check_flags, ingested, masked_rows
from forecaster.machine import check_guarded
from forecaster.pipeline.budget import Portions, portions
from forecaster.pipeline.requests import Callbacks, DataRequest, wanted_of, with_market_of
from forecaster.series import end_of_day, nearest_time
from forecaster.storage import (
    EvaluationRequest,
    FitRequest,
    UnfinishedFit,
    data_digest,
    ids_to_read,
    tell_of_others,
)


class Begun(NamedTuple):
    """A fit or an evaluation that has begun, and the stored series that it works on.

    - ``masked``: the rows that are left out
    - ``lock``: keeps the store unchanged until it is closed
    """

    unfinished: UnfinishedFit
    store: Store
    masked: pd.DataFrame
    lock: contextlib.ExitStack


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
    what = "a fit" if evaluation is None else "an evaluation"
    check_guarded(what)
    if memory is not None and data.covariates:
        raise UsageError(
            f"--memory: {what} with --future or --static needs all series in memory, since the "
            "features of these files are learned from all of them; leave out --memory or the files"
        )
    check_flags(data.mask)
    swarm.keep_compiled(home.programs)
    with contextlib.ExitStack() as lock:
        arrived = lock.enter_context(
            ingested(
                home, data.source, wanted_of(data, config),
                start=data.start, on_series=callbacks.on_series, on_wait=callbacks.on_wait,
            )
        )  # fmt: skip
        store = arrived.store
        ids, config = with_market_of(arrived, data, config)
        if data.covariates:  # features of covariates are learned from all series together
            parts = Portions(None)
        else:
            parts = portions(store, ids, config, memory, executor)
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
            **parts._asdict(),
        )
        tell_of_others(home, callbacks.on_notice or (lambda message: None))
        with UnfinishedFit.begin(home, request, run) as unfinished:
            if callbacks.on_begin:
                callbacks.on_begin(unfinished)
            yield Begun(unfinished, store, masked, lock)


@contextlib.contextmanager
def resumed(home: Home, name: str | None, command: str, callbacks: Callbacks) -> Iterator[Begun]:
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
        lock.enter_context(store.locked(callbacks.on_wait))
        masked = unfinished.masked_rows(store)
        if callbacks.on_begin:
            callbacks.on_begin(unfinished)
        yield Begun(unfinished, store, masked, lock)
