"""The components of a blend: classical models, a linear model of seasonal lags, and patterns.

Their parameters come from the rows that were known when they were fitted; later rows only move the
state. Each is fitted for all series at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from jaxtyping import Float
from msgspec import Meta

from forecaster.classical import (
    MOST_SEASON,
    Average,
    Ces,
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
from forecaster.series.causal import Ahead, lagged
from forecaster.series.limits import CLASSICAL, LONGEST_SEASON, MOST_SEASONS

Row: TypeAlias = Float[np.ndarray, " step"]
Seasons: TypeAlias = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=LONGEST_SEASON)], ...], Meta(max_length=MOST_SEASONS)
]
Lags: TypeAlias = tuple[Seasons, bool]
Name: TypeAlias = Literal["ets", "theta", "ces", "linear", "patterns", "seasonal naive", "zero"]
"""A component. A sparse series may also be forecast as zero."""
Parts: TypeAlias = tuple[tuple[Name, ...], Seasons]
Size: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]

SEASONAL_NAIVE: Name = "seasonal naive"
ZERO: Name = "zero"
_TRIO_SEASONS = (), (4,), (12,)  # beside others ETS and CES harm, and the season before
_FEWEST_OF_THETA = 8  # rows: more than its first errors and three parameters
_LONG_DAYS = 800  # rows from which daily series have a pattern of the year
_SEEN_A_YEAR = 546  # rows from which the linear model looks a year back
_WEEK, _YEAR = 7, 365


class Combination(NamedTuple):
    """What series have in common that share a panel's regression and weights.

    - ``names``: their components
    - ``seasons``: steps in each season
    - ``yearly``: whether the linear model looks a year back
    """

    names: tuple[Name, ...]
    seasons: Seasons
    yearly: bool = False

    @staticmethod
    def of(
        rows: int, learned: int, seasons: Seasons, alone: Name | None, *, sparse: bool
    ) -> "Combination":
        """Return the kind of a series.

        ``rows``, ``learned``: how many there are, and how many it is fitted on
        """
        if alone is not None:
            return Combination((alone,), seasons[:1])
        zero = (ZERO,) if sparse else ()
        yearly = seasons == (_WEEK,) and learned >= _SEEN_A_YEAR
        if len(seasons) > 1 or (seasons == (_WEEK,) and rows >= _LONG_DAYS):
            return Combination(("linear", "patterns", *zero), seasons, yearly)
        names = CLASSICAL if seasons in _TRIO_SEASONS else ("theta",)
        naive = (SEASONAL_NAIVE,) if seasons and names == CLASSICAL else ()
        return Combination((*names, "linear", *naive, *zero), seasons, yearly)

    @property
    def lags(self) -> Lags:
        """What the features of the linear model follow from."""
        return self.seasons, self.yearly

    @property
    def parts(self) -> Parts:
        """What weights and sizes of errors are alike in."""
        return self.names, self.seasons

    @property
    def classical_season(self) -> int:
        """The season of classical models; 1 for none."""
        season = self.seasons[0] if self.seasons else 1
        return season if season <= MOST_SEASON else 1


class Components(NamedTuple):
    """The components of one series; those for which it is too short are missing.

    - ``learned``: the number of first rows of the series that they were fitted on
    """

    ets: Average = ()
    theta: Theta | None = None
    ces: Ces | None = None
    linear: Linear | None = None
    learned: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    kind: Combination = Combination((), ())

    def fits(self, horizon: int) -> bool:
        """Return whether the parts fit their kind, as they may not in a file."""
        kind, linear = self.kind, self.linear
        shape = None if linear is None else linear.weights.shape
        features = count_of_features(kind.seasons, yearly=kind.yearly)
        return (
            len({*kind.names}) == len(kind.names)
            and shape == ((horizon, features) if "linear" in kind.names else None)
            and all(len(one.parameters) == len(one.form.names) for one in self.ets)
            and (self.ces is None or self.ces.fits())
        )


NO_COMPONENTS = Components()


class Blend(NamedTuple):
    """How the components of one series are blended.

    - ``weights``: of each component
    - ``size``: the mean error one step ahead over the level, see :func:`.level_of`
    - ``growth``: the power of the step ahead by which it grows
    """

    weights: tuple[Size, ...]
    size: Size
    growth: Share


_FIT: dict[str, Callable[[Sequence[Row], int], Sequence[Any]]] = {
    "ets": fit_ets,
    "theta": fit_theta,
    "ces": fit_ces,
}


def pools_of(rows: Sequence[Row], kinds: Sequence[Combination], horizon: int) -> dict[Lags, Pool]:
    """Return the regressions that series of the same seasons share."""
    grouped: dict[Lags, list[Row]] = defaultdict(list)
    for row, kind in zip(rows, kinds, strict=True):
        if "linear" in kind.names:
            for lags in {kind.lags, (kind.seasons, False)}:  # shorter series look no year back
                grouped[lags].append(row)
    return {key: learn_pool(some, key[0], horizon, yearly=key[1]) for key, some in grouped.items()}


def fit_components(
    rows: Sequence[Row], kinds: Sequence[Combination], pools: Mapping[Lags, Pool], horizon: int
) -> list[Components]:
    """Fit the components of all series.

    - ``rows``: the values of each series, without gaps
    - ``kinds``: the kind of each
    - ``pools``: from :func:`pools_of`; a series of other seasons has a regression of its own
    """
    fitted = [
        Components(learned=len(row), kind=kind) for row, kind in zip(rows, kinds, strict=True)
    ]
    for kind, numbers in _by_kind(kinds).items():
        some, pool = [rows[number] for number in numbers], pools.get(kind.lags)
        with np.errstate(all="ignore"):  # what is not finite is not used
            made = {name: _FIT[name](some, kind.classical_season) for name in kind.names
                    if name in _FIT}  # fmt: skip
            if "linear" in kind.names:
                made["linear"] = _linear(some, kind.lags, pool, horizon)
        for position, number in enumerate(numbers):
            own = {name: of[position] for name, of in made.items()}
            if "linear" in own and len(rows[number]) < _FEWEST_OF_THETA:  # it is not alone
                own["theta"] = None
            if _is_young(len(rows[number]), kind, pool):
                own = {"linear": own["linear"]}
            fitted[number] = fitted[number]._replace(**own)
    return fitted


def _by_kind(kinds: Iterable[Combination]) -> dict[Combination, list[int]]:
    """Return the numbers of the series of each kind."""
    groups: dict[Combination, list[int]] = defaultdict(list)
    for number, kind in enumerate(kinds):
        groups[kind].append(number)
    return groups


def _is_young(rows: int, kind: Combination, pool: Pool | None) -> bool:
    """Return whether only the regression of its older panel sees the season of a series.

    Classical models find a season in two cycles; the regression knows the value one cycle ago.
    """
    season = kind.classical_season
    return pool is not None and 1 < season < rows - 1 and rows <= 2 * season < pool.rows


def _linear(rows: Sequence[Row], lags: Lags, pool: Pool | None, horizon: int) -> list[Linear]:
    seasons, yearly = lags
    if pool is not None:
        return fit_linear(rows, seasons, pool, yearly=yearly)
    own = [(row, learn_pool([row], seasons, horizon, yearly=yearly)) for row in rows]
    return [fit_linear([row], seasons, of, yearly=yearly)[0] for row, of in own]


def components_ahead(
    rows: Sequence[Row], components: Sequence[Components], horizon: int, since: Sequence[int]
) -> list[list[Ahead]]:
    """Return the forecasts of each series' components, made at every row.

    They are NaN where a component is missing or its forecast is not finite.

    - ``rows``: the values, which may go on after those that the components were fitted on
    - ``horizon``: steps ahead
    - ``since``: the first row of each series that needs a forecast; those before may be NaN
    """
    out: list[list[Ahead]] = [[] for _ in rows]
    for kind, numbers in _by_kind(one.kind for one in components).items():
        some, its = [rows[number] for number in numbers], [components[number] for number in numbers]
        first = [since[number] for number in numbers]
        with np.errstate(all="ignore"):
            for name in kind.names:
                every = _ahead(name, some, its, kind, horizon, first)
                for number, made in zip(numbers, every, strict=True):
                    out[number].append(np.where(np.isfinite(made), made, np.nan))
    return out


def _ahead(
    name: str,
    rows: Sequence[Row],
    its: Sequence[Components],
    kind: Combination,
    horizon: int,
    since: Sequence[int],
) -> Sequence[Ahead]:
    if name == "ets":
        return ets_ahead(rows, [one.ets for one in its], [one.learned for one in its], horizon)
    if name == "theta":
        return theta_ahead(rows, [one.theta for one in its], horizon)
    if name == "ces":
        return ces_ahead(rows, [one.ces for one in its], horizon)
    if name == "linear":
        models = [cast(Linear, one.linear) for one in its]
        return linear_ahead(rows, models, kind.seasons, horizon, since, yearly=kind.yearly)
    if name == "patterns":
        cycles = (_WEEK, _YEAR) if kind.seasons == (_WEEK,) else kind.seasons
        return patterns_ahead(rows, cycles, horizon, since)
    if name == SEASONAL_NAIVE:
        return [lagged(row, kind.classical_season, horizon) for row in rows]
    return [np.zeros((len(row), horizon)) for row in rows]
