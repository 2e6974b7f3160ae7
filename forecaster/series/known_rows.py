"""Take what is known in advance out of series before they are forecast, and add it again.

The effects of the calendar and the responses to covariates are learned one after the other.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.inferring import times_after_rows
from forecaster.series.calendar.rhythms import RHYTHMS
from forecaster.series.causal import Ahead
from forecaster.series.combination.nature import Nature
from forecaster.series.effects import (
    NO_EFFECTS,
    NO_RESPONSES,
    CalendarPrior,
    History,
    ResponsePrior,
    Row,
    effects_of,
    effects_on,
    learn_calendar,
    learn_responses,
    responses_of,
)
from forecaster.series.panel.covariates import Scaling
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.parts import Parts

# What is far from all that came before neither multiplies a series without end nor ends it.
_LEAST_FACTOR, _MOST_LOGARITHM = 0.1, 5.0


class KnownPriors(NamedTuple):
    """What the series of a panel have in common of what is known in advance."""

    responses: ResponsePrior = NO_RESPONSES
    calendar: CalendarPrior = NO_EFFECTS


NOTHING_KNOWN = KnownPriors()


class KnownRows(NamedTuple):
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
        rows = zip(self.natures.items(), self.panel.rows(), strict=True)
        for row, ((name, nature), (values, times)) in enumerate(rows):
            count = len(times) - (0 if self.held_back is None else int(self.held_back[row]))
            yield name, nature, values[:count], times[:count]

    def without_effects(self) -> list[tuple[Row, np.ndarray]]:
        """Return the values of each series, without what is known of them, and their times."""
        made: list[tuple[Row, np.ndarray]] = []
        for name, nature, values, times in self.each():
            if nature.effects or nature.responses:
                effects = self.effects_at(name, times)
                values = values / effects if nature.multiplies else values - effects
            made.append((values, times))
        return made

    def filled(self) -> list[tuple[Float[np.ndarray, " step"], Int[np.ndarray, " row"]]]:
        """Return the same values in each series' unit with missing rows filled, and rows' steps."""
        return [
            nature.without_gaps(values / nature.unit, times)
            for nature, (values, times) in zip(
                self.natures.values(), self.without_effects(), strict=True
            )
        ]

    def effects_at(self, name: str, times: Shaped[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return what is added to a series at some times, or what, above zero, multiplies it."""
        nature, responses = self.natures[name], np.zeros(times.shape)
        if nature.responses and self.panel.future is not None:
            numbers = self.numbers_at(name, times.ravel())
            # Not a matrix product, which rounds a step by the number of steps beside it.
            responses = (numbers * np.array(nature.responses)).sum(1).reshape(times.shape)
        if nature.counts:
            return np.clip(1 + responses, _LEAST_FACTOR, np.exp(_MOST_LOGARITHM))
        calendar = effects_on(nature.effects, times, nature.rhythm)
        if nature.logarithmic:
            return np.exp(calendar + np.clip(responses, -_MOST_LOGARITHM, _MOST_LOGARITHM))
        return calendar + responses

    def numbers_at(
        self, name: str, times: Shaped[np.ndarray, " time"]
    ) -> Float[np.ndarray, "time column"]:
        """Return what is known in advance, less its mean up to the fit; 0 where it is unknown."""
        assert self.panel.future is not None
        centre = np.array(self.known.scales[name], float).reshape(-1, 2)[:, 0]
        return np.nan_to_num(self.panel.future.at(name, times) - centre, nan=0.0)


def learn_effects(rows: KnownRows) -> KnownPriors:
    """Return what the series of a panel have in common, each without what the other explains."""
    histories = _histories(rows)
    responses = learn_responses(list(histories.values()))
    if rows.panel.times.dtype.kind != "M":
        return KnownPriors(responses)
    rows = _with_responses(rows, responses, histories)
    return KnownPriors(responses, calendar_of([*rows.natures.values()], rows.without_effects()))


