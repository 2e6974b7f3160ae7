"""Read stored series for a fit or an evaluation, some at a time."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import pandas as pd

from forecaster.errors import Kind, NoSeries, Skipped, StoreError
from forecaster.forecasting import Config, check_search, check_static, settled, settled_by_rows
from forecaster.ingest import Store, panel_from_store
from forecaster.series import Frequency, Layout, Panel, with_peers
from forecaster.storage import FitRequest, ids_to_read


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads panels of some stored series at a time, with the layout of a panel of all series.

    - ``rows``: which rows to read, see :func:`forecaster.ingest.panel_from_store`
    - ``layout``, ``frequency``, ``peers``: those of all series, once they are known
    - ``held``: the panel of all series, if they are a single shard, once it has been read
    """

    store: Store
    request: FitRequest
    rows: Mapping[str, Any]
    layout: Layout
    frequency: Frequency | None = None
    peers: tuple[str, ...] = ()
    held: Panel | None = None

    @classmethod
    def of(cls, store: Store, request: FitRequest, **rows: Any) -> Self:
        """Return a reader of the series of a request; if they are a single shard, read them."""
        rows = {"start": request.start, "end": request.end, **rows}
        reader = cls(store, request, rows, Layout(kind_of_times(store, request.ids)))
        if request.series_per_shard is not None:
            return reader
        panel = request.covariates.added_to(reader.read(request.ids))
        return dataclasses.replace(reader, held=panel)

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series to learn from them.

        Raises NoSeries or StoreError if none of them can be read.
        """
        return self._like_all(self.read(ids))

    def read(self, ids: Sequence[str]) -> Panel:
        """Read all rows of some series. Raises NoSeries or StoreError if none can be read."""
        if self.held is not None:
            held = self.held.with_peers(self.peers) if self.peers else self.held
            return held if tuple(ids) == self.request.ids else held.only(ids)
        wanted, market = ids_to_read(ids, self.request.config), self.request.config.indices
        panel = self._stored(wanted)
        if set(self.peers) <= set(wanted):
            panel = panel.with_peers(self.peers)
        else:
            with contextlib.suppress(NoSeries, StoreError):  # none of the peers can be read
                panel = dataclasses.replace(panel, peers=self._stored(self.peers))
        return panel.with_indices(market, forecast=ids) if market else panel

    def _stored(self, ids: Sequence[str]) -> Panel:
        return panel_from_store(self.store, ids, layout=self.layout, **self.rows)

    def _like_all(self, panel: Panel) -> Panel:
        if self.frequency is None:
            return panel
        return dataclasses.replace(panel, frequency=self.frequency)

    def settled(self, most: int) -> Config:
        """Return the settings, without networks if the longest series has too few rows for them.

        ``most``: the rows of the longest series
        """
        target = "y" if "y" in (self.layout.channels or ()) else "close"
        return settled_by_rows(self.request.config, target, most)

    def with_config(self, config: Config) -> Self:
        """Return a reader for other settings, which may declare no market."""
        held = self.held
        if config.market is None and held is not None:
            held = dataclasses.replace(held, market=None)
        request = dataclasses.replace(self.request, config=config)
        return dataclasses.replace(self, request=request, held=held)

    def each_shard(self, skipped: dict[str, Skipped]) -> Iterator[Panel]:
        """Yield the panel of each shard; add unreadable series, with reasons, to ``skipped``."""
        for names in shards_of(self.request.ids, self.request.series_per_shard):
            try:
                panel = self.panel(names)
            except NoSeries as error:
                skipped |= error.skipped
            except StoreError:
                damages = self.store.damages(names) or dict.fromkeys(names, "cannot be read")
                skipped |= {n: Skipped(Kind.UNREADABLE, detail=why) for n, why in damages.items()}
            else:
                yield panel


def reader_of_fit(store: Store, request: FitRequest, masked: pd.DataFrame) -> Reader:
    """Return a reader of the rows that a fit learns from.

    ``masked``: the rows that are left out. Raises UsageError for settings that the series forbid.
    """
    check_search(request.config, tune=request.tune)
    reader = Reader.of(
        store, request,
        skipped=request.skipped, mask=request.mask, known_by=request.end, flagged=masked,
    )  # fmt: skip
    if reader.held is None:
        return reader
    config, panel = settled(request.config, with_peers(reader.held))
    check_static(panel, config, tune=request.tune)
    request = dataclasses.replace(request, config=config)
    return dataclasses.replace(reader, request=request, held=panel)


def kind_of_times(store: Store, ids: Sequence[str]) -> str:
    """Return the kind of most series' times, by the store's index: "M" for dates, "i" for steps."""
    firsts = [store.index.series[name].first for name in ids]
    whole = sum(first.lstrip("-").isdecimal() for first in firsts)
    return "M" if 2 * (len(firsts) - whole) >= len(firsts) else "i"


def shards_of(ids: Sequence[str], size: int | None) -> Iterator[Sequence[str]]:
    """Yield the series of each shard, at most ``size``; None: all series in one shard."""
    size = size or len(ids)
    for low in range(0, len(ids), size):
        yield ids[low : low + size]
