"""The request of a fit, and the versions that its bits depend on: ``request.json``."""

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pandas as pd

from forecaster import __version__
from forecaster.config import Config
from forecaster.errors import ModelError, UsageError
from forecaster.files import atomic, read_plain
from forecaster.ingest import CovariateFiles, Reading, Store
from forecaster.skipped import Skipped, skipped_from_json, skipped_to_json

_SCHEMA = 2  # version 1 lacked the versions of the program
_LIBRARIES = ("jax", "jaxlib", "flax", "optax")


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
    - ``n_windows, step_size, baselines, refit, torch_sample, ends``: as of
      :class:`forecaster.evaluation.BacktestOptions`
    - ``spans``: spans of membership in a universe, each ``unique_id, start, end``; None: all are
      members
    - ``groups``, ``groups_file``: the group of each name, and the file that says so
    - ``stale``: series that could not be updated before, with the reason
    """

    folder: str
    overwrite: bool
    n_windows: int | None
    step_size: int
    baselines: tuple[str, ...]
    refit: bool | int
    torch_sample: int
    ends: str
    spans: tuple[tuple[str, str, str], ...] | None
    groups: Mapping[str, str] | None
    groups_file: str | None
    stale: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class FitRequest:
    """What a fit asks for, once its data have arrived in the store.

    - ``source``, ``ids``: the store and the series in it
    - ``skipped``: series that could not be fetched, with the reason
    - ``data_sha256``: the :func:`data_digest` of the stored series
    - ``config``, ``seed``, ``tune``: how to train
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``mask``: flags whose rows are left out
    - ``covariates``, ``covariates_sha256``: the files of covariates, and a hash of their content
    - ``learn_from``, ``learn_from_sha256``: other series to learn from, or a run that has learned
      from them, and a hash of their content
    - ``versions``: see :func:`versions`; entries that an older program did not write are missing
    - ``series_per_shard``: number of series that are saved together; None: all
    - ``series_at_a_time``: number of series in memory together, those of one or more shards
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
    learn_from: str | None = None
    learn_from_sha256: str | None = None
    series_per_shard: int | None = None
    series_at_a_time: int | None = None
    processes: int = 1
    whole_source: bool = False
    evaluation: EvaluationRequest | None = None
    # Filled in on creation, since they depend on the precision.
    versions: Mapping[str, str] = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        if cast(Mapping[str, str] | None, self.versions) is None:
            object.__setattr__(self, "versions", versions(self.config.precision))

    @property
    def read(self) -> tuple[str, ...]:
        """The series to read: those to fit, and the market that networks see."""
        return tuple(ids_to_read(self.ids, self.config))

    def __str__(self) -> str:
        hidden = "" if self.config.is_classical else f" {self.config.hidden}"
        kind = f"{self.config.column}{hidden}{', tuned' if self.tune else ''}"
        what = "" if self.evaluation is None else "an evaluation of "
        return f"{what}{len(self.ids)} series of {self.source}, {kind}"


def ids_to_read(ids: Sequence[str], config: Config) -> list[str]:
    """Return the series to fit or to forecast, and the indices that networks see beside them."""
    there = set(ids) if config.indices else set[str]()
    return [*ids, *(name for name in config.indices if name not in there)]


def data_digest(store: Store, ids: Sequence[str], masked: pd.DataFrame) -> str:
    """Return a hash of stored series and of the rows that are left out."""
    rows = masked[["unique_id", "ds", "flag"]].astype(str).to_csv(index=False)
    return hashlib.sha256(f"{store.digest(ids)}\n{rows}".encode()).hexdigest()


def write_request(path: Path, request: FitRequest) -> None:
    """Write a request, whole or not at all."""
    fields = {"schema": _SCHEMA, **dataclasses.asdict(request)}
    fields["skipped"] = skipped_to_json(request.skipped)
    for name in ("evaluation", "learn_from", "learn_from_sha256"):
        if fields[name] is None:
            del fields[name]  # unknown to earlier versions
    text = json.dumps(fields, indent=1, allow_nan=False)
    atomic.write_file(path, lambda to: to.write_text(text))


def read_request(path: Path) -> FitRequest:
    """Read a request, also of an older version. Raises ModelError when it cannot be read."""
    try:
        fields = json.loads(read_plain(path))
        schema = fields.pop("schema")
        fields["ids"], fields["mask"] = tuple(fields["ids"]), tuple(fields["mask"])
        fields["config"] = Config(**fields["config"])
        fields["skipped"] = skipped_from_json(fields["skipped"])
        files = fields.get("covariates", {})
        reading = Reading(**files.pop("reading", {}))
        fields["covariates"] = CovariateFiles(**files, reading=reading)
        fields.setdefault("versions", {})
        if (evaluation := fields.get("evaluation")) is not None:
            fields["evaluation"] = _evaluation(evaluation)
        request = FitRequest(**fields)
        _check_types(request)
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError,
    ) as error:  # fmt: skip
        raise ModelError(f"{path}: cannot be read ({error}); fit without --resume") from error
    if not (isinstance(schema, int) and 1 <= schema <= _SCHEMA):
        raise ModelError(f"{path}: of another version of forecaster; fit without --resume")
    return request


def _evaluation(fields: dict[str, Any]) -> EvaluationRequest:
    """Read the request of an evaluation. Raises TypeError or ValueError where it is not one."""
    spans = fields["spans"]
    if spans is not None:
        spans = tuple((str(name), str(start), str(end)) for name, start, end in spans)
    request = EvaluationRequest(
        **{**fields, "spans": spans, "baselines": tuple(map(str, fields["baselines"]))}
    )
    counts = (request.step_size, request.torch_sample)
    if any(type(count) is not int or count < 1 for count in counts):
        raise TypeError("expected step_size and torch_sample of 1 or more")
    if not all(isinstance(text, str) for text in (request.folder, request.ends)):
        raise TypeError("expected a folder and ends as text")
    return request


def _check_types(request: FitRequest) -> None:
    """Raise TypeError or ValueError for fields of a wrong type."""
    texts = [request.source, request.data_sha256, *request.ids, *request.mask]
    texts += [*request.versions.keys(), *request.versions.values()]
    days = [day for day in (request.start, request.end) if day is not None]
    learned = [text for text in (request.learn_from, request.learn_from_sha256) if text is not None]
    if not all(isinstance(text, str) for text in [*texts, *days, *learned]):
        raise TypeError("expected text")
    if not request.ids or type(request.seed) is not int or type(request.tune) is not bool:
        raise TypeError("expected ids, a seed and whether to tune")
    for count in (request.series_per_shard, request.series_at_a_time, request.processes):
        if count is not None and (type(count) is not int or count < 1):
            raise TypeError("expected a number of series at a time")
    for day in days:
        datetime.date.fromisoformat(day)


def check_versions(request: FitRequest) -> None:
    """Raise ModelError where the program would now compute other bits."""
    now = versions(request.config.precision)
    changed = [
        f"{name} {was} (now {now.get(name, 'not installed')})"
        for name, was in request.versions.items()
        if now.get(name) != was
    ]
    if changed:
        raise ModelError(
            f"the fit was begun with {', '.join(changed)}, and would not end with the same bits. "
            "To continue, restore these (install the versions; FORECASTER_KERNEL and JAX_PLATFORMS "
            "unset or as they were, on such a machine), or run `forecaster fit` without --resume"
        )
