"""The properties of a series that its forecasts rest on, found when it is fitted."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.calendar.gaps import open_slots, regular_spacing, without_gaps
from forecaster.series.calendar.rhythms import RHYTHMS, rhythm_of
from forecaster.series.calendar.seasons import seasons_of
from forecaster.series.combination.counts import are_counts, may_be_counts, vary_as_counts
from forecaster.series.combination.experts import NO_EXPERTS, Experts
from forecaster.series.combination.young import SeasonPrior, checked_profile, steps_of
from forecaster.series.known.effects import (
    NO_EFFECTS,
    CalendarPrior,
    checked_effects,
    effects_of,
    effects_on,
    learn_calendar,
)
from forecaster.series.panel.panel import Panel

_FEWEST = 8  # series from which common seasons are learned
_CLEAR = 20  # cycles in which a series clearly shows a season of its own
# A common season needs this share of all series, and this share of the series with any season.
_VOTES, _MAJORITY = 0.2, 0.5
_OF_PROFILE = (("profile", ()), ("unsure", ()), ("noise", 0.0))  # fields, and what stands for none
_SHORT = 24  # rows up to which changes do not say whether a series varies as counts do


@dataclasses.dataclass(frozen=True)
class Nature:
    """Properties of one series, found when it was fitted.

    - ``logarithmic``: whether networks see its logarithm
    - ``seasons``: the steps in each season, shortest first; empty where it has none
    - ``spacing``: the spacing at which rows are expected, see :func:`regular_spacing`
    - ``open``: the slots of the week in which they are, see :func:`open_slots`
    - ``experts``: classical models, fitted on its first rows
    - ``effects``: effects of the calendar, by column of special steps; empty where there are none
    - ``responses``: how it responds to a change of each future covariate by 1, in the units that
      networks see, or of counts as a share of their mean; empty where it does not
    - ``rhythm``: one of :data:`RHYTHMS`; empty if its rows follow none of them
    - ``nonnegative``: whether it has zeros but nothing below, as counts do; then no forecast lies
      below zero
    - ``profile``, ``unsure``: of a young series, the effect of each phase of its season and its
      standard deviation, in the units that networks see; empty for others, see
      :mod:`forecaster.series.combination.young`
    - ``noise``: of a young series, the standard deviation of its errors one step ahead, were its
      profile known, in the units that networks see
    - ``sparse``: whether more than half of its values are zero, so that zero is its median
    - ``counts``: whether its values are small whole numbers, and a distribution of counts is
      forecast
    """

    logarithmic: bool = False
    seasons: tuple[int, ...] = ()
    spacing: float = 0.0
    experts: Experts = NO_EXPERTS
    nonnegative: bool = False
    sparse: bool = False
    counts: bool = False
    effects: tuple[float, ...] = ()
    rhythm: str = ""
    open: tuple[int, ...] = ()
    responses: tuple[float, ...] = ()
    profile: tuple[float, ...] = ()
    unsure: tuple[float, ...] = ()
    noise: float = 0.0

    @staticmethod
    def of(times: np.ndarray, values: np.ndarray, seasons: Sequence[int] | None) -> "Nature":
        """Find the properties of one series; ``seasons``: given by the user, or None to find."""
        counts = are_counts(values)
        logarithmic = bool((values > 0).all()) and not counts
        z = np.log(values) if logarithmic else values
        found = tuple(seasons_of(times, z) if seasons is None else seasons)
        zeros = not logarithmic and bool((values >= 0).all())
        sparse = zeros and bool((values == 0).mean() > 0.5)
        return Nature(
            logarithmic, found, regular_spacing(times),
            nonnegative=zeros, sparse=sparse, counts=counts, rhythm=rhythm_of(times),
            open=open_slots(times),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "experts": self.experts.to_json()}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Nature":
        """Read what :meth:`to_json` returned, also in older versions.

        Raises KeyError, TypeError or ValueError for anything else.
        """
        experts, rhythm = fields.get("experts"), fields.get("rhythm", "")
        if type(rhythm) is not str or (rhythm and rhythm not in RHYTHMS):
            raise ValueError(f"transform: natures: rhythm: {rhythm!r:.50} is not known")
        logarithmic = bool(fields["logarithmic"])
        return Nature(
            logarithmic,
            tuple(map(int, fields["seasons"])),
            float(fields.get("spacing", 0.0)),
            Experts() if experts is None else Experts.from_json(experts),
            bool(fields.get("nonnegative", False)),
            bool(fields.get("sparse", False)),
            bool(fields.get("counts", False)),
            checked_effects(fields.get("effects", ()), rhythm),
            rhythm,
            tuple(map(int, fields.get("open", ()))),
            tuple(map(float, fields.get("responses", ()))),
            *checked_profile(
                *(fields.get(name, none) for name, none in _OF_PROFILE), logarithmic=logarithmic
            ),
        )

    @property
    def own_seasons(self) -> tuple[int, ...]:
        """The steps in each season that its own rows show, beside effects known in advance."""
        return () if self.profile else self.seasons

    @property
    def kind(self) -> tuple[object, ...]:
        """The properties that series share which are combined together."""
        learned = self.experts.learned > 0
        return self.own_seasons, self.sparse, self.nonnegative, self.counts, learned

    @property
    def has_effects(self) -> bool:
        """Whether something is known of it in advance."""
        return bool(self.effects or self.responses or self.profile)

    def may_have_effects(self, rhythm: str) -> bool:
        """Return whether it is a series of such a rhythm, of numbers that are not counts."""
        return rhythm != "" and self.rhythm == rhythm and not (self.counts or self.sparse)

    def effects_on(self, times: np.ndarray) -> np.ndarray:
        """Return the effects of the calendar at some times, in the units that networks see."""
        made = effects_on(self.effects, times, self.rhythm)
        return made + self._by_phase(self.profile, times) if self.profile else made

    def unsure_on(self, times: np.ndarray) -> np.ndarray:
        """Return the standard deviation of these effects that a young series has."""
        return self._by_phase(self.unsure, times) if self.profile else np.zeros(times.shape)

    def _by_phase(self, values: tuple[float, ...], times: np.ndarray) -> np.ndarray:
        return np.array(values)[steps_of(times, self.rhythm, self.spacing) % len(values)]

    def without_gaps(
        self, values: Float[np.ndarray, " row"], times: np.ndarray
    ) -> tuple[Float[np.ndarray, " step"], Int[np.ndarray, " row"]]:
        """Return the values with missing rows filled, and the steps of the rows there."""
        season = self.seasons[0] if self.seasons else 1
        return without_gaps(values, times, self.spacing, season, self.open)

    def as_features(self, values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return values in the units that networks see; NaN where there is no logarithm."""
        if not self.logarithmic:
            return values
        return np.log(np.where(values > 0, values, np.nan))


