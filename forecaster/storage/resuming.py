"""A fit under way, as it lies under the home folder: what was asked for, and the checkpoint.

unfinished/request.json       data, settings and seed
unfinished/swarm.checkpoint   state of all networks, once there is any; of a search one per stage
"""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from forecaster import atomic
from forecaster.config import Config
from forecaster.errors import ModelError, StoreError, UsageError
from forecaster.ingest import Store, masked_rows
from forecaster.swarm import Checkpoint

_SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Request:
    """What a fit was asked to do, once its data have arrived in the store."""

    source: str
    ids: tuple[str, ...]
    skipped: dict[str, str]
    data_sha256: str
    config: Config
    seed: int
    tune: bool = False
    start: str | None = None
    end: str | None = None
    mask: tuple[str, ...] = ()


def begin(home: Path, request: Request) -> Checkpoint:
    """Note what is to be done; forgets an earlier unfinished fit."""
    forget(home)
    rest = {"schema": _SCHEMA, **dataclasses.asdict(request)}
    text = json.dumps(rest, indent=1, allow_nan=False)
    atomic.write_file(_folder(home) / "request.json", lambda to: to.write_text(text))
    return Checkpoint(_folder(home) / "swarm.checkpoint")


def find(home: Path) -> tuple[Request, Checkpoint]:
    """The unfinished fit, and the checkpoint to go on from.

    Raises UsageError when there is none, ModelError when it cannot be gone on with.
    """
    path = _folder(home) / "request.json"
    if not path.exists():
        raise UsageError(f"no unfinished fit under {home}; run `forecaster fit` without --resume")
    try:
        rest = json.loads(path.read_bytes())
        schema = rest.pop("schema")
        request = Request(**rest | {
            "ids": tuple(rest["ids"]), "mask": tuple(rest["mask"]),
            "config": Config(**rest["config"]),
        })  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fit without --resume") from error
    if schema != _SCHEMA:
        raise ModelError(f"{path}: of another version of forecaster; fit without --resume")
    return request, Checkpoint(_folder(home) / "swarm.checkpoint", resume=begun(home))


def begun(home: Path) -> bool:
    """Whether there is an unfinished fit that has come far enough to leave a checkpoint."""
    return any(_folder(home).glob("swarm.checkpoint*"))


def digest(store: Store, ids: Sequence[str], masked: pd.DataFrame) -> str:
    """A hash over stored series and the rows of them that are left out."""
    rows = masked[["unique_id", "ds", "flag"]].astype(str).to_csv(index=False)
    return hashlib.sha256(f"{store.digest(ids)}\n{rows}".encode()).hexdigest()


def check_data(request: Request, store: Store) -> pd.DataFrame:
    """The rows that are left out. Raises ModelError when the stored prices, or those rows, are no
    longer those of the fit."""
    gone = [name for name in request.ids if name not in store.ids]
    try:
        masked = masked_rows(store, request.ids, request.mask, request.end)
        same = not gone and digest(store, request.ids, masked) == request.data_sha256
    except StoreError:
        masked, same = pd.DataFrame(), False
    if not same:
        raise ModelError(
            "the stored prices have changed since the fit was interrupted; run `forecaster fit` "
            "without --resume"
        )
    return masked


def forget(home: Path) -> None:
    """Remove what is left of an unfinished fit."""
    shutil.rmtree(_folder(home), ignore_errors=True)


def _folder(home: Path) -> Path:
    return home / "unfinished"
