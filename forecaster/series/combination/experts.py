"""The classical models of many series: fitted once, and their forecasts at every row.

They stand beside the anchors (:mod:`forecaster.series.combination.anchors`) in the combination from
which networks start: exponential smoothing, Theta, and complex exponential smoothing. Their
parameters come from the rows that were known when they were fitted; later rows only move the state.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from forecaster.classical import (
    MOST_SEASON,
    Average,
    Ces,
    Component,
    Form,
    Theta,
    ces_ahead,
    ets_ahead,
    fit_ces,
    fit_ets,
    fit_theta,
    theta_ahead,
)

Row: TypeAlias = Float[np.ndarray, " step"]
Ahead: TypeAlias = Float[np.ndarray, "step horizon"]

EXPERTS = ("ets", "theta", "ces")
"""The classical models, in the order of their forecasts."""
COUNT = len(EXPERTS)


class Experts(NamedTuple):
    """The classical models of one series; those for which it is too short are missing.

    - ``learned``: the number of first rows of the series that the models were fitted on
    """

    ets: Average = ()
    theta: Theta | None = None
    ces: Ces | None = None
    learned: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "ets": [[*form, list(parameters), weight] for form, parameters, weight in self.ets],
            "theta": None if self.theta is None else list(self.theta),
            "ces": None if self.ces is None else list(self.ces),
            "learned": self.learned,
        }

    def has(self, name: str) -> bool:
        """Return whether there is a model of this name, of :data:`EXPERTS`."""
        return bool(getattr(self, name))

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Experts":
        """Read what :meth:`to_json` returned. Raises TypeError or ValueError for anything else."""
        average = [_component(*one) for one in fields["ets"]]
        theta, ces = fields["theta"], fields["ces"]
        return Experts(
            tuple(average),
            None if theta is None else _theta(*theta),
            None if ces is None else _ces(*ces),
            _rows(fields["learned"]),
        )


_FIT: dict[str, Callable[[Sequence[Row], int], Sequence[Any]]] = {
    "ets": fit_ets,
    "theta": fit_theta,
    "ces": fit_ces,
}
_ROUGHLY: dict[str, Callable[[Sequence[Row], int], Sequence[Any]]] = {
    "ets": functools.partial(fit_ets, exact=False),
    "theta": fit_theta,
    "ces": functools.partial(fit_ces, exact=False),
}
_MOST_ROWS = 2**31 - 1  # that models can have been fitted on
_CES = {"none": (2, 0), "partial": (3, 1), "full": (4, 2)}  # parameters, states of each step
NO_EXPERTS = Experts()


def basic_season(seasons: Sequence[int], *, alone: bool = False) -> int:
    """Return the season that the classical models have; 1 for none, 0 where they do not apply.

    The models know only one season, so series with several get no models: networks would learn less
    from the models' errors than from those of the anchors (M4's hourly series).

    ``alone``: whether one model forecasts alone; it then has the shortest of several seasons
    """
    if len(seasons) > 1 and not alone:
        return 0
    short = seasons[0] if seasons else 1
    return short if short <= MOST_SEASON else 1


def fit_experts(
    rows: Sequence[Row], seasons: Sequence[int], names: Sequence[str] = EXPERTS
) -> list[Experts]:
    """Fit the classical models to all series.

    - ``rows``: the values of each series, without gaps
    - ``seasons``: the steps in the season of each; 1 for none, 0 for a series without models
    - ``names``: the models to fit, of :data:`EXPERTS`
    """
    fitted = [Experts()] * len(rows)
    alone = len(names) == 1
    fit = _FIT if alone else _ROUGHLY
    steps = np.array(seasons, int)
    for season in np.unique(steps[steps > 0]):
        where = np.flatnonzero(steps == season).tolist()
        some = [rows[row] for row in where]
        with np.errstate(all="ignore"):  # what is not finite is not used
            models = [(name, fit[name](some, int(season))) for name in names]
        for number, row in enumerate(where):
            made = {name: of[number] for name, of in models}
            fitted[row] = Experts(**made, learned=len(rows[row]))
    return fitted


def experts_ahead(
    rows: Sequence[Row], experts: Sequence[Experts], horizon: int
) -> list[list[Ahead]]:
    """Return the forecasts of each series' classical models, made at every row.

    They are NaN where a model is missing or its forecast is not finite.

    - ``rows``: the values, which may go on after those that the models were fitted on
    - ``horizon``: steps ahead
    """
    with np.errstate(all="ignore"):
        made = (
            ets_ahead(
                rows, [one.ets for one in experts], [one.learned for one in experts], horizon
            ),
            theta_ahead(rows, [one.theta for one in experts], horizon),
            ces_ahead(rows, [one.ces for one in experts], horizon),
        )
    return [
        [np.where(np.isfinite(one), one, np.nan) for one in of] for of in zip(*made, strict=True)
    ]


def _component(
    trend: str,
    season: int,
    logarithmic: bool,  # noqa: FBT001 - in the order of the file
    parameters: Sequence[float],
    weight: float,
) -> Component:
    form = Form(_word(trend, ("none", "additive", "damped")), _steps(season), bool(logarithmic))
    if len(parameters) != len(form.names):
        raise ValueError(f"ets: {len(parameters)} parameters of {len(form.names)}")
    return Component(form, _numbers(parameters), float(weight))


def _theta(
    smoothing: float,
    share: float,
    level: float,
    pattern: Sequence[float],
    multiplied: bool,  # noqa: FBT001 - in the order of the file
) -> Theta:
    if len(pattern) > MOST_SEASON:
        raise ValueError(f"theta: a season of {len(pattern)} steps")
    return Theta(float(smoothing), float(share), float(level), _numbers(pattern), bool(multiplied))


def _ces(kind: str, season: int, parameters: Sequence[float], initial: Sequence[float]) -> Ces:
    season = _steps(season)
    kind = _word(kind, tuple(_CES))
    of_parameters, of_season = _CES[kind]
    if len(initial) != 2 + of_season * season or len(parameters) != of_parameters:
        raise ValueError(f"ces: {len(initial)} states, {len(parameters)} parameters")
    return Ces(kind, season, _numbers(parameters), _numbers(initial))


def _word(value: object, words: Sequence[str]) -> str:
    if value not in words:
        raise ValueError(f"expected one of {', '.join(words)}; got {value!r:.50}")
    return str(value)


def _steps(value: int) -> int:
    if type(value) is not int or not 1 <= value <= MOST_SEASON:
        raise ValueError(f"a season of {value!r:.50} steps")
    return value


def _rows(value: int) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_ROWS:
        raise ValueError(
            "transform: natures: experts: learned: expected a whole number of 0 to "
            f"{_MOST_ROWS}; got {value!r:.50}"
        )
    return value


def _numbers(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
