"""A run that is forecast with: of one in shards, only those that are needed are read."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forecaster.forecasting import Model
from forecaster.skipped import Skipped
from forecaster.storage.model.files import load_whole, read_rest
from forecaster.storage.runs.shards import Index, is_sharded, load_shards, read_index


@dataclasses.dataclass(frozen=True)
class OpenRun:
    """The series of a run, and their networks when they are asked for.

    - ``ids``, ``skipped``: the series with networks, and those without, with the reason
    - ``whole``: its model; None of a run in shards
    """

    folder: Path
    ids: tuple[str, ...]
    skipped: dict[str, Skipped]
    whole: Model | None
    _index: Index | None = None

    @staticmethod
    def of(folder: Path) -> "OpenRun":
        """Open a run. Raises ModelError when it is damaged."""
        rest = read_rest(folder)
        if is_sharded(rest):
            index = read_index(folder, rest)
            return OpenRun(folder, index.ids, index.skipped, None, index)
        model = load_whole(folder, rest)
        return OpenRun(folder, model.ids, dict(model.skipped), model)

    def by_shard(self, ids: Sequence[str]) -> list[list[str]]:
        """These series, those of each shard together; all together where there are no shards."""
        if self._index is None or len(ids) < 2:
            return [list(ids)]
        shard_of = dict(zip(self.ids, self._index.shard.tolist(), strict=True))
        groups: dict[int, list[str]] = {}
        for name in ids:
            groups.setdefault(shard_of[name], []).append(name)
        return list(groups.values())

    def model(self, ids: Sequence[str]) -> Model:
        """A model that holds these series; without any, one of some series."""
        if self.whole is not None:
            return self.whole
        assert self._index is not None
        if not ids:
            first = np.flatnonzero(self._index.shard == self._index.shard[0])
            ids = [self.ids[row] for row in first]
        model = load_shards(self.folder, self._index, ids)
        return dataclasses.replace(model, skipped=self.skipped)
