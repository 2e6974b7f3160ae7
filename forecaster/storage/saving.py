"""Save and load a model: a folder of ``model.safetensors`` (arrays) and ``model.json`` (the rest).

The JSON is strict (no NaN) and has a schema version and the SHA-256 of the arrays. There is no
pickle: opening a model neither runs nor imports any code of it.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.errors import (
    DamagedModel,
    ModelError,
    UsageError,
    WriteError,
    check_type,
    skipped_to_json,
)
from forecaster.files import Home, as_folder, atomic, parse_json, run_name
from forecaster.storage.checking import (
    ADVICE,
    as_model_error,
    flatten,
    model_of,
    read_bytes,
    widths_to_json,
)
from forecaster.storage.encoding import METHODS, Encoding

if TYPE_CHECKING:  # the facts of a run are read without JAX
    from forecaster.forecasting import Model, OwnNetwork

SCHEMA = 15  # 12 had the drift of each price, 9 weights for later fits, 8 another order
_BEFORE = 13  # CES had another form; models without it are the same
ARRAYS, REST = "model.safetensors", "model.json"
_MOST_JSON = 1 << 28  # bytes; a series takes some 300


def save(model: "Model", folder: str | Path, encoding: Encoding | None = None) -> Path:
    """Write a model into a new folder, whole or not at all, and return the folder.

    ``encoding``: how weights are written, see :data:`METHODS`; None: as the model's settings say

    Raises ModelError when the folder exists, WriteError when it cannot be written.
    """
    from forecaster.forecasting import check_model

    check_model(model)
    check_type("encoding", encoding, Encoding | None, "one of forecaster.storage.METHODS, or None")
    folder = as_folder(folder)
    if folder.exists():
        raise ModelError(f"{folder}: exists already; choose another folder")
    with atomic.write_folder(folder) as temporary:
        write_model(model, temporary, encoding)
    return folder


def write_model(model: "Model", folder: Path, encoding: Encoding | None = None) -> None:
    """Write the two files of a model into an existing folder."""
    from safetensors.numpy import save as to_bytes

    from forecaster.forecasting import merge_members

    arrays = {f"params/{name}": leaf for name, leaf in flatten(merge_members(model.params)).items()}
    if model.networks.start is not None:
        arrays |= {f"start/{n}": leaf for n, leaf in flatten(model.networks.start).items()}
    arrays["scores"] = model.normal_scores
    encoding = encoding or METHODS[model.config.encoding]
    arrays = encoding.write(arrays)
    raw = to_bytes({name: np.ascontiguousarray(leaf) for name, leaf in arrays.items()})
    dates = model.fitted_until.dtype.kind == "M"
    rest = {
        "schema": SCHEMA,
        "encoding": dataclasses.asdict(encoding),
        "arrays_sha256": hashlib.sha256(raw).hexdigest(),
        "config": dataclasses.asdict(model.config),
        "ids": list(model.ids),
        "channels": list(model.channels),
        "target": model.target,
        "frequency": dataclasses.asdict(model.frequency),
        "transform": model.transform.to_dict(),
        **widths_to_json(model.widths),
        "fitted_until": [str(time) if dates else int(time) for time in model.fitted_until],
        "growth": None if np.isnan(model.growth).any() else model.growth.tolist(),
        "spacing": model.spacing.tolist(),
        "report": {
            # Strict JSON has no NaN and no infinity.
            name: [None if isinstance(v, float) and not math.isfinite(v) else v for v in column]
            for name, column in ((name, its.tolist()) for name, its in model.report.items())
        },
        "skipped": skipped_to_json(model.skipped),
        "provenance": dict(model.provenance),
    }
    (folder / ARRAYS).write_bytes(raw)
    write_rest(folder, rest)


def write_rest(folder: Path, rest: Mapping[str, Any]) -> None:
    """Write the ``model.json`` of a folder, one line for each field.

    Indented JSON of a shard takes three times as long to write, and half as much space again.
    """
    fields = {json.dumps(name): json.dumps(value, allow_nan=False) for name, value in rest.items()}
    lines = (f"{name}: {value}" for name, value in fields.items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (folder / REST).write_text(text, encoding="utf-8")


def save_run(home: Home, model: "Model", name: str | None = None) -> Path:
    """Save a model as a new run; see :func:`as_new_run`."""
    kind = model.config.column.lower()
    return as_new_run(home, kind, name, lambda folder: save(model, folder))


def as_new_run(home: Home, kind: str, name: str | None, write: Callable[[Path], Path]) -> Path:
    """Write a new run; other processes may save theirs in the same millisecond.

    - ``kind``: the kind of model, for the folder's name
    - ``name``: the name of the run; if it has been taken meanwhile, the run is named by its time,
      so that nothing is lost
    - ``write``: writes the folder, whole or not at all, and returns it

    Also removes temporary folders of processes that were killed. Raises WriteError when it cannot
    be written.
    """
    atomic.sweep(home.models)
    if name is not None and any(run_name(run).casefold() == name.casefold() for run in home.runs()):
        name = None
    while True:
        folder = home.new_run(kind, name)
        try:
            return write(folder)
        except (ModelError, WriteError):
            if not folder.exists():
                raise
            time.sleep(0.001)  # names differ by the millisecond


def read_rest(folder: Path, *more: int) -> dict[str, Any]:
    """Read the ``model.json`` of a folder, of this schema version or one ``more``.

    Raises ModelError when there is none, it is no strict JSON (NaN, infinity, or a number beyond a
    float), or of another version.
    """
    path = folder / REST
    if not os.path.isdir(folder):  # noqa: PTH112, which raises for a name that is too long
        raise ModelError(f"{folder}: no such model; run `forecaster fit` first")
    try:
        rest = parse_json(read_bytes(path, _MOST_JSON))
    except ValueError as error:
        raise DamagedModel(f"{path}: cannot be read ({error}). {ADVICE}") from error
    schema = rest.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise ModelError(f"{path}: cannot be read (it has no schema version). {ADVICE}")
    if schema not in (SCHEMA, _BEFORE, *more):
        raise _of_another_version(path, schema)
    return rest


@contextlib.contextmanager
def understood(folder: Path, rest: Mapping[str, Any]) -> Iterator[None]:
    """Raise any error of the block as a ModelError; ``rest``: the model's JSON.

    What the version before wrote, and this one does not understand, is no damage.
    """
    try:
        with as_model_error(folder):
            yield
    except DamagedModel as error:
        if rest["schema"] >= SCHEMA:
            raise
        raise _of_another_version(folder / REST, rest["schema"]) from error


def _of_another_version(path: Path, schema: int) -> ModelError:
    advice = "update forecaster" if schema > SCHEMA else "run `forecaster fit` again"
    return ModelError(
        f"{path}: schema version {schema}; this program reads version {SCHEMA}: {advice}"
    )


def load_whole(folder: Path, network: "OwnNetwork | None" = None) -> "Model":
    """Read a single model, which may be a shard of a run; see :func:`forecaster.storage.load`."""
    rest = read_rest(folder)
    arrays = _read_arrays(folder, rest)
    rest, network = _with_network(rest, network, folder)
    with understood(folder, rest):
        return model_of(rest, arrays, network)


def check_whole(folder: Path) -> None:
    """Raise ModelError unless the arrays of a model are those that :func:`save` wrote."""
    _read_arrays(folder, read_rest(folder))


def _read_arrays(folder: Path, rest: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read the arrays of a model, checked against the hash in ``rest``, its ``model.json``."""
    from safetensors.numpy import load as from_bytes

    raw = read_bytes(folder / ARRAYS)
    if hashlib.sha256(raw).hexdigest() != rest.get("arrays_sha256"):
        raise DamagedModel(
            f"{folder / ARRAYS}: damaged; its content is not what was saved ({len(raw)} bytes). "
            f"{ADVICE}"
        )
    with as_model_error(folder):
        return from_bytes(raw)


def _with_network(
    rest: dict[str, Any], network: "OwnNetwork | None", folder: Path
) -> "tuple[dict[str, Any], OwnNetwork | None]":
    """Return ``rest`` with the name of the networks' class, and the class if it is a user's own."""
    config = rest.get("config")
    config = config if isinstance(config, dict) else {}
    path = config.get("model")
    if not isinstance(path, str) or ":" not in path:
        if network is not None:
            raise UsageError(f"{folder}: its networks are {path}; load it without `network`")
        return rest, None
    from forecaster.forecasting import check_class, import_path, imported_network

    try:
        network = check_class(network) if network is not None else imported_network(path)
    except UsageError as error:
        name = path.split(":")[-1].split(".")[-1]
        raise ModelError(
            f"{folder}: {error}. Import {name} and call fc.load({str(folder)!r}, network={name})"
        ) from error
    return {**rest, "config": {**config, "model": import_path(network)}}, network
