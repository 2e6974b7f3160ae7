"""Read stored series as they were known at the cutoffs of an evaluation, some at a time.

All shards are on the time axis of all series, so that they have the same cutoffs.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from forecaster.config import Config
from forecaster.errors import NoSeries
from forecaster.ingest import Store, panel_from_store
from forecaster.pipeline.auxiliary import with_auxiliary
from forecaster.pipeline.peers import beside_peers
from forecaster.pipeline.reading import each_shard, kind_of_times
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
)
from forecaster.skipped import Skipped
from forecaster.storage import FitRequest, ids_to_read


@dataclasses.dataclass(frozen=True)
class Past:
    """Reads panels of some stored series with all rows, and the flags of rows that look wrong.

    - ``times``: the times of all series; None: not known yet
    - ``own``: whether each series is evaluated at its own end
    - ``target``: the channel that is forecast
    - ``rows``, ``ends``: the number of rows and the latest time of each series
    - ``held``: the panel of all series, if they are a single shard
    """

    store: Store
    request: FitRequest
    flags: Flags | None
    layout: Layout
    times: Shaped[np.ndarray, " time"] | None = None
    own: bool = False
    target: str = ""
    rows: Int[np.ndarray, " series"] = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    ends: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    held: Panel | None = None

    @staticmethod
    def of(store: Store, request: FitRequest, flags: Flags | None, ends: str) -> "Past":
        """Read all series once. Raises NoSeries or StoreError if there is none."""
        past = Past(store, request, flags, Layout(kind_of_times(store, request.ids)))
        if request.series_per_shard is None:
            panel = request.covariates.added_to(past._read(request.ids))
            panel = with_auxiliary(panel, request)
            past = dataclasses.replace(past, held=panel)
        seen, same = past._scan(ends)
        return seen if same else dataclasses.replace(past, layout=seen.layout)._scan(ends)[0]

    def with_config(self, config: Config) -> "Past":
        """Return a reader for other settings, which may declare no market."""
        held = self.held
        if config.market is None and held is not None:
            held = dataclasses.replace(held, market=None)
        request = dataclasses.replace(self.request, config=config)
        return dataclasses.replace(self, request=request, held=held)

    def panel(self, ids: Sequence[str], peers: Sequence[str] = ()) -> tuple[Panel, OwnEnds | None]:
        """Read some series; if their ends are aligned, return also how to restore their times.

        ``peers``: those that show the state of the market beside them

        Raises NoSeries or StoreError if none of the series can be read.
        """
        panel = self._read(ids, peers)
        if self.times is not None:
            panel = on_axis(panel, self.times)
        if self.flags is not None:
            panel = panel.with_flags(self.flags)
        return OwnEnds.align(panel) if self.own else (panel, None)

    def _read(self, ids: Sequence[str], peers: Sequence[str] = ()) -> Panel:
        request, market = self.request, self.request.config.indices
        if self.held is not None:
            held = self.held.with_peers(peers)
            return held if tuple(ids) == request.ids else held.only(ids)
        wanted = ids_to_read(ids, request.config)
        panel = beside_peers(self._stored, wanted, peers)
        return panel.with_indices(market, forecast=ids) if market else panel

    def _stored(self, ids: Sequence[str]) -> Panel:
        request = self.request
        return panel_from_store(
            self.store, ids, start=request.start, end=request.end, layout=self.layout
        )

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
        for panel in each_shard(self._read, self.store, self.request, skipped):
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
            rows=np.concatenate(rows),
            ends=ends,
        )
        return known, list(channels) == [every]


@dataclasses.dataclass(frozen=True)
class Known:
    """Reads what was known of series at a cutoff, for networks to learn from; see :class:`Past`.

    - ``frequency``: the frequency of most series at the cutoff; None: each panel has its own
    - ``peers``: the peers of all series, once they are known
    - ``settle``: returns the settings without networks if the rows of the longest series are too
      few for them, else the same; None: an earlier cutoff has decided
    """

    past: Past
    cutoff: Time | Shaped[np.ndarray, ""]
    frequency: Frequency | None = None
    settle: Callable[[Config, str, int], Config] | None = None
    peers: tuple[str, ...] = ()

    @property
    def request(self) -> FitRequest:
        """The request of the evaluation."""
        return self.past.request

    @property
    def store(self) -> Store:
        """The store of the series."""
        return self.past.store

    @property
    def layout(self) -> Layout:
        """The layout of the panel of all series."""
        return self.past.layout

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series, without the rows that were known at the cutoff to look wrong."""
        return self.with_all_rows(ids).masked()

    def with_all_rows(self, ids: Sequence[str]) -> Panel:
        """Read some series, with the flags that were known at the cutoff."""
        panel, _ = self.past.panel(ids, self.peers)
        known = panel.until(self.cutoff)
        if self.frequency is None:
            return known
        return dataclasses.replace(known, frequency=self.frequency)

    def without_networks(self, most: int) -> "Known | None":
        """Return a reader for training without networks; None if the settings need networks.

        ``most``: rows up to the cutoff of the longest series
        """
        config = self.request.config
        made = config if self.settle is None else self.settle(config, self.past.target, most)
        if made is config:
            return None
        return dataclasses.replace(self, past=self.past.with_config(made))

    def knowing(self, layout: Layout, frequency: Frequency, peers: tuple[str, ...] = ()) -> "Known":
        """Return a reader of panels with the frequency and the peers of all series."""
        return dataclasses.replace(self, frequency=frequency, peers=peers)
