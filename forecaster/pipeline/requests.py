"""The data that a fit or an evaluation asks for, with its declared market, and its callbacks."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from forecaster import swarm
from forecaster.errors import NoSeries, UsageError, listed, near, spelled, spellings
from forecaster.forecasting import Config
from forecaster.ingest import WRONG, CovariateFiles, Ingested, Source, normalise
from forecaster.series import Date
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


def wanted_of(data: DataRequest, config: Config) -> Sequence[str] | None:
    """Return the tickers to fetch, including the market's; None: all that the source holds."""
    if data.tickers is None:
        return None
    wanted = [*data.tickers]
    for market in config.indices:
        if not _listed(data, market):
            with contextlib.suppress(UsageError):  # in a file, a series need not be a ticker
                market = normalise(market)
            wanted.append(market)
    return wanted


def with_market_of(
    arrived: Ingested, data: DataRequest, config: Config
) -> tuple[list[str], Config]:
    """Return the stored series to learn from, and the settings with the stored names of indices.

    An index is among the series only if the user listed it. Raises UsageError if one is not
    stored, and NoSeries if no other series is stored.
    """
    if not config.indices:
        return arrived.ids, config
    names = spellings(arrived.ids)
    market: list[str] = []
    for name in config.indices:
        stored = spelled(names, name)
        if stored is None:
            why = spelled(spellings(arrived.skipped), name)
            said = f" ({arrived.skipped[why]})" if why is not None else ""
            there = [*arrived.ids]
            with contextlib.suppress(UsageError):  # not every source can list its tickers
                there = data.source.tickers()
            raise UsageError(
                f"market: {data.source.name} has no series {name!r}{said}. There are e.g. "
                f"{listed(near(there, name) or there)}"
            )
        market.append(stored)
    config = dataclasses.replace(config, market=tuple(market))
    if data.tickers is None:
        return arrived.ids, config
    unlisted = {name for name in market if not _listed(data, name)}
    ids = [name for name in arrived.ids if name not in unlisted]
    if not ids:
        raise NoSeries(arrived.skipped)
    return ids, config


def _listed(data: DataRequest, market: str) -> bool:
    return spelled(spellings(data.tickers or ()), market) is not None
