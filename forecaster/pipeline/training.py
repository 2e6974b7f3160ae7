"""Train the networks of stored series, shard by shard: read, train, write, forget.

If all series fit into memory together, there is one shard, which is read once. With several shards,
each series is read once beforehand, to learn the facts that all networks share. The bits are the
same; see :mod:`forecaster.forecasting.fitting.fit`.
"""

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ModelError, NoSeries, StoreError
from forecaster.files import from_text
from forecaster.forecasting import (
    Common,
    Part,
    Sampling,
    changing_rows,
    check_search,
    check_static,
    learn_common,
    settled,
    settled_by_rows,
    usable_rows,
)
from forecaster.ingest import Store, panel_from_store
from forecaster.pipeline.auxiliary import digest_of, with_auxiliary
from forecaster.pipeline.peers import beside_peers
from forecaster.pipeline.requests import Callbacks
from forecaster.pipeline.running_periods import (
    RunningPeriod,
    running_periods,
    warn_of_running_periods,
)
from forecaster.pipeline.side_by_side import Group, fit_side_by_side
from forecaster.processes import cores
from forecaster.series import (
    Frequency,
    LatestRows,
    Layout,
    MissingDates,
    Panel,
    Placeholder,
    Unmatched,
    infer_frequency,
    most_common,
    placeholders_in,
    series_missing_dates,
    tells_frequency,
    unmatched_rows,
    warn_of_missing_dates,
    warn_of_placeholders,
    warn_of_unmatched_rows,
)
from forecaster.skipped import Kind, Skipped
from forecaster.storage import (
    FitRequest,
    SavedPart,
    UnfinishedFit,
    ids_to_read,
    read_part,
    shard_name,
)

