"""The properties of a series that its forecasts rest on, found when it is fitted."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from msgspec import structs

from forecaster.series.calendar.frequency import Frequency
from forecaster.series.calendar.rhythms import RHYTHMS, rhythm_of
from forecaster.series.calendar.spacing import fill, regular_rows, seasons_of, without_gaps
from forecaster.series.combination.components import NO_COMPONENTS, Blend, Components, Seasons
from forecaster.series.combination.counts import are_counts, may_be_counts, vary_as_counts
from forecaster.series.panel.panel import Panel

_FEWEST = 8  # series from which common seasons are learned
_CLEAR = 20  # cycles in which a series clearly shows a season of its own
# A common season needs this share of all series, and this share of the series with any season.
_VOTES, _MAJORITY = 0.2, 0.5
_FAR = 1e100  # values beyond it, or below its inverse, are computed in another unit
_LOW = 0.5  # of the median of the same phase: a dip
_FEWEST_CYCLES = 4  # one of which may be a dip
_SHORT = 24  # rows up to which changes do not say whether a series varies as counts do


@dataclasses.dataclass(frozen=True)
class Nature:
    """Properties of one series, found when it was fitted.

    - ``logarithmic``: whether networks see its logarithm
    - ``seasons``: the steps in each season, shortest first; empty where it has none
    - ``spacing``: the spacing at which rows are expected, see :func:`regular_rows`
    - ``open``: the slots of the week in which they are, see :func:`regular_rows`
    - ``components``: fitted on its first rows
    - ``blend``: how they are blended
    - ``effects``: effects of the calendar, by column of special steps; empty where there are none
    - ``responses``: how it responds to a change of each future covariate by 1, in the units that
      networks see, or of counts as a share of their mean; empty where it does not
    - ``rhythm``: one of :data:`RHYTHMS`; empty if its rows follow none of them
    - ``nonnegative``: whether it has zeros but nothing below, as counts do; then no forecast lies
      below zero
    - ``unit``: a power of two that it is computed in, other than 1 where squares would overflow
    - ``sparse``: whether more than half of its values are zero, so that zero is its median
    - ``counts``: whether its values are small whole numbers, and a distribution of counts is
      forecast
    - ``dip``: the first and the last time of a dip, as :func:`in_seconds`; None where it has none
    """

    logarithmic: bool = False
    seasons: Seasons = ()
    spacing: float = 0.0
    components: Components = NO_COMPONENTS
    blend: Blend | None = None
    nonnegative: bool = False
    sparse: bool = False
    counts: bool = False
    effects: tuple[float, ...] = ()
    rhythm: str = ""
    open: tuple[int, ...] = ()
    responses: tuple[float, ...] = ()
    unit: float = 1.0
    dip: tuple[int, int] | None = None

    @staticmethod
    def from_rows(
        times: np.ndarray, values: np.ndarray, frequency: Frequency, seasons: Sequence[int] | None
    ) -> "Nature":
        """Find the properties of one series; ``seasons``: given by the user, or None to find."""
        counts = are_counts(values)
        logarithmic = bool((values > 0).all()) and not counts
        z = np.log(values) if logarithmic else values
        found = tuple(seasons_of(frequency, z) if seasons is None else seasons)
        zeros = not logarithmic and bool((values >= 0).all())
        sparse = zeros and bool((values == 0).mean() > 0.5)
        dip = None if sparse or counts else dip_of(values, found)
        spacing, slots = regular_rows(times, frequency)
        return Nature(
            logarithmic, found, spacing, nonnegative=zeros, sparse=sparse, counts=counts,
            rhythm=rhythm_of(frequency), open=slots, unit=_unit_of(values),
            dip=None if dip is None else tuple(in_seconds(times[dip[[0, -1]]]).tolist()),
        )  # fmt: skip

    def check(self, name: str, horizon: int, covariates: int) -> None:
        """Raise ValueError unless the properties fit together, as they may not in a file.

        - ``name``: of the series
        - ``covariates``: the number of future ones
        """
        special = RHYTHMS[self.rhythm].columns if self.rhythm in RHYTHMS else 0
        blend = self.blend
        for what, sound in {
            "rhythm": self.rhythm == "" or self.rhythm in RHYTHMS,
            "effects": len(self.effects) in (0, special),
            "responses": len(self.responses) in (0, covariates),
            "dip": self.dip is None or bool(self.seasons),
            "unit": self.unit > 0 and np.frexp(self.unit)[0] == 0.5,
            "components": self.components.fits(horizon),
            "blend": blend is None or len(blend.weights) == len(self.components.kind.names),
        }.items():
            if not sound:
                raise ValueError(
                    f"natures: {name!r:.50}: {what}: expected what fits the series; got "
                    f"{getattr(self, what)!r:.100}"
                )

    def by_component(self, name: str) -> "Nature | None":
        """Return the properties with a component as the whole blend; None where it is missing."""
        components, blend = self.components, self.blend
        if blend is None or name not in components.kind.names or not getattr(components, name, 1):
            return None
        alone = structs.replace(components, kind=components.kind._replace(names=(name,)))
        return dataclasses.replace(self, components=alone, blend=blend._replace(weights=(1.0,)))

    @property
    def multiplies(self) -> bool:
        """Whether what is known in advance multiplies it, as it does counts and levels above 0."""
        return self.logarithmic or self.counts

    @property
    def may_have_effects(self) -> bool:
        """Whether it is a series of some rhythm, of numbers that are not counts."""
        return self.rhythm != "" and not (self.counts or self.sparse)

    def without_dip(
        self, values: Float[np.ndarray, " row"], times: np.ndarray
    ) -> Float[np.ndarray, " row"]:
        """Return the values with those of a dip replaced by the values of the season before."""
        if self.dip is None or not len(values):
            return values
        seconds, (first, last) = in_seconds(times), self.dip
        rows = np.flatnonzero((seconds >= first) & (seconds <= last))
        if not len(rows):
            return values
        filled, steps = self.without_gaps(values, times)  # a season is a number of steps
        filled = filled.copy()
        filled[steps[rows[0]] : steps[rows[-1]] + 1] = np.nan
        fill(filled, max(self.seasons))
        return filled[steps]

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


def _unit_of(values: Float[np.ndarray, " row"]) -> float:
    """Return 1, or a power of two near values that are too large or too small to be squared."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or _FAR**-1 < largest < _FAR:
        return 1.0
    return 2.0 ** int(np.frexp(largest)[1] - 1)


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


