"""Read stored series for a fit or an evaluation, some at a time."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, Self

import pandas as pd

from forecaster.config import Config
from forecaster.errors import NoSeries, StoreError
from forecaster.forecasting import check_search, check_static, settled, settled_by_rows
from forecaster.ingest import Store, panel_from_store
from forecaster.pipeline.auxiliary import with_auxiliary
from forecaster.pipeline.peers import beside_peers
from forecaster.series import Frequency, Layout, Panel, with_peers
from forecaster.skipped import Kind, Skipped
from forecaster.storage import FitRequest, ids_to_read


class Reads(Protocol):
    """Reads panels of some series at a time, for :func:`scan` and :func:`train_shards`."""

    @property
    def request(self) -> FitRequest:
        """The request of the fit or the evaluation."""
        ...

    @property
    def store(self) -> Store:
        """The store of the series."""
        ...

    @property
    def layout(self) -> Layout:
        """The layout of the panel of all series."""
        ...

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series. Raises NoSeries or StoreError if none of them can be read."""
        ...

    def knowing(self, layout: Layout, frequency: Frequency, peers: tuple[str, ...] = ()) -> Self:
        """Return a reader of panels with the layout, the frequency and the peers of all series."""
        ...

    def without_networks(self, most: int) -> Self | None:
        """Return a reader for a fit without networks; None if the settings need networks.

        ``most``: number of rows of the longest series
        """
        ...


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads panels of some stored series at a time, with the layout of a panel of all series.

    - ``masked``: the rows that are left out
    - ``frequency``, ``peers``: the frequency and the peers of all series, once they are known
    - ``held``: the panel of all series, if they are a single shard, once it has been read
    """

    store: Store
    request: FitRequest
    masked: pd.DataFrame
    layout: Layout
    frequency: Frequency | None = None
    held: Panel | None = None
    peers: tuple[str, ...] = ()

    @staticmethod
    def of(store: Store, request: FitRequest, masked: pd.DataFrame) -> "Reader":
        """Return a reader of the series of a request; if they are a single shard, read them."""
        check_search(request.config, tune=request.tune)
        reader = Reader(store, request, masked, Layout(kind_of_times(store, request.ids)))
        if request.series_per_shard is not None:
            return reader
        panel = request.covariates.added_to(reader.panel(request.ids))
        panel = with_peers(with_auxiliary(panel, request))
        config, panel = settled(request.config, panel)
        check_static(panel, config, tune=request.tune)
        return dataclasses.replace(reader, request=_with(request, config), held=panel)

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series. Raises NoSeries or StoreError if none of them can be read."""
        if self.held is not None:
            return self.held if tuple(ids) == self.request.ids else self.held.only(ids)
        request = self.request
        wanted = ids_to_read(ids, request.config)
        panel = beside_peers(self._stored, wanted, self.peers)
        if market := request.config.indices:
            panel = panel.with_indices(market, forecast=ids)
        if self.frequency is None:
            return panel
        return dataclasses.replace(panel, frequency=self.frequency)

    def _stored(self, ids: Sequence[str]) -> Panel:
        request = self.request
        return panel_from_store(
            self.store, ids, request.skipped, start=request.start, end=request.end,
            mask=request.mask, known_by=request.end, layout=self.layout, flagged=self.masked,
        )  # fmt: skip

    def without_networks(self, most: int) -> "Reader | None":
        """Return a reader for a fit without networks; None if the settings need networks.

        ``most``: number of rows of the longest series
        """
        config = self.request.config
        target = "y" if "y" in (self.layout.channels or ()) else "close"
        made = settled_by_rows(config, target, most)
        return (
            None if made is config else dataclasses.replace(self, request=_with(self.request, made))
        )

    def knowing(
        self, layout: Layout, frequency: Frequency, peers: tuple[str, ...] = ()
    ) -> "Reader":
        """Return a reader of panels with the layout, the frequency and the peers of all series."""
        return dataclasses.replace(self, layout=layout, frequency=frequency, peers=peers)


def _with(request: FitRequest, config: Config) -> FitRequest:
    return request if config is request.config else dataclasses.replace(request, config=config)


def each_shard(
    read: Callable[[Sequence[str]], Panel],
    store: Store,
    request: FitRequest,
    skipped: dict[str, Skipped],
) -> Iterator[Panel]:
    """Yield the panel of each shard; add unreadable series, with reasons, to ``skipped``."""
    for names in shards_of(request.ids, request.series_per_shard):
        try:
            panel = read(names)
        except NoSeries as error:
            skipped |= error.skipped
        except StoreError:
            damages = store.damages(names) or dict.fromkeys(names, "cannot be read")
            skipped |= {name: Skipped(Kind.UNREADABLE, detail=why) for name, why in damages.items()}
        else:
            yield panel


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
