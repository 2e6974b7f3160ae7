"""The columns of forecast frames: how they are named, and what a name says.

A frame begins with its keys, ``unique_id`` and ``ds``, and with ``cutoff`` and ``y`` where the past
was forecast. Each model has a column of medians under its own name and, per level, the bounds of a
band: ``LSTM``, ``LSTM-lo-80``, ``LSTM-hi-80``, as in Nixtla's libraries. Levels are coverage in
percent, so the bounds of level 80 are the quantiles 0.1 and 0.9.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

KEYS = ("unique_id", "ds", "cutoff", "y")
"""The keys of a frame of past forecasts."""

HORIZON = "horizon"
"""The column that counts the rows of a frame from their cutoff, where it has one."""

_BOUND = re.compile(r"^(?P<model>.+)-(?P<side>lo|hi)-(?P<level>[0-9.]+)$")


class Bound(NamedTuple):
    """What the name of a bound says; ``level`` in percent, as it is written."""

    model: str
    side: Literal["lo", "hi"]
    level: str

    @property
    def column(self) -> str:
        """The name of the column."""
        return f"{self.model}-{self.side}-{self.level}"

    @property
    def quantile(self) -> float:
        """The quantile that the bound is."""
        half = float(self.level) / 200
        return round(0.5 + (half if self.side == "hi" else -half), 6)

    @staticmethod
    def parse(column: object) -> "Bound | None":
        """The bound that a column holds; None for any other column."""
        match = _BOUND.match(str(column))
        return Bound(**match.groupdict()) if match else None  # pyright: ignore[reportArgumentType]


def bounds_of(model: str, level: float | str) -> tuple[str, str]:
    """The columns of a band: its lower and its upper bound. ``level`` in percent."""
    written = level if isinstance(level, str) else f"{level:g}"
    return Bound(model, "lo", written).column, Bound(model, "hi", written).column


def forecast_columns(model: str, levels: Iterable[float | str]) -> list[str]:
    """All columns of a model: the median, then the bounds level by level."""
    return [model, *(bound for level in levels for bound in bounds_of(model, level))]


def models_of(columns: Iterable[object]) -> list[str]:
    """The models whose forecasts a frame holds, in the order of its columns."""
    names = [str(column) for column in columns]
    return [name for name in names if name not in (*KEYS, HORIZON) and not Bound.parse(name)]


def levels_of(columns: Iterable[object], model: str) -> list[str]:
    """The levels of a model's bands, as they are written, in the order of the columns."""
    bounds = (Bound.parse(column) for column in columns)
    return [b.level for b in bounds if b and b.model == model and b.side == "lo"]


def quantile_columns(columns: Iterable[object], model: str) -> dict[float, str]:
    """The columns of a model's quantiles, by quantile in ascending order: bounds and the median.

    Empty for a model without bands.
    """
    bounds = (Bound.parse(column) for column in columns)
    quantiles = {b.quantile: b.column for b in bounds if b and b.model == model}
    if quantiles:
        quantiles[0.5] = model
    return dict(sorted(quantiles.items()))


def quantiles_of(levels: Sequence[float]) -> np.ndarray:
    """The quantiles that the bounds of these levels and the median are, in ascending order."""
    half = np.asarray(sorted(levels, reverse=True)) / 200
    return np.round(np.concatenate([0.5 - half, [0.5], 0.5 + half[::-1]]), 6)


def columns_of_quantiles(
    model: str, values: np.ndarray, levels: Sequence[float]
) -> dict[str, np.ndarray]:
    """Forecasts (row, quantile), quantiles as of :func:`quantiles_of`, as columns of a frame.

    The median comes first, then the bounds from the widest band to the narrowest.
    """
    count = len(levels)
    columns = {model: values[:, count]}
    for position, level in enumerate(sorted(levels, reverse=True)):
        low, high = bounds_of(model, level)
        columns[low] = values[:, position]
        columns[high] = values[:, 2 * count - position]
    return columns


def renamed_columns(columns: Iterable[object], model: str, name: str) -> dict[str, str]:
    """The columns of a model, and what they are called when it goes by another ``name``."""
    renamed = {model: name}
    for column in columns:
        bound = Bound.parse(column)
        if bound and bound.model == model:
            renamed[bound.column] = bound._replace(model=name).column
    return renamed
