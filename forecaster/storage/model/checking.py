"""Read a saved model, checking everything in its files.

A folder may have been damaged, edited by hand, or made to do harm: nothing in it can ask for more
memory than its files take, and only a model that can forecast passes.
"""

import contextlib
import dataclasses
import datetime
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from forecaster.config import Config
from forecaster.errors import DamagedModel, Skipped, skipped_from_json
from forecaster.files import as_bytes, parse_json
from forecaster.forecasting import FORECAST_BY, Rung, Widths, plain_shapes
from forecaster.ingest import Reading
from forecaster.series import Frequency, Transform
from forecaster.storage.model.encoding import Encoding
from forecaster.storage.model.fields import above_zero, as_type, field, frequency_of, names
from forecaster.storage.model.widths import widths_from_json

if TYPE_CHECKING:  # the facts of a run are read without JAX
    from forecaster.forecasting import Drift, Model, OwnNetwork

Arrays: TypeAlias = Mapping[str, np.ndarray]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_MOST_JSON = 1 << 28  # bytes; a series takes some 300
_MOST_INT = 2**63 - 1
_MOST_REASON = 500  # characters of an error
_MOST_DRIFT = 1e3  # largest drift, of a logarithm or in units of a scale
# Factor between the spacing at which rows of a series are expected, and that of its latest rows.
_MOST_APART = 1e3
_ANY_SPACING = 1e-9, 1e19  # between two times; those of dates are in seconds
_REPORTED: Mapping[str, Any] = {  # shown by commands
    "status": list[str | None],
    "mae_relative_to_naive": list[float | None],
    "mae_relative_to_seasonal_naive": list[float | None],
}

ADVICE = "Run `forecaster fit` again"


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

    ``arrays``, ``params``, ``start``: decoded, the weights by path; empty where the shapes of the
    network were not known
    """

    ids: tuple[str, ...]
    config: Config
    frequency: Frequency
    transform: Transform
    channels: tuple[str, ...]
    target: str
    report: pd.DataFrame
    widths: Widths
    fitted_until: np.ndarray
    spacing: np.ndarray
    skipped: dict[str, Skipped]
    provenance: dict[str, Any]
    arrays: Arrays
    params: Arrays
    start: Arrays


def checked(
    rest: Mapping[str, Any],
    arrays: Arrays,
    shapes_of: Callable[[Config, int], Shapes | None] = plain_shapes,
) -> Checked:
    """Check the content of the two files, without loading JAX.

    ``shapes_of(config, features)``: returns the shapes of one network's arrays, by path; None: do
    not check weights and scores.

    Raises TypeError, ValueError or OverflowError where the content is not a model.
    """
    ids, channels = names(rest, "ids"), names(rest, "channels")
    config = Config.from_dict(field(dict, rest, "config"), "config")
    frequency = frequency_of(rest)
    transform = _transform(field(dict, rest, "transform"), config)
    if (target := field(str, rest, "target")) not in channels:
        raise ValueError(f"target: {reprlib.repr(target)} is none of the channels")
    encoding = as_type(Encoding, rest.get("encoding", {}), "encoding")
    _check_sizes(arrays, config)
    read: Arrays = {}
    report = _report(rest, ids)
    if any(name.startswith("drift/") for name in arrays) and (
        config.premium is None or target == "y" or transform.name != "log_return"
    ):
        raise ValueError("drift: these series have none")
    if (shapes := shapes_of(config, transform.feature_count(config.horizon))) is not None:
        trained = _trained(report, transform, has_start=any(n.startswith("start/") for n in arrays))
        _check_arrays(arrays, encoding, config, shapes, len(ids), trained)
        read = encoding.read(arrays)
    spacing = above_zero(rest, "spacing", len(ids), below=np.inf)
    _check_spacing(transform, dict(zip(ids, spacing, strict=True)))
    transform.covariates.check_scales(ids)
    return Checked(
        ids, config, frequency, transform, channels, target, report,
        widths=widths_from_json(rest, config.horizon),
        fitted_until=_times(rest, frequency, len(ids)),
        spacing=spacing,
        skipped=skipped_from_json(field(dict, rest, "skipped")),
        provenance=_provenance(rest),
        arrays=read, params=_weights(read, "params/"), start=_weights(read, "start/"),
    )  # fmt: skip


def model_of(
    rest: Mapping[str, Any], arrays: Arrays, network: "OwnNetwork | None" = None
) -> "Model":
    """Make a model from the content of the two files.

    ``network``: the class of the networks where it is a user's own. Raises TypeError, ValueError,
    OverflowError or UsageError where the content is not a model.
    """
    from forecaster.forecasting import Model, Networks, param_shapes, split_members

    def shapes_of(config: Config, features: int) -> Shapes:
        known = plain_shapes(config, features)
        return _flatten(param_shapes(config, features, network)) if known is None else known

    said = checked(rest, arrays, shapes_of)
    each = said.config.members
    params = {name: split_members(leaf, each) for name, leaf in said.params.items()}
    networks = Networks(
        said.config, said.ids, _unflatten(params), said.report, network,
        _unflatten(said.start) if said.start else None,
        drift=_drift(said.arrays),
    )  # fmt: skip
    return Model(
        networks=networks,
        channels=said.channels,
        target=said.target,
        frequency=said.frequency,
        transform=said.transform,
        normal_scores=said.arrays["scores"],
        widths=said.widths,
        fitted_until=said.fitted_until,
        spacing=said.spacing,
        skipped=said.skipped,
        provenance=said.provenance,
    )


def _drift(arrays: Arrays) -> "Drift | None":
    """Return the drift of prices; None for other series, and in older models for prices too.

    Raises ValueError unless it is finite.
    """
    from forecaster.forecasting import Drift

    if "drift/per_row" not in arrays:
        return None
    drift = Drift(arrays["drift/per_row"], arrays["drift/usual"])
    for name, part in drift._asdict().items():
        if not (np.abs(part) < _MOST_DRIFT).all():  # nor NaN
            raise ValueError(f"drift/{name}: expected numbers below {_MOST_DRIFT:g} in size")
    return drift


def _weights(arrays: Arrays, kind: str) -> dict[str, np.ndarray]:
    """Return the arrays of one kind, by path. Raises ValueError unless all weights are finite."""
    weights = {
        name.removeprefix(kind): leaf for name, leaf in arrays.items() if name.startswith(kind)
    }
    for name, leaf in weights.items():
        if not np.isfinite(leaf).all():
            raise ValueError(f"{kind}{name}: some weights are not finite")
    return weights


def facts_of(rest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the facts in a ``model.json`` about all series; see :class:`forecaster.storage.Run`.

    Raises ModelError where it is not that of a model.
    """
    with as_model_error(folder):
        config = Config.from_dict(field(dict, rest, "config"), "config")
        known = Transform.from_dict(field(dict, rest, "transform"), config.horizon).covariates
        return {
            "config": config,
            "provenance": _provenance(rest),
            "covariates": (known.future, (*known.numbers, *known.words)),
        }


