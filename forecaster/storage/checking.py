"""Read a saved model, checking everything in its files.

A folder may have been damaged, edited by hand, or made to do harm: nothing in it can ask for more
memory than its files take, and only a model that can forecast passes. Types are checked by msgspec.
"""

import contextlib
import datetime
import json
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from forecaster.errors import DamagedModel, skipped_from_json
from forecaster.files import as_bytes, read_plain
from forecaster.forecasting import FORECAST_BY, Config, Method
from forecaster.ingest import Columns
from forecaster.series import EXCHANGES, Frequency, Transform, read_transform
from forecaster.storage.encoding import ENCODED, Encoding

if TYPE_CHECKING:  # the facts of a run are read without JAX
    from forecaster.forecasting import Model, OwnNetwork, Widths

Arrays: TypeAlias = Mapping[str, np.ndarray]
_MOST_INT = 2**63 - 1
_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-_MOST_INT, le=_MOST_INT)]
_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
# Spread of scores; no outcome lies further from its forecast.
_Width: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=1e6)]

_Growth: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e3, le=1e3)]

_MOST_REASON = 500  # characters of an error
# Factor between the spacing at which rows of a series are expected, and that of its latest rows.
_MOST_APART = 1e3
_ANY_SPACING = 1e-9, 1e19  # between two times; those of dates are in seconds
_DAY, _WEEK = 86_400, 604_800  # seconds

ADVICE = "Run `forecaster fit` again"


class _Provenance(msgspec.Struct):
    """The entries of the provenance that commands use."""

    source: str = ""
    first: str = ""
    last: str = ""
    created: str = ""
    fit: str = ""
    products: str = ""
    fitted_until: str | None = None
    continues: str = ""
    future: str | None = None
    static: str | None = None
    start: str | None = None
    end: str | None = None
    mask: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    masked: dict[str, int] | None = None
    reading: dict[str, Any] | None = None


class Shared(msgspec.Struct):
    """The fields of a ``model.json`` that are the same for all shards of a run."""

    config: dict[str, Any]
    channels: tuple[str, ...]
    target: str
    frequency: Frequency
    transform: dict[str, Any]
    provenance: dict[str, Any]
    spread: list[_Width]
    spread_without: list[_Width]
    tails: list[list[float]]

    def settings(self) -> tuple[Config, Transform]:
        """Check these fields; return the settings, and the transform that follows from them."""
        _check_frequency(self.frequency)
        # Raises for a half of a surrogate pair, which cannot be written.
        as_bytes(json.dumps(self.provenance, ensure_ascii=False))
        known = msgspec.convert(self.provenance, _Provenance)
        Columns(**(known.reading or {}))
        latest = None if self.frequency.alias == "step" else known.fitted_until
        for day in (known.start, known.end, latest):
            if day is not None:
                _date(day)
        config = Config.from_dict(self.config, "config")
        transform = read_transform(self.transform, config.horizon)
        alone = config.model if config.is_classical else None
        if config.transform not in ("auto", transform.name):
            raise ValueError(f"transform: expected {config.transform}; got {transform.name}")
        if transform.market != config.indices:
            raise ValueError(f"transform: market: expected {config.indices!r}")
        if transform.alone != alone:
            raise ValueError(f"transform: alone: expected {alone!r}; got {transform.alone!r:.50}")
        return config, transform


class Whole(Shared):
    """All fields of a model's ``model.json``: also an entry for each series, and the encoding."""

    ids: tuple[str, ...]
    report: dict[str, list[str | bool | _Int64 | float | None]]
    skipped: dict[str, Any]
    fitted_until: list[int | str]
    growth: list[_Growth] | None
    spacing: list[_Positive]
    encoding: Encoding = Encoding()

    def report_frame(self) -> pd.DataFrame:
        """Return the report of the training: columns of text or of numbers, null for NaN."""
        for name, column in self.report.items():
            if len(column) != len(self.ids):
                raise ValueError(f"report: {name!r}: {len(column)} rows for {len(self.ids)} series")
            kinds = {type(value) for value in column if value is not None}
            if not (kinds <= {str} or kinds <= {bool} or kinds <= {int, float}):
                raise TypeError(f"report: {name!r}: expected numbers or text")
        msgspec.convert(self.report, _Report)
        for what, names in (("ids", self.ids), ("channels", self.channels)):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{what}: expected names, each once; got {reprlib.repr(names)}")
        report = pd.DataFrame(self.report, index=pd.Index(self.ids, name="unique_id"))
        empty = [name for name in report if report[name].isna().all()]
        return report.astype(dict.fromkeys(empty, float))

    def times(self) -> np.ndarray:
        """Return the latest time that each series learned from: whole numbers, or ISO dates."""
        counted, times = self.frequency.alias == "step", self.fitted_until
        if len(times) != len(self.ids) or {isinstance(time, int) for time in times} != {counted}:
            kind = "whole numbers" if counted else "dates"
            raise ValueError(f"fitted_until: expected {len(self.ids)} {kind}")
        if counted:
            return np.array(times, np.int64)
        dates = [_date(str(time)) for time in times]
        return np.array([date.as_unit("ns").to_datetime64() for date in dates])  # raises after 2262


