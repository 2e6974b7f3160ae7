"""What is known in advance of a series: effects of the calendar, and responses to covariates.

They are taken out of a series before it is forecast, and added to the forecasts again.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.frequency import times_after_rows
from forecaster.series.calendar.rhythms import RHYTHMS
from forecaster.series.causal import Ahead
from forecaster.series.combination.nature import Nature
from forecaster.series.known.effects import NO_EFFECTS, CalendarPrior, effects_of, learn_calendar
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


NOTHING_KNOWN = Shared()


class Rows(NamedTuple):
    """The rows of a panel's series.

    - ``natures``: the properties of each series by name, in their order
    - ``known``: how the fit scales covariates
    - ``held_back``: the number of latest rows of each series to leave out; None: all stay
    """

    panel: Panel
    natures: Mapping[str, Nature]
    known: Scaling
    held_back: Int[np.ndarray, " series"] | None = None

    def each(self) -> Iterator[tuple[str, Nature, Row, np.ndarray]]:
        """Yield name, properties, values and times of each series."""
        rows = self.panel.rows(self.held_back)
        for (name, nature), (values, times) in zip(self.natures.items(), rows, strict=True):
            yield name, nature, values, times

    def without_effects(self) -> list[tuple[Row, np.ndarray]]:
        """Return the values of each series, without what is known of them, and their times."""
        return [
            (without_effects(self.panel, nature, self.known, name, values, times), times)
            for name, nature, values, times in self.each()
        ]


def learn_effects(rows: Rows) -> Shared:
    """Return what the series of a panel have in common, each without what the other explains."""
    histories = _histories(rows)
    responses = learn_responses(list(histories.values()))
    calendar = NO_EFFECTS
    if rows.panel.times.dtype.kind == "M":
        rows = rows._replace(natures=_with_responses(rows.natures, responses, histories))
        calendar = calendar_of(list(rows.natures.values()), rows.without_effects())
    return Shared(responses, calendar)


def calendar_of(natures: Sequence[Nature], rows: Sequence[tuple[Row, np.ndarray]]) -> CalendarPrior:
    """Return what the series of a panel have in common; ``rows``: their values and times.

    Only those of the most frequent rhythm have effects. Series that are too short to learn from do
    not count.
    """
    rhythms = Counter(
        one.rhythm
        for one, (values, _) in zip(natures, rows, strict=True)
        if one.may_have_effects(one.rhythm) and len(values) >= RHYTHMS[one.rhythm].fewest
    )
    if not rhythms:
        return NO_EFFECTS
    rhythm = max(rhythms, key=lambda one: (rhythms[one], one))
    alike = [
        (nature.as_features(values), times)
        for nature, (values, times) in zip(natures, rows, strict=True)
        if nature.may_have_effects(rhythm)
    ]
    return learn_calendar([values for values, _ in alike], [times for _, times in alike], rhythm)


def with_known_effects(rows: Rows, shared: Shared) -> dict[str, Nature]:
    """Return the properties of each series with its own responses and effects of the calendar.

    ``shared``: from :func:`learn_effects`
    """
    # What was learned from fewer rows must not be missing in the rows that are learned from now.
    natures = {
        name: dataclasses.replace(nature, effects=(), responses=())
        for name, nature in rows.natures.items()
    }
    rows = rows._replace(natures=natures)
    if shared.responses.mean:
        natures = _with_responses(natures, shared.responses, _histories(rows))
        rows = rows._replace(natures=natures)
    if shared.calendar.groups:
        alike = {
            name: (nature.as_features(values), times)
            for (name, nature), (values, times) in zip(
                natures.items(), rows.without_effects(), strict=True
            )
            if nature.may_have_effects(shared.calendar.rhythm)
        }
        values, times = ([own[part] for own in alike.values()] for part in (0, 1))
        found = zip(alike, effects_of(shared.calendar, values, times), strict=True)
        for name, effects in found:
            natures[name] = dataclasses.replace(natures[name], effects=effects)
    return natures


def without_effects(
    panel: Panel,
    nature: Nature,
    known: Scaling,
    name: str,
    values: Row,
    times: Shaped[np.ndarray, " row"],
) -> Row:
    """Return the rows of a series without what is known of them."""
    if not nature.has_effects:
        return values
    effects = _effects_at(panel, nature, known, name, times)
    return values / effects if nature.multiplies else values - effects


def add_effects_ahead(
    panel: Panel,
    natures: Sequence[Nature],
    known: Scaling,
    histories: Histories,
    forecasts: tuple[Ahead, Ahead],
) -> None:
    """Add what is known of the times ahead to base and scale of all series, in place.

    The variance of counts grows as their mean does.

    - ``natures``: of the series of ``panel``, in their order
    - ``forecasts``: base and scale, each (series, step, horizon)
    """
    base, scale = forecasts
    for row, (name, nature) in enumerate(zip(panel.ids, natures, strict=True)):
        if not nature.has_effects:
            continue
        steps = slice(histories.first[row], None)
        times = panel.times[histories.positions[row, steps]]
        ahead = times_after_rows(times, base.shape[-1], panel.frequency)
        effects = _effects_at(panel, nature, known, name, ahead)
        if nature.multiplies:
            base[row, steps] *= effects
            scale[row, steps] *= np.sqrt(effects) if nature.counts else effects
        else:
            base[row, steps] += effects


def rows_without_effects(rows: Rows) -> list[Float[np.ndarray, " step"]]:
    """Return the values of each series, without what is known, with missing rows filled."""
    return [
        nature.without_gaps(values / nature.unit, times)[0]
        for nature, (values, times) in zip(
            rows.natures.values(), rows.without_effects(), strict=True
        )
    ]


def _effects_at(
    panel: Panel, nature: Nature, known: Scaling, name: str, times: Shaped[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return what is added to a series at some times, or what multiplies it; above zero then."""
    responses = np.zeros(times.shape)
    if nature.responses and panel.future is not None:
        numbers = _numbers_at(panel, known, name, times.ravel())
        # Not a matrix product, which rounds a step by the number of steps beside it.
        responses = (numbers * np.array(nature.responses)).sum(1).reshape(times.shape)
    if nature.counts:
        return np.clip(1 + responses, _LEAST_FACTOR, np.exp(_MOST_LOGARITHM))
    if nature.logarithmic:
        responses = np.clip(responses, -_MOST_LOGARITHM, _MOST_LOGARITHM)
        return np.exp(nature.effects_on(times) + responses)
    return nature.effects_on(times) + responses


def _numbers_at(
    panel: Panel, known: Scaling, name: str, times: Shaped[np.ndarray, " time"]
) -> Float[np.ndarray, "time column"]:
    """Return what is known in advance, less its mean up to the fit; 0 where it is unknown."""
    assert panel.future is not None
    centre = np.array(known.scales[name], float).reshape(-1, 2)[:, 0]
    return np.nan_to_num(panel.future.at(name, times) - centre, nan=0.0)


def _histories(rows: Rows) -> dict[str, History]:
    """Return the histories of the series that may respond to covariates."""
    made: dict[str, History] = {}
    if rows.panel.future is None or not rows.known.future:
        return made
    for name, nature, values, times in rows.each():
        if nature.sparse and not nature.counts:
            continue
        z, steps = nature.without_gaps(nature.as_features(values), times)
        numbers = _numbers_at(rows.panel, rows.known, name, times).T
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
    made = dict(natures)
    for name, history in histories.items() if prior != NO_RESPONSES else ():
        own = responses_of(prior, history, relative=natures[name].counts)
        made[name] = dataclasses.replace(natures[name], responses=own)
    return made
