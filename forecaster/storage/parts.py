"""Finished shards of a fit that is under way, and the run that they become.

A shard lies in ``unfinished/<fit>/shards``: a model as :mod:`forecaster.storage.saving`
writes it, with ``part.json`` and the scores of its series that are in the sample.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forecaster.errors import Skipped, skipped_from_json, skipped_to_json
from forecaster.files import Home, atomic, parse_json
from forecaster.forecasting import Config
from forecaster.storage.checking import read_bytes, widths_to_json
from forecaster.storage.run import SHARDS, shard_name, write_index
from forecaster.storage.saving import (
    ARRAYS,
    REST,
    as_new_run,
    read_rest,
    write_model,
    write_rest,
)

if TYPE_CHECKING:
    from forecaster.forecasting import Part, Scores, Widths

_PART, _SCORES = "part.json", "scores.npz"


class SavedPart(NamedTuple):
    """A finished shard of a fit that is under way.

    - ``ids``: the series of its model; if there are none, none of its networks can be used
    - ``scores``: scores of its series in the sample, see :class:`forecaster.forecasting.Scores`
    - ``skipped``: its series without a network, with the reason
    - ``seconds``: training time counted with this shard
    - ``lost``: the skipped series that no worker could train, which may be tried again
    """

    folder: Path
    ids: tuple[str, ...]
    scores: "Scores"
    skipped: dict[str, Skipped]
    seconds: float
    lost: tuple[str, ...]


def save_part(
    folder: Path,
    part: "Part | None",
    skipped: Mapping[str, Skipped],
    lost: Sequence[str] = (),
) -> SavedPart:
    """Write a finished shard, whole or not at all; an earlier one is replaced.

    - ``part``: None where none of its networks can be used
    - ``skipped``: its series without a network, with the reason
    - ``lost``: the skipped series that no worker could train

    Raises WriteError when it cannot be written.
    """
    from forecaster.forecasting import Scores

    scores = part.sampled_scores if part else Scores(*[np.zeros((0, 0, 0))] * 3)
    said = {"skipped": skipped_to_json(skipped), "lost": list(lost)}
    with atomic.write_folder(folder, replace=True) as temporary:
        if part is not None:
            write_model(part.model, temporary)
        np.savez(temporary / _SCORES, *scores)
        (temporary / _PART).write_text(json.dumps(said, allow_nan=False), encoding="utf-8")
    saved = read_part(folder)
    assert saved is not None
    return saved


def read_part(folder: Path) -> SavedPart | None:
    """Read a finished shard; None where there is none."""
    from forecaster.forecasting import Scores

    if not (folder / _PART).exists():
        return None
    ids, seconds = (), 0.0
    if (folder / REST).exists():
        rest = read_rest(folder)
        ids, seconds = tuple(rest["ids"]), rest["provenance"]["training_seconds"]
    said = parse_json(read_bytes(folder / _PART))
    with np.load(folder / _SCORES) as stored:
        scores = Scores(*stored.values())
    return SavedPart(
        folder, ids, scores, skipped_from_json(said["skipped"]), seconds, tuple(said["lost"])
    )


def save_shards(
    home: Home,
    parts: Sequence[SavedPart],
    widths: "Widths",
    skipped: dict[str, Skipped],
    provenance: dict[str, Any],
    name: str | None = None,
) -> Path:
    """Save finished shards as a new run, and return its folder.

    - ``widths``: of all bands, see :func:`forecaster.forecasting.widths_of`
    - ``skipped``: series that cannot be forecast, with the reason
    - ``provenance``: of the whole run, see :class:`forecaster.forecasting.Model`; which code
      computed it is that of the first shard
    - ``name``: the name of the run; by default its time

    Raises WriteError when it cannot be written.
    """
    full = [part for part in parts if part.ids]
    first = read_rest(full[0].folder)
    computed = {"computed": first["provenance"]["computed"]}
    shared = {**widths_to_json(widths), "provenance": {**provenance, **computed}}

    def write(folder: Path) -> Path:
        with atomic.write_folder(folder) as temporary:
            if len(full) == 1:
                _copy(full[0].folder, temporary, {**shared, "skipped": skipped_to_json(skipped)})
                return folder
            rests = []
            for number, part in enumerate(full):
                to = temporary / SHARDS / shard_name(number)
                to.mkdir(parents=True)
                rests.append(_copy(part.folder, to, {**shared, "skipped": {}}))
            write_index(temporary, rests, shared, skipped)
        return folder

    config = Config.from_dict(first["config"], "config")
    return as_new_run(home, config.column.lower(), name, write)


def _copy(source: Path, to: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Put a model with changes into another folder; return what the index needs of it."""
    rest = {**read_rest(source), **changes}
    write_rest(to, rest)
    try:
        os.link(source / ARRAYS, to / ARRAYS)
    except OSError:  # the file system has no links, or the folders are on two
        shutil.copyfile(source / ARRAYS, to / ARRAYS)
    kept = ("config", "ids", "report", "channels", "target", "frequency")
    transform = {**rest["transform"], "natures": {}}  # those of all shards would fill the memory
    return {**{name: rest[name] for name in kept}, "transform": transform}
