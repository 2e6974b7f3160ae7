"""Train the networks of stored series, shard by shard: read, train, write, forget.

If all series fit into memory together, there is one shard, which is read once. With several shards,
each series is read once beforehand, to learn the facts that all networks share. The bits are the
same; see :mod:`forecaster.forecasting.fitting.fit`.
"""

import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from forecaster import swarm
from forecaster.errors import ModelError, NoSeries
from forecaster.forecasting import Common, Part, Sampling, learn_common
from forecaster.pipeline.auxiliary import with_auxiliary
from forecaster.pipeline.reading import Reads, shards_of
from forecaster.pipeline.requests import Callbacks
from forecaster.pipeline.scanning import Scanned
from forecaster.pipeline.side_by_side import Group, fit_side_by_side
from forecaster.processes import cores
from forecaster.storage import FitRequest, SavedPart, UnfinishedFit, read_part, shard_name

WORTH_PROCESSES = 2_000
"""The fewest series for which further processes are started, each of which takes seconds."""


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
