"""Models on disk: a folder with ``model.safetensors`` (arrays) and ``model.json`` (all else).

The JSON is strict (no NaN) and carries a schema version and the SHA-256 of the arrays. Never
pickle: opening a model runs no code, but for a user's own network, whose module is imported.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster import atomic
from forecaster.config import Config
from forecaster.errors import ForecasterError, ModelError, UsageError
from forecaster.forecasting import (
    Model,
    Networks,
    OwnNetwork,
    check_class,
    import_network,
    import_path,
)
from forecaster.series import Frequency, Transform
from forecaster.storage.encoding import Encoding

SCHEMA = 2  # version 1 had no encoding, and is what a model without one is still written in
_ARRAYS, _REST = "model.safetensors", "model.json"


def save(model: Model, folder: str | Path, encoding: Encoding | None = None) -> Path:
    """Write a model into a new folder, whole or not at all, and return the folder.

    ``encoding``: how the arrays are written, to make the file smaller; see :data:`METHODS`.

    Raises ModelError when the folder exists, WriteError when it cannot be written.
    """
    from safetensors.numpy import save as to_bytes

    folder = Path(folder)
    if folder.exists():
        raise ModelError(f"{folder}: exists already; choose another folder")
    arrays = {f"params/{name}": leaf for name, leaf in _flatten(model.params).items()}
    arrays["scores"] = model.residuals
    encoding = encoding or Encoding()
    arrays = encoding.write(arrays)
    raw = to_bytes({name: np.ascontiguousarray(leaf) for name, leaf in arrays.items()})
    plain = encoding == Encoding()
    rest = {
        "schema": 1 if plain else SCHEMA,
        **({} if plain else {"encoding": dataclasses.asdict(encoding)}),
        "arrays_sha256": hashlib.sha256(raw).hexdigest(),
        "config": dataclasses.asdict(model.config),
        "ids": list(model.ids),
        "channels": list(model.channels),
        "target": model.target,
        "frequency": dataclasses.asdict(model.frequency),
        "transform": dataclasses.asdict(model.transform),
        "fitted_until": [_time_to_json(time) for time in model.fitted_until],
        "report": {name: _strict(column.tolist()) for name, column in model.report.items()},
        "skipped": dict(model.skipped),
        "provenance": dict(model.provenance),
    }
    text = json.dumps(rest, indent=1, allow_nan=False)
    with atomic.write_folder(folder) as temporary:
        (temporary / _ARRAYS).write_bytes(raw)
        (temporary / _REST).write_text(text, encoding="utf-8")
    return folder


def load(folder: str | Path, network: OwnNetwork | None = None) -> Model:
    """Read a model that :func:`save` wrote.

    ``network``: the class of its networks where it is a user's own; by default it is imported from
    where it was when the model was fitted.

    Raises ModelError when there is none, when a file is damaged, or when its schema version is not
    one that this program reads.
    """
    from safetensors.numpy import load as from_bytes

    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model; run `forecaster fit` first")
    rest = _read_rest(folder / _REST)
    try:
        raw = (folder / _ARRAYS).read_bytes()
    except OSError as error:
        raise ModelError(f"{folder / _ARRAYS}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(raw).hexdigest() != rest.get("arrays_sha256"):
        raise ModelError(
            f"{folder / _ARRAYS}: damaged; its content is not what was saved ({len(raw)} bytes). "
            "Run `forecaster fit` again"
        )
    rest, network = _with_network(rest, network, folder)
    try:
        return _model(rest, from_bytes(raw), network)
    except (KeyError, TypeError, ValueError, AttributeError, ForecasterError) as error:
        raise ModelError(f"{folder / _REST}: not a model of this program: {error!r}") from error


def _read_rest(path: Path) -> dict[str, Any]:
    try:
        rest = json.loads(path.read_bytes())
        schema = int(rest["schema"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: cannot be read ({error}). Run `forecaster fit` again") from error
    if not 1 <= schema <= SCHEMA:
        advice = "update forecaster" if schema > SCHEMA else "run `forecaster fit` again"
        raise ModelError(
            f"{path}: schema version {schema}; this program reads versions up to {SCHEMA}: {advice}"
        )
    return rest


def _with_network(
    rest: dict[str, Any], network: OwnNetwork | None, folder: Path
) -> tuple[dict[str, Any], OwnNetwork | None]:
    """The settings with the class of the networks named, and that class, if it is a user's own."""
    config = rest.get("config")
    config = config if isinstance(config, dict) else {}
    path = config.get("model")
    if not isinstance(path, str) or ":" not in path:
        if network is not None:
            raise UsageError(f"{folder}: its networks are {path}; load it without `network`")
        return rest, None
    try:
        network = check_class(network) if network is not None else import_network(path)
    except UsageError as error:
        name = path.split(":")[-1].split(".")[-1]
        raise ModelError(
            f"{folder}: {error}. Import {name} and call fc.load({str(folder)!r}, network={name})"
        ) from error
    return {**rest, "config": {**config, "model": import_path(network)}}, network


def _model(
    rest: dict[str, Any], arrays: dict[str, np.ndarray], network: OwnNetwork | None
) -> Model:
    ids = tuple(rest["ids"])
    for name, leaf in arrays.items():
        if len(leaf) != len(ids):
            raise ValueError(f"{name}: {len(leaf)} rows for {len(ids)} series")
    arrays = Encoding(**rest.get("encoding", {})).read(arrays)
    for part in ("skipped", "provenance", "report"):
        if not isinstance(rest[part], dict):
            raise TypeError(f"{part} is not an object")
    if len(rest["fitted_until"]) != len(ids):
        raise ValueError(f"fitted_until: {len(rest['fitted_until'])} for {len(ids)} series")
    report = pd.DataFrame(rest["report"], index=pd.Index(ids, name="unique_id"))
    params = {name[7:]: leaf for name, leaf in arrays.items() if name.startswith("params/")}
    networks = Networks(Config(**rest["config"]), ids, _unflatten(params), report, network)
    return Model(
        networks=networks,
        channels=tuple(rest["channels"]),
        target=rest["target"],
        frequency=Frequency(**rest["frequency"]),
        transform=Transform(**rest["transform"]),
        residuals=arrays["scores"],
        fitted_until=_times_from_json(rest["fitted_until"]),
        skipped=rest["skipped"],
        provenance=rest["provenance"],
    )


def _flatten(tree: Mapping[Any, Any], above: str = "") -> dict[str, np.ndarray]:
    flat: dict[str, np.ndarray] = {}
    for name, leaf in tree.items():
        path = f"{above}{name}"
        flat |= _flatten(leaf, f"{path}/") if isinstance(leaf, Mapping) else {path: leaf}
    return flat


def _unflatten(flat: Mapping[str, np.ndarray]) -> dict[Any, Any]:
    tree: dict[Any, Any] = {}
    for path, leaf in flat.items():
        # Flax keeps the members of a list under whole numbers.
        *above, last = (int(part) if part.isdigit() else part for part in path.split("/"))
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
        branch[last] = leaf
    return tree


def _strict(values: list[Any]) -> list[Any]:
    """Values without NaN and infinities, which strict JSON does not have."""
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def _time_to_json(time: np.datetime64 | np.integer) -> int | str:
    return str(time) if isinstance(time, np.datetime64) else int(time)


def _times_from_json(times: list[Any]) -> np.ndarray:
    whole = bool(times) and isinstance(times[0], int)
    return np.array(times, np.int64 if whole else "datetime64[ns]")
