"""What is known in advance of a series: effects of the calendar, and responses to covariates.

The season of a young series is such an effect, too. All are taken out of a series before it is
forecast, and added to the forecasts again.
"""

import dataclasses
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.ahead import times_after_rows
from forecaster.series.combination.nature import Nature, calendar_of, with_effects
from forecaster.series.combination.young import (
    NO_SEASON,
    SeasonPrior,
    learn_season,
    profile_of,
    steps_of,
)
from forecaster.series.features.transformed import Ahead
from forecaster.series.known.effects import NO_EFFECTS, CalendarPrior
from forecaster.series.known.responses import (
    NO_RESPONSES,
    History,
    ResponsePrior,
    learn_responses,
    responses_of,
)
from forecaster.series.panel.covariates import Scaling
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel

Row: TypeAlias = Float[np.ndarray, " row"]
# What is far from all that came before neither multiplies a series without end nor ends it.
_LEAST_FACTOR, _MOST_LOGARITHM = 0.1, 5.0


class Shared(NamedTuple):
    """What the series of a panel have in common of what is known in advance."""

    responses: ResponsePrior = NO_RESPONSES
    calendar: CalendarPrior = NO_EFFECTS
    young: SeasonPrior = NO_SEASON


def learn_effects(
    panel: Panel, natures: Mapping[str, Nature], known: Scaling, horizon: int
) -> Shared:
    """Return what the series of a panel have in common, each without what the other explains.

    - ``natures``: of the series of ``panel``
    - ``known``: how the fit scales covariates
    - ``horizon``: the steps ahead that are forecast
    """
    histories = _histories(panel, natures, known)
    responses = learn_responses(list(histories.values()))
    calendar = NO_EFFECTS
    if panel.times.dtype.kind == "M":
        natures = _with_responses(natures, responses, histories)
        rows = _rows(panel, natures, known)
        calendar = calendar_of(list(natures.values()), rows)
    shared = Shared(responses, calendar)
    natures = with_known_effects(panel, natures, known, shared)
    return shared._replace(young=_season_of(panel, natures, known, horizon))


def with_known_effects(
    panel: Panel,
    natures: Mapping[str, Nature],
    known: Scaling,
    shared: Shared,
    held_back: Int[np.ndarray, " series"] | None = None,
) -> dict[str, Nature]:
    """Return the properties of each series with its own responses and effects of the calendar.

    - ``shared``: from :func:`learn_effects`
    - ``held_back``: the number of latest rows of each series that they are not learned from
    """
    # What was learned from fewer rows must not be missing in the rows that are learned from now.
    natures = {
        name: dataclasses.replace(
            nature, effects=(), responses=(), profile=(), unsure=(), noise=0.0
        )
        for name, nature in natures.items()
    }
    if shared.responses.mean:
        histories = _histories(panel, natures, known, held_back)
        natures = _with_responses(natures, shared.responses, histories)
    if shared.calendar.groups:
        natures = with_effects(natures, shared.calendar, _rows(panel, natures, known, held_back))
    if shared.young.season:
        natures = _with_profiles(panel, natures, known, shared.young, held_back)
    return natures


def without_effects(
    panel: Panel,
    nature: Nature,
    known: Scaling,
    name: str,
    z: Float[np.ndarray, " row"],
    times: Shaped[np.ndarray, " row"],
) -> Float[np.ndarray, " row"]:
    """Return the rows of a series without what is known of them, in the units networks see."""
    if nature.counts:
        return z / _factors_at(panel, nature, known, name, times)
    return z - _effects_at(panel, nature, known, name, times)