class _Report(msgspec.Struct):
    """The columns of a report that commands show."""

    status: list[str | None]
    mae_relative_to_naive: list[float | None]
    mae_relative_to_seasonal_naive: list[float | None]


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Read a file. Raises ModelError unless it is a plain file of ``most`` bytes at most."""
    try:
        if most is not None and (size := path.stat().st_size) > most:
            raise DamagedModel(f"{path}: cannot be read: {size} bytes; expected {most} at most")
        return read_plain(path)
    except OSError as error:
        raise DamagedModel(f"{path}: cannot be read: {error.strerror}") from error


def model_of(
    rest: Mapping[str, Any], arrays: Arrays, network: "OwnNetwork | None" = None
) -> "Model":
    """Make a model from the content of the two files.

    ``network``: the class of the networks where it is a user's own. Raises an error of any type
    where the content is not a model.
    """
    from forecaster.forecasting import Model, Networks, split_members

    said = msgspec.convert(rest, Whole)
    config, transform = said.settings()
    if said.target not in said.channels:
        raise ValueError(f"target: {reprlib.repr(said.target)} is none of the channels")
    report = said.report_frame()
    _check_spacing(transform, said)
    transform.covariates.check_scales(said.ids)
    weights = _decoded(arrays, said, config, transform, report, network)
    params = {path: split_members(leaf, config.members) for path, leaf in weights["params"].items()}
    networks = Networks(
        config, said.ids, _unflatten(params), report, network,
        _unflatten(weights["start"]) if "start" in weights else None,
    )  # fmt: skip
    return Model(
        networks=networks,
        normal_scores=weights["scores"][""].astype(np.float32),
        frequency=said.frequency,
        transform=transform,
        channels=said.channels,
        target=said.target,
        widths=_widths(said, config.horizon),
        fitted_until=said.times(),
        growth=np.array(said.growth or [np.nan] * len(said.ids), float),
        spacing=np.array(said.spacing, float),
        skipped=skipped_from_json(said.skipped),
        provenance=said.provenance,
    )


@contextlib.contextmanager
def as_model_error(folder: Path) -> Iterator[None]:
    """Raise any error of the block as a ModelError that names the folder of the model."""
    try:
        yield
    except Exception as error:  # the files may contain anything
        raise DamagedModel(
            f"{folder}: not a model of this program: {shortened(error)}. {ADVICE}"
        ) from error


def shortened(error: Exception) -> str:
    """Return the shortened message of an error, or else its type."""
    return str(error)[:_MOST_REASON] or type(error).__name__


def _check_spacing(transform: Transform, said: Whole) -> None:
    """Raise ValueError unless rows are expected about as far apart as those of the fit were."""
    if len(said.growth or said.ids) != len(said.ids):
        raise ValueError(f"growth: expected {len(said.ids)} numbers; got {len(said.growth or ())}")
    if len(said.spacing) != len(said.ids):
        raise ValueError(f"spacing: expected {len(said.ids)} numbers; got {len(said.spacing)}")
    latest = dict(zip(said.ids, said.spacing, strict=True))
    for name, nature in transform.natures.items():
        least, most = _ANY_SPACING
        if (usual := latest.get(name)) is not None:
            least, most = usual / _MOST_APART, usual * _MOST_APART
        if nature.spacing != 0 and not least <= nature.spacing <= most:
            raise ValueError(
                f"transform: natures: {reprlib.repr(name)}: spacing: expected 0, or {least:g} to "
                f"{most:g}; got {nature.spacing!r}"
            )


def _decoded(
    arrays: Arrays,
    said: Whole,
    config: Config,
    transform: Transform,
    report: pd.DataFrame,
    network: "OwnNetwork | None",
) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of this model by their kind and path.

    Raises ValueError for others, in name or shape, and for weights that no model has.
    """
    from forecaster.forecasting import param_shapes

    # A network larger than the arrays is not built to learn the shapes of its weights.
    largest = max((size for leaf in arrays.values() for size in leaf.shape), default=0)
    sizes = {"layers": len(arrays)} | dict.fromkeys(("hidden", "horizon", "members"), largest)
    for name, most in sizes.items():
        if getattr(config, name) > most:
            raise ValueError(f"config: {name}: the arrays are of a smaller network")
    features, series = transform.feature_count(config.horizon), len(said.ids)
    leaves = flatten(param_shapes(config, features, network))
    there = {name.partition("/")[0] for name in arrays}
    leading = {"params": _trained(report, transform, there) * config.members}
    leading |= {"start": config.members} if "start" in there else {}
    expected = {"scores": (series, config.longest_validation, config.horizon)}
    weights = {
        f"{kind}/{name}": (count, *leaf.shape)
        for kind, count in leading.items()
        for name, leaf in leaves.items()
    }
    expected |= weights
    found = {name for name in arrays if not name.startswith(ENCODED)}
    if unmatched := sorted(expected.keys() ^ found):
        raise ValueError(f"expected arrays {sorted(expected)}; differing: {unmatched[:5]}")
    by_kind: dict[str, dict[str, np.ndarray]] = {}
    for name, shape in expected.items():
        kind, _, path = name.partition("/")
        leaf = said.encoding.read(name, shape, arrays) if name in weights else arrays[name]
        if leaf.shape != shape or leaf.dtype.kind != "f":
            raise ValueError(f"{name}: expected numbers {shape}; got {leaf.dtype} {leaf.shape}")
        if name in weights and not np.isfinite(leaf).all():
            raise ValueError(f"{name}: some weights are not finite")
        by_kind.setdefault(kind, {})[path] = leaf
    return by_kind


