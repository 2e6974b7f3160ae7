"""A fit whose series do not fit into memory together: read, train, write, forget; shard by shard.

The bits are those of a fit in one piece; see :mod:`forecaster.forecasting.fitting.by_shard`.
"""

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.errors import ModelError, NoSeries, StoreError
from forecaster.forecasting import (
    Common,
    fit_in_part,
    learn_common,
    sampled,
    spread_of,
    usable_rows,
)
from forecaster.ingest import Store, panel_from_store
from forecaster.pipeline.requests import Callbacks
from forecaster.series import Frequency, Layout, Panel, infer_frequency, most_common
from forecaster.skipped import Kind, Skipped
from forecaster.storage import (
    FitRequest,
    SavedPart,
    UnfinishedFit,
    ids_to_read,
    read_part,
    save_part,
    shard_name,
)


class Scanned(NamedTuple):
    """What is known of all series after each was read once.

    - ``layout``, ``frequency``: of the panel that they would make
    - ``rows``: of each series that can be learned from
    - ``skipped``: the others, with the reason
    - ``first``, ``last``: the earliest and the latest time
    """

    layout: Layout
    frequency: Frequency
    rows: dict[str, int]
    skipped: dict[str, Skipped]
    first: Any
    last: Any


class Reads(Protocol):
    """Panels of some series at a time, for :func:`scan` and :func:`train_shards`."""

    @property
    def request(self) -> FitRequest:
        """What is to be done."""
        ...

    @property
    def store(self) -> Store:
        """Where the series are."""
        ...

    @property
    def layout(self) -> Layout:
        """Of the panel of all."""
        ...

    def panel(self, ids: Sequence[str]) -> Panel:
        """Some series. Raises NoSeries or StoreError when none of them can be read."""
        ...

    def knowing(self, layout: Layout, frequency: Frequency) -> "Reads":
        """The same, with what was seen of all series."""
        ...


@dataclasses.dataclass(frozen=True)
class Reader:
    """Panels of some stored series at a time, as those of all would have them.

    ``masked``: the rows that are left out; ``frequency``: of all, once it is known
    """

    store: Store
    request: FitRequest
    masked: pd.DataFrame
    layout: Layout
    frequency: Frequency | None = None

    def panel(self, ids: Sequence[str]) -> Panel:
        """Some series. Raises NoSeries or StoreError when none of them can be read."""
        request = self.request
        panel = panel_from_store(
            self.store, ids_to_read(ids, request.config), start=request.start, end=request.end,
            mask=request.mask, known_by=request.end, layout=self.layout, flagged=self.masked,
        )  # fmt: skip
        if (market := request.config.market) is not None:
            panel = panel.with_market(market, forecast=market in ids)
        if self.frequency is None:
            return panel
        return dataclasses.replace(panel, frequency=self.frequency)

    def knowing(self, layout: Layout, frequency: Frequency) -> "Reader":
        """The same, with what was seen of all series."""
        return dataclasses.replace(self, layout=layout, frequency=frequency)

    @staticmethod
    def of(store: Store, request: FitRequest, masked: pd.DataFrame) -> "Reader":
        """Before anything was seen of the series."""
        return Reader(store, request, masked, Layout(kind_of_times(store, request.ids)))


def scan(reader: Reads) -> Scanned:
    """Read each series once, some at a time. Raises NoSeries when none can be learned from."""
    scanned, same = _scan(reader)
    if not same:  # what was seen of some series alone is not what all of them are
        scanned, _ = _scan(reader.knowing(scanned.layout, scanned.frequency))
    if not scanned.rows:
        raise NoSeries({**reader.request.skipped, **scanned.skipped})
    return scanned


def _scan(reader: Reads) -> tuple[Scanned, bool]:
    """What is found, and whether each part of the series looked like all of them."""
    request = reader.request
    rows: dict[str, int] = {}
    skipped: dict[str, Skipped] = dict(request.skipped)
    channels: dict[str, None] = {}
    frequencies: Counter[Frequency] = Counter()
    seen: set[tuple[tuple[str, ...], Frequency]] = set()
    ends: list[Any] = []
    for names in shards_of(request.ids, request.series_per_shard):
        try:
            panel = reader.panel(names)
        except NoSeries as error:
            skipped |= error.skipped
            continue
        except StoreError:
            skipped |= store_damages(reader.store, names)
            continue
        found, reasons = usable_rows(panel, request.config)
        rows |= found
        skipped |= reasons
        channels |= dict.fromkeys(panel.channels)
        rows_of = (panel.times[seen] for seen in panel.mask if seen.any())
        frequencies.update(infer_frequency(times) for times in rows_of)
        seen.add((panel.channels, panel.frequency))
        ends += [panel.times[0], panel.times[-1]]
    layout = reader.layout._replace(channels=tuple(channels))
    frequency = most_common(frequencies)
    seasonal = request.config.transform == "seasonal"
    same = all(
        part == layout.channels and (kind == frequency or not seasonal) for part, kind in seen
    )
    ends = ends or [0]
    return Scanned(layout, frequency, rows, skipped, min(ends), max(ends)), same


def store_damages(store: Store, names: Sequence[str]) -> dict[str, Skipped]:
    """Why these series cannot be read."""
    damages = store.damages(names) or dict.fromkeys(names, "cannot be read")
    return {name: Skipped(Kind.UNREADABLE, detail=why) for name, why in damages.items()}


