"""The series of a run, and the shards that hold their networks.

    models/<run>/model.json         what all shards share, and the hash of the list of series
    models/<run>/index.parquet      series, shard, how its training went, or why it has no network
    models/<run>/shards/0007/       a model as :mod:`forecaster.storage.model.saving` writes it

A run of one shard is that model itself, without ``index.parquet`` and ``shards/``.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from forecaster.errors import DamagedModel, Skipped, skipped_from_json
from forecaster.files import read_parquet_file
from forecaster.storage.model.checking import ADVICE, read_bytes, shortened
from forecaster.storage.model.saving import write_rest

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
