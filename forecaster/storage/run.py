"""A run: its facts and the list of its series; its networks are read when they are asked for.

    models/<run>/model.json         what all shards share, and the hash of the list of series
    models/<run>/index.parquet      series, shard, how its training went, or why it has no network
    models/<run>/shards/0007/       a model as :mod:`forecaster.storage.saving` writes it

A run of one shard is that model itself, without ``index.parquet`` and ``shards/``.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from forecaster.errors import (
    DamagedModel,
    ModelError,
    Skipped,
    check_names,
    listed,
    skipped_from_json,
)
from forecaster.files import Home, as_folder, read_parquet_file, run_name, run_time
from forecaster.forecasting import FORECAST_BY, Config, Method, counted
from forecaster.ingest import Store
from forecaster.series import Scaling
from forecaster.storage.checking import ADVICE, Shared, Whole, read_bytes, shortened
from forecaster.storage.saving import load_whole, read_rest, understood, write_rest

if TYPE_CHECKING:  # the facts of a run are read without JAX
    from forecaster.forecasting import Model, OwnNetwork

SCHEMA = 16  # smaller numbers had the models of earlier versions
BEFORE = 14  # the same, of models before
SHARDS = "shards"
_INDEX = "index.parquet"
_SAME = ("config", "channels", "target", "frequency", "transform")  # of all shards
_SKIPPED = -1  # in place of a shard's number
_KEYS = ("unique_id", "shard", "skipped", "kind", "needed", "reason")  # the last are of before
_ERRORS = ("mae_relative_to_naive", "mae_relative_to_seasonal_naive")


def shard_name(number: int) -> str:
    """Return the name of a shard's folder."""
    return f"{number:04d}"


class Index(NamedTuple):
    """Which series of a run is in which shard.

    - ``folders``: the folders of the shards, each a model
    - ``ids``: the series with networks, in the order of the fit
    - ``shard``: the number of the shard of each, (series,)
    - ``skipped``: the series without networks, with the reason
    - ``report``: how the training of each went, a row per series
    """

    folders: tuple[Path, ...]
    ids: tuple[str, ...]
    shard: np.ndarray
    skipped: dict[str, Skipped]
    report: pd.DataFrame


def read_index(folder: Path, rest: dict[str, Any]) -> Index:
    """Return which series of a run of several shards is in which.

    ``rest``: its ``model.json``. Raises ModelError when it is damaged.
    """
    path = folder / _INDEX
    raw = read_bytes(path)
    if hashlib.sha256(raw).hexdigest() != rest.get("index_sha256"):
        raise DamagedModel(f"{path}: damaged; its content is not what was saved. {ADVICE}")
    try:
        table = read_parquet_file(raw).to_pandas()
        shard, shards = table["shard"].to_numpy().astype(int, casting="same_kind"), rest["shards"]
        there, gone = table[shard >= 0], table[shard < 0]
        ids = msgspec.convert(there["unique_id"].tolist(), tuple[str, ...])
        if len(set(ids)) < len(ids):
            raise ValueError("index: a series is there twice")
        # Each shard holds a series or more.
        if type(shards) is not int or not 0 <= shard.max(initial=-1) < shards <= len(ids):
            raise ValueError(f"index: expected series, each in one of the shards; got {shards!r}")
        report = there.drop(columns=[name for name in _KEYS if name in there])
        report = report.set_index(pd.Index(ids, name="unique_id"))
        skipped = zip(gone["unique_id"], gone["skipped"].map(json.loads), strict=True)
        return Index(
            tuple(folder / SHARDS / shard_name(number) for number in range(shards)), ids,
            shard[shard >= 0], skipped_from_json(dict(skipped)),
            report.astype(dict.fromkeys(_ERRORS, float)),
        )  # fmt: skip
    except Exception as error:  # the file may contain anything
        reason = shortened(error)
        raise DamagedModel(f"{path}: not a list of series: {reason}. {ADVICE}") from error


def write_index(
    folder: Path,
    rests: Sequence[dict[str, Any]],
    shared: dict[str, Any],
    skipped: dict[str, Skipped],
) -> None:
    """Write the two files of a run that say what is in its shards.

    - ``rests``: the fields of each shard's ``model.json``, without the properties of its series
    - ``shared``: fields of ``model.json`` that are the same for all
    - ``skipped``: series without a network, with the reason
    """
    raw = _table_of(rests, skipped)
    (folder / _INDEX).write_bytes(raw)
    first = rests[0]
    root = {
        "schema": SCHEMA,
        "shards": len(rests),
        "index_sha256": hashlib.sha256(raw).hexdigest(),
        **{name: first[name] for name in _SAME},
        **shared,
    }
    write_rest(folder, root)


def _table_of(rests: Sequence[dict[str, Any]], skipped: dict[str, Skipped]) -> bytes:
    """Return the list of series as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [
        pd.DataFrame({"unique_id": rest["ids"], "shard": number, "skipped": None, **rest["report"]})
        for number, rest in enumerate(rests)
    ]
    if skipped:
        reasons = [json.dumps(reason.to_json()) for reason in skipped.values()]
        gone = {"unique_id": list(skipped), "shard": _SKIPPED, "skipped": reasons}
        tables.append(pd.DataFrame(gone))
    table = pd.concat(tables, ignore_index=True).astype({"shard": "int32"})
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pandas(table, preserve_index=False), sink, write_page_checksum=True,
        compression="zstd",
    )  # fmt: skip
    return sink.getvalue().to_pybytes()


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
