"""What is asked of a fit or an evaluation, and what is called meanwhile."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from forecaster import swarm
from forecaster.ingest import (
    WRONG,
    CovariateFiles,
    Date,
    Source,
)
from forecaster.storage import (
    UnfinishedFit,
)

OnTraining: TypeAlias = Callable[[swarm.Progress], None]


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """Which series to work on, and which of their rows.

    - ``source``: where the series come from
    - ``tickers``: which of them; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``covariates``: files of what else is known of the series
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
    """What is called while series are fetched and networks trained.

    - ``on_series(done, total)``: after each series that has arrived from the source
    - ``on_wait(message)``: when another process has to be waited for
    - ``on_training(progress)``: now and then while networks train
    - ``on_shard(done, total)``: how many shards are done of a fit that does not fit into memory
    - ``on_begin(fit)``: when training begins, with what it is resumed from if it is interrupted
    - ``on_notice(message)``: of other fits that were interrupted and wait to be resumed
    """

    on_series: Callable[[int, int], None] | None = None
    on_wait: Callable[[str], None] | None = None
    on_training: OnTraining | None = None
    on_begin: Callable[[UnfinishedFit], None] | None = None
    on_notice: Callable[[str], None] | None = None
    on_shard: Callable[[int, int], None] | None = None