def series_of(
    rest: Mapping[str, Any], folder: Path
) -> tuple[tuple[str, ...], dict[str, Skipped], pd.DataFrame]:
    """Return the facts in the ``model.json`` of one model about each series.

    They are the series with networks, the reasons why others have none, and a report of the
    training, a row per series. Raises ModelError where it is not that of a model.
    """
    with as_model_error(folder):
        ids = names(rest, "ids")
        return ids, skipped_from_json(field(dict, rest, "skipped")), _report(rest, ids)


def fitted_until_of(rest: Mapping[str, Any], folder: Path) -> dict[str, np.generic]:
    """Return the latest time that each series of a ``model.json`` learned from.

    Raises ModelError where it is not that of a model.
    """
    with as_model_error(folder):
        ids = names(rest, "ids")
        return dict(zip(ids, _times(rest, frequency_of(rest), len(ids)), strict=True))


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
    if not there <= set(Rung):
        raise ValueError(f"report: {column}: expected one of {', '.join(Rung)}")
    if Rung.COMMON in there and not has_start:
        raise ValueError(f"report: {column}: there is no common network")
    if there - {Rung.OWN} and not transform.takes_any:
        raise ValueError(f"report: {column}: this transform needs a network for each series")
    return int((report[column] == Rung.OWN).sum())


def _report(rest: Mapping[str, Any], ids: tuple[str, ...]) -> pd.DataFrame:
    """Read the report of the training: columns of text or of numbers, null for NaN."""
    columns = field(dict[str, list[str | bool | int | float | None]], rest, "report")
    for name, column in columns.items():
        if len(column) != len(ids):
            raise ValueError(f"report: {name!r}: {len(column)} rows for {len(ids)} series")
        kinds = {type(value) for value in column if value is not None}
        if not (kinds <= {str} or kinds <= {bool} or kinds <= {int, float}):
            raise TypeError(f"report: {name!r}: expected numbers or text")
        if int in kinds and max(abs(value) for value in column if value is not None) > _MOST_INT:
            raise ValueError(f"report: {name!r}: a number is too large")
    for name, kind in _REPORTED.items():
        field(kind, columns, name)
    report = pd.DataFrame(columns, index=pd.Index(ids, name="unique_id"))
    empty = [name for name in report if report[name].isna().all()]
    return report.astype(dict.fromkeys(empty, float))


def _times(rest: Mapping[str, Any], frequency: Frequency, series: int) -> np.ndarray:
    """Read a time for each series: whole numbers where series count steps, otherwise ISO dates."""
    counted = frequency.alias == "step"
    times = field(list[int] if counted else list[str], rest, "fitted_until")
    if len(times) != series:
        raise ValueError(f"fitted_until: {len(times)} for {series} series")
    if counted:
        return np.array(times, np.int64)
    dates = [pd.Timestamp(_date(time)) for time in times]
    return np.array([date.as_unit("ns").to_datetime64() for date in dates])  # raises beyond 2262


def _date(text: str) -> np.datetime64:
    datetime.date.fromisoformat(text[:10])  # numpy accepts more, such as "now"
    return pd.Timestamp(text).tz_localize(None).to_datetime64()


@dataclasses.dataclass(frozen=True)
class _Provenance:
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

    def __post_init__(self) -> None:
        Reading(**(self.reading or {}))
        for day in (self.start, self.end):
            if day is not None:
                _date(day)


def _provenance(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance; check only the entries that commands use."""
    provenance = field(dict[str, Any], rest, "provenance")
    # Raises for a half of a surrogate pair, which cannot be written.
    as_bytes(json.dumps(provenance, ensure_ascii=False))
    as_type(_Provenance, provenance, "provenance")
    return provenance


def _flatten(tree: Mapping[Any, Any], above: str = "") -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's arrays by path."""
    flat: dict[str, tuple[int, ...]] = {}
    for name, leaf in tree.items():
        path = f"{above}{name}"
        flat |= _flatten(leaf, f"{path}/") if isinstance(leaf, Mapping) else {path: leaf.shape}
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