def kind_of_times(store: Store, ids: Sequence[str]) -> str:
    """What most series' times are, by the list of contents: "M" for dates or "i"."""
    firsts = [store.manifest.series[name].first for name in ids]
    whole = sum(first.lstrip("-").isdecimal() for first in firsts)
    return "M" if 2 * (len(firsts) - whole) >= len(firsts) else "i"


def shards_of(ids: Sequence[str], size: int | None) -> Iterator[Sequence[str]]:
    """The series that are trained together."""
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
    """Train all shards that are not finished yet; returns all of them.

    ``executor``: where the networks of each shard train.

    Shards of which something was lost with its workers are trained again.

    Raises NoSeries when no network of any can be used.
    """
    request = unfinished.request
    ids = list(scanned.rows)
    sample = sampled(ids, max(scanned.rows.values()))
    shards = list(shards_of(ids, request.series_per_shard))
    together = (request.series_at_a_time or len(ids)) // (request.series_per_shard or len(ids))
    common: Common | None = None
    parts: list[SavedPart] = []
    on_shard = callbacks.on_shard or (lambda done, total: None)
    kept = [_kept(unfinished.shards / shard_name(number)) for number in range(len(shards))]
    for first in range(0, len(shards), together):
        on_shard(first, len(shards))
        group = shards[first : first + together]
        done = [part for part in kept[first : first + together] if part is not None]
        if len(done) < len(group):
            before = [*parts, *(part for part in kept[first:] if part is not None)]
            if executor is None or executor.is_local:
                _check_computed(before, swarm.arithmetic())
            began = 0.0
            if common is None:
                common = _common(reader, sample, scanned, callbacks.on_training)
                began = common.pooled.seconds if common.pooled else 0.0
            done = _train(
                reader, group, common, unfinished, first, executor, callbacks.on_training, began,
                before,
            )  # fmt: skip
        if not any(part.lost for part in done):  # else its progress serves those to be tried again
            unfinished.finish_shard(first)
        parts += done
    if all(part.empty for part in parts):
        raise _nothing(scanned, parts)
    return parts


def _kept(folder: Path) -> SavedPart | None:
    """A shard that is finished and need not be tried again."""
    part = read_part(folder)
    return None if part is None or part.lost else part


def _check_computed(parts: Sequence[SavedPart], computes: Mapping[str, str]) -> None:
    """Raise ModelError where the rest would be rounded otherwise than the shards that are there."""
    for part in parts:
        changed = [
            f"{name} {part.computed[name]} (now {now})"
            for name, now in computes.items()
            if part.computed.get(name, now) != now
        ]
        if changed:
            raise ModelError(
                f"{part.folder}: this shard was computed with {', '.join(changed)}: the fit would "
                "end with the bits of neither. Resume it where it was begun (--ray, or a machine "
                "of that kind; FORECASTER_KERNEL and JAX_PLATFORMS as they were), or run "
                "`forecaster fit` without --resume"
            )


def _nothing(scanned: Scanned, parts: Sequence[SavedPart]) -> NoSeries:
    """Why there is no network at all."""
    lost = [name for part in parts for name in part.lost]
    again = "`forecaster fit --resume` tries those again whose workers were lost" if lost else ""
    reasons = {name: why for part in parts for name, why in part.skipped.items()}
    return NoSeries({**scanned.skipped, **reasons}, again, lost)


def _common(
    reader: Reads,
    sample: Sequence[str],
    scanned: Scanned,
    on_training: Callable[[swarm.Progress], None] | None,
) -> Common:
    request = reader.request
    steps = max(scanned.rows.values())
    return learn_common(
        reader.panel(sample), request.config, request.seed, steps, tune=request.tune,
        on_progress=on_training,
    )  # fmt: skip


def _train(
    reader: Reads,
    group: Sequence[Sequence[str]],
    common: Common,
    unfinished: UnfinishedFit,
    first: int,
    executor: swarm.Executor | None,
    on_training: Callable[[swarm.Progress], None] | None,
    seconds: float,
    before: Sequence[SavedPart],
) -> list[SavedPart]:
    """Read, train and write some shards together.

    - ``first``: the number of the first of them, with which all seconds are counted, also those
      given
    - ``before``: what they must have been computed like
    """
    request = unfinished.request
    part = None
    try:
        part = fit_in_part(
            reader.panel([name for names in group for name in names]), common, request.config,
            request.seed, tune=request.tune, checkpoint=unfinished.checkpoint_of(first),
            executor=executor, on_progress=on_training,
        )  # fmt: skip
        skipped, lost = part.model.skipped, set(part.lost)
        seconds += part.model.provenance["training_seconds"]
        _check_computed(before, part.model.provenance["computed"])
    except NoSeries as error:
        skipped, lost = error.skipped, set(error.lost)
    saved: list[SavedPart] = []
    for number, names in enumerate(group):
        own = None if part is None else part.only(names)
        reasons = {name: skipped[name] for name in names if name in skipped}
        folder = unfinished.shards / shard_name(first + number)
        gone = [name for name in names if name in lost]
        saved.append(save_part(folder, own, common.sample, reasons, gone, seconds))
        seconds = 0.0
    del part
    gc.collect()
    return saved


def common_spread_of(
    request: FitRequest, scanned: Scanned, parts: Sequence[SavedPart]
) -> np.ndarray:
    """What bands start from."""
    sample = sampled(list(scanned.rows), max(scanned.rows.values()))
    scores = [(part.names, part.scores) for part in parts]
    return spread_of(request.config, sample, scores, tune=request.tune)
