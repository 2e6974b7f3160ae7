"""Runs in shards: models of some series each, and a list of which series is in which.

    models/<run>/model.json         what all shards share; the hash of the list
    models/<run>/index.parquet      series, shard, how its training went, or why it has no network
    models/<run>/shards/0007/       a model as :mod:`forecaster.storage.model.files` writes it

While such a fit is under way, its finished shards lie in ``unfinished/<fit>/shards``, each with
``part.json`` and ``scores.npy`` of its series that are in the sample.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from forecaster.config import Config
from forecaster.errors import ModelError
from forecaster.files import atomic
from forecaster.home import Home
from forecaster.skipped import Skipped, skipped_frame, skipped_from_json, skipped_to_json
from forecaster.storage.model.checking import (
    ADVICE,
    facts_of,
    read_bytes,
    read_json,
    shortened,
)
from forecaster.storage.model.files import REST, as_new_run, load_whole, read_rest, write_model

if TYPE_CHECKING:
    import pyarrow as pa

    from forecaster.forecasting import Model, OwnNetwork, Part

SCHEMA = 5
SHARDS = "shards"
_INDEX, _PART, _SCORES = "index.parquet", "part.json", "scores.npy"
_SKIPPED = -1  # in place of a shard's number
_MOST = 1_000_000  # shards
_KEYS = ("unique_id", "shard", "kind", "needed", "reason", "skipped")
_ERRORS = {
    "error": "mae_relative_to_naive", "seasonal_error": "mae_relative_to_seasonal_naive",
}  # fmt: skip


class SavedPart(NamedTuple):
    """A finished shard of a fit that is under way.

    - ``names``, ``scores``: of its series in the sample, see :class:`forecaster.forecasting.Part`
    - ``skipped``: series of it without a network, with the reason
    - ``seconds``: that training took, as far as it is counted with this shard
    - ``empty``: whether there is no model, as none of its networks can be used
    - ``lost``: those of the skipped that no worker could train, which may be tried again
    - ``computed``: which code trained its networks; empty where there is none
    """

    folder: Path
    names: tuple[str, ...]
    scores: np.ndarray
    skipped: dict[str, Skipped]
    seconds: float
    empty: bool
    lost: tuple[str, ...] = ()
    computed: Mapping[str, str] = MappingProxyType({})


def shard_name(number: int) -> str:
    """What a shard's folder is called."""
    return f"{number:04d}"


def save_part(
    folder: Path,
    part: "Part | None",
    sample: Sequence[str],
    skipped: dict[str, Skipped],
    lost: Sequence[str] = (),
    seconds: float = 0.0,
) -> SavedPart:
    """Write a finished shard, whole or not at all, also in place of one that was there.

    - ``part``: None where no network of it can be used
    - ``sample``: the series that stand for all
    - ``skipped``: series of it without a network, with the reason
    - ``lost``: those of them that no worker could train
    - ``seconds``: that training took, of what is not counted with another shard

    Raises WriteError when it cannot be written.
    """
    chosen = set(sample)
    rows = [row for row, name in enumerate(part.ids) if name in chosen] if part else []
    scores = part.scores[rows] if part else np.zeros((0, 0, 0))
    said = {
        "names": [part.ids[row] for row in rows] if part else [],
        "skipped": skipped_to_json(skipped),
        "seconds": seconds,
        "empty": part is None,
        "lost": list(lost),
        "computed": part.model.provenance["computed"] if part else {},
    }
    with atomic.write_folder(folder, replace=True) as temporary:
        if part is not None:
            write_model(part.model, temporary)
        np.save(temporary / _SCORES, scores)
        (temporary / _PART).write_text(json.dumps(said, allow_nan=False), encoding="utf-8")
    return _saved_part(folder, said, scores)


def read_part(folder: Path) -> SavedPart | None:
    """A finished shard; None where it is not there."""
    if not (folder / _PART).exists():
        return None
    return _saved_part(folder, read_json(folder / _PART), np.load(folder / _SCORES))


def _saved_part(folder: Path, said: dict[str, Any], scores: np.ndarray) -> SavedPart:
    return SavedPart(
        folder, tuple(said["names"]), scores, skipped_from_json(said["skipped"]),
        float(said["seconds"]), bool(said["empty"]), tuple(said.get("lost", ())),
        dict(said.get("computed", {})),
    )  # fmt: skip


