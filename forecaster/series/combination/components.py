"""The components of a blend: classical models, a linear model of seasonal lags, and patterns.

Their parameters come from the rows that were known when they were fitted; later rows only move the
state. Each is fitted for all series at once.
"""

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import Meta

from forecaster.classical import (
    MODELS,
    MOST_SEASON,
    Linear,
    Pool,
    count_of_features,
    fit_linear,
    learn_pool,
    linear_ahead,
    patterns_ahead,
)
from forecaster.series.causal import Ahead, lagged
from forecaster.series.limits import LONGEST_SEASON, MOST_SEASONS

Row: TypeAlias = Float[np.ndarray, " step"]
Seasons: TypeAlias = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=LONGEST_SEASON)], ...], Meta(max_length=MOST_SEASONS)
]
Lags: TypeAlias = tuple[Seasons, bool]
Parts: TypeAlias = tuple[tuple[str, ...], Seasons]
Size: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]

LINEAR, PATTERNS, SEASONAL_NAIVE, ZERO = "linear", "patterns", "seasonal naive", "zero"
_CLASSICAL = {name: model.functions for name, model in MODELS.items()}
NAMES = {*MODELS, LINEAR, PATTERNS, SEASONAL_NAIVE, ZERO}
"""All components. A sparse series may also be forecast as zero."""
_BLENDED = tuple(name for name, model in MODELS.items() if model.blended)
_SHORT_SEASONS = (), (4,), (12,)  # beside others ETS and CES harm, and the season before
_FEWEST_OF_THETA = 8  # rows: more than its first errors and three parameters
_LONG_DAYS = 800  # rows from which daily series have a pattern of the year
_SEEN_A_YEAR = 546  # rows from which the linear model looks a year back
_WEEK, _YEAR = 7, 365
_FEW_ROWS = 100_000  # of all series together, up to which fits are remembered


class Combination(NamedTuple):
    """What series have in common that share a panel's regression and weights.

    - ``names``: their components
    - ``seasons``: steps in each season
    - ``yearly``: whether the linear model looks a year back
    """

    names: tuple[str, ...]
    seasons: Seasons
    yearly: bool = False

    @staticmethod
    def for_rows(
        rows: int, learned: int, seasons: Seasons, alone: str | None, *, sparse: bool
    ) -> "Combination":
        """Return the kind of a series.

        ``rows``, ``learned``: how many there are, and how many it is fitted on
        """
        if alone is not None:
            return Combination((alone,), seasons[:1])
        zero = (ZERO,) if sparse else ()
        yearly = seasons == (_WEEK,) and learned >= _SEEN_A_YEAR
        if len(seasons) > 1 or (seasons == (_WEEK,) and rows >= _LONG_DAYS):
            return Combination((LINEAR, PATTERNS, *zero), seasons, yearly)
        if seasons not in _SHORT_SEASONS:
            return Combination(("theta", LINEAR, *zero), seasons, yearly)
        naive = (SEASONAL_NAIVE,) if seasons else ()
        return Combination((*_BLENDED, LINEAR, *naive, *zero), seasons)

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


_Fitted = msgspec.defstruct(
    "_Fitted",
    [(name, model.fitted, model.nothing) for name, model in _CLASSICAL.items()],
    array_like=True,
    frozen=True,
)


class Components(_Fitted, array_like=True, frozen=True):  # pyright: ignore[reportUntypedBaseClass]
    """The components of one series; those for which it is too short are missing.

    First stand the classical models by their names.

    - ``learned``: the number of first rows of the series that they were fitted on
    """

    linear: Linear | None = None
    learned: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    kind: Combination = Combination((), ())

    def fits(self, horizon: int) -> bool:
        """Return whether the parts fit their kind, as they may not in a file."""
        kind, linear = self.kind, self.linear
        shape = None if linear is None else linear.weights.shape
        features = count_of_features(kind.seasons, yearly=kind.yearly)
        return (
            NAMES.issuperset(kind.names)
            and len({*kind.names}) == len(kind.names)
            and shape == ((horizon, features) if LINEAR in kind.names else None)
            and all(model.fits(getattr(self, name)) for name, model in _CLASSICAL.items())
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


def pools_of(rows: Sequence[Row], kinds: Sequence[Combination], horizon: int) -> dict[Lags, Pool]:
    """Return the regressions that series of the same seasons share."""
    grouped: dict[Lags, list[Row]] = defaultdict(list)
    for row, kind in zip(rows, kinds, strict=True):
        if LINEAR in kind.names:
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
    fitted = [Components()] * len(rows)
    for kind, numbers in _by_kind(kinds).items():
        some, pool = [rows[number] for number in numbers], pools.get(kind.lags)
        with np.errstate(all="ignore"):  # what is not finite is not used
            made: dict[str, Sequence[Any]] = {
                name: _fit_classical(name, some, kind.classical_season)
                for name in kind.names
                if name in _CLASSICAL
            }
            if LINEAR in kind.names:
                made[LINEAR] = _linear(some, kind.lags, pool, horizon)
        for position, number in enumerate(numbers):
            row, own = rows[number], {name: of[position] for name, of in made.items()}
            if LINEAR in own and len(row) < _FEWEST_OF_THETA:  # it is not alone
                own["theta"] = None
            if _is_young(len(row), kind, pool):
                own = {LINEAR: own[LINEAR]}
            fitted[number] = Components(learned=len(row), kind=kind, **own)
    return fitted


def _fit_classical(name: str, rows: Sequence[Row], season: int) -> Sequence[Any]:
    if sum(map(len, rows)) > _FEW_ROWS:
        return _CLASSICAL[name].fit(rows, season)
    return _fit_lately(name, tuple(np.asarray(row, float).tobytes() for row in rows), season)


@functools.lru_cache(maxsize=32)
def _fit_lately(name: str, rows: tuple[bytes, ...], season: int) -> Sequence[Any]:
    """Fit a model. Cached, as weights and blends of a small panel are learned from the same fit."""
    return _CLASSICAL[name].fit([np.frombuffer(row) for row in rows], season)


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
    if name in _CLASSICAL:
        fitted, learned = [getattr(one, name) for one in its], [one.learned for one in its]
        return _CLASSICAL[name].ahead(rows, fitted, learned, horizon)
    if name == LINEAR:
        models = [cast(Linear, one.linear) for one in its]
        return linear_ahead(rows, models, kind.seasons, horizon, since, yearly=kind.yearly)
    if name == PATTERNS:
        cycles = (_WEEK, _YEAR) if kind.seasons == (_WEEK,) else kind.seasons
        return patterns_ahead(rows, cycles, horizon, since)
    if name == SEASONAL_NAIVE:
        return [lagged(row, kind.classical_season, horizon) for row in rows]
    return [np.zeros((len(row), horizon)) for row in rows]
