"""The means by which a series is forecast, chosen by the number of its rows.

Beside a combination of classical models, networks gain something only where they are validated over
several horizons. Measured on nine panels: on the four whose rows reach for three horizons (hourly,
weekly, daily cash withdrawals, random walks) networks lower the error by up to 4 %, or leave it as
it is; on the shorter ones (yearly, quarterly and monthly series of M1 and NN3) they raise it.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Shaped

from forecaster.errors import Kind, NoSeries, Skipped
from forecaster.forecasting.config import Config
from forecaster.series import (
    CLASSICAL,
    ROWS_TO_BLEND,
    Panel,
    Transform,
    behind_market,
    choose_transform,
)

FORECAST_BY = "forecast_by"
"""The column of reports and forecasts that holds a :class:`Method`."""
_ROWS_PER_STEP = 12  # rows for each step ahead: three horizons in the quarter that is held back
_FIRST_ERRORS = 10  # rows before the first input of a network
FEWEST_LONG = 0.2
"""The smallest share of series that are long enough, in a panel with networks."""
FEWEST_ROWS = 200
"""The fewest rows, of all series that are long enough together, in a panel with networks."""


class Method(StrEnum):
    """The means by which a series is forecast."""

    OWN = "own networks"
    COMMON = "common network"
    locals().update({name.upper(): name for name in CLASSICAL})
    COMBINATION = "combination"
    SHRUNKEN_MEAN = "shrunken mean"
    LAST_VALUE = "last value"


def counted(methods: Iterable[object] | Mapping[str, int]) -> str:
    """Return, in words, how many series are forecast by which means: "294 by own networks".

    ``methods``: the method of each series, or the counts
    """
    counts = Counter(methods if isinstance(methods, Mapping) else map(str, methods))
    return ", ".join(f"{counts[method]:,} by {method.value}" for method in Method if counts[method])


def rows_to_train(config: Config, transform: Transform) -> int:
    """Return the minimum number of rows of a series that has networks of its own."""
    return rows_for_networks(config) if transform.takes_any else config.rows_to_fit


def rows_for_networks(config: Config) -> int:
    """Return the minimum number of rows for networks, where a series can be forecast without."""
    least = _ROWS_PER_STEP * config.horizon if config.validation is None else 0
    return max(config.rows_to_fit, least)


def takes_any(config: Config, target: str) -> bool:
    """Return whether every series of a panel can be forecast, also a short or a constant one.

    ``target``: the panel's channel that is forecast
    """
    given = config.transform in ("combined", "last_value")
    return given or (config.transform == "auto" and target == "y")


def without_networks(config: Config, target: str, most: int) -> Config:
    """Return the settings, changed to the last value if no price has rows enough for networks.

    The settings stay as they are if series are too short only for the ``validation`` that the user
    chose: with a shorter one they would be long enough.

    - ``target``: the panel's channel that is forecast
    - ``most``: rows of the longest series
    """
    prices = config.transform == "auto" and target != "y"
    needed = dataclasses.replace(config, validation=None).rows_to_fit
    if not prices or not 0 < most < min(needed, config.rows_to_fit):
        return config
    return dataclasses.replace(config, transform="last_value", market=None)


def trains(panel: Panel, config: Config, transform: Transform) -> Bool[np.ndarray, " series"]:
    """Return which series of a panel have networks of their own."""
    if config.is_classical or transform.name == "last_value":
        return np.zeros(len(panel.ids), bool)
    enough = panel.mask.sum(1) >= rows_to_train(config, transform)
    return enough & ~panel.constant() if transform.takes_any else enough


def has_few_rows(
    panel: Panel, config: Config, transform: Transform, own: Bool[np.ndarray, " series"]
) -> bool:
    """Return whether series that are long enough for networks are too few and too short for them.

    Measured on single series from M1, NN3, NN5, M4 and six classics, one to 16 steps ahead: with
    networks the quantile loss is 1.2 % higher on 71 fits of up to 160 rows, 0.7 % lower on 15 of
    160 to 240 rows, and 5 % lower on hourly series of 200 rows. Prices always have networks, and so
    have series whose kind of network the user chose, and independent ones, which must not depend on
    others.

    - ``panel``: all series of a fit
    - ``own``: which of them are long enough
    """
    if config.model != "auto" or config.start != "pooled" or not transform.takes_any:
        return False
    return bool(panel.mask[own].sum() < FEWEST_ROWS)


def worth_networks(config: Config, long: int, series: int) -> bool:
    """Return whether enough series of a panel are long enough for networks.

    If only a few are, what networks learn from them would have to hold for many shorter series. Nor
    do the long ones gain by networks: measured on 10 daily series beside 45 of eight rows, and on
    40 monthly series of M1 beside 200 of five rows, their scaled errors are the same with networks
    and without, within a standard error. If the user chose a kind of network, it is trained all the
    same.

    - ``long``: the number of series that are long enough
    - ``series``: the number of all series
    """
    enough = config.model != "auto" or long >= FEWEST_LONG * series
    return long > 0 and enough


def methods_of(
    panel: Panel, config: Config, transform: Transform, own: np.ndarray, *, common: bool
) -> Shaped[np.ndarray, " series"]:
    """Return the :class:`Method` of each series.

    - ``own``: which series have networks of their own
    - ``common``: whether a common network forecasts the others that are long enough
    """
    rows = panel.mask.sum(1)
    needed = max(config.rows_to_forecast, config.horizon + _FIRST_ERRORS + 1)
    least = (rows < ROWS_TO_BLEND) | panel.constant()
    if not transform.takes_any:
        return np.where(own, Method.OWN, Method.COMMON).astype(object)
    if transform.name == "last_value":
        return np.full(len(rows), Method.LAST_VALUE, object)
    # The few counts of a series say how large their mean is, beside those of the panel.
    counts = transform.counted(panel.ids)
    simplest = np.where(counts, Method.SHRUNKEN_MEAN, Method.LAST_VALUE)
    others = np.where((rows >= needed) & common, Method.COMMON, Method.COMBINATION)
    if transform.alone is not None:  # a short series may lack that model
        alone = transform.stands_alone(panel.ids)
        return np.where(alone, Method(transform.alone), np.where(least, simplest, others))
    return np.where(own, Method.OWN, np.where(least, simplest, others)).astype(object)


class Usable(NamedTuple):
    """The series of a panel that can be forecast.

    - ``rows``: the number of rows of each series
    - ``trained``: the series that networks of their own are trained on
    - ``skipped``: the others, with the reason
    """

    rows: dict[str, int]
    trained: list[str]
    skipped: dict[str, Skipped]


def transform_of(config: Config, panel: Panel) -> Transform:
    """Return the transform of a panel under a config."""
    alone = config.model if config.is_classical else None
    return choose_transform(config.transform, panel, config.season, alone)


def usable_rows(panel: Panel, config: Config) -> Usable:
    """Return the rows of each series that can be forecast, and why the others cannot."""
    transform = transform_of(config, panel)
    try:
        kept = usable(panel, config, transform)
    except NoSeries as error:
        return Usable({}, [], error.skipped)
    own = trains(kept, config, transform)
    rows = dict(zip(kept.ids, map(int, kept.mask.sum(1)), strict=True))
    trained = [name for name, one in zip(kept.ids, own, strict=True) if one]
    return Usable(rows, trained, dict(kept.skipped))


def usable(panel: Panel, config: Config, transform: Transform) -> Panel:
    """Return the panel without series that are too short or that the transform cannot take."""
    reasons = transform.reasons(panel) | behind_market(panel)
    needed, why = (1, "its first") if transform.takes_any else (config.rows_to_fit, config.why_rows)
    for name, count in zip(panel.ids, panel.mask.sum(1), strict=True):
        if count < needed:
            reasons[name] = Skipped(Kind.TOO_SHORT, int(count), needed, detail=why)
    return panel.only([name for name in panel.ids if name not in reasons], reasons)