def calendar_of(natures: Sequence[Nature], rows: Sequence[tuple[Row, np.ndarray]]) -> CalendarPrior:
    """Return what the series of a panel have in common; ``rows``: their values and times.

    Only those of the most frequent rhythm have effects. Series that are too short to learn from do
    not count.
    """
    alike: dict[str, list[tuple[Row, np.ndarray]]] = defaultdict(list)
    for nature, (values, times) in zip(natures, rows, strict=True):
        if nature.may_have_effects:
            alike[nature.rhythm].append((nature.as_features(values), times))
    counts = {
        rhythm: sum(len(values) >= RHYTHMS[rhythm].fewest for values, _ in some)
        for rhythm, some in alike.items()
    }
    rhythm = max(counts, key=lambda one: (counts[one], one), default="")
    return learn_calendar(alike[rhythm], rhythm) if counts.get(rhythm) else NO_EFFECTS


def with_known_effects(rows: KnownRows, shared: KnownPriors) -> KnownRows:
    """Return the rows of series with their own responses and effects of the calendar.

    ``shared``: from :func:`learn_effects`
    """
    # What was learned from fewer rows must not be missing in the rows that are learned from now.
    natures = {
        name: dataclasses.replace(nature, effects=(), responses=())
        for name, nature in rows.natures.items()
    }
    rows = rows._replace(natures=natures)
    if shared.responses.mean:
        rows = _with_responses(rows, shared.responses, _histories(rows))
    if not shared.calendar.groups:
        return rows
    made = dict(rows.natures)
    for (name, nature), (values, times) in zip(
        rows.natures.items(), rows.without_effects(), strict=True
    ):
        if nature.may_have_effects and nature.rhythm == shared.calendar.rhythm:
            effects = effects_of(shared.calendar, nature.as_features(values), times)
            made[name] = dataclasses.replace(nature, effects=effects)
    return rows._replace(natures=made)


def add_effects_ahead(
    rows: KnownRows,
    histories: Histories,
    base: Ahead,
    scale: Ahead,
    parts: Parts | None = None,
) -> None:
    """Add what is known of the times ahead to base and scale of all series, in place.

    The variance of counts grows as their mean does. ``parts``: where this is kept, too
    """
    panel = rows.panel
    for row, (name, nature) in enumerate(rows.natures.items()):
        if not (nature.effects or nature.responses):
            continue
        steps = slice(histories.first[row], None)
        times = panel.times[histories.positions[row, steps]]
        ahead = times_after_rows(times, base.shape[-1], panel.frequency)
        effects = rows.effects_at(name, ahead)
        widened = np.sqrt(effects) if nature.counts else effects
        if parts is not None:
            at = np.maximum(parts.origins[row] - histories.first[row], 0)
            of_dates = dataclasses.replace(nature, responses=())
            dates = rows._replace(natures={name: of_dates}).effects_at(name, ahead[at])
            nothing, whole = (1.0, base[row, steps][at]) if nature.multiplies else (0.0, 1.0)
            parts.put(parts.base, "calendar", row, whole * (dates - nothing), 0.0)
            parts.put(parts.base, "covariates", row, whole * (effects[at] - dates), 0.0)
            if nature.multiplies:
                parts.put(parts.scale, "calendar and covariates", row, widened[at], 1.0)
        if nature.multiplies:
            base[row, steps] *= effects
            scale[row, steps] *= widened
        else:
            base[row, steps] += effects


def _histories(rows: KnownRows) -> dict[str, History]:
    """Return the histories of the series that may respond to covariates."""
    made: dict[str, History] = {}
    if rows.panel.future is None or not rows.known.future:
        return made
    for name, nature, values, times in rows.each():
        if nature.sparse and not nature.counts:
            continue
        z, steps = nature.without_gaps(nature.as_features(values), times)
        filled = [nature.without_gaps(own, times)[0] for own in rows.numbers_at(name, times).T]
        there = np.zeros(len(z), bool)
        there[steps] = True
        level = 1.0 if nature.logarithmic or not len(z) else float(np.abs(values).mean())
        season = nature.seasons[0] if nature.seasons else 1
        made[name] = History(z, np.stack(filled, axis=1), there, season, level, nature.counts)
    return made


def _with_responses(
    rows: KnownRows, prior: ResponsePrior, histories: Mapping[str, History]
) -> KnownRows:
    made = dict(rows.natures)
    for name, history in histories.items():
        made[name] = dataclasses.replace(made[name], responses=responses_of(prior, history))
    return rows._replace(natures=made)