def _trained(report: pd.DataFrame, transform: Transform, arrays: set[str]) -> int:
    """Return how many series have networks of their own.

    ``arrays``: the kinds that are there. Raises ValueError if the report says that a series is
    forecast by something the model lacks.
    """
    if (column := FORECAST_BY) not in report:
        return len(report)
    methods = set(report[column])
    if not methods <= set(Method):
        raise ValueError(f"report: {column}: expected one of {', '.join(Method)}")
    if Method.COMMON in methods and "start" not in arrays:
        raise ValueError(f"report: {column}: there is no common network")
    if methods - {Method.OWN} and not transform.takes_any:
        raise ValueError(f"report: {column}: this transform needs a network for each series")
    return int((report[column] == Method.OWN).sum())


def _date(text: str) -> pd.Timestamp:
    datetime.date.fromisoformat(text[:10])  # numpy accepts more, such as "now"
    return pd.Timestamp(text).tz_localize(None)


def _check_frequency(made: Frequency) -> None:
    """Raise ValueError unless its numbers are plausible, and pandas knows its alias."""
    slots = _WEEK // made.seconds if made.open and made.seconds else 0
    increasing = tuple(sorted({*made.open})) == made.open
    for name, sound, expected in (
        ("step", 1 <= made.step <= _MOST_INT, f"1 to {_MOST_INT}"),
        ("day", 0 <= made.day <= 31, "0 to 31"),
        ("open", increasing and all(0 <= slot < slots for slot in made.open), "slots of a week"),
    ):
        if not sound:
            got = reprlib.repr(getattr(made, name))
            raise ValueError(f"frequency: {name}: expected {expected}; got {got}")
    if (hours := made.hours) is not None:
        if hours.exchange not in EXCHANGES:
            raise ValueError(f"frequency: exchange {reprlib.repr(hours.exchange)} is not known")
        if not (1 <= hours.step <= _DAY and 0 <= hours.first <= _DAY):
            raise ValueError("frequency: hours: expected step and first in seconds of a day")
    if made.alias not in ("step", "months"):
        _ = made.offset


def _widths(shared: Shared, horizon: int) -> "Widths":
    from forecaster.forecasting import FARTHEST_TAIL, KNOTS, Widths

    spread, without, rows = shared.spread, shared.spread_without, shared.tails
    if {len(spread), len(without), len(rows)} != {horizon}:
        raise ValueError(f"spread, spread_without, tails: expected {horizon} steps")
    if any(len(row) != len(KNOTS) for row in rows):
        raise ValueError(f"tails: expected {len(KNOTS)} numbers for each of {horizon} steps")
    if any(sorted(row) != row or not 0 <= row[0] <= row[-1] <= FARTHEST_TAIL for row in rows):
        raise ValueError(f"tails: expected numbers from 0 to {FARTHEST_TAIL:g} that do not fall")
    return Widths(np.array(spread, float), np.array(without, float), np.array(rows, float))


def widths_to_json(widths: "Widths") -> dict[str, Any]:
    """Return the fields of a model's JSON that hold the widths."""
    names = "spread", "spread_without", "tails"
    return {name: part.tolist() for name, part in zip(names, widths, strict=True)}


def flatten(tree: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Return the arrays of a network by path."""
    flat: dict[str, Any] = {}
    for name, leaf in tree.items():
        path = f"{above}{name}"
        flat |= flatten(leaf, f"{path}/") if isinstance(leaf, Mapping) else {path: leaf}
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
