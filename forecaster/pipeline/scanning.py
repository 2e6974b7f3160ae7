"""Read each series of a fit once, for the facts that all networks share.

If all series are in memory together, nothing has to be read twice.
"""

import dataclasses
from collections import Counter
from typing import Any, NamedTuple, TypeVar

from forecaster.config import Config
from forecaster.errors import NoSeries
from forecaster.forecasting import changing_rows, usable_rows
from forecaster.pipeline.reading import Reads, each_shard
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
)
from forecaster.skipped import Skipped

_R = TypeVar("_R", bound="Reads")


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
    - ``peers``: the series that show the state of the market; none if there is one shard
    """

    ids: list[str]
    trained: list[str]
    steps: int
    skipped: dict[str, Skipped]
    first: Any
    last: Any
    findings: list[Finding]
    series: int
    peers: tuple[str, ...] = ()

    def say(self, *, latest: bool) -> None:
        """Warn of the findings that are about latest rows, or else of all others."""
        say_findings([one for one in self.findings if one.of_latest == latest], self.series)


def scan(reader: _R) -> tuple[_R, Scanned]:
    """Read each series once; return the facts, and a reader that knows the layout of all.

    Raises NoSeries if none of the series can be learned from.
    """
    request = reader.request
    if request.series_per_shard is None:
        panel = reader.panel(request.ids)
        steps = int(panel.mask.sum(1).max())
        scanned = Scanned(
            list(request.ids), [], steps, dict(request.skipped), panel.times[0], panel.times[-1],
            findings_of(panel), len(panel.ids),
        )  # fmt: skip
        scanned.say(latest=False)
        return reader, scanned
    layout, frequency, scanned, same = _scan(reader)
    reader = reader.knowing(layout, frequency)
    if not same:  # some series look different with the layout or the frequency of all series
        scanned = _scan(reader)[2]
    if not scanned.ids and (without := reader.without_networks(scanned.steps)) is not None:
        reader, scanned = without, _scan(without)[2]
    if not scanned.ids:
        raise NoSeries({**request.skipped, **scanned.skipped})
    scanned.say(latest=False)
    return reader.knowing(layout, frequency, scanned.peers), scanned


def _scan(reader: Reads) -> tuple[Layout, Frequency, Scanned, bool]:
    """Read all shards; the last result says whether each had the common layout and frequency."""
    request = reader.request
    seen = _Seen(dict(request.skipped))
    for panel in each_shard(reader.panel, reader.store, request, seen.skipped):
        seen.add(panel, request.config)
    layout = reader.layout._replace(channels=tuple(seen.channels))
    frequency = most_common(seen.frequencies or seen.unclear)
    seasonal = request.config.transform == "seasonal"
    same = all(
        part == layout.channels and (kind == frequency or not seasonal)
        for part, kind in seen.layouts
    )
    return layout, frequency, seen.scanned(), same


@dataclasses.dataclass
class _Seen:
    """The facts about the series of all panels that were read so far.

    - ``skipped``: the skipped series, with the reason
    - ``rows``: the usable rows of each series that can be learned from
    - ``trained``: as in :class:`Scanned`
    - ``channels``: the channels of all panels, in order
    - ``frequencies``, ``unclear``: number of series of each frequency, by whether their rows are
      enough to tell it
    - ``layouts``: the channels and frequencies of the panels
    - ``ends``: the first and the last time of each panel
    - ``most``, ``still``: rows of the longest series that changes, and of the longest constant one
    - ``count``: number of series
    - ``findings``: what a user should know of them
    - ``latest_times``: the latest time of each series whose networks may see the market in peers
    """

    skipped: dict[str, Skipped]
    rows: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    trained: list[str] = dataclasses.field(default_factory=list[str])
    channels: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    frequencies: Counter[Frequency] = dataclasses.field(default_factory=Counter[Frequency])
    unclear: Counter[Frequency] = dataclasses.field(default_factory=Counter[Frequency])
    layouts: set[tuple[tuple[str, ...], Frequency]] = dataclasses.field(
        default_factory=set[tuple[tuple[str, ...], Frequency]]
    )
    ends: list[Any] = dataclasses.field(default_factory=list[Any])
    most: int = 0
    still: int = 0
    count: int = 0
    findings: list[Finding] = dataclasses.field(default_factory=list[Finding])
    latest_times: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def add(self, panel: Panel, config: Config) -> None:
        """Add the series of a panel."""
        found = usable_rows(panel, config)
        self.rows |= found.rows
        self.trained += found.trained
        self.skipped |= found.skipped
        self.channels |= dict.fromkeys(panel.channels)
        for times in (panel.times[observed] for observed in panel.mask if observed.any()):
            counts = self.frequencies if tells_frequency(times) else self.unclear
            counts[infer_frequency(times)] += 1
        self.layouts.add((panel.channels, panel.frequency))
        self.ends += [panel.times[0], panel.times[-1]]
        if panel.constant().all():
            self.still = max(self.still, changing_rows(panel))
        else:
            self.most = max(self.most, changing_rows(panel))
        self.count += len(panel.ids)
        self.findings += findings_of(panel)
        if panel.target != "y" and config.start == "pooled" and not config.is_classical:
            self.latest_times |= latest_times(panel)

    def scanned(self) -> Scanned:
        """Return the facts about all series."""
        steps = max(self.rows.values(), default=self.most or self.still)
        ends = self.ends or [0]
        return Scanned(
            list(self.rows), self.trained, steps, self.skipped, min(ends), max(ends),
            self.findings, self.count, peers_at(max(ends), self.latest_times),
        )  # fmt: skip
