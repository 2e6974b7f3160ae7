"""A run: its facts, read without its arrays, and its networks when they are asked for."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from forecaster.errors import ModelError, check_names, listed, skipped_from_json
from forecaster.files import Home, as_folder, run_name, run_time
from forecaster.forecasting import FORECAST_BY, Config, Method, counted
from forecaster.ingest import Store
from forecaster.series import Scaling
from forecaster.storage.model.checking import ADVICE, Shared, Whole
from forecaster.storage.model.saving import load_whole, read_rest, understood
from forecaster.storage.runs.run_index import BEFORE, SCHEMA, Index, read_index

if TYPE_CHECKING:
    from forecaster.forecasting import Model, OwnNetwork


def load(
    folder: str | Path,
    network: "OwnNetwork | None" = None,
    *,
    ids: Sequence[str] | None = None,
) -> "Model":
    """Read a model that :func:`save` wrote.

    - ``network``: the class of the networks where it is a user's own; by default the class that the
      model was fitted with, if its module has been imported
    - ``ids``: the series to read, as the model spells them; by default all. Only the shards that
      hold them are opened

    Raises ModelError when there is no model, when a file is damaged or holds anything else, or when
    this program does not read its schema version; UsageError for ``ids`` that it does not hold.
    """
    if ids is not None:
        check_names("ids", ids, "a list of names, or None for all")
    run = Run.read(as_folder(folder))
    return run.model(run.ids if ids is None else ids, network)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run: its facts and the list of its series; only the shards that are needed are read.

    - ``config``: its settings
    - ``provenance``: how it was made: seed, dates, versions and more that the fit stored
    - ``covariates``: of its model
    - ``renames``: new names of series, by those that they had at the fit
    """

    folder: Path
    config: Config
    provenance: dict[str, Any]
    covariates: Scaling
    index: Index
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    @staticmethod
    def read(folder: Path) -> "Run":
        """Read the facts of a run. Raises ModelError when it is damaged, or of another version."""
        rest = read_rest(folder, SCHEMA, BEFORE)
        if rest["schema"] in (SCHEMA, BEFORE):  # of several shards
            with understood(folder, rest):
                said = msgspec.convert(rest, Shared)
                config, transform = said.settings()
            index = read_index(folder, rest)
        else:
            with understood(folder, rest):
                said = msgspec.convert(rest, Whole)
                config, transform = said.settings()
                skipped, report = skipped_from_json(said.skipped), said.report_frame()
            index = Index((folder,), said.ids, np.zeros(len(said.ids), int), skipped, report)
        return Run(folder, config, said.provenance, transform.covariates, index)

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return run_name(self.folder)

    @property
    def shown_time(self) -> str:
        """When it was saved, in local time; empty where that is unknown."""
        saved = run_time(self.folder)
        return "" if saved is None else saved.astimezone().strftime("%Y-%m-%d %H:%M")

    @property
    def source(self) -> str:
        """Where its series come from; empty for a model of :func:`forecaster.save`."""
        return self.provenance.get("source", "")

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @property
    def networks(self) -> str:
        """A short description of its networks, such as ``LSTM 16, market SPY``."""
        config, rungs = self.config, self.index.report.get(FORECAST_BY, [])
        market = f", market {listed(config.indices)}" if config.indices else ""
        others = f"; {counted(rungs)}" if set(rungs) - {Method.OWN} else ""
        hidden = "" if config.is_classical else f" {config.hidden}"
        return f"{config.column}{hidden}{market}{others}"

    @property
    def ids(self) -> tuple[str, ...]:
        """The series with networks."""
        return tuple(self.renames.get(name, name) for name in self.index.ids)

    @property
    def fitted_until(self) -> dict[str, np.generic]:
        """The latest time that each series learned from, of all shards that can be read."""
        until: dict[str, np.generic] = {}
        for folder in self.index.folders:
            with contextlib.suppress(ModelError):  # of a shard that this forecast may do without
                rest = read_rest(folder)
                with understood(folder, rest):
                    said = msgspec.convert(rest, Whole)
                    until |= dict(zip(said.ids, said.times(), strict=True))
        return {self.renames.get(name, name): time for name, time in until.items()}

    def __str__(self) -> str:
        """Describe the run in one line, for a notice."""
        source = self.source or "unknown"
        when = self.shown_time and f", fitted {self.shown_time}"
        return (
            f"{self.name} ({source}, {len(self.ids)} series, horizon {self.config.horizon}{when})"
        )

    def renamed(self, names: Mapping[str, str]) -> "Run":
        """Return the run with series under new names, by the old ones.

        A series keeps its name where the run has a network under the new one as well. Names of
        series without networks count, too: the model may see them beside the others.
        """
        known = set(self.index.ids)
        new = {old: to for old, to in names.items() if to not in known}
        return dataclasses.replace(self, renames=new)

    def by_shard(self, ids: Sequence[str]) -> list[list[str]]:
        """Group these series by shard."""
        if len(self.index.folders) == 1 or len(ids) < 2:
            return [list(ids)]
        shard_of = dict(zip(self.ids, self.index.shard.tolist(), strict=True))
        groups: dict[int, list[str]] = {}
        for name in ids:
            groups.setdefault(shard_of[name], []).append(name)
        return list(groups.values())

    def model(self, ids: Sequence[str], network: "OwnNetwork | None" = None) -> "Model":
        """Return a model of these series, in this order; without any, one of the first shard.

        ``network``: as for :func:`load`. Raises ModelError when a shard is damaged, UsageError for
        a series that the run does not hold.
        """
        from forecaster.forecasting import join_models, rename_series, unknown_series

        index, shard_of = self.index, dict(zip(self.ids, self.index.shard.tolist(), strict=True))
        if not ids:
            ids = [name for name in self.ids if shard_of[name] == index.shard[0]]
        if unknown := [name for name in ids if name not in shard_of]:
            raise unknown_series(unknown, self.ids)
        wanted, models = set(ids), []
        for number in sorted({shard_of[name] for name in ids}):
            model = rename_series(load_whole(index.folders[number], network), self.renames)
            held = [name for name in model.ids if name in wanted]
            models.append(model if len(held) == len(model.ids) else model.only(held))
        if any(_shared(each) != _shared(models[0]) for each in models[1:]):
            raise ModelError(f"{self.folder}: damaged; its shards are of several fits. {ADVICE}")
        found = {name for model in models for name in model.ids}
        if lacking := wanted - found:
            raise ModelError(
                f"{self.folder}: damaged; {listed(sorted(lacking))}: no network in the shard that "
                f"the list of series names. {ADVICE}"
            )
        joined = join_models(models)
        joined = joined if joined.ids == tuple(ids) else joined.only(list(ids))
        return dataclasses.replace(joined, skipped=self.index.skipped)


def _shared(model: "Model") -> tuple[Any, ...]:
    """Return what all shards of a run share, as it is saved: arrays cannot be compared as such."""
    transform = dataclasses.replace(model.transform, natures={}).to_dict()
    return model.config, model.channels, model.target, model.frequency, transform


def store_of(home: Home, run: Run) -> Store:
    """Open the store of a run's source. Raises ModelError where the run names none."""
    if (source := run.provenance.get("source")) is None:
        raise ModelError(
            "this model does not say where its data are, since it was saved by `fc.save` and not "
            "by `forecaster fit`; forecast with fc.predict(fc.load(FOLDER), panel)"
        )
    return Store.open(home, source)


def ids_to_read(ids: Sequence[str], config: Config) -> list[str]:
    """Return the series to fit or to forecast, and the indices that networks see beside them."""
    there = set(ids) if config.indices else set[str]()
    return [*ids, *(name for name in config.indices if name not in there)]