def add_effects_ahead(
    panel: Panel,
    natures: Sequence[Nature],
    known: Scaling,
    histories: Histories,
    forecasts: tuple[Ahead, Ahead],
    error_ratio: Sequence[float],
) -> None:
    """Add what is known of the times ahead to base and scale of all series, in place.

    The variance of counts grows as their mean does.

    - ``natures``: of the series of ``panel``, in their order
    - ``forecasts``: base and scale, each (series, step, horizon)
    - ``error_ratio``: by horizon, the deviation of errors over their scale; empty: 1. Bands take
      scales times such a ratio, so what a profile leaves unsure is divided by it
    """
    base, scale = forecasts
    ratio = np.array(error_ratio or [1.0])
    for row, (name, nature) in enumerate(zip(panel.ids, natures, strict=True)):
        if not nature.has_effects:
            continue
        steps = slice(histories.first[row], None)
        times = panel.times[histories.positions[row, steps]]
        ahead = times_after_rows(times, base.shape[-1], panel.frequency)
        if nature.counts:
            factors = _factors_at(panel, nature, known, name, ahead)
            base[row, steps] *= factors
            scale[row, steps] *= np.sqrt(factors)
        else:
            base[row, steps] += _effects_at(panel, nature, known, name, ahead)
            if nature.profile:
                scale[row, steps] = np.hypot(scale[row, steps], nature.unsure_on(ahead) / ratio)


def rows_without_effects(
    panel: Panel,
    natures: Mapping[str, Nature],
    known: Scaling,
    held_back: Int[np.ndarray, " series"] | None = None,
) -> list[Float[np.ndarray, " step"]]:
    """Return the values of each series, without what is known, with missing rows filled."""
    return [
        natures[name].without_gaps(values, times)[0]
        for name, (values, times) in zip(
            panel.ids, _rows(panel, natures, known, held_back), strict=True
        )
    ]


def _rows(
    panel: Panel,
    natures: Mapping[str, Nature],
    known: Scaling,
    held_back: Int[np.ndarray, " series"] | None = None,
) -> list[tuple[Row, np.ndarray]]:
    """Return the values of each series, without what is known, and their times."""
    rows: list[tuple[Row, np.ndarray]] = []
    for name, (values, times) in zip(panel.ids, panel.rows(held_back), strict=True):
        nature = natures[name]
        if nature.has_effects:
            z = values if not nature.logarithmic else np.log(values)
            z = without_effects(panel, nature, known, name, z, times)
            values = z if not nature.logarithmic else np.exp(z)
        rows.append((values, times))
    return rows