WORTH_PROCESSES = 2_000
"""The fewest series for which further processes are started, each of which takes seconds."""


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
    - ``latest``: what the latest rows of all series call for
    """

    ids: list[str]
    trained: list[str]
    steps: int
    skipped: dict[str, Skipped]
    first: Any
    last: Any
    latest: LatestRows


_R = TypeVar("_R", bound="Reads")


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

    def knowing(self, layout: Layout, frequency: Frequency) -> Self:
        """Return a reader of panels with the layout and the frequency of all series."""
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
    - ``frequency``: the frequency of all series, once it is known
    - ``held``: the panel of all series, if they are a single shard, once it has been read
    """

    store: Store
    request: FitRequest
    masked: pd.DataFrame
    layout: Layout
    frequency: Frequency | None = None
    held: Panel | None = None

    @staticmethod
    def of(store: Store, request: FitRequest, masked: pd.DataFrame) -> "Reader":
        """Return a reader of the series of a request; if they are a single shard, read them."""
        check_search(request.config, tune=request.tune)
        reader = Reader(store, request, masked, Layout(kind_of_times(store, request.ids)))
        if request.series_per_shard is not None:
            return reader
        panel = request.covariates.added_to(reader.panel(request.ids))
        panel = with_auxiliary(panel, request)
        config, panel = settled(request.config, panel)
        check_static(panel, config, tune=request.tune)
        return dataclasses.replace(reader, request=_with(request, config), held=panel)

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series. Raises NoSeries or StoreError if none of them can be read."""
        if self.held is not None:
            return self.held if tuple(ids) == self.request.ids else self.held.only(ids)
        request = self.request
        wanted = ids_to_read(ids, request.config)
        panel = beside_peers(self._stored, wanted, request.ids, request.config)
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

    def knowing(self, layout: Layout, frequency: Frequency) -> "Reader":
        """Return a reader of panels with the layout and the frequency of all series."""
        return dataclasses.replace(self, layout=layout, frequency=frequency)


def _with(request: FitRequest, config: Config) -> FitRequest:
    return request if config is request.config else dataclasses.replace(request, config=config)


def check_covariates(request: FitRequest, command: str) -> None:
    """Raise ModelError if files beside the series have changed since a request was made.

    ``command``: the command that made the request, ``fit`` or ``evaluate``.
    """
    learned = request.learn_from
    digest = None if learned is None else digest_of(from_text(learned))
    for which, was, now in (
        ("the files of covariates", request.covariates_sha256, request.covariates.sha256()),
        ("the series of --learn-from", request.learn_from_sha256, digest),
    ):
        if was != now:
            raise ModelError(
                f"{which} have changed since the {command} was interrupted; run "
                f"`forecaster {command}` without --resume"
            )


def scan(reader: _R) -> tuple[_R, Scanned]:
    """Read each series once; return the facts, and a reader that knows the layout of all.

    Raises NoSeries if none of the series can be learned from.
    """
    request = reader.request
    if request.series_per_shard is None:
        panel = reader.panel(request.ids)
        warn_of_missing_dates(series_missing_dates(panel), len(panel.ids))
        warn_of_running_periods(running_periods(panel), len(panel.ids))
        warn_of_unmatched_rows(unmatched_rows(panel))
        warn_of_placeholders(placeholders_in(panel))
        steps = int(panel.mask.sum(1).max())
        times, latest = (panel.times[0], panel.times[-1]), LatestRows.of(panel)
        return reader, Scanned(list(request.ids), [], steps, dict(request.skipped), *times, latest)
    layout, frequency, scanned, same = _scan(reader)
    reader = reader.knowing(layout, frequency)
    if not same:  # some series look different with the layout or the frequency of all series
        scanned = _scan(reader)[2]
    if not scanned.ids and (without := reader.without_networks(scanned.steps)) is not None:
        reader, scanned = without, _scan(without)[2]
    if not scanned.ids:
        raise NoSeries({**request.skipped, **scanned.skipped})
    return reader, scanned


def _scan(reader: Reads) -> tuple[Layout, Frequency, Scanned, bool]:
    """Read all shards; the last result says whether each had the common layout and frequency."""
    request = reader.request
    rows: dict[str, int] = {}
    trained: list[str] = []
    skipped: dict[str, Skipped] = dict(request.skipped)
    channels: dict[str, None] = {}
    frequencies: Counter[Frequency] = Counter()
    unclear: Counter[Frequency] = Counter()
    seen: set[tuple[tuple[str, ...], Frequency]] = set()
    ends: list[Any] = []
    missing: dict[str, MissingDates] = {}
    running: dict[str, RunningPeriod] = {}
    latest: list[LatestRows] = []
    unmatched: list[Unmatched] = []
    placeholders: list[Placeholder] = []
    count = 0
    most = still = 0  # rows of the longest series that changes, and of the longest constant one
    for panel in each_shard(reader.panel, reader.store, request, skipped):
        found = usable_rows(panel, request.config)
        missing |= series_missing_dates(panel)
        running |= running_periods(panel)
        unmatched += unmatched_rows(panel)
        placeholders += placeholders_in(panel)
        latest.append(LatestRows.of(panel))
        count += len(panel.ids)
        if panel.constant().all():
            still = max(still, changing_rows(panel))
        else:
            most = max(most, changing_rows(panel))
        rows |= found.rows
        trained += found.trained
        skipped |= found.skipped
        channels |= dict.fromkeys(panel.channels)
        rows_of = (panel.times[seen] for seen in panel.mask if seen.any())
        for times in rows_of:
            (frequencies if tells_frequency(times) else unclear)[infer_frequency(times)] += 1
        seen.add((panel.channels, panel.frequency))
        ends += [panel.times[0], panel.times[-1]]
    layout = reader.layout._replace(channels=tuple(channels))
    frequency = most_common(frequencies or unclear)
    seasonal = request.config.transform == "seasonal"
    same = all(
        part == layout.channels and (kind == frequency or not seasonal) for part, kind in seen
    )
    ends = ends or [0]
    warn_of_missing_dates(missing, count)
    warn_of_running_periods(running, count)
    warn_of_unmatched_rows(unmatched)
    warn_of_placeholders(placeholders)
    steps = max(rows.values(), default=most or still)
    return (
        layout,
        frequency,
        Scanned(
            list(rows), trained, steps, skipped, min(ends), max(ends), LatestRows.joined(latest)
        ),
        same,
    )


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


def train_shards(
    reader: Reads,
    scanned: Scanned,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> list[SavedPart]:
    """Train all shards that are not finished yet; return all shards.

    ``executor``: where the networks of each shard train. A shard is trained again if some of its
    series were lost with their workers. Raises NoSeries if no network of any shard can be used.
    """
    request = reader.request
    shards = _Shards.of(reader, scanned.ids, unfinished.shards)
    parts = [_kept(shards.folder / shard_name(number)) for number in range(len(shards.names))]
    waiting = [first for first in shards.firsts if None in parts[shards.group_at(first)]]
    on_shard = callbacks.on_shard if request.series_per_shard is not None else None
    common: Common | None = None
    began = 0.0
    side_by_side: Iterator[list[SavedPart]] | None = None
    for first in shards.firsts:
        if on_shard is not None:
            on_shard(first, len(shards.names))
        if first in waiting:
            before = _finished(parts)
            if executor is None or executor.is_local:
                _check_computed(before, swarm.arithmetic())
            if common is None and request.series_per_shard is not None:
                common = _learned(reader, scanned, callbacks)
                began = common.pooled.seconds if common.pooled else 0.0
                rest = waiting[waiting.index(first) :]
                side_by_side = _side_by_side(shards, rest, common, executor)
            if side_by_side is None:
                group, began = shards.read(first, common, began), 0.0
                made = _train(group, unfinished, executor, callbacks.on_training, before)
            else:
                made = next(side_by_side)
            parts[shards.group_at(first)] = made
        # Otherwise the progress is needed to try the lost series again.
        if not any(part.lost for part in _finished(parts[shards.group_at(first)])):
            unfinished.finish_shard(first)
    finished = _finished(parts)
    if all(part.empty for part in finished):
        raise _nothing(scanned, finished)
    return finished


@dataclasses.dataclass(frozen=True)
class _Shards:
    """The shards of a fit, in groups that are read and trained together.

    - ``folder``: the folder of the finished shards
    - ``names``: the series of each shard
    - ``together``: number of shards in a group
    """

    reader: Reads
    folder: Path
    names: list[Sequence[str]]
    together: int

    @staticmethod
    def of(reader: Reads, ids: Sequence[str], folder: Path) -> "_Shards":
        """Divide some series as the request says."""
        request = reader.request
        names = list(shards_of(ids, request.series_per_shard))
        together = (request.series_at_a_time or len(ids)) // (request.series_per_shard or len(ids))
        return _Shards(reader, folder, names, together)

    @property
    def firsts(self) -> range:
        """The number of the first shard of each group."""
        return range(0, len(self.names), self.together)

    def group_at(self, first: int) -> slice:
        """Return the shards of a group by the number of its first one."""
        return slice(first, first + self.together)

    def read(self, first: int, common: Common | None, seconds: float = 0.0) -> Group:
        """Read the series of a group; see :class:`Group` for ``common`` and ``seconds``."""
        names, request = self.names[self.group_at(first)], self.reader.request
        panel = self.reader.panel([name for some in names for name in some])
        return Group(
            panel, names, request.config, request.seed, request.tune, common, self.folder,
            first, seconds,
        )  # fmt: skip


def _finished(parts: Sequence[SavedPart | None]) -> list[SavedPart]:
    """Return the shards that are finished."""
    return [part for part in parts if part is not None]


def _side_by_side(
    shards: _Shards, firsts: Sequence[int], common: Common, executor: swarm.Executor | None
) -> Iterator[list[SavedPart]] | None:
    """Return the shards of some groups as processes finish them; None: this process fits them."""
    processes = _processes(shards.reader.request, common, executor, len(firsts))
    if processes <= 1:
        return None
    return fit_side_by_side((shards.read(first, common) for first in firsts), processes)


def _learned(reader: Reads, scanned: Scanned, callbacks: Callbacks) -> Common:
    """Learn what all series share, from a sample of them."""
    request = reader.request
    sampling = Sampling.of(request.config, scanned.ids, scanned.trained, scanned.steps)
    panel = with_auxiliary(reader.panel(sampling.ids), request)
    return learn_common(
        panel, request.config, request.seed, sampling,
        tune=request.tune, on_progress=callbacks.on_training,
    )  # fmt: skip


def _processes(
    request: FitRequest, common: Common, executor: swarm.Executor | None, groups: int
) -> int:
    """Return how many processes fit the remaining groups of shards; 1: this process."""
    local = executor is None or executor.is_local
    series = groups * (request.series_at_a_time or 0)
    if common.networks is not False or not local or series < WORTH_PROCESSES:
        return 1
    return min(request.processes, cores(), groups)


def _kept(folder: Path) -> SavedPart | None:
    """Return a finished shard; None if some of its series were lost and are to be tried again."""
    part = read_part(folder)
    return None if part is None or part.lost else part


def _check_computed(parts: Sequence[SavedPart], computes: Mapping[str, str]) -> None:
    """Raise ModelError if finished shards were computed by code that rounds differently."""
    for part in parts:
        changed = [
            f"{name} {part.computed[name]} (now {now})"
            for name, now in computes.items()
            if part.computed.get(name, now) != now
        ]
        if changed:
            raise ModelError(
                f"{part.folder}: this shard was computed with {', '.join(changed)}, so the rest "
                "would be rounded differently. Resume the fit where it was begun (with --ray, or "
                "on such a machine; FORECASTER_KERNEL and JAX_PLATFORMS as they were), or run "
                "`forecaster fit` without --resume"
            )


def _nothing(scanned: Scanned, parts: Sequence[SavedPart]) -> NoSeries:
    """Return the error for a fit in which no network of any shard can be used."""
    lost = [name for part in parts for name in part.lost]
    again = (
        "`forecaster fit --resume` tries the series again whose workers were lost" if lost else ""
    )
    reasons = {name: why for part in parts for name, why in part.skipped.items()}
    return NoSeries({**scanned.skipped, **reasons}, again, lost)


def _train(
    group: Group,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    on_training: Callable[[swarm.Progress], None] | None,
    before: Sequence[SavedPart],
) -> list[SavedPart]:
    """Train the series of some shards together, and write each shard.

    ``before``: finished shards, which must have been computed in the same way
    """
    part: Part | NoSeries
    try:
        part = group.fit(unfinished.checkpoint_of(group.first), executor, on_training)
        _check_computed(before, part.model.provenance["computed"])
    except NoSeries as error:
        if group.common is None and not error.lost:
            raise  # there is nothing to keep, and nothing to try again
        part = error
    saved = group.save(part)
    if group.common is not None:
        del part
        gc.collect()
    return saved
