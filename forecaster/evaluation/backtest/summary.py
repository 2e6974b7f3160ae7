"""The summary of an evaluation: its settings, data and times, and the skipped series.

In ``summary.json`` it is one flat table, without the entries that do not apply.
"""

import dataclasses
import hashlib
import json
import platform
import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forecaster import __version__
from forecaster.errors import Skipped, UsageError, skipped_from_json, skipped_to_json
from forecaster.evaluation.baselines import TORCH
from forecaster.files import as_bytes, parse_json, read_plain
from forecaster.forecasting import Config, Method, counted

SIMULATED = "simulated"
"""The name of the source of invented prices."""

_MOST_REASON = 500  # characters
_MOST = 2**31 - 1  # of anything that is counted
_Count = Annotated[int, Meta(ge=1, le=_MOST)]
_Level = Annotated[str, Meta(pattern=r"^\d{1,2}(\.\d+)?$")]


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
