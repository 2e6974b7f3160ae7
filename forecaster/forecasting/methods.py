"""The means by which a series is forecast, by the number of its rows; the drift of prices.

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
from jaxtyping import Bool, Float, Shaped

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
    """The means by which a series is forecast; a classical model has its own name."""

    OWN = "own networks"
    COMMON = "common network"
    # From the table of models, so that one more row there is one more method.
    vars().update({name.upper(): name for name in CLASSICAL})
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

    Leaving networks out then loses nothing measurable, and saves the training: on 51 fits of single
    series that the limit was not chosen on, the quantile loss with networks was 1.0014 times that
    without (standard error 0.0046). On longer ones networks gain: among those that the limit was
    chosen on, 0.7 % from 160 to 240 rows, and 5 % on hourly series of 200 rows. Prices always have
    networks, and so have series whose kind of network the user chose, and independent ones, which
    must not depend on others.

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


_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days


def premium_of(config: Config, panel: Panel) -> float | None:
    """Return the premium of a panel's series; None where their drift is what networks learned.

    Networks that are trained on ten years of companies that survived learn that prices rise, and by
    how much they rose just then. To forecast by that is a bet on more of the same. So what networks
    say of the direction has no influence on prices, and the mean of each price grows by the same
    premium (``Config.premium``), and a basket with it. The median of a price grows by half the
    variance of what is forecast less. Only dated prices whose logarithm is forecast have a premium.

    The figures that this was chosen by are in ``research/010-drift-of-prices.md``.
    """
    logarithmic = config.transform in ("auto", "log_return")
    dated = panel.times.dtype.kind == "M"
    return config.premium if panel.target != "y" and logarithmic and dated else None


def growth_of(config: Config, panel: Panel) -> Float[np.ndarray, " series"]:
    """Return the growth of each price's mean from one row to the next, as a logarithm.

    It is that of the premium over the mean time between two rows of a series. NaN: the series have
    no premium, and networks say where their forecasts lie.
    """
    premium = premium_of(config, panel)
    if premium is None:
        return np.full(len(panel.ids), np.nan)
    return np.array([growth_per_row(premium, panel.times[seen]) for seen in panel.mask], float)


def growth_per_row(premium: float, times: Shaped[np.ndarray, " row"]) -> float:
    """Return the growth of a mean from one row of a series to the next; ``times``: of its rows."""
    years = float((times[-1] - times[0]) / _YEAR)
    return float(np.log1p(premium)) * years / max(len(times) - 1, 1)