def _effects_at(
    panel: Panel, nature: Nature, known: Scaling, name: str, times: Shaped[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return what is added to a series at some times."""
    responses = _responses_at(panel, nature, known, name, times)
    if nature.logarithmic:
        responses = np.clip(responses, -_MOST_LOGARITHM, _MOST_LOGARITHM)
    return nature.effects_on(times) + responses


def _factors_at(
    panel: Panel, nature: Nature, known: Scaling, name: str, times: Shaped[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return what counts are multiplied by at some times; they remain above zero."""
    factors = 1 + _responses_at(panel, nature, known, name, times)
    return np.clip(factors, _LEAST_FACTOR, np.exp(_MOST_LOGARITHM))


def _responses_at(
    panel: Panel, nature: Nature, known: Scaling, name: str, times: Shaped[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    if not nature.responses or panel.future is None:
        return np.zeros(times.shape)
    numbers = _numbers_at(panel, known, name, times.ravel())
    # Not a matrix product, which rounds a step by the number of steps beside it.
    return (numbers * np.array(nature.responses)).sum(1).reshape(times.shape)


def _numbers_at(
    panel: Panel, known: Scaling, name: str, times: Shaped[np.ndarray, " time"]
) -> Float[np.ndarray, "time column"]:
    """Return what is known in advance, less its mean up to the fit; 0 where it is unknown."""
    assert panel.future is not None
    centre = np.array(known.scales[name], float).reshape(-1, 2)[:, 0]
    return np.nan_to_num(panel.future.at(name, times) - centre, nan=0.0)


def _histories(
    panel: Panel,
    natures: Mapping[str, Nature],
    known: Scaling,
    held_back: Int[np.ndarray, " series"] | None = None,
) -> dict[str, History]:
    """Return the histories of the series that may respond to covariates."""
    made: dict[str, History] = {}
    if panel.future is None or not known.future:
        return made
    for name, (values, times) in zip(panel.ids, panel.rows(held_back), strict=True):
        nature = natures[name]
        if nature.sparse and not nature.counts:
            continue
        z, steps = nature.without_gaps(nature.as_features(values), times)
        numbers = _numbers_at(panel, known, name, times).T
        filled = [nature.without_gaps(column, times)[0] for column in numbers]
        there = np.zeros(len(z), bool)
        there[steps] = True
        level = 1.0 if nature.logarithmic or not len(z) else float(np.abs(values).mean())
        season = nature.seasons[0] if nature.seasons else 1
        made[name] = History(z, np.stack(filled, axis=1), there, season, level, nature.counts)
    return made


def _with_responses(
    natures: Mapping[str, Nature], prior: ResponsePrior, histories: Mapping[str, History]
) -> dict[str, Nature]:
    if prior == NO_RESPONSES:
        return dict(natures)
    own = {
        name: responses_of(prior, history, relative=natures[name].counts)
        for name, history in histories.items()
    }
    return {
        name: dataclasses.replace(nature, responses=own[name]) if name in own else nature
        for name, nature in natures.items()
    }


class _Kind(NamedTuple):
    """What series must have in common to share a season; ``spacing``: 0 for dates."""

    rhythm: str
    season: int
    spacing: float


def _season_of(
    panel: Panel, natures: Mapping[str, Nature], known: Scaling, horizon: int
) -> SeasonPrior:
    """Return the season that most series of a panel have in common."""
    kinds = Counter(kind for one in natures.values() if (kind := _kind(panel, one)))
    if not kinds:
        return NO_SEASON
    kind = max(kinds, key=lambda one: (kinds[one], one))
    alike = {
        name: _steps(nature, kind, values, times)
        for (name, nature), (values, times) in zip(
            natures.items(), _rows(panel, natures, known), strict=True
        )
        if _kind(panel, nature) == kind and len(values)
    }
    # Samples and halves are taken of series in an order of their own, not in that of the panel.
    names = sorted(alike, key=lambda name: (zlib.crc32(name.encode(errors="replace")), name))
    rows = [alike[name][0] / alike[name][1] for name in names]
    steps = [alike[name][2] for name in names]
    prior = learn_season(rows, steps, kind.season, kind.rhythm, horizon)
    return prior._replace(spacing=kind.spacing) if prior.season else prior


def _with_profiles(
    panel: Panel,
    natures: Mapping[str, Nature],
    known: Scaling,
    prior: SeasonPrior,
    held_back: Int[np.ndarray, " series"] | None,
) -> dict[str, Nature]:
    """Return the properties of series, with the season of the young ones."""
    made = dict(natures)
    kind = _Kind(prior.rhythm, prior.season, prior.spacing)
    young = [prior.helps_with(int(count)) for count in panel.mask.sum(1)]
    rows = _rows(panel, natures, known, held_back)
    for (name, nature), (values, times), is_young in zip(natures.items(), rows, young, strict=True):
        if not nature.spacing:  # the next row of a single one comes when it does in the others
            nature = dataclasses.replace(nature, spacing=prior.spacing)
        if not is_young or not len(values) or _kind(panel, nature) != kind:
            continue
        z, level, steps = _steps(nature, kind, values, times)
        own = profile_of(prior, z / level, steps % prior.season)
        profile, unsure = (tuple((level * part).tolist()) for part in (own.effects, own.unsure))
        if np.isfinite([*profile, *unsure]).all():
            made[name] = dataclasses.replace(
                nature, profile=profile, unsure=unsure, noise=level * own.noise
            )
    return made


def _kind(panel: Panel, nature: Nature) -> _Kind | None:
    """Return the kind of a series that may share a season; None for others.

    Gaps of a series without a spacing are not filled, so that its rows do not tell its steps.
    """
    plain = len(nature.seasons) == 1 and not (nature.counts or nature.sparse or nature.open)
    dated = panel.times.dtype.kind == "M"
    if not plain or not nature.spacing > 0 or dated != bool(nature.rhythm):
        return None
    return _Kind(nature.rhythm, nature.seasons[0], 0.0 if dated else nature.spacing)


def _steps(
    nature: Nature, kind: _Kind, values: Row, times: Shaped[np.ndarray, " row"]
) -> tuple[Row, float, Int[np.ndarray, " step"]]:
    """Return the values of a series without gaps, their level, and their steps in the calendar."""
    z = nature.without_gaps(nature.as_features(values), times)[0]
    level = 1.0 if nature.logarithmic else float(np.abs(values).mean()) or 1.0
    last = int(steps_of(times[-1:], kind.rhythm, kind.spacing)[0])
    return z, level, np.arange(last + 1 - len(z), last + 1)
