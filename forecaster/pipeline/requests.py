"""The data that a fit or an evaluation asks for, and its callbacks."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from forecaster import swarm
from forecaster.ingest import WRONG, CovariateFiles, Date, Source
from forecaster.storage import UnfinishedFit

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
