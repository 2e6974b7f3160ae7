"""Read a saved model, checking everything in its files.

A folder may have been damaged, edited by hand, or made to do harm: nothing in it can ask for more
memory than its files take, and only a model that can forecast passes. Types are checked by msgspec.
"""

import contextlib
import datetime
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from forecaster.errors import DamagedModel, Skipped, skipped_from_json
from forecaster.files import as_bytes, parse_json
from forecaster.forecasting import FORECAST_BY, Config, Method
from forecaster.ingest import Reading
from forecaster.series import EXCHANGES, Frequency, Transform
from forecaster.storage.model.encoding import Encoding

if TYPE_CHECKING:  # the facts of a run are read without JAX
    from forecaster.forecasting import Model, OwnNetwork, Widths

Arrays: TypeAlias = Mapping[str, np.ndarray]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_MOST_INT = 2**63 - 1
_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-_MOST_INT, le=_MOST_INT)]
_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]

_MOST_JSON = 1 << 28  # bytes; a series takes some 300
_MOST_REASON = 500  # characters of an error
_MOST_DRIFT = 1e3  # largest drift, of a logarithm or in units of a scale
_WIDEST = 1e6  # spread of scores; no outcome lies further from its forecast
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
    fitted_until: str = ""
    continues: str = ""
    future: str | None = None
    static: str | None = None
    start: str | None = None
    end: str | None = None
    mask: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    masked: dict[str, int] | None = None
    reading: dict[str, str | None] | None = None


class _Shared(msgspec.Struct):
    """The fields of a ``model.json`` that are the same for all shards of a run."""

    config: dict[str, Any]
    channels: tuple[str, ...]
    target: str
    frequency: Frequency
    transform: dict[str, Any]
    provenance: dict[str, Any]
    spread: list[_Positive]
    spread_without: list[_Positive]
    tails: list[list[float]]


class _Series(msgspec.Struct):
    """The fields of a ``model.json`` with an entry for each series, and how arrays are written."""

    ids: tuple[str, ...]
    frequency: Frequency
    report: dict[str, list[str | bool | _Int64 | float | None]]
    skipped: dict[str, Any]
    fitted_until: list[int | str]
    spacing: list[_Positive]
    encoding: Encoding = Encoding()


