"""Blend the components of series: what a combination forecasts at each step, and how surely.

A component says one value for each step ahead (:mod:`.components`). The weights of a series'
components, and the usual size of its errors, are learned (:mod:`.learning`). The size follows the
level of a series, and grows as a power of the step ahead. A series that is closed at a phase is
zero there.

What a blend is made of can be kept: terms of its median, factors of its width, its components.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from forecaster.series.causal import Ahead, Steps, decayed_mean, lagged, latest_mean, shift, squash
from forecaster.series.combination.components import Blend, Row, components_ahead
from forecaster.series.combination.nature import Nature
from forecaster.series.limits import ROWS_TO_BLEND
from forecaster.series.parts import Parts

FEATURES = 10
_AT_ONCE = 2**22  # forecasts of components that are in memory at a time
_LEAST, _MOST = 0.2, 5.0  # level of the latest season over that of all rows, that sizes follow
_FEWEST_LEVEL = 4  # rows of the level
_CLOSED = 4  # cycles that a phase was zero in
_NEARLY_ALWAYS = 0.9  # share of the cycles so far that it was zero in
_RARELY, _SOMETIMES = 0.05, 0.25  # shares of closed and of open phases that changed
_TO_DEVIATION = 1.2533  # standard deviation over mean absolute value, of a normal distribution


class Combined(NamedTuple):
    """The blend of one series at each step.

    - ``base``: what is forecast
    - ``scale``: the usual size of its errors
    - ``components``: what each component forecasts, where it is kept
    """

    base: Ahead
    scale: Ahead
    components: Sequence[Ahead]


def combine(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int, *, keep: bool = False
) -> Iterator[Combined]:
    """Yield the blend of each series; ``keep``: whether with its components."""
    for number, made in component_forecasts(rows, known, horizon, [0] * len(rows)):
        one = known[number]
        assert one.blend is not None
        both = blended(rows[number], made, one.seasons, horizon, one.blend)
        made = made if keep else ()  # what is blended goes
        yield Combined(*both, made)


def component_forecasts(
    rows: Sequence[Row], known: Sequence[Nature], horizon: int, since: Sequence[int]
) -> Iterator[tuple[int, list[Ahead]]]:
    """Yield the forecasts of each series' components at each step, with the number of the series.

    Of a limited number of series at a time, to save memory. ``since``: the first step of each that
    needs them
    """
    parts = np.cumsum([len(row) * horizon for row in rows]) // _AT_ONCE
    for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(parts)) + 1):
        some: list[int] = part.tolist()
        its = [known[number].components for number in some]
        first = [since[number] for number in some]
        made = components_ahead([rows[number] for number in some], its, horizon, first)
        for number in some:
            yield number, made.pop(0)


def blended(
    z: Steps, forecasts: Sequence[Ahead], seasons: Sequence[int], horizon: int, blend: Blend
) -> tuple[Ahead, Ahead]:
    """Return the blend of components at each step, and the usual size of its errors."""
    total, weights = np.zeros((len(z), horizon)), np.zeros((len(z), horizon))
    for weight, one in zip(blend.weights, forecasts, strict=True):
        usable = np.isfinite(one)
        total += np.where(usable, weight * np.where(usable, one, 0.0), 0.0)
        weights += np.where(usable, weight, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        base = np.where(weights > 0, total / weights, z[:, None])
    alone = ROWS_TO_BLEND - 1 if blend.size else len(z)  # what never changed stays, to the bit
    base[:alone] = z[:alone, None]
    growth = np.arange(1.0, horizon + 1) ** blend.growth
    scale = _TO_DEVIATION * blend.size * level_of(z, seasons)[:, None] * growth
    closed = closed_ahead(z, seasons, horizon)
    return np.where(closed, 0.0, base), np.where(closed, 0.0, scale)


def level_of(z: Steps, seasons: Sequence[int]) -> Steps:
    """Return the mean absolute value of the longest season at each step.

    It is held near that of all rows so far, so that a season of zeros does not end all errors.
    """
    size = np.abs(z)
    every = latest_mean(size, max(len(z), 1))
    every = np.where(every > 0, every, 1.0)
    latest = latest_mean(size, max((*seasons, _FEWEST_LEVEL)))
    return np.clip(latest, _LEAST * every, _MOST * every)


def closed_ahead(
    z: Steps, seasons: Sequence[int], horizon: int
) -> Bool[np.ndarray, "step horizon"]:
    """Return whether a series will be closed at the phase of each step ahead.

    It was zero at this phase in the latest cycles, and in nearly all before; and so far phases that
    were expected to be zero were, and open ones stayed open. Rare demand is zero by chance.
    """
    closed = np.zeros((len(z), horizon), bool)
    if not (z == 0).any():
        return closed
    for season in seasons:
        if season < 5 or len(z) < _CLOSED * season:
            continue
        zero = (z == 0).astype(float)
        lagging = (lagged(zero, season, horizon, more) for more in range(_CLOSED))
        lately = functools.reduce(np.minimum, lagging)  # two at a time: they may be large
        cycles = np.full((-(-len(z) // season), season), np.nan)
        cycles.ravel()[: len(z)] = zero
        seen = np.arange(1, len(cycles) + 1)[:, None]
        share = (np.cumsum(np.nan_to_num(cycles), 0) / seen).ravel()[: len(z)]
        always = lagged(share, season, horizon)
        begun = (np.cumsum(z != 0) > 0)[:, None]
        found = (lately == 1) & (always > _NEARLY_ALWAYS) & begun
        before = shift(found[:, 0].astype(float), 1) == 1
        closed |= found & _kept(z, season, before)[:, None]
    return closed


def _kept(z: Steps, season: int, expected: Bool[np.ndarray, " step"]) -> Bool[np.ndarray, " step"]:
    """Return whether steps expected to be zero were, so far, and open phases stayed open."""
    opened = shift((z != 0).astype(float), season) == 1
    counts = np.cumsum([expected, expected & (z != 0), opened, opened & (z == 0)], axis=1)
    closed, reopened, others, ended = counts
    pairs = (closed, reopened), (others, ended), (closed + others, reopened + ended)
    of_closed, of_others, of_all = ((changed + 0.5) / (known + 1) for known, changed in pairs)
    sure = np.minimum(of_closed, of_all) <= _RARELY
    return sure & (np.maximum(of_closed, of_others) <= _SOMETIMES)


def features_of(
    z: Steps, seasons: Sequence[int], base: Ahead, scale: Ahead
) -> Float[np.ndarray, "step feature"]:
    """Return what a network sees of each step."""
    basic = seasons[0] if seasons else 1

    def surprise(column: int) -> np.ndarray:
        """Return the error of the forecast for each step, in units of that forecast's scale."""
        made, unit = (shift(part[:, column], column + 1) for part in (base, scale))
        return (z - made) / unit

    fast, slow = (
        decayed_mean(np.abs(surprise(0)), 1 - 1 / max(steps, cycles * basic)) + 1e-6
        for steps, cycles in ((16, 2), (66, 7))
    )

    def change(season: int) -> np.ndarray:
        return (z - shift(z, season)) / scale[:, 0]

    level, trend = decayed_mean(z, 0.95), decayed_mean(z, 0.7)
    farthest, unit = base.shape[-1] - 1, scale[:, -1]
    features = [
        squash(surprise(0)),
        np.log(np.abs(surprise(0)) + 0.1),
        squash(np.log(fast / slow)),
        squash(surprise(farthest // 2)),
        squash(surprise(farthest)),
        squash((z - level) / unit),
        squash((trend - level) / unit),
        squash(change(basic)),
        squash(change(seasons[-1])) if seasons else np.zeros(z.shape),
        squash((z - base[:, -1]) / unit),
    ]
    return np.stack(features, axis=-1)


class KeptBlend(NamedTuple):
    """Where the parts of one series' blend are kept.

    - ``number``: of the series among all
    - ``row``, ``nature``: its rows without gaps, in its unit, and its properties
    - ``steps``: those of the origins, among these rows
    """

    parts: Parts
    number: int
    row: Row
    nature: Nature
    steps: Int[np.ndarray, " origin"]

    def keep(self, made: Combined, middle: Ahead, width: Ahead) -> None:
        """Keep the components, terms and factors of a blend.

        ``middle``, ``width``: what is forecast; of counts mean and deviation
        """
        self._keep_components(made)
        # A level and a season apart from it would change against each other with each new row.
        season, horizon = (*self.nature.seasons, 1)[0], int(middle.shape[1])
        middle, width = middle[self.steps], width[self.steps]
        lately = lagged(self.row, season, horizon)[self.steps]
        usual = latest_mean(self.row, season)[self.steps][:, None]
        lately = np.where(np.isnan(lately), usual, lately)
        if self.nature.counts:
            blended, size = made.base[self.steps], np.sqrt(middle)
        else:
            level = level_of(self.row, self.nature.seasons)[self.steps]
            blended, size = middle, np.repeat(level[:, None], horizon, axis=1)
        terms = {
            "latest season": lately,
            "trend and smoothing": blended - lately,
            "running mean": middle - blended,
        }
        parts, unit = self.parts, self.nature.unit
        for name, values in terms.items():
            parts.put(parts.base, name, self.number, values * unit, 0.0)
        for name, values in {"level": size * unit, "usual error": width / size}.items():
            parts.put(parts.scale, name, self.number, values, 1.0)

    def _keep_components(self, made: Combined) -> None:
        """Keep what each component forecasts, and its weight among those that say anything."""
        parts, nature = self.parts, self.nature
        assert nature.blend is not None
        values = np.stack([each[self.steps] for each in made.components])
        weights = np.isfinite(values) * np.array(nature.blend.weights)[:, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = weights / weights.sum(0)
        names = nature.components.kind.names
        for name, own, weight in zip(names, values * nature.unit, weights, strict=True):
            parts.put(parts.components, name, self.number, own)
            parts.put(parts.weights, name, self.number, weight)