def save_shards(
    home: Home,
    parts: Sequence[SavedPart],
    spread: np.ndarray,
    skipped: dict[str, Skipped],
    provenance: dict[str, Any],
    name: str | None = None,
) -> Path:
    """Save finished shards as a new run; returns its folder.

    - ``spread``: what bands start from
    - ``skipped``: series without a network, with the reason
    - ``provenance``: of the whole, see :class:`forecaster.forecasting.Model`
    - ``name``: what the run is called; by default its time

    Raises WriteError when it cannot be written.
    """
    full = [part for part in parts if not part.empty]
    shared = {"spread": spread.tolist(), "provenance": provenance}

    def write(folder: Path) -> Path:
        with atomic.write_folder(folder) as temporary:
            rests = []
            for number, part in enumerate(full):
                to = temporary / SHARDS / shard_name(number)
                to.mkdir(parents=True)
                rests.append(_copied(part.folder, to, {**shared, "skipped": {}}))
            raw = _index(rests, skipped)
            (temporary / _INDEX).write_bytes(raw)
            root = _root(rests[0], shared, len(full), hashlib.sha256(raw).hexdigest())
            text = json.dumps(root, indent=1, allow_nan=False)
            (temporary / REST).write_text(text, encoding="utf-8")
        return folder

    config = Config.from_dict(read_json(full[0].folder / REST)["config"], "config")
    return as_new_run(home, config.column.lower(), name, write)


def _copied(source: Path, to: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Put a model into another folder with changes; returns its ``model.json`` but for weights."""
    rest = {**read_json(source / REST), **changes}
    (to / REST).write_text(json.dumps(rest, indent=1, allow_nan=False), encoding="utf-8")
    for path in source.glob("*.safetensors"):
        try:
            os.link(path, to / path.name)  # the same disk; what is there is never changed
        except OSError:
            shutil.copyfile(path, to / path.name)
    return {
        name: rest[name]
        for name in ("config", "ids", "report", "channels", "target", "frequency", "transform")
    }


def _root(rest: dict[str, Any], shared: dict[str, Any], shards: int, digest: str) -> dict[str, Any]:
    """What all shards share."""
    transform = {**rest["transform"], "natures": {}}
    fields = {name: rest[name] for name in ("config", "channels", "target", "frequency")}
    return {
        "schema": SCHEMA, "shards": shards, "index_sha256": digest, **fields,
        "transform": transform, **shared,
    }  # fmt: skip


def _index(rests: Sequence[dict[str, Any]], skipped: dict[str, Skipped]) -> bytes:
    """The list of series, as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [
        pd.DataFrame({"unique_id": rest["ids"], "shard": number, **rest["report"]})
        for number, rest in enumerate(rests)
    ]
    if skipped:
        stored = [json.dumps(reason.to_json()) for reason in skipped.values()]
        rows = skipped_frame(skipped).assign(shard=_SKIPPED, skipped=stored)
        tables.append(rows.astype({"rows": float}))  # NaN where unknown
    table = pd.concat(tables, ignore_index=True).astype({"shard": "int32"})
    for name in _KEYS:
        if name not in table:
            table[name] = None
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pandas(table, preserve_index=False), sink, write_page_checksum=True,
        compression="zstd",
    )  # fmt: skip
    return sink.getvalue().to_pybytes()


class Index(NamedTuple):
    """Which series of a run is in which shard.

    - ``ids``: those with a network, in the order of the fit
    - ``shard``: of each, (series,)
    - ``skipped``: those without, with the reason
    - ``report``: how the training of each went, a column each
    """

    ids: tuple[str, ...]
    shard: np.ndarray
    skipped: dict[str, Skipped]
    report: "pa.Table"

    def numbers(self, ids: Sequence[str]) -> list[int]:
        """The shards that hold these series."""
        if len(ids) == len(self.ids):
            return np.unique(self.shard).tolist()
        wanted = set(ids)
        held = [row for row, name in enumerate(self.ids) if name in wanted]
        return np.unique(self.shard[held]).tolist()

    def frame(self) -> pd.DataFrame:
        """The report by series."""
        return self.report.to_pandas().set_index(pd.Index(self.ids, name="unique_id"))


def is_sharded(rest: dict[str, Any]) -> bool:
    """Whether a ``model.json`` is that of a run in shards."""
    return rest.get("schema") == SCHEMA


