"""Fetch and read the declared market of a fit or an evaluation, in addition to the series."""

import contextlib
import dataclasses
from collections.abc import Sequence

from forecaster.errors import NoSeries, UsageError, listed, near, spelled, spellings
from forecaster.forecasting import Config
from forecaster.ingest import Ingested, Source, normalise
from forecaster.pipeline.requests import DataRequest


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
            raise UsageError(_unknown(arrived, data.source, name))
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


def _unknown(arrived: Ingested, source: Source, market: str) -> str:
    why = spelled(spellings(arrived.skipped), market)
    said = f" ({arrived.skipped[why]})" if why is not None else ""
    there = [*arrived.ids]
    with contextlib.suppress(UsageError):  # not every source can list its tickers
        there = source.tickers()
    return (
        f"market: {source.name} has no series {market!r}{said}. There are e.g. "
        f"{listed(near(there, market) or there)}"
    )
