"""A fit whose series do not fit into memory together: read, train, write, forget; shard by shard.

The bits are those of a fit in one piece; see :mod:`forecaster.forecasting.parts`.
"""

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.errors import DataError, NoSeries, StoreError
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
    skipped: dict[str, str]
    first: Any
    last: Any


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


def scan(store: Store, request: FitRequest, masked: pd.DataFrame) -> Scanned:
    """Read each series once, some at a time. Raises DataError when none can be learned from."""
    reader = Reader(store, request, masked, Layout(_kind(store, request.ids)))
    scanned, same = _scan(reader)
    if not same:  # what was seen of some series alone is not what all of them are
        reader = dataclasses.replace(reader, layout=scanned.layout, frequency=scanned.frequency)
        scanned, _ = _scan(reader)
    if not scanned.rows:
        raise NoSeries({**request.skipped, **scanned.skipped})
    return scanned


def _scan(reader: Reader) -> tuple[Scanned, bool]:
    """What is found, and whether each part of the series looked like all of them."""
    request = reader.request
    rows: dict[str, int] = {}
    skipped: dict[str, str] = dict(request.skipped)
    channels: dict[str, None] = {}
    frequencies: Counter[Frequency] = Counter()
    seen: set[tuple[tuple[str, ...], Frequency]] = set()
    ends: list[Any] = []
    for names in shards_of(request.ids, request.shard):
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
        frequencies.update(infer_frequency(panel.times[seen]) for seen in panel.mask)
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


def store_damages(store: Store, names: Sequence[str]) -> dict[str, str]:
    """Why these series cannot be read."""
    return store.damages(names) or dict.fromkeys(names, "cannot be read")


def _kind(store: Store, ids: Sequence[str]) -> str:
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
    reader: Reader,
    scanned: Scanned,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> list[SavedPart]:
    """Train all shards that are not finished yet; returns all of them.

    ``executor``: where the networks of each shard train.

    Raises DataError when no network of any can be used.
    """
    request = unfinished.request
    ids = list(scanned.rows)
    sample = sampled(ids, max(scanned.rows.values()))
    groups = list(shards_of(ids, request.shard))
    common: Common | None = None
    on_shard = callbacks.on_shard or (lambda done, total: None)
    for number, names in enumerate(groups):
        folder = unfinished.shards / shard_name(number)
        on_shard(number, len(groups))
        if read_part(folder) is None:
            if common is None:
                common = _common(reader, sample, scanned, callbacks.on_training)
            _train(reader, names, common, unfinished, number, executor, callbacks.on_training)
        unfinished.finish_shard(number)
    parts = [read_part(unfinished.shards / shard_name(k)) for k in range(len(groups))]
    parts = [part for part in parts if part is not None]
    if all(part.empty for part in parts):
        raise DataError("no network can be used: the forecasts of none are finite numbers")
    return parts


def _common(
    reader: Reader,
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
    reader: Reader,
    names: Sequence[str],
    common: Common,
    unfinished: UnfinishedFit,
    number: int,
    executor: swarm.Executor | None,
    on_training: Callable[[swarm.Progress], None] | None,
) -> None:
    """Read, train and write one shard."""
    request = unfinished.request
    part = None
    skipped: dict[str, str] = {}
    try:
        part = fit_in_part(
            reader.panel(names), common, request.config, request.seed, tune=request.tune,
            checkpoint=unfinished.checkpoint_of(number), executor=executor,
            on_progress=on_training,
        )  # fmt: skip
        skipped = dict(part.model.skipped)
    except NoSeries as error:
        skipped = error.skipped
    save_part(unfinished.shards / shard_name(number), part, common.sample, skipped)
    del part
    gc.collect()


def common_spread_of(
    request: FitRequest, scanned: Scanned, parts: Sequence[SavedPart]
) -> np.ndarray:
    """What bands start from."""
    sample = sampled(list(scanned.rows), max(scanned.rows.values()))
    return spread_of(request.config, sample, [(part.names, part.scores) for part in parts])
