"""The data that a fit or an evaluation asks for, its callbacks, and the stored request."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import UsageError
from forecaster.files import as_text
from forecaster.ingest import WRONG, CovariateFiles, Date, Ingested, Source
from forecaster.pipeline.auxiliary import digest_of
from forecaster.pipeline.memory import Portions, check_room, portions
from forecaster.series import end_of_day, nearest_time
from forecaster.storage import (
    EvaluationRequest,
    FitRequest,
    UnfinishedFit,
    data_digest,
    ids_to_read,
)

OnTraining: TypeAlias = Callable[[swarm.Progress], None]


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """The series to work on, and their rows.

    - ``source``: where the series come from
    - ``tickers``: the series to take; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``covariates``: files of further data about the series
    - ``learn_from``: other series to learn from: a file, a folder, or that of a run
    - ``mask``: flags whose rows are left out of training; see
      :mod:`forecaster.ingest.review.quality`
    """

    source: Source
    tickers: Sequence[str] | None = None
    start: Date | None = None
    end: Date | None = None
    mask: Sequence[str] = WRONG
    covariates: CovariateFiles = dataclasses.field(default_factory=CovariateFiles)
    learn_from: Path | None = None


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Functions that are called while series are fetched and networks trained.

    - ``on_series(done, total)``: after each series that has arrived from the source
    - ``on_wait(message)``: when the program waits for another process
    - ``on_training(progress)``: from time to time while networks train
    - ``on_shard(done, total)``: before each shard, if there are several
    - ``on_begin(fit)``: when training begins, with the unfinished fit, which can be resumed
    - ``on_notice(message)``: about other, interrupted fits, which can be resumed
    """

    on_series: Callable[[int, int], None] | None = None
    on_wait: Callable[[str], None] | None = None
    on_training: OnTraining | None = None
    on_begin: Callable[[UnfinishedFit], None] | None = None
    on_notice: Callable[[str], None] | None = None
    on_shard: Callable[[int, int], None] | None = None


def check_memory(data: DataRequest, memory: int | None, what: str) -> None:
    """Raise UsageError if memory is limited for data that are needed all at once.

    ``what``: the work that needs them, ``a fit`` or ``an evaluation``.
    """
    if memory is not None and data.covariates:
        raise UsageError(
            f"--memory: {what} with --future or --static needs all series in memory, since the "
            "features of these files are learned from all of them; leave out --memory or the files"
        )


def request_of(
    arrived: Ingested,
    data: DataRequest,
    config: Config,
    seed: int,
    masked: pd.DataFrame,
    *,
    tune: bool = False,
    evaluation: EvaluationRequest | None = None,
    memory: int | None = None,
    executor: swarm.Executor | None = None,
) -> FitRequest:
    """Return the request of a fit or an evaluation, once its series have arrived in the store.

    ``masked``: the rows that are left out. Raises UsageError if the memory is too small.
    """
    store, ids = arrived.store, arrived.ids
    parts = Portions(None, None)
    if data.covariates:  # features of covariates are learned from all series together
        what = "a fit" if evaluation is None else "an evaluation"
        check_room(store, ids, config, f"{what} with covariates")
    else:
        parts = portions(store, ids, config, memory, executor)
    return FitRequest(
        source=data.source.name,
        ids=tuple(ids),
        skipped=dict(arrived.skipped),
        data_sha256=data_digest(store, ids_to_read(ids, config), masked),
        config=config,
        seed=seed,
        tune=tune,
        start=None if data.start is None else str(nearest_time(data.start).date()),
        end=None if data.end is None else str(end_of_day(data.end).date()),
        mask=tuple(data.mask),
        covariates=data.covariates,
        covariates_sha256=data.covariates.sha256(),
        learn_from=data.learn_from and as_text(data.learn_from),
        learn_from_sha256=data.learn_from and digest_of(data.learn_from),
        evaluation=evaluation,
        whole_source=data.tickers is None,
        **parts._asdict(),
    )