def read_index(folder: Path, rest: dict[str, Any]) -> Index:
    """The list of series of a run in shards. Raises ModelError when it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / _INDEX
    raw = read_bytes(path)
    if hashlib.sha256(raw).hexdigest() != rest.get("index_sha256"):
        raise ModelError(f"{path}: damaged; its content is not what was saved. {ADVICE}")
    try:
        table = pq.read_table(pa.BufferReader(raw))
        shard = table["shard"].to_numpy()
        there, gone = table.filter(pa.array(shard >= 0)), table.filter(pa.array(shard < 0))
        shard = there["shard"].to_numpy()
        shards = rest.get("shards")
        if type(shards) is not int or not 0 < shards <= _MOST:
            raise ValueError(f"shards: expected a number of them; got {shards!r}")
        if not len(shard) or shard.max() >= shards:
            raise ValueError("index: expected series, each in one of the shards")
        ids = tuple(there["unique_id"].to_pylist())
        if missing := set(_ERRORS.values()) - set(table.column_names):
            raise ValueError(f"index: no column {', '.join(missing)}")
        keys = [name for name in _KEYS if name in table.column_names]
        return Index(ids, shard, _skipped_of(gone), there.drop_columns(keys))
    except Exception as error:  # the file is whatever somebody made of it
        reason = shortened(error)
        raise ModelError(f"{path}: not a list of series: {reason}. {ADVICE}") from error


def _skipped_of(gone: "pa.Table") -> dict[str, Skipped]:
    """The series without a network; those of older versions have nothing but a text."""
    stored = gone["reason"].to_pylist()
    if "skipped" in gone.column_names:
        stored = [json.loads(text) for text in gone["skipped"].to_pylist()]
    return skipped_from_json(dict(zip(gone["unique_id"].to_pylist(), stored, strict=True)))


def read_report(folder: Path) -> tuple[pd.DataFrame, dict[str, Skipped], int]:
    """Of a run in shards, how the training of each series went, those skipped, and the shards."""
    rest = read_rest(folder)
    index = read_index(folder, rest)
    return index.frame(), index.skipped, int(rest["shards"])


def sharded_facts(folder: Path, rest: dict[str, Any]) -> dict[str, Any]:
    """What :func:`forecaster.storage.model.checking.facts_of` says, of a run in shards."""
    index = read_index(folder, rest)
    if len(set(index.ids)) < len(index.ids):
        raise ModelError(
            f"{folder}: not a model of this program: a series is there twice. {ADVICE}"
        )
    nothing = {name: [None] for name in _ERRORS.values()}
    one = {
        "ids": list(index.ids[:1]),
        "skipped": {},
        "report": {"status": [""], **nothing},
    }
    facts = facts_of({**rest, **one}, folder)
    for field, name in _ERRORS.items():
        values = index.report[name].to_numpy().astype(float)
        facts[field] = [None if value != value else value for value in values.tolist()]
    return {**facts, "ids": index.ids, "skipped": index.skipped}


def load(
    folder: str | Path,
    network: "OwnNetwork | None" = None,
    *,
    ids: Sequence[str] | None = None,
) -> "Model":
    """Read a model that :func:`save` wrote.

    - ``network``: the class of its networks where it is a user's own; by default the one that it
      was fitted with, if its module has been imported
    - ``ids``: the series to read, as the model spells them; by default all. Of a run in shards,
      only those with these series are opened

    Raises ModelError when there is none, when a file is damaged or holds anything but a model, or
    when its schema version is not one that this program reads; KeyError for a series that it lacks.
    """
    folder = Path(folder)
    rest = read_rest(folder)
    if not is_sharded(rest):
        model = load_whole(folder, rest, network)
        return model if ids is None else model.only(ids)
    index = read_index(folder, rest)
    model = load_shards(folder, index, index.ids if ids is None else ids, network)
    return dataclasses.replace(model, skipped=index.skipped)


def load_shards(
    folder: Path, index: Index, ids: Sequence[str], network: "OwnNetwork | None" = None
) -> "Model":
    """Some series of a run in shards, in this order, as one model."""
    from forecaster.forecasting import join_models

    models: list[Model] = []
    wanted = set(ids)
    for number in index.numbers(ids):
        model = load_whole(folder / SHARDS / shard_name(number), None, network)
        held = [name for name in model.ids if name in wanted]
        models.append(model if len(held) == len(model.ids) else model.only(held))
    if not models:
        raise KeyError(next(iter(ids), "no series"))
    joined = join_models(models)
    return joined if joined.ids == tuple(ids) else joined.only(list(ids))


def part_ids(part: SavedPart) -> tuple[str, ...]:
    """The series of a finished shard that have a network."""
    return () if part.empty else tuple(read_rest(part.folder)["ids"])


def load_parts(parts: Mapping[Path, Sequence[str]], spread: np.ndarray) -> "Model":
    """Some series of finished shards as one model.

    - ``parts``: by the folder of a shard, the series of it
    - ``spread``: what bands start from
    """
    from forecaster.forecasting import join_models

    model = join_models([load_whole(folder).only(list(ids)) for folder, ids in parts.items()])
    return dataclasses.replace(model, spread=spread)


def finished_parts(folder: Path) -> list[Path]:
    """What tells of each finished shard of a fit that is under way; not those to be tried again.

    Raises ModelError when it cannot be read.
    """
    paths = (folder / SHARDS).glob(f"[0-9]*/{_PART}")
    return [path for path in paths if not read_json(path).get("lost")]


def remove_parts(folder: Path) -> None:
    """Remove the finished shards of a fit that is under way."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder / SHARDS)
