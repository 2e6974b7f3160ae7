"""What is read from a distribution, levels and quantiles, and the columns that they are in.

A frame begins with its keys ``unique_id`` and ``ds``; forecasts of the past also have ``cutoff``
and ``y``. Each model has a column of medians under its own name and, per level, the bounds of a
band: ``LSTM``, ``LSTM-lo-80``, ``LSTM-hi-80``, as in Nixtla's libraries. A level is the coverage in
percent, so the bounds of level 80 are the quantiles 0.1 and 0.9.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from forecaster.errors import wrong_argument
from forecaster.forecasting.methods import FORECAST_BY

KEYS = ("unique_id", "ds", "cutoff", "y")
"""The keys of a frame of past forecasts."""

HORIZON = "horizon"
"""The optional column with the number of steps between a row and its cutoff."""

_QUANTILE = re.compile(r"^.+-q-[0-9.]+$")
_BOUND = re.compile(r"^(?P<model>.+)-(?P<side>lo|hi)-(?P<level>[0-9.]+)$")


class Bound(NamedTuple):
    """The parts of a bound's column name; ``level`` in percent, as written in the name."""

    model: str
    side: Literal["lo", "hi"]
    level: str

    @property
    def quantile(self) -> float:
        """The quantile that the bound stands for."""
        half = float(self.level) / 200
        return round(0.5 + (half if self.side == "hi" else -half), 6)

    @staticmethod
    def parse(column: object) -> "Bound | None":
        """Return the bound that a column holds; None for any other column."""
        match = _BOUND.match(str(column))
        return Bound(**match.groupdict()) if match else None  # pyright: ignore[reportArgumentType]


def bounds_of(model: str, level: float | str) -> tuple[str, str]:
    """Return the columns of a band, of its lower and its upper bound. ``level`` in percent."""
    written = level if isinstance(level, str) else f"{level:g}"
    return f"{model}-lo-{written}", f"{model}-hi-{written}"


def around_columns(model: str) -> tuple[str, str]:
    """Return the columns of the probabilities of less than the outcome, and of at most as much."""
    return f"{model}-below", f"{model}-at-most"


def quantile_column(model: str, quantile: float) -> str:
    """Return the column of a quantile that was asked for by its probability: ``LSTM-q-0.95``."""
    return f"{model}-q-{quantile:g}"


def is_quantile(column: object) -> bool:
    """Return whether a column has the name of :func:`quantile_column`."""
    return bool(_QUANTILE.match(str(column)))


def forecast_columns(model: str, levels: Iterable[float | str]) -> list[str]:
    """Return all columns of a model: the median, then the bounds level by level."""
    return [model, *(bound for level in levels for bound in bounds_of(model, level))]


def shares_of(model: str, levels: Iterable[float], quantiles: Iterable[float]) -> dict[str, float]:
    """Return the probabilities of all quantiles by column: the median, bounds, and others."""
    shares = {model: 0.5}
    for level in levels:
        outside = (1 - level / 100) / 2
        shares |= dict(zip(bounds_of(model, level), (outside, 1 - outside), strict=True))
    return shares | {quantile_column(model, quantile): quantile for quantile in quantiles}


def models_of(columns: Iterable[object]) -> list[str]:
    """Return the models whose forecasts a frame holds, in the order of its columns."""
    names = [str(column) for column in columns]
    keys = (*KEYS, HORIZON, FORECAST_BY)
    others = [name for name in names if name not in keys and not is_quantile(name)]
    around = {column for name in others for column in around_columns(name)}
    return [name for name in others if not Bound.parse(name) and name not in around]


def levels_of(columns: Iterable[object], model: str) -> list[str]:
    """Return the levels of a model's bands as written, in the order of the columns."""
    bounds = (Bound.parse(column) for column in columns)
    return [b.level for b in bounds if b and b.model == model and b.side == "lo"]


def quantile_columns(columns: Iterable[object], model: str) -> dict[float, str]:
    """Return the columns of a model's bounds and median, by quantile in ascending order.

    Empty for a model without bands.
    """
    bounds = ((Bound.parse(column), str(column)) for column in columns)
    quantiles = {b.quantile: column for b, column in bounds if b and b.model == model}
    if quantiles:
        quantiles[0.5] = model
    return dict(sorted(quantiles.items()))


def quantiles_of(levels: Sequence[float]) -> np.ndarray:
    """Return the quantiles of the bounds of these levels and of the median, ascending."""
    half = np.asarray(sorted(levels, reverse=True)) / 200
    return np.round(np.concatenate([0.5 - half, [0.5], 0.5 + half[::-1]]), 6)


def columns_of_quantiles(
    model: str, values: np.ndarray, levels: Sequence[float]
) -> dict[str, np.ndarray]:
    """Return quantiles as columns of a frame, the median first, then from the widest band inwards.

    ``values``: (row, quantile), of the quantiles of :func:`quantiles_of`
    """
    count = len(levels)
    columns = {model: values[:, count]}
    for position, level in enumerate(sorted(levels, reverse=True)):
        low, high = bounds_of(model, level)
        columns[low] = values[:, position]
        columns[high] = values[:, 2 * count - position]
    return columns


def renamed_columns(columns: Iterable[object], model: str, name: str) -> dict[str, str]:
    """Return the columns of a model, each with the new column under another ``name``."""
    around = dict(zip(around_columns(model), around_columns(name), strict=True))
    renamed = {model: name}
    for column in map(str, columns):
        bound = Bound.parse(column)
        if column in around:
            renamed[column] = around[column]
        elif bound and bound.model == model:
            renamed[column] = name + column.removeprefix(model)
    return renamed


def check_levels(level: Sequence[float] | float) -> list[float]:
    """Return the levels of bands, sorted. Raises UsageError unless each is 1 or more, below 100."""
    return _numbers("level", level, 1.0, 100.0, "percent of 1 or more, below 100, such as 80", 100)


def check_quantiles(quantiles: Sequence[float] | float) -> list[float]:
    """Return the probabilities, sorted. Raises UsageError unless each lies between 0 and 1."""
    least, expected = np.finfo(float).tiny, "probabilities above 0 and below 1, such as 0.95"
    return _numbers("quantiles", quantiles, least, 1.0, expected, 0.01)


def _numbers(
    name: str,
    given: Sequence[float] | float,
    least: float,
    below: float,
    expected: str,
    unit: float,
) -> list[float]:
    """Return what was given as sorted numbers. Raises UsageError for anything else.

    ``unit``: times what a user who mistakes shares and per cent has given
    """
    try:
        numbers = sorted({*np.atleast_1d(np.asarray(given, float)).tolist()})
    except (TypeError, ValueError):
        raise wrong_argument(name, given, expected) from None
    if wrong := [number for number in numbers if not least <= number < below]:
        meant = wrong[0] * unit
        hint = f" (did you mean {meant:g}?)" if least <= meant < below else ""
        raise wrong_argument(name, wrong[0], expected + hint)
    return numbers
