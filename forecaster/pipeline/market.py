"""Fetch and read the declared market of a fit or an evaluation, in addition to the series."""

import contextlib
import dataclasses
from collections.abc import Sequence

from forecaster.config import Config
from forecaster.errors import NoSeries, UsageError, listed
from forecaster.ingest import Ingested, Source, normalise
from forecaster.pipeline.requests import DataRequest
from forecaster.spelling import near, spelled, spellings


def wanted_of(data: DataRequest, config: Config) -> Sequence[str] | None:
    """Return the tickers to fetch, including the market's; None: all that the source holds."""
    market = config.market
    if market is None or data.tickers is None or _listed(data, market):
        return data.tickers
    with contextlib.suppress(UsageError):  # in a file, the name of a series need not be a ticker
        market = normalise(market)
    return [*data.tickers, market]


def with_market_of(
    arrived: Ingested, data: DataRequest, config: Config
) -> tuple[list[str], Config]:
    """Return the stored series to learn from, and the settings with the stored name of the market.

    The market is among the series only if the user listed it. Raises UsageError if it is not
    stored, and NoSeries if no other series is stored.
    """
    if config.market is None:
        return arrived.ids, config
    market = spelled(spellings(arrived.ids), config.market)
    if market is None:
        raise UsageError(_unknown(arrived, data.source, config.market))
    config = dataclasses.replace(config, market=market)
    if data.tickers is None or _listed(data, market):
        return arrived.ids, config
    ids = [name for name in arrived.ids if name != market]
    if not ids:
        raise NoSeries(arrived.skipped)
    return ids, config


def _listed(data: DataRequest, market: str) -> bool:
    return spelled(spellings(data.tickers or ()), market) is not None


def _unknown(arrived: Ingested, source: Source, market: str) -> str:
    reasons = spellings(arrived.skipped)
    why = spelled(reasons, market)
    said = f" ({arrived.skipped[why]})" if why is not None else ""
    there = list(arrived.ids)
    with contextlib.suppress(UsageError):  # not every source can list its tickers
        there = source.tickers()
    return (
        f"market: {source.name} has no series {market!r}{said}. There are e.g. "
        f"{listed(near(there, market) or there)}"
    )