def check_profiles(natures: Iterable[Nature], prior: SeasonPrior) -> None:
    """Raise ValueError unless all profiles are of the season that the series of a panel share."""
    for one in natures:
        alike = one.seasons == (prior.season,) and one.rhythm == prior.rhythm
        alike = alike and (bool(one.rhythm) or one.spacing == prior.spacing)
        if one.profile and not (alike and len(one.profile) == prior.season):
            raise ValueError(
                f"transform: profile: expected the season of {prior.season} steps that series "
                f"share; got {len(one.profile)}"
            )


def natures_of(panel: Panel, seasons: Sequence[int] | None) -> dict[str, Nature]:
    """Return the :class:`Nature` of each series of a panel, by name, without classical models.

    ``seasons``: given by the user, or None to find
    """
    return {
        name: Nature.of(times, values, seasons)
        for name, (values, times) in zip(panel.ids, panel.rows(), strict=True)
    }


def as_usual(
    natures: Mapping[str, Nature], panel: Panel, common: Sequence[int], *, counts: bool
) -> dict[str, Nature]:
    """Return the properties of series, with those that most of a panel have where fitting.

    - ``natures``: of the series of ``panel``
    - ``common``: from :func:`common_seasons`
    - ``counts``: from :func:`usually_counts`
    """
    made: dict[str, Nature] = {}
    for name, (values, _) in zip(panel.ids, panel.rows(), strict=True):
        made[name] = with_common(natures[name], common, len(values))
        if counts and may_be_counts(values) and (len(values) <= _SHORT or vary_as_counts(values)):
            made[name] = dataclasses.replace(
                made[name], counts=True, nonnegative=True, logarithmic=False
            )
    return made


def calendar_of(
    natures: Sequence[Nature], rows: Sequence[tuple[Float[np.ndarray, " row"], np.ndarray]]
) -> CalendarPrior:
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


def with_effects(
    natures: Mapping[str, Nature],
    calendar: CalendarPrior,
    rows: Sequence[tuple[Float[np.ndarray, " row"], np.ndarray]],
) -> dict[str, Nature]:
    """Return the properties of series with the effects that the calendar has on each.

    ``rows``: the values and times of each
    """
    alike = {
        name: (nature.as_features(values), times)
        for (name, nature), (values, times) in zip(natures.items(), rows, strict=True)
        if nature.may_have_effects(calendar.rhythm)
    }
    values, times = ([own[part] for own in alike.values()] for part in (0, 1))
    found = dict(zip(alike, effects_of(calendar, values, times), strict=True))
    return {
        name: dataclasses.replace(nature, effects=found[name]) if name in found else nature
        for name, nature in natures.items()
    }


def common_seasons(natures: Mapping[str, Nature]) -> tuple[int, ...]:
    """Return the seasons shared by most of the series that have a season; empty for none.

    A short series may not show the season that its neighbours have.
    """
    found = Counter(nature.seasons for nature in natures.values() if nature.seasons)
    if not found:
        return ()
    seasons, count = min(found.items(), key=lambda item: (-item[1], item[0]))
    often = count >= _MAJORITY * found.total() and count >= _VOTES * len(natures)
    return seasons if often and len(natures) >= _FEWEST else ()


def usually_counts(natures: Mapping[str, Nature]) -> bool:
    """Return whether at least half of the series of a panel are counts.

    Then a series of small whole numbers is taken for counts, too, if it is short or varies as
    counts do: it may just have had no zero yet.
    """
    counts = sum(nature.counts for nature in natures.values())
    return len(natures) >= _FEWEST and counts >= _MAJORITY * len(natures)


def with_common(nature: Nature, common: Sequence[int], rows: int) -> Nature:
    """Return the properties of a series with common seasons, unless it clearly shows its own.

    ``rows``: the number of its rows; seasons found in few cycles are less certain than common ones
    """
    own = set(nature.seasons)
    clear = bool(own) and rows >= _CLEAR * max(own)
    if not common or clear or set(common) <= own:
        return nature
    return dataclasses.replace(nature, seasons=tuple(common))
