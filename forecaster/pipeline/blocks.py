"""Read stored series some at a time, and learn what they all share."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import pandas as pd

from forecaster.errors import Kind, NoSeries, Skipped, StoreError
from forecaster.forecasting import (
    Config,
    changing_rows,
    check_search,
    settled_by_rows,
    usable_rows,
)
from forecaster.ingest import Store, panel_from_store
from forecaster.series import (
    Finding,
    Frequency,
    Layout,
    Panel,
    findings_of,
    infer_frequency,
    latest_times,
    most_common,
    peers_at,
    say_findings,
    tells_frequency,
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
    def from_request(cls, store: Store, request: FitRequest, **rows: Any) -> Self:
        """Return a reader of the series of a request; if they are a single shard, read them."""
        rows = {"start": request.start, "end": request.end, **rows}
        firsts = [store.index.series[name].first for name in request.ids]
        whole = sum(first.lstrip("-").isdecimal() for first in firsts)  # series that count steps
        reader = cls(store, request, rows, Layout("M" if 2 * whole <= len(firsts) else "i"))
        if request.series_per_shard is not None:
            return reader
        panel = request.covariates.added_to(reader.panel(request.ids))
        return dataclasses.replace(reader, held=panel)

    def panel(self, ids: Sequence[str]) -> Panel:
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
        panel = panel.with_indices(market, forecast=ids) if market else panel
        return dataclasses.replace(panel, frequency=self.frequency or panel.frequency)

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
                damages = self.store.damages(names)
                skipped |= {n: Skipped(Kind.UNREADABLE, detail=why) for n, why in damages.items()}
            else:
                yield panel


def reader_of_fit(store: Store, request: FitRequest, masked: pd.DataFrame) -> Reader:
    """Return a reader of the rows that a fit learns from.

    ``masked``: the rows that are left out. Raises UsageError for settings that cannot be searched.
    """
    check_search(request.config, tune=request.tune)
    reader = Reader.from_request(
        store, request,
        skipped=request.skipped, flagged=masked,
    )  # fmt: skip
    held = reader.held
    return reader if held is None else dataclasses.replace(reader, held=with_peers(held))


class Scanned(NamedTuple):
    """The facts about all series after each was read once.

    - ``ids``: the series to train; if there are several shards, without series that cannot be
      learned from
    - ``trained``: the series that have networks of their own trained on them; empty if there is one
      shard
    - ``steps``: number of rows of the longest series to train; if there is none, of the longest
      series that is not constant
    - ``skipped``: the skipped series, with the reason
    - ``first``, ``last``: the earliest and the latest time
    - ``findings``: what a user should know of all series; ``series``: their number
    """

    ids: list[str]
    trained: list[str]
    steps: int
    skipped: dict[str, Skipped]
    first: Any
    last: Any
    findings: list[Finding]
    series: int

    def say(self, *, latest: bool) -> None:
        """Warn of the findings that are about latest rows, or else of all others."""
        say_findings([one for one in self.findings if one.of_latest == latest], self.series)


def scan(reader: Reader) -> tuple[Reader, Scanned]:
    """Read each series once; return the facts, and a reader that knows the layout of all.

    If the rows of the longest series are too few for networks, the reader has settings without.

    Raises NoSeries if none of the series can be learned from. If all series are in memory together,
    nothing has to be read twice.
    """
    config = reader.request.config
    if reader.request.series_per_shard is None:
        panel = reader.panel(reader.request.ids)
        reader = reader.with_config(settled_by_rows(config, panel.target, changing_rows(panel)))
        panel, request = reader.panel(reader.request.ids), reader.request
        scanned = Scanned(
            list(request.ids), [], int(panel.mask.sum(1).max()), dict(request.skipped),
            panel.times[0], panel.times[-1], findings_of(panel), len(panel.ids),
        )  # fmt: skip
    else:
        reader, scanned = _scan_shards(reader)
        if not scanned.ids:
            target = "y" if "y" in (reader.layout.channels or ()) else "close"
            reader = reader.with_config(settled_by_rows(config, target, scanned.steps))
            reader, scanned = _scan_shards(reader)
        if not scanned.ids:
            raise NoSeries({**reader.request.skipped, **scanned.skipped})
    scanned.say(latest=False)
    return reader, scanned


def _scan_shards(reader: Reader) -> tuple[Reader, Scanned]:
    """Read all shards; return the facts, and a reader that knows what all series share."""
    config, skipped = reader.request.config, dict(reader.request.skipped)
    rows, trained, latest = dict[str, int](), list[str](), dict[str, Any]()
    ends, findings, alike = list[Any](), list[Finding](), dict[tuple[str, ...], None]()
    clear, unclear = Counter[Frequency](), Counter[Frequency]()  # whether rows suffice to tell it
    longest, series = {True: 0, False: 0}, 0  # by whether a series changes
    pooled = config.start == "pooled" and not config.is_classical
    stated: Frequency | None = None
    for panel in reader.each_shard(skipped):
        stated = panel.frequency if panel.frequency.stated else None
        found = usable_rows(panel, config)
        rows |= found.rows
        trained += found.trained
        skipped |= found.skipped
        for times in (panel.times[observed] for observed in panel.mask if observed.any()):
            (clear if tells_frequency(times) else unclear)[infer_frequency(times)] += 1
        alike[panel.channels] = None
        ends += [panel.times[0], panel.times[-1]]
        changes = not panel.constant().all()
        longest[changes] = max(longest[changes], changing_rows(panel))
        series += len(panel.ids)
        findings += findings_of(panel)
        if panel.target != "y" and pooled:
            latest |= latest_times(panel)
    known = dataclasses.replace(
        reader, layout=_layout_of(reader, alike), frequency=stated or most_common(clear or unclear)
    )
    if len(alike) > 1:  # some series look different with the layout of all series
        return _scan_shards(known)
    first, last = min(ends, default=0), max(ends, default=0)
    steps = max(rows.values(), default=longest[True] or longest[False])
    scanned = Scanned(list(rows), trained, steps, skipped, first, last, findings, series)
    return dataclasses.replace(known, peers=peers_at(last, latest)), scanned


def _layout_of(reader: Reader, alike: Mapping[tuple[str, ...], None]) -> Layout:
    """Return the layout of all series, from the channels of each shard."""
    return reader.layout._replace(channels=tuple(dict.fromkeys(n for part in alike for n in part)))


def shards_of(ids: Sequence[str], size: int | None) -> Iterator[Sequence[str]]:
    """Yield the series of each shard, at most ``size``; None: all series in one shard."""
    size = size or len(ids)
    for low in range(0, len(ids), size):
        yield ids[low : low + size]
