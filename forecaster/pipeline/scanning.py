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

    The settings of the reader are without networks if no series has rows enough for them. Raises
    NoSeries if none of the series can be learned from.
    """
    request = reader.request
    if request.series_per_shard is None:
        panel = reader.panel(request.ids)
        config = reader.settled(panel.target, changing_rows(panel))
        if config is not request.config:
            reader = reader.with_config(config)
            panel = reader.panel(request.ids)
        scanned = Scanned(
            list(request.ids), [], int(panel.mask.sum(1).max()), dict(request.skipped),
            panel.times[0], panel.times[-1], findings_of(panel), len(panel.ids),
        )  # fmt: skip
    else:
        reader, scanned, same = _scan(reader)
        if not same:  # some series look different with the layout of all series
            scanned = _scan(reader)[1]
        target = "y" if "y" in (reader.layout.channels or ()) else "close"
        if not scanned.ids:
            config = reader.settled(target, scanned.steps)
            if config is not request.config:
                reader = reader.with_config(config)
                scanned = _scan(reader)[1]
        if not scanned.ids:
            raise NoSeries({**request.skipped, **scanned.skipped})
        reader = dataclasses.replace(reader, peers=scanned.peers)
    scanned.say(latest=False)
    return reader, scanned


def _scan(reader: _R) -> tuple[_R, Scanned, bool]:
    """Read all shards; return the facts, and a reader that knows the layout and the frequency.

    The last result says whether each shard had the channels of all series.
    """
    config, skipped = reader.request.config, dict(reader.request.skipped)
    rows, trained, latest = dict[str, int](), list[str](), dict[str, Any]()
    ends, findings, alike = list[Any](), list[Finding](), dict[tuple[str, ...], None]()
    clear, unclear = Counter[Frequency](), Counter[Frequency]()  # whether rows suffice to tell it
    longest, series = {True: 0, False: 0}, 0  # by whether a series changes
    with_peers = config.start == "pooled" and not config.is_classical
    for panel in reader.each_shard(skipped):
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
        if panel.target != "y" and with_peers:
            latest |= latest_times(panel)
    channels = tuple(dict.fromkeys(name for part in alike for name in part))
    first, last = min(ends, default=0), max(ends, default=0)
    steps = max(rows.values(), default=longest[True] or longest[False])
    scanned = Scanned(
        list(rows), trained, steps, skipped, first, last, findings, series, peers_at(last, latest)
    )
    layout, frequency = reader.layout._replace(channels=channels), most_common(clear or unclear)
    same = all(part == channels for part in alike)
    return dataclasses.replace(reader, layout=layout, frequency=frequency), scanned, same
