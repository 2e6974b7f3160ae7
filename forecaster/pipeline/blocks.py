"""Read stored series for a fit or an evaluation, some at a time.

All blocks of an evaluation are on the time axis of all series, so that they have the same cutoffs.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from forecaster.errors import Kind, NoSeries, Skipped, StoreError
from forecaster.forecasting import Config, check_search, settled_by_rows
from forecaster.ingest import Store, panel_from_store
from forecaster.series import (
    ENDS,
    Flags,
    Frequency,
    Layout,
    OwnEnds,
    Panel,
    Time,
    check_market,
    on_axis,
    union_of,
    with_peers,
)
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
        firsts = [store.index.series[name].first for name in request.ids]
        whole = sum(first.lstrip("-").isdecimal() for first in firsts)  # series that count steps
        kind = "M" if 2 * whole <= len(firsts) else "i"
        reader = cls(store, request, rows, Layout(kind))
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
        panel = panel_from_store(self.store, wanted, layout=self.layout, **self.rows)
        if set(self.peers) <= set(wanted):
            panel = panel.with_peers(self.peers)
        else:
            with contextlib.suppress(NoSeries, StoreError):  # none of the peers can be read
                peers = panel_from_store(self.store, self.peers, layout=self.layout, **self.rows)
                panel = dataclasses.replace(panel, peers=peers)
        return panel.with_indices(market, forecast=ids) if market else panel

    def _like_all(self, panel: Panel) -> Panel:
        if self.frequency is None:
            return panel
        return dataclasses.replace(panel, frequency=self.frequency)

    def settled(self, target: str, most: int) -> Config:
        """Return the settings, without networks if the longest series has too few rows for them.

        ``target``: the channel that is forecast; ``most``: the rows of the longest series
        """
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


@dataclasses.dataclass(frozen=True)
class Past(Reader):
    """Reads panels of some stored series for an evaluation, as they were known at its cutoffs.

    - ``flags``: rows are not learned from once their flag is known
    - ``times``: the times of all series; None: not known yet
    - ``own``: whether each series is evaluated at its own end
    - ``target``: the channel that is forecast
    - ``lengths``, ``ends``: the number of rows and the latest time of each series
    - ``cutoff``: what was known then is learned from; None: all rows
    - ``settle``: returns the settings without networks if the rows of the longest series up to the
      cutoff are too few for them, else the same; None: an earlier cutoff has decided
    """

    flags: Flags | None = None
    times: Shaped[np.ndarray, " time"] | None = None
    own: bool = False
    target: str = ""
    lengths: Int[np.ndarray, " series"] = dataclasses.field(
        default_factory=lambda: np.zeros(0, int)
    )
    ends: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    cutoff: Time | Shaped[np.ndarray, ""] | None = None
    settle: Callable[[Config, str, int], Config] | None = None

    @staticmethod
    def of_all(store: Store, request: FitRequest, flags: Flags | None, ends: str) -> "Past":
        """Read all series once. Raises NoSeries or StoreError if there is none."""
        past = dataclasses.replace(Past.of(store, request), flags=flags)
        seen, same = past._scan(ends)
        return seen if same else dataclasses.replace(past, layout=seen.layout)._scan(ends)[0]

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series, without the rows that were known at the cutoff to look wrong."""
        return super().panel(ids) if self.cutoff is None else self.known(ids).masked()

    def known(self, ids: Sequence[str]) -> Panel:
        """Read some series up to the cutoff, with the flags that were known then."""
        assert self.cutoff is not None
        return self._like_all(self.aligned(ids)[0].until(self.cutoff))

    def aligned(self, ids: Sequence[str]) -> tuple[Panel, OwnEnds | None]:
        """Read some series; if their ends are aligned, return also how to restore their times.

        Raises NoSeries or StoreError if none of the series can be read.
        """
        assert self.times is not None
        panel = on_axis(self.read(ids), self.times)
        if self.flags is not None:
            panel = panel.with_flags(self.flags)
        return OwnEnds.align(panel) if self.own else (panel, None)

    def settled(self, target: str, most: int) -> Config:
        """Return the settings, without networks if the longest series has too few rows for them."""
        config = self.request.config
        return config if self.settle is None else self.settle(config, target, most)

    def _scan(self, aligned: str) -> tuple["Past", bool]:
        """Read all shards; return a reader that knows the times and lengths of all series.

        The last result says whether each shard had the channels of all series.
        """
        assert aligned in ENDS
        skipped: dict[str, Skipped] = dict(self.request.skipped)
        axes: list[np.ndarray] = []
        channels: dict[tuple[str, ...], None] = {}
        firsts, ends = set[object](), dict[str, Any]()
        rows, target = list[np.ndarray](), ""
        for panel in self.each_shard(skipped):
            check_market(panel)
            skipped |= panel.skipped
            axes = [union_of([*axes, panel.times])]
            channels[panel.channels] = None
            rows, target = [*rows, panel.mask.sum(1)], panel.target
            firsts |= set(panel.times[panel.mask.argmax(1)].tolist())
            latest = len(panel.times) - 1 - panel.mask[:, ::-1].argmax(1)
            ends |= dict(zip(panel.ids, panel.times[latest], strict=True))
        if not axes:
            raise NoSeries(skipped)
        every = tuple(dict.fromkeys(name for part in channels for name in part))
        # Times that only count the rows of each series, see :func:`forecaster.series.aligned_if`.
        counts = axes[0].dtype.kind != "M" and len(firsts) == 1 and len({*ends.values()}) > 1
        known = dataclasses.replace(
            self,
            request=dataclasses.replace(self.request, skipped=skipped),
            layout=self.layout._replace(channels=every),
            times=axes[0],
            own=aligned == "own" or (aligned == "auto" and counts and target == "y"),
            target=target,
            lengths=np.concatenate(rows),
            ends=ends,
        )
        return known, list(channels) == [every]


def reader_of_fit(store: Store, request: FitRequest, masked: pd.DataFrame) -> Reader:
    """Return a reader of the rows that a fit learns from.

    ``masked``: the rows that are left out. Raises UsageError for settings that cannot be searched.
    """
    check_search(request.config, tune=request.tune)
    reader = Reader.of(
        store, request,
        skipped=request.skipped, mask=request.mask, known_by=request.end, flagged=masked,
    )  # fmt: skip
    held = reader.held
    return reader if held is None else dataclasses.replace(reader, held=with_peers(held))


def shards_of(ids: Sequence[str], size: int | None) -> Iterator[Sequence[str]]:
    """Yield the series of each shard, at most ``size``; None: all series in one shard."""
    size = size or len(ids)
    for low in range(0, len(ids), size):
        yield ids[low : low + size]