def dip_of(
    values: Float[np.ndarray, " row"], seasons: Sequence[int]
) -> Int[np.ndarray, " row"] | None:
    """Return the rows of a dip; None where there is none, or more than one.

    It is one stretch of a season or more at less than half of the usual values, now over: a hall
    that was closed for a year, or flights in a pandemic, say little about the season of sound years
    and much too much about the size of errors. Its rows are replaced by those of the season before,
    for what is learned and for what is forecast from (as outliers are by ``tsclean``: Hyndman &
    Athanasopoulos 2021, Forecasting: Principles and Practice, section 13.9). Before it lie as many
    sound rows as it has, and after it those of a season.

    - ``values``: without gaps
    - ``seasons``: steps in each season; without one there is no usual value
    """
    season, rows = max(seasons, default=1), len(values)
    if season < 2 or rows < _FEWEST_CYCLES * season or not (values >= 0).all():
        return None
    cycles = np.full((-(-rows // season), season), np.nan)
    cycles.ravel()[:rows] = values
    usual = np.nanmedian(cycles, axis=0)
    low: Bool[np.ndarray, " row"] = (cycles < _LOW * usual).ravel()[:rows]
    edges = np.flatnonzero(np.diff(low, prepend=False, append=False)).reshape(-1, 2)
    long = edges[np.diff(edges)[:, 0] >= season]
    if len(long) != 1:
        return None
    begin, end = long[0].tolist()
    others = int(low.sum()) - (end - begin)
    sound = begin >= end - begin and rows - end >= season and others < season
    return np.arange(begin, end, dtype=np.int64) if sound else None


def in_seconds(times: Shaped[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Return times as whole numbers: dates as seconds."""
    return (times.astype("datetime64[s]") if times.dtype.kind == "M" else times).astype(np.int64)