class _Report(msgspec.Struct):
    """The columns of a report that commands show."""

    status: list[str | None]
    mae_relative_to_naive: list[float | None]
    mae_relative_to_seasonal_naive: list[float | None]


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Read a file. Raises ModelError unless it is a plain file of ``most`` bytes at most."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise DamagedModel(f"{path}: cannot be read: not a plain file")
        if most is not None and (size := path.stat().st_size) > most:
            raise DamagedModel(f"{path}: cannot be read: {size} bytes; expected {most} at most")
        return path.read_bytes()
    except OSError as error:
        raise DamagedModel(f"{path}: cannot be read: {error.strerror}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a strict JSON file: no NaN, no infinity, no number beyond a float.

    Raises ModelError when the file holds anything else.
    """
    try:
        return parse_json(read_bytes(path, _MOST_JSON))
    except ValueError as error:
        raise DamagedModel(f"{path}: cannot be read ({error}). {ADVICE}") from error


class Checked(NamedTuple):
    """The content of the two files of a model; see :class:`forecaster.forecasting.Model`.

    - ``fields``: the arguments of a Model that are no arrays of networks
    - ``arrays``: decoded; empty where the shapes of the network were not known
    """

    config: Config
    ids: tuple[str, ...]
    report: pd.DataFrame
    fields: dict[str, Any]
    arrays: Arrays

    def weights(self, kind: str) -> dict[str, np.ndarray]:
        """Return the arrays of one kind, such as ``params/``, by path."""
        return {n.removeprefix(kind): a for n, a in self.arrays.items() if n.startswith(kind)}


def checked(
    rest: Mapping[str, Any],
    arrays: Arrays,
    shapes_of: Callable[[Config, int], Shapes | None],
) -> Checked:
    """Check the content of the two files.

    ``shapes_of(config, features)``: returns the shapes of one network's arrays, by path; None: do
    not check weights and scores. Raises an error of any type where the content is not a model.
    """
    shared, series = msgspec.convert(rest, _Shared), msgspec.convert(rest, _Series)
    ids, channels, encoding = _named("ids", series.ids), shared.channels, series.encoding
    config = Config.from_dict(shared.config, "config")
    _check_frequency(shared.frequency)
    transform = _transform(shared.transform, config)
    if shared.target not in _named("channels", channels):
        raise ValueError(f"target: {reprlib.repr(shared.target)} is none of the channels")
    _check_sizes(arrays, config)
    report = _report(series)
    has_drift = any(name.startswith("drift/") for name in arrays)
    if has_drift and (
        config.premium is None or shared.target == "y" or transform.name != "log_return"
    ):
        raise ValueError("drift: these series have none")
    read: Arrays = {}
    if (shapes := shapes_of(config, transform.feature_count(config.horizon))) is not None:
        trained = _trained(report, transform, has_start=any(n.startswith("start/") for n in arrays))
        _check_arrays(arrays, encoding, config, shapes, len(ids), trained)
        read = encoding.read(arrays)
    for name, leaf in read.items():
        if name.startswith(("params/", "start/")) and not np.isfinite(leaf).all():
            raise ValueError(f"{name}: some weights are not finite")
        if name.startswith("drift/") and not (np.abs(leaf) < _MOST_DRIFT).all():  # nor NaN
            raise ValueError(f"{name}: expected numbers below {_MOST_DRIFT:g} in size")
    spacing = _above_zero("spacing", series.spacing, len(ids), below=np.inf)
    _check_spacing(transform, dict(zip(ids, spacing, strict=True)))
    transform.covariates.check_scales(ids)
    fields = {
        "frequency": shared.frequency,
        "transform": transform,
        "channels": channels,
        "target": shared.target,
        "widths": _widths(shared, config.horizon),
        "fitted_until": _times(series),
        "spacing": spacing,
        "skipped": skipped_from_json(series.skipped),
        "provenance": _provenance(shared),
    }
    return Checked(config, ids, report, fields, read)


def model_of(
    rest: Mapping[str, Any], arrays: Arrays, network: "OwnNetwork | None" = None
) -> "Model":
    """Make a model from the content of the two files.

    ``network``: the class of the networks where it is a user's own. Raises an error of any type
    where the content is not a model.
    """
    from forecaster.forecasting import (
        Drift,
        Model,
        Networks,
        param_shapes,
        plain_shapes,
        split_members,
    )

    def shapes_of(config: Config, features: int) -> Shapes:
        known = plain_shapes(config, features)
        if known is not None:
            return known
        leaves = flatten(param_shapes(config, features, network))
        return {name: leaf.shape for name, leaf in leaves.items()}

    said = checked(rest, arrays, shapes_of)
    each = said.config.members
    params = {name: split_members(leaf, each) for name, leaf in said.weights("params/").items()}
    start, drift = said.weights("start/"), said.weights("drift/")
    networks = Networks(
        said.config, said.ids, _unflatten(params), said.report, network,
        _unflatten(start) if start else None,
        drift=Drift(**drift) if drift else None,
    )  # fmt: skip
    return Model(networks=networks, normal_scores=said.arrays["scores"], **said.fields)


class Facts(NamedTuple):
    """What a ``model.json`` says of all series of a run.

    ``future``, ``static``: the names of covariates known in advance, and of each series
    """

    config: Config
    provenance: dict[str, Any]
    future: tuple[str, ...]
    static: tuple[str, ...]


def facts_of(rest: Mapping[str, Any], folder: Path) -> Facts:
    """Return the facts in a ``model.json`` about all series.

    Raises ModelError where it is not that of a model.
    """
    with as_model_error(folder):
        shared = msgspec.convert(rest, _Shared)
        config = Config.from_dict(shared.config, "config")
        known = Transform.from_dict(shared.transform, config.horizon).covariates
        static = (*known.numbers, *known.words)
        return Facts(config, _provenance(shared), known.future, static)


def series_of(
    rest: Mapping[str, Any], folder: Path
) -> tuple[tuple[str, ...], dict[str, Skipped], pd.DataFrame]:
    """Return the facts in the ``model.json`` of one model about each series.

    They are the series with networks, the reasons why others have none, and a report of the
    training, a row per series. Raises ModelError where it is not that of a model.
    """
    with as_model_error(folder):
        series = msgspec.convert(rest, _Series)
        ids = _named("ids", series.ids)
        return ids, skipped_from_json(series.skipped), _report(series)


def fitted_until_of(rest: Mapping[str, Any], folder: Path) -> dict[str, np.generic]:
    """Return the latest time that each series of a ``model.json`` learned from.

    Raises ModelError where it is not that of a model.
    """
    with as_model_error(folder):
        series = msgspec.convert(rest, _Series)
        return dict(zip(_named("ids", series.ids), _times(series), strict=True))


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


def _transform(fields: dict[str, Any], config: Config) -> Transform:
    """Read the transform, and check that it follows from the configuration."""
    transform = Transform.from_dict(fields, config.horizon)
    if config.transform not in ("auto", transform.name):
        raise ValueError(f"transform: expected {config.transform}; got {transform.name}")
    if transform.market != config.indices:
        raise ValueError(f"transform: market: expected {config.indices!r}")
    alone = config.model if config.is_classical else None
    if transform.alone != alone:
        raise ValueError(f"transform: alone: expected {alone!r}; got {transform.alone!r:.50}")
    return transform


def _check_spacing(transform: Transform, spacing: Mapping[str, float]) -> None:
    """Raise ValueError unless rows are expected about as far apart as those of the fit were.

    ``spacing``: that of the latest rows, by series
    """
    for name, nature in transform.natures.items():
        least, most = _ANY_SPACING
        if (usual := spacing.get(name)) is not None:
            least, most = usual / _MOST_APART, usual * _MOST_APART
        if nature.spacing != 0 and not least <= nature.spacing <= most:
            raise ValueError(
                f"transform: natures: {reprlib.repr(name)}: spacing: expected 0, or {least:g} to "
                f"{most:g}; got {nature.spacing!r}"
            )


def _check_sizes(arrays: Arrays, config: Config) -> None:
    """Raise ValueError for a network larger than the arrays, before it is built."""
    largest = max((size for leaf in arrays.values() for size in leaf.shape), default=0)
    for name, most in (
        ("layers", len(arrays)),
        ("hidden", largest),
        ("horizon", largest),
        ("members", largest),
    ):
        if getattr(config, name) > most:
            raise ValueError(f"config: {name}: the arrays are of a smaller network")


def _check_arrays(
    arrays: Arrays,
    encoding: Encoding,
    config: Config,
    network: Shapes,
    series: int,
    trained: int,
) -> None:
    """Raise ValueError unless these are the arrays of this model, in name, type and shape.

    ``series``: their number; ``trained``: the number of those with networks of their own
    """
    shapes = {
        f"params/{name}": (trained * config.members, *shape) for name, shape in network.items()
    }
    if any(name.startswith("start/") for name in arrays):  # older models lack it
        shapes |= {f"start/{name}": (config.members, *shape) for name, shape in network.items()}
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "scores": ((series, config.longest_validation, config.horizon), encoding.scores)
    }
    if any(name.startswith("drift/") for name in arrays):  # of prices; older models lack it
        expected["drift/per_row"] = (series, 3), "float64"
        expected["drift/usual"] = (series, config.horizon), "float64"
    for name, shape in shapes.items():
        expected |= encoding.layout(name, shape)
    if unmatched := sorted(expected.keys() ^ arrays.keys()):
        raise ValueError(f"expected arrays {sorted(expected)}; differing: {unmatched[:5]}")
    for name, (shape, kind) in expected.items():
        if (got := arrays[name]).shape != shape or got.dtype != kind:
            raise ValueError(f"{name}: expected {kind} {shape}; got {got.dtype} {got.shape}")
    for name, shape in shapes.items():
        encoding.check_kept(name, shape, arrays)


def _trained(report: pd.DataFrame, transform: Transform, *, has_start: bool) -> int:
    """Return how many series have networks of their own; older models have them for all.

    Raises ValueError if the report says that a series is forecast by something the model lacks.
    """
    if (column := FORECAST_BY) not in report:
        return len(report)
    there = set(report[column])
    if not there <= set(Method):
        raise ValueError(f"report: {column}: expected one of {', '.join(Method)}")
    if Method.COMMON in there and not has_start:
        raise ValueError(f"report: {column}: there is no common network")
    if there - {Method.OWN} and not transform.takes_any:
        raise ValueError(f"report: {column}: this transform needs a network for each series")
    return int((report[column] == Method.OWN).sum())


def _report(series: _Series) -> pd.DataFrame:
    """Return the report of the training: columns of text or of numbers, null for NaN."""
    columns, ids = series.report, series.ids
    for name, column in columns.items():
        if len(column) != len(ids):
            raise ValueError(f"report: {name!r}: {len(column)} rows for {len(ids)} series")
        kinds = {type(value) for value in column if value is not None}
        if not (kinds <= {str} or kinds <= {bool} or kinds <= {int, float}):
            raise TypeError(f"report: {name!r}: expected numbers or text")
    msgspec.convert(columns, _Report)
    report = pd.DataFrame(columns, index=pd.Index(ids, name="unique_id"))
    empty = [name for name in report if report[name].isna().all()]
    return report.astype(dict.fromkeys(empty, float))


def _times(series: _Series) -> np.ndarray:
    """Return a time for each series: whole numbers where series count steps, else ISO dates."""
    counted = series.frequency.alias == "step"
    times = series.fitted_until
    if len(times) != len(series.ids) or {isinstance(time, int) for time in times} != {counted}:
        kind = "whole numbers" if counted else "dates"
        raise ValueError(f"fitted_until: expected {len(series.ids)} {kind}")
    if counted:
        return np.array(times, np.int64)
    dates = [pd.Timestamp(_date(str(time))) for time in times]
    return np.array([date.as_unit("ns").to_datetime64() for date in dates])  # raises beyond 2262


def _date(text: str) -> np.datetime64:
    datetime.date.fromisoformat(text[:10])  # numpy accepts more, such as "now"
    return pd.Timestamp(text).tz_localize(None).to_datetime64()


def _provenance(shared: _Shared) -> dict[str, Any]:
    """Return the provenance; check only the entries that commands use."""
    provenance = shared.provenance
    # Raises for a half of a surrogate pair, which cannot be written.
    as_bytes(json.dumps(provenance, ensure_ascii=False))
    known = msgspec.convert(provenance, _Provenance)
    Reading(**(known.reading or {}))
    for day in (known.start, known.end):
        if day is not None:
            _date(day)
    return provenance


def _named(what: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names. Raises ValueError unless there are some, each once."""
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{what}: expected names, each once; got {reprlib.repr(names)}")
    return names


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


def _above_zero(
    what: str, values: Sequence[float], count: int, *, below: float = _WIDEST
) -> np.ndarray:
    if len(values) != count or max(values) >= below:
        raise ValueError(f"{what}: expected {count} numbers above 0, below {below:g}")
    return np.array(values, float)


def _widths(shared: _Shared, horizon: int) -> "Widths":
    from forecaster.forecasting import FARTHEST_TAIL, KNOTS, Widths

    rows, spread = shared.tails, _above_zero("spread", shared.spread, horizon)
    without = _above_zero("spread_without", shared.spread_without, horizon)
    if {len(row) for row in rows} != {len(KNOTS)} or len(rows) != horizon:
        raise ValueError(f"tails: expected {len(KNOTS)} numbers for each of {horizon} steps")
    if any(sorted(row) != row or not 0 <= row[0] <= row[-1] <= FARTHEST_TAIL for row in rows):
        raise ValueError(f"tails: expected numbers from 0 to {FARTHEST_TAIL:g} that do not fall")
    return Widths(spread, without, np.array(rows, float))


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
