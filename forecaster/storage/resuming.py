"""A fit that is under way, kept on disk so that it can be resumed after an interruption.

unfinished/request.json       data, settings and seed
unfinished/swarm.checkpoint   state of all networks, once there is any; a search has one per stage
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
from forecaster.home import Home
from forecaster.ingest import Store, masked_rows
from forecaster.swarm import Checkpoint

_SCHEMA = 1
_REQUEST, _CHECKPOINT = "request.json", "swarm.checkpoint"


@dataclasses.dataclass(frozen=True)
class FitRequest:
    """What a fit was asked to do, once its data have arrived in the store.

    - ``source``, ``ids``: the store and the series in it
    - ``skipped``: series that could not be had, with the reason
    - ``data_sha256``: the :func:`data_digest` of the stored series
    - ``config``, ``seed``, ``tune``: how to train
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``mask``: flags whose rows are left out
    """

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


@dataclasses.dataclass(frozen=True)
class UnfinishedFit:
    """A fit that has begun and is not saved yet: its request, and where its progress is kept."""

    folder: Path
    request: FitRequest
    checkpoint: Checkpoint

    @staticmethod
    def begin(home: Home, request: FitRequest) -> "UnfinishedFit":
        """Write the request down, in place of any earlier unfinished fit."""
        shutil.rmtree(home.unfinished, ignore_errors=True)
        fields = {"schema": _SCHEMA, **dataclasses.asdict(request)}
        text = json.dumps(fields, indent=1, allow_nan=False)
        atomic.write_file(home.unfinished / _REQUEST, lambda to: to.write_text(text))
        return UnfinishedFit(home.unfinished, request, Checkpoint(home.unfinished / _CHECKPOINT))

    @staticmethod
    def find(home: Home) -> "UnfinishedFit":
        """The fit to resume.

        Raises UsageError when there is none, ModelError when it cannot be read.
        """
        path = home.unfinished / _REQUEST
        if not path.exists():
            raise UsageError(
                f"no unfinished fit under {home}; run `forecaster fit` without --resume"
            )
        resume = UnfinishedFit.has_progress(home)
        checkpoint = Checkpoint(home.unfinished / _CHECKPOINT, resume=resume)
        return UnfinishedFit(home.unfinished, _read_request(path), checkpoint)

    @staticmethod
    def has_progress(home: Home) -> bool:
        """Whether there is an unfinished fit that has come far enough to leave a checkpoint."""
        return any(home.unfinished.glob(f"{_CHECKPOINT}*"))

    def masked_rows(self, store: Store) -> pd.DataFrame:
        """The flagged rows that the fit leaves out.

        Raises ModelError when they, or the stored prices, are no longer those of the request.
        """
        request = self.request
        try:
            masked = masked_rows(store, request.ids, request.mask, request.end)
            stored = set(request.ids) <= set(store.ids)
            if stored and data_digest(store, request.ids, masked) == request.data_sha256:
                return masked
        except StoreError:
            pass  # prices whose flags are out of date have changed too
        raise ModelError(
            "the stored prices have changed since the fit was interrupted; run `forecaster fit` "
            "without --resume"
        )

    def discard(self) -> None:
        """Remove it, once its model is saved."""
        shutil.rmtree(self.folder, ignore_errors=True)


def data_digest(store: Store, ids: Sequence[str], masked: pd.DataFrame) -> str:
    """A hash over stored series and the rows of them that are left out."""
    rows = masked[["unique_id", "ds", "flag"]].astype(str).to_csv(index=False)
    return hashlib.sha256(f"{store.digest(ids)}\n{rows}".encode()).hexdigest()


def _read_request(path: Path) -> FitRequest:
    try:
        fields = json.loads(path.read_bytes())
        schema = fields.pop("schema")
        fields["ids"], fields["mask"] = tuple(fields["ids"]), tuple(fields["mask"])
        fields["config"] = Config(**fields["config"])
        request = FitRequest(**fields)
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fit without --resume") from error
    if schema != _SCHEMA:
        raise ModelError(f"{path}: of another version of forecaster; fit without --resume")
    return request
