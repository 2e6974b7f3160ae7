"""Read each series of a fit once, for the facts that all networks share.

If all series are in memory together, nothing has to be read twice.
"""

import dataclasses
from collections import Counter
from typing import Any, NamedTuple, TypeVar

from forecaster.errors import NoSeries, Skipped
from forecaster.forecasting import changing_rows, usable_rows
from forecaster.pipeline.blocks import Reader
from forecaster.series import (
    Finding,
    Frequency,
    Layout,
    findings_of,
    infer_frequency,
    latest_times,
    most_common,
    peers_at,
    say_findings,
    tells_frequency,
)

_R = TypeVar("_R", bound=Reader)


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
    reader = dataclasses.replace(reader, layout=layout, frequency=frequency)
    if not same:  # some series look different with the layout or the frequency of all series
        scanned = _scan(reader)[2]
    if not scanned.ids and (config := reader.settled(scanned.steps)) is not request.config:
        reader = reader.with_config(config)
        scanned = _scan(reader)[2]
    if not scanned.ids:
        raise NoSeries({**request.skipped, **scanned.skipped})
    scanned.say(latest=False)
    return dataclasses.replace(reader, peers=scanned.peers), scanned


def _scan(reader: Reader) -> tuple[Layout, Frequency, Scanned, bool]:
    """Read all shards; the last result says whether each had the common layout and frequency."""
    config, skipped = reader.request.config, dict(reader.request.skipped)
    rows, trained, latest = dict[str, int](), list[str](), dict[str, Any]()
    channels, ends, findings = dict[str, None](), list[Any](), list[Finding]()
    clear, unclear = Counter[Frequency](), Counter[Frequency]()  # whether rows suffice to tell it
    alike = set[tuple[str, ...]]()
    longest, series = {True: 0, False: 0}, 0  # by whether a series changes
    with_peers = config.start == "pooled" and not config.is_classical
    for panel in reader.each_shard(skipped):
        found = usable_rows(panel, config)
        rows |= found.rows
        trained += found.trained
        skipped |= found.skipped
        channels |= dict.fromkeys(panel.channels)
        for times in (panel.times[observed] for observed in panel.mask if observed.any()):
            (clear if tells_frequency(times) else unclear)[infer_frequency(times)] += 1
        alike.add(panel.channels)
        ends += [panel.times[0], panel.times[-1]]
        changes = not panel.constant().all()
        longest[changes] = max(longest[changes], changing_rows(panel))
        series += len(panel.ids)
        findings += findings_of(panel)
        if panel.target != "y" and with_peers:
            latest |= latest_times(panel)
    layout = reader.layout._replace(channels=tuple(channels))
    frequency = most_common(clear or unclear)
    same = all(part == layout.channels for part in alike)
    first, last = min(ends, default=0), max(ends, default=0)
    steps = max(rows.values(), default=longest[True] or longest[False])
    peers = peers_at(last, latest)
    scanned = Scanned(list(rows), trained, steps, skipped, first, last, findings, series, peers)
    return layout, frequency, scanned, same
