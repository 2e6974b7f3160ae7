"""An evaluation as a value, its summary, and the folder that stores both.

In ``summary.json`` the summary is one flat table, without the entries that do not apply. It has a
hash of each other table, so that a table that is damaged or another's is named.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import platform
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd
import pyarrow.parquet as pq
from msgspec import Meta

from forecaster import __version__
from forecaster.errors import (
    DataError,
    Skipped,
    UsageError,
    check_whole,
    listed,
    printable,
    skipped_from_json,
    skipped_to_json,
    wrong_argument,
)
from forecaster.evaluation.baselines import TORCH
from forecaster.evaluation.scores.tables import ALL
from forecaster.files import (
    as_bytes,
    open_for_arrow,
    parquet_groups,
    parse_json,
    read_parquet_file,
    read_plain,
)
from forecaster.forecasting import KEYS, Config, Method, counted
from forecaster.series import as_html, as_text, names_in_short

SIMULATED = "simulated"
"""The name of the source of invented prices."""

_MOST_REASON = 500  # characters
_MOST = 2**31 - 1  # of anything that is counted
_Count = Annotated[int, Meta(ge=1, le=_MOST)]
_Level = Annotated[str, Meta(pattern=r"^\d{1,2}(\.\d+)?$")]
FORECASTS, SUMMARY = "forecasts.parquet", "summary.json"
_TABLES = "scores.parquet", "tests.parquet", "daily.parquet"
_ENOUGH = 0.9  # of the series must have ratios of errors, for means of these to be quoted
_REQUIRED = {FORECASTS, *_TABLES, SUMMARY}
_ADDED = {
    "figures", "report.html", "comparison.csv", "coverage.csv", "groups.csv", "risk.csv",
    "risk_origins.csv",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Provenance:
    """The data that an evaluation was made from, the time, and the versions of the program.

    - ``created``, ``python``, ``versions``: set by :meth:`stamped`
    - ``source``: name of the source; None for a panel of unknown origin
    - ``data_sha256``: the hash of the stored data
    - ``mask``: rows with these flags were left out of training
    - ``stale``: series that could not be updated before the evaluation, with the reason
    """

    created: str = ""
    python: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str | None = None
    data_sha256: str | None = None
    mask: tuple[str, ...] | None = None
    stale: Mapping[str, str] | None = None

    def stamped(self) -> "Provenance":
        """Return a copy with the present time and versions."""
        return dataclasses.replace(
            self,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            python=platform.python_version(),
            versions={
                "forecaster": __version__,
                **{name: version(name) for name in ("jax", "flax")},
            },
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seconds:
    """How long the steps of an evaluation took.

    - ``training``: our networks, without preparing their data
    - ``fitting``: reading, preparing and training, in wall-clock time
    - ``torch``: PyTorch's networks, on all cores; None where it trained none
    - ``baselines``: each baseline, summed over its processes
    - ``all``: the whole evaluation, in wall-clock time
    """

    training: float = 0.0
    fitting: float = 0.0
    torch: float | None = None
    baselines: Mapping[str, float] = dataclasses.field(default_factory=dict)
    all: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Settings and circumstances of an evaluation.

    - ``model``: the column of our model; ``models``: the columns of all scored models
    - ``series``: number of series with scores
    - ``cutoffs``: number of cutoffs, ``step_size`` times apart
    - ``levels``: levels of the bands, as they are written in column names
    - ``first_cutoff``, ``last_cutoff``: the first and the last cutoff
    - ``first``, ``last``: the first and the last time of the panel
    - ``refit``: False, True (at every cutoff), or the number of cutoffs after which training starts
      again
    - ``target``: the panel's channel that was forecast
    - ``skipped``: series without scores, with the reason
    - ``failed``: by baseline, the series it failed on, with the reason; by the column of our model,
      the series that it could not forecast from all cutoffs
    - ``membership``: whether series counted only while they belonged to the universe
    - ``own_ends``: whether each series was evaluated at its own end; cutoffs and times are then
      those of the series that ends last
    - ``torch_series``: number of series that PyTorch trained; None without PyTorch
    - ``groups``: the group of each series that belongs to one
    - ``forecast_by``: how many series rest on what at their latest cutoff, see
      :class:`forecaster.forecasting.Method`; empty for prices, and in older evaluations
    - ``sha256``: hashes of the tables by file name, of evaluations that are stored; empty in older
      ones
    """

    model: str
    models: tuple[str, ...]
    series: _Count
    cutoffs: _Count
    step_size: _Count
    horizon: _Count
    levels: tuple[_Level, ...]
    first_cutoff: str
    last_cutoff: str
    first: str
    last: str
    refit: bool | int
    seed: int
    config: Config
    target: str
    skipped: Mapping[str, Skipped]
    failed: Mapping[str, Mapping[str, str]]
    membership: bool = False
    own_ends: bool | None = None
    torch_series: int | None = None
    seconds: Seconds
    provenance: Provenance
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    forecast_by: Mapping[Method, _Count] = dataclasses.field(default_factory=dict)
    sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def rungs(self) -> str:
        """How many series are forecast by which means, in words; empty where unknown."""
        return counted(self.forecast_by)

    @property
    def cutoffs_in_words(self) -> str:
        """The number of cutoffs, and their times if these mean the same for all series."""
        number = "one cutoff" if self.cutoffs == 1 else f"{self.cutoffs} cutoffs"
        if self.own_ends:
            return f"{number} before the end of each"
        if self.cutoffs == 1:
            return f"{number}, {self.last_cutoff}"
        return f"{number}, {self.first_cutoff} to {self.last_cutoff}"

    @property
    def simulated(self) -> bool:
        """Whether the prices are invented."""
        return self.provenance.source == SIMULATED

    @property
    def of_prices(self) -> bool:
        """Whether prices were forecast, not other series ``y``."""
        return self.target != "y"

    @property
    def has_torch(self) -> bool:
        """Whether networks trained by PyTorch were scored."""
        return TORCH in self.models

    def __post_init__(self) -> None:
        """Raise ValueError for a model without scores."""
        if self.model not in self.models:
            raise ValueError(f"model: {reprlib.repr(self.model)} is none of the models")

    def write(self, path: Path) -> None:
        """Write the summary as ``summary.json``, with hashes of the tables beside it."""
        hashes = {table.name: _sha256(table) for table in sorted(path.parent.glob("*.parquet"))}
        said = dataclasses.replace(self, sha256=hashes).to_dict()
        path.write_text(json.dumps(said, indent=1, default=str))

    def check_hashes(self, folder: Path) -> None:
        """Raise ValueError for a table that is not the one that was written."""
        for name, digest in self.sha256.items():
            if _sha256(folder / name) != digest:
                raise ValueError(f"{name}: its content is not what was written")

    @staticmethod
    def read(path: Path) -> "Summary":
        """Read a ``summary.json``. Raises OSError, or ValueError where it holds no summary."""
        try:
            values = parse_json(read_plain(path))
            as_bytes(json.dumps(values, ensure_ascii=False))  # half of a surrogate pair is no text
            return Summary.from_dict(values)
        except (TypeError, ValueError, UsageError) as error:
            raise ValueError(
                f"{path.name} is not a summary: {str(error)[:_MOST_REASON]}"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the flat table of ``summary.json``."""
        values = msgspec.to_builtins(self, enc_hook=int)  # numbers of NumPy
        values |= values.pop("provenance") | {"skipped": skipped_to_json(self.skipped)}
        values["seconds"] = {name: s for name, s in values["seconds"].items() if s is not None}
        for name in ("groups", "forecast_by", "sha256"):
            values[name] = values[name] or None
        return {name: value for name, value in values.items() if value is not None}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Summary":
        """Make a summary from a flat table; unknown entries, of other versions, are ignored.

        Raises TypeError, ValueError or UsageError for a missing or wrong entry.
        """
        skipped = values.get("skipped")
        read = {"skipped": skipped_from_json(skipped)} if isinstance(skipped, dict) else {}
        return msgspec.convert({**values, **read, "provenance": values}, Summary)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A rolling-origin evaluation.

    - ``folder``: where it is stored, together with its forecasts
    - ``scores``: a row per series, model and horizon
    - ``tests``: a row per series, horizon and test
    - ``daily``: a row per cutoff and model: losses relative to the naive's errors of the same
      series and horizon, averaged over series and horizons
    - ``summary``: settings, provenance, times, skipped series
    """

    folder: Path
    scores: pd.DataFrame
    tests: pd.DataFrame
    daily: pd.DataFrame
    summary: Summary

    def __repr__(self) -> str:
        return as_text(*self._facts())

    def _repr_html_(self) -> str:
        return as_html(*self._facts())

    def _facts(self) -> tuple[str, dict[str, str]]:
        summary = self.summary
        facts = {
            "models": names_in_short(summary.models),
            "cutoffs": f"{summary.cutoffs:,}, {summary.first_cutoff} to {summary.last_cutoff}",
            "folder": printable(self.folder),
        }
        return f"Evaluation of {summary.series:,} series", facts

    @staticmethod
    def read(folder: Path) -> "Evaluation":
        """Read the evaluation in a folder.

        Raises UsageError when there is none, DataError when it cannot be read.
        """
        try:
            summary = Summary.read(folder / SUMMARY)
            summary.check_hashes(folder)
            tables = (read_parquet_file(folder / name).to_pandas() for name in _TABLES)
            scores, tests, daily = tables
            if set(scores["model"]) != set(summary.models):
                raise ValueError(f"{SUMMARY} and {_TABLES[0]} name other models")
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} holds no evaluation: {Path(error.filename or SUMMARY).name} is "
                f"missing; make one with `forecaster evaluate --output {folder}`"
            ) from error
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder}: the evaluation cannot be read: {error}. Run `forecaster evaluate` again"
            ) from error
        return Evaluation(folder, scores, tests, daily, summary)

    def write(self) -> None:
        """Write the tables and the summary, but not the forecasts, into the folder."""
        for name, table in zip(_TABLES, (self.scores, self.tests, self.daily), strict=True):
            with open_for_arrow(self.folder / name, "wb") as file:
                table.to_parquet(file, index=False)
        self.summary.write(self.folder / SUMMARY)

    def grouped(self, groups: Mapping[str, str]) -> "Evaluation":
        """Return the same evaluation with these groups of series."""
        return dataclasses.replace(self, summary=dataclasses.replace(self.summary, groups=groups))

    @property
    def model(self) -> str:
        """The column of our model."""
        return self.summary.model

    @property
    def ids(self) -> list[str]:
        """The series that have scores."""
        return [str(name) for name in self.scores["unique_id"].unique()]

    @property
    def losses(self) -> list[str]:
        """The scores that compare models: of whole distributions, if any, and of points."""
        return [name for name in ("crps", "mae") if name in self.scores]

    @property
    def sharpest_score(self) -> str:
        """The score of whole distributions if there are any, else the score of point forecasts."""
        return self.losses[0]

    @functools.cached_property
    def summed(self) -> bool:
        """Whether models are compared by sums of their errors over series, not by means of ratios.

        So it is for series other than prices, such as counts, where more than a tenth of the series
        have no ratio to some other model, because its error is zero at some horizon. Those that
        have ratios are then few and special, and an error close to zero makes a ratio huge.
        """
        if self.summary.of_prices:
            return False
        for score in self.losses:
            table = self.scores.pivot(index=["unique_id", "horizon"], columns="model", values=score)
            zero = table.eq(0).groupby(level="unique_id").any()
            known = table.notna().groupby(level="unique_id").all()
            both = known.mul(known[self.model], axis=0).drop(columns=self.model)
            exists = both & ~zero[both.columns]
            if (exists.sum() < _ENOUGH * both.sum()).any():
                return True
        return False

    def forecasts(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read these columns of the forecasts, after ``unique_id, ds, cutoff, y``.

        Like all methods that read forecasts, raises DataError when they cannot be read.
        """
        return pd.concat(self._groups(columns), ignore_index=True)

    @property
    def columns(self) -> list[str]:
        """The columns of the stored forecasts."""
        with self._read_forecasts(), open_for_arrow(self.folder / FORECASTS) as file:
            return pq.read_schema(file).names

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield what :meth:`forecasts` returns, some series at a time, to save memory."""
        rest = pd.DataFrame()
        for part in self._groups(columns):
            part = pd.concat([rest, part], ignore_index=True) if len(rest) else part
            # The next row group may continue the last series.
            unfinished = part["unique_id"] == part["unique_id"].iloc[-1]
            rest = part[unfinished].reset_index(drop=True)
            if not unfinished.all():
                yield part[~unfinished].reset_index(drop=True)
        yield rest

    def _groups(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield the row groups of the forecasts that have rows."""
        with self._read_forecasts():
            for table in parquet_groups(self.folder / FORECASTS, [*KEYS, *columns]):
                if len(table):
                    yield table.to_pandas()

    @contextlib.contextmanager
    def _read_forecasts(self) -> Iterator[None]:
        """Turn any error of reading the forecasts into a DataError that names the file."""
        try:
            yield
        except (OSError, ValueError) as error:
            where = self.folder / FORECASTS
            raise DataError(
                f"{where}: cannot be read: {error}. Run `forecaster evaluate` again"
            ) from error


def check_asked(evaluation: Evaluation, horizon: object, *scores: object) -> None:
    """Raise UsageError unless an evaluation has this horizon, or it is :data:`ALL`, and scores."""
    check_whole("horizon", horizon, ALL)
    last = int(evaluation.scores["horizon"].max())
    if horizon not in (ALL, *evaluation.scores["horizon"].unique()):
        raise wrong_argument("horizon", horizon, f"1 to {last}, or {ALL} for all of them")
    numbers = evaluation.scores.drop(columns="horizon").select_dtypes("number").columns
    for score in scores:
        if not isinstance(score, str) or score not in numbers:
            raise wrong_argument("score", score, f"one of {listed(numbers)}")


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise UsageError for a folder that exists, unless it holds an evaluation to overwrite."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected the name of a folder")
    if not overwrite:
        raise UsageError(f"{folder} exists; choose another folder, or add --overwrite")
    names = {path.name for path in folder.iterdir()}
    if names and not names >= _REQUIRED:
        raise UsageError(f"{folder} holds no evaluation, so it is not overwritten; choose another")
    if foreign := sorted(names - _REQUIRED - _ADDED):
        raise UsageError(
            f"{folder} holds files that are not an evaluation's ({', '.join(foreign[:3])}), so it "
            "is not overwritten; move them, or choose another folder"
        )
