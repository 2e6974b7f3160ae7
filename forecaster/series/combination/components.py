"""The components of a blend: classical models, a linear model of seasonal lags, and patterns.

Their parameters come from the rows that were known when they were fitted; later rows only move the
state. Each is fitted for all series at once.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from jaxtyping import Float

from forecaster.classical import (
    MOST_SEASON,
    Average,
    Ces,
    Component,
    Form,
    Linear,
    Pool,
    Theta,
    ces_ahead,
    count_of_features,
    ets_ahead,
    fit_ces,
    fit_ets,
    fit_linear,
    fit_theta,
    learn_pool,
    linear_ahead,
    patterns_ahead,
    theta_ahead,
)
from forecaster.series.combination.steps import lagged

Row: TypeAlias = Float[np.ndarray, " step"]
Ahead: TypeAlias = Float[np.ndarray, "step horizon"]
Lags: TypeAlias = tuple[tuple[int, ...], bool]

CLASSICAL = ("ets", "theta", "ces")
"""The classical models, any of which may forecast alone."""
SEASONAL_NAIVE, ZERO = "seasonal naive", "zero"
NAMES = (*CLASSICAL, "linear", "patterns", SEASONAL_NAIVE, ZERO)
"""All components. A sparse series may also be forecast as zero."""
_TRIO_SEASONS = (), (4,), (12,)  # beside others ETS and CES harm, and the season before
_FEWEST_OF_THETA = 8  # rows: more than its first errors and three parameters
_LONG_DAYS = 800  # rows from which daily series have a pattern of the year
_SEEN_A_YEAR = 546  # rows from which the linear model looks a year back
_WEEK, _YEAR = 7, 365


class Kind(NamedTuple):
    """What series have in common that share a panel's regression and weights.

    - ``names``: their components
    - ``seasons``: steps in each season
    - ``yearly``: whether the linear model looks a year back
    """

    names: tuple[str, ...]
    seasons: tuple[int, ...]
    yearly: bool = False

    @staticmethod
    def of(
        rows: int, learned: int, seasons: tuple[int, ...], alone: str | None, *, sparse: bool
    ) -> "Kind":
        """Return the kind of a series.

        ``rows``, ``learned``: how many there are, and how many it is fitted on
        """
        if alone is not None:
            return Kind((alone,), seasons[:1])
        zero = (ZERO,) if sparse else ()
        yearly = seasons == (_WEEK,) and learned >= _SEEN_A_YEAR
        if len(seasons) > 1 or (seasons == (_WEEK,) and rows >= _LONG_DAYS):
            return Kind(("linear", "patterns", *zero), seasons, yearly)
        names = CLASSICAL if seasons in _TRIO_SEASONS else ("theta",)
        naive = (SEASONAL_NAIVE,) if seasons and names == CLASSICAL else ()
        return Kind((*names, "linear", *naive, *zero), seasons, yearly)

    @staticmethod
    def from_json(fields: Sequence[Any]) -> "Kind":
        """Read a list. Raises TypeError or ValueError for anything else."""
        names, seasons, yearly = fields
        if not all(type(steps) is int and steps >= 1 for steps in seasons):
            raise ValueError(f"transform: kind: seasons: {list(seasons)!r:.100}")
        if type(yearly) is not bool:
            raise TypeError(f"transform: kind: {yearly!r:.50}")
        if len(set(names)) < len(names):
            raise ValueError(f"transform: kind: {list(names)!r:.100}")
        return Kind(tuple(_word(name, NAMES) for name in names), tuple(seasons), yearly)

    @property
    def lags(self) -> tuple[tuple[int, ...], bool]:
        """What the features of the linear model follow from."""
        return self.seasons, self.yearly

    @property
    def parts(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """What weights and sizes of errors are alike in."""
        return self.names, self.seasons

    @property
    def features(self) -> int:
        """The number of features of the linear model."""
        return count_of_features(self.seasons, yearly=self.yearly)

    @property
    def classical_season(self) -> int:
        """The season of classical models; 1 for none."""
        season = self.seasons[0] if self.seasons else 1
        return season if season <= MOST_SEASON else 1

    @property
    def cycles(self) -> tuple[int, ...]:
        """The seasons that have patterns."""
        return (_WEEK, _YEAR) if self.seasons == (_WEEK,) else self.seasons


NO_KIND = Kind((), ())


class Components(NamedTuple):
    """The components of one series; those for which it is too short are missing.

    - ``learned``: the number of first rows of the series that they were fitted on
    """

    ets: Average = ()
    theta: Theta | None = None
    ces: Ces | None = None
    linear: Linear | None = None
    learned: int = 0
    kind: Kind = NO_KIND

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "kind": list(self.kind),
            "ets": [[*form, list(parameters), weight] for form, parameters, weight in self.ets],
            "theta": None if self.theta is None else list(self.theta),
            "ces": None if self.ces is None else list(self.ces),
            "linear": None if self.linear is None else self.linear.to_json(),
            "learned": self.learned,
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any], horizon: int) -> "Components":
        """Read what :meth:`to_json` returned. Raises TypeError or ValueError for anything else."""
        kind = Kind.from_json(fields["kind"])
        theta, ces, linear = (fields[name] for name in ("theta", "ces", "linear"))
        if (linear is None) != ("linear" not in kind.names):
            raise ValueError(f"transform: linear: of kind {list(kind)!r:.100}; got {linear!r:.50}")
        return Components(
            tuple(_component(*one) for one in fields["ets"]),
            None if theta is None else _theta(*theta),
            None if ces is None else _ces(*ces),
            None if linear is None else Linear.from_json(linear, kind.features, horizon),
            _rows(fields["learned"]),
            kind,
        )

    def has(self, name: str) -> bool:
        """Return whether there is a model of this name, of :data:`CLASSICAL`."""
        return bool(getattr(self, name))


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
_MOST_ROWS = 2**31 - 1  # that components can have been fitted on
_CES = {"none": (2, 0), "partial": (3, 1), "full": (4, 2)}  # parameters, states of each step
NO_COMPONENTS = Components()


def pools_of(rows: Sequence[Row], kinds: Sequence[Kind], horizon: int) -> dict[Lags, Pool]:
    """Return the regressions that series of the same seasons share."""
    grouped: dict[Lags, list[Row]] = defaultdict(list)
    for row, kind in zip(rows, kinds, strict=True):
        if "linear" in kind.names:
            for lags in {kind.lags, (kind.seasons, False)}:  # shorter series look no year back
                grouped[lags].append(row)
    return {key: learn_pool(some, key[0], horizon, yearly=key[1]) for key, some in grouped.items()}


def fit_components(
    rows: Sequence[Row],
    kinds: Sequence[Kind],
    pools: Mapping[Lags, Pool],
    horizon: int,
    *,
    exact: bool = False,
) -> list[Components]:
    """Fit the components of all series.

    - ``rows``: the values of each series, without gaps
    - ``kinds``: the kind of each
    - ``pools``: from :func:`pools_of`; a series of other seasons has a regression of its own
    """
    fitted = [
        Components(learned=len(row), kind=kind) for row, kind in zip(rows, kinds, strict=True)
    ]
    groups: dict[Kind, list[int]] = defaultdict(list)
    for number, kind in enumerate(kinds):
        groups[kind].append(number)
    for kind, numbers in groups.items():
        some = [rows[number] for number in numbers]
        made: dict[str, Sequence[Any]] = {}
        with np.errstate(all="ignore"):  # what is not finite is not used
            for name in kind.names:
                if name in CLASSICAL:
                    fit = (_FIT if exact else _ROUGHLY)[name]
                    made[name] = fit(some, kind.classical_season)
            if "linear" in kind.names:
                pool = pools.get(kind.lags)
                made["linear"] = _linear(some, kind, pool, horizon)
        for position, number in enumerate(numbers):
            own = {name: of[position] for name, of in made.items()}
            if not exact and len(rows[number]) < _FEWEST_OF_THETA:
                own["theta"] = None
            if _is_young(len(rows[number]), kind, pools.get(kind.lags)):
                own = {"linear": own["linear"]}
            fitted[number] = fitted[number]._replace(**own)
    return fitted


def _is_young(rows: int, kind: Kind, pool: Pool | None) -> bool:
    """Return whether only the regression of its older panel sees the season of a series.

    Classical models find a season in two cycles; the regression knows the value one cycle ago.
    """
    season = kind.classical_season
    return pool is not None and 1 < season < rows - 1 and rows <= 2 * season < pool.rows


def _linear(rows: Sequence[Row], kind: Kind, pool: Pool | None, horizon: int) -> list[Linear]:
    if pool is not None:
        return fit_linear(rows, kind.seasons, pool, yearly=kind.yearly)
    made: list[Linear] = []
    for row in rows:
        own = learn_pool([row], kind.seasons, horizon, yearly=kind.yearly)
        made += fit_linear([row], kind.seasons, own, yearly=kind.yearly)
    return made


def components_ahead(
    rows: Sequence[Row], components: Sequence[Components], horizon: int
) -> list[list[Ahead]]:
    """Return the forecasts of each series' components, made at every row.

    They are NaN where a component is missing or its forecast is not finite.

    - ``rows``: the values, which may go on after those that the components were fitted on
    - ``horizon``: steps ahead
    """
    out: list[list[Ahead]] = [[] for _ in rows]
    groups: dict[Kind, list[int]] = defaultdict(list)
    for number, one in enumerate(components):
        groups[one.kind].append(number)
    for kind, numbers in groups.items():
        some, its = [rows[number] for number in numbers], [components[number] for number in numbers]
        with np.errstate(all="ignore"):
            for name in kind.names:
                for number, made in zip(
                    numbers, _ahead(name, some, its, kind, horizon), strict=True
                ):
                    out[number].append(np.where(np.isfinite(made), made, np.nan))
    return out


def _ahead(
    name: str, rows: Sequence[Row], its: Sequence[Components], kind: Kind, horizon: int
) -> Sequence[Ahead]:
    if name == "ets":
        return ets_ahead(rows, [one.ets for one in its], [one.learned for one in its], horizon)
    if name == "theta":
        return theta_ahead(rows, [one.theta for one in its], horizon)
    if name == "ces":
        return ces_ahead(rows, [one.ces for one in its], horizon)
    if name == "linear":
        models = [cast(Linear, one.linear) for one in its]
        return linear_ahead(rows, models, kind.seasons, horizon, yearly=kind.yearly)
    if name == "patterns":
        return patterns_ahead(rows, kind.cycles, horizon)
    if name == SEASONAL_NAIVE:
        return [lagged(row, kind.classical_season, horizon) for row in rows]
    return [np.zeros((len(row), horizon)) for row in rows]


def _component(
    trend: str,
    season: int,
    logarithmic: bool,  # noqa: FBT001 - in the order of the file
    parameters: Sequence[float],
    weight: float,
) -> Component:
    form = Form(_word(trend, ("none", "additive", "damped")), _season(season), bool(logarithmic))
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
    season = _season(season)
    kind = _word(kind, tuple(_CES))
    of_parameters, of_season = _CES[kind]
    if len(initial) != 2 + of_season * season or len(parameters) != of_parameters:
        raise ValueError(f"ces: {len(initial)} states, {len(parameters)} parameters")
    return Ces(kind, season, _numbers(parameters), _numbers(initial))


def _word(value: object, words: Sequence[str]) -> str:
    if value not in words:
        raise ValueError(f"expected one of {', '.join(words)}; got {value!r:.50}")
    return str(value)


def _season(value: int) -> int:
    if type(value) is not int or not 1 <= value <= MOST_SEASON:
        raise ValueError(f"a season of {value!r:.50} steps")
    return value


def _rows(value: int) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_ROWS:
        raise ValueError(
            "transform: natures: components: learned: expected a whole number of 0 to "
            f"{_MOST_ROWS}; got {value!r:.50}"
        )
    return value


def _numbers(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
