"""The request of a fit, and what its bits depend on: ``request.json``."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from forecaster import __version__
from forecaster.errors import ModelError, Skipped, UsageError
from forecaster.files import atomic, read_plain
from forecaster.forecasting import Config
from forecaster.ingest import CovariateFiles, Store

_LIBRARIES = ("jax", "jaxlib", "flax", "optax")
_SCHEMA = 6  # version 5 kept the options of an evaluation in another form


def versions(precision: str = "float32") -> dict[str, str]:
    """Return what the computed bits depend on: versions of programs, JAX's backend, the kernel."""
    from forecaster.swarm import arithmetic, use_all_cores

    libraries = {name: version(name) for name in _LIBRARIES}
    use_all_cores()  # before anything starts JAX
    return {"forecaster": __version__, **libraries, **arithmetic(precision)}


@dataclasses.dataclass(frozen=True)
class EvaluationRequest:
    """What an evaluation asks for beside the training of its networks.

    - ``folder``, ``overwrite``: where it is written; see :func:`forecaster.files.as_text`
    - ``options``: of :class:`forecaster.evaluation.BacktestOptions`, as plain values
    """

    folder: str
    overwrite: bool
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class FitRequest:
    """What a fit asks for, once its data have arrived in the store.

    - ``source``, ``ids``: the store and the series in it
    - ``skipped``: series that could not be fetched, with the reason
    - ``stale``: stored series that could not be updated before, with the reason
    - ``data_sha256``: the :func:`data_digest` of the stored series
    - ``config``, ``seed``, ``tune``: how to train
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``mask``: flags whose rows are left out
    - ``covariates``, ``covariates_sha256``: the files of covariates, and a hash of their content
    - ``versions``: see :func:`versions`
    - ``series_per_shard``: number of series that are trained and saved together; None: all
    - ``processes``: the number of processes that fit shards without networks
    - ``whole_source``: whether no tickers were named; later tickers of the source then belong to
      the fit
    - ``evaluation``: set for an evaluation, whose networks are trained on the data known at its
      cutoffs
    """

    source: str
    ids: tuple[str, ...]
    skipped: dict[str, Skipped]
    data_sha256: str
    config: Config
    seed: int
    tune: bool = False
    start: str | None = None
    end: str | None = None
    mask: tuple[str, ...] = ()
    covariates: CovariateFiles = dataclasses.field(default_factory=CovariateFiles)
    covariates_sha256: str | None = None
    series_per_shard: int | None = None
    processes: int = 1
    whole_source: bool = False
    stale: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    evaluation: EvaluationRequest | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def changed(self) -> list[str]:
        """Return what the bits depend on and is no longer the same, apart from the stored data."""
        files = {"the files of covariates": (self.covariates_sha256, self.covariates.sha256())}
        now = versions(self.config.precision)
        return [what for what, (was, is_now) in files.items() if was != is_now] + [
            f"{name} {was} (now {now.get(name, 'not installed')})"
            for name, was in self.versions.items()
            if now.get(name) != was
        ]

    def __str__(self) -> str:
        hidden = "" if self.config.is_classical else f" {self.config.hidden}"
        kind = f"{self.config.column}{hidden}{', tuned' if self.tune else ''}"
        what = "" if self.evaluation is None else "an evaluation of "
        return f"{what}{len(self.ids)} series of {self.source}, {kind}"


def data_digest(store: Store, ids: Sequence[str], masked: pd.DataFrame) -> str:
    """Return a hash of stored series and of the rows that are left out."""
    rows = masked[["unique_id", "ds", "flag"]].astype(str).to_csv(index=False)
    return hashlib.sha256(f"{store.index.digest(ids)}\n{rows}".encode()).hexdigest()


def write_request(path: Path, request: FitRequest) -> None:
    """Write a request, whole or not at all."""
    said = json.dumps(msgspec.to_builtins(request)).encode()
    head = f"{_SCHEMA} {hashlib.sha256(said).hexdigest()}\n".encode()
    atomic.write_file(path, lambda to: to.write_bytes(head + said))


def read_request(path: Path) -> FitRequest:
    """Read a request. Raises ModelError when it cannot be read, or is of another version."""
    try:
        head, _, said = read_plain(path).partition(b"\n")
        if head != f"{_SCHEMA} {hashlib.sha256(said).hexdigest()}".encode():
            raise ValueError("of another version of forecaster, or not what was written")
        return msgspec.convert(json.loads(said), FitRequest)
    except (OSError, ValueError, UsageError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fit without --resume") from error
