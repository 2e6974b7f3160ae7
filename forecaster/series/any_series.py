"""The transforms that take any series, also short or constant ones: not those of prices.

``combined`` counts the future from a blend of components, and ``last_value`` from the last value.
The latter is the transform of prices where no stock has rows enough for networks. In ten or twenty
rows, the trends that a combination of methods would follow are mostly chance. The width of a band
comes from the variance of a series' own changes, shrunk to that of its panel, and the panel's to
what is usual of stocks. Each of the two priors counts for ten changes. This weight was chosen on
stocks of 2013 to 2018, cut to 1 to 33 days; on others of 2000 to 2015 it is within 1 % of the best
one, by the mean logarithm of the density at the outcome.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.errors import Kind, Skipped
from forecaster.series.calendar.inferring import own_frequency
from forecaster.series.causal import change_features, decayed_mean, shift, shrunk_to_usual
from forecaster.series.combination.blend import FEATURES, KeptBlend, combine, features_of
from forecaster.series.combination.components import Seasons
from forecaster.series.combination.counts import count_forecasts
from forecaster.series.combination.learning import (
    NOTHING,
    Blending,
    fitted,
    kinds_of,
    learn,
    with_blends,
    with_judged_blends,
)
from forecaster.series.combination.nature import Nature, as_usual, common_seasons, usually_counts
from forecaster.series.known_rows import (
    NOTHING_KNOWN,
    KnownPriors,
    KnownRows,
    add_effects_ahead,
    learn_effects,
    with_known_effects,
)
from forecaster.series.limits import CLASSICAL
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.parts import Parts
from forecaster.series.transforms import (
    FIRST_CHANGES,
    NAMES,
    Learned,
    Transform,
    Transformed,
    named,
    stacked,
    walk,
)

_LARGEST = 1e150  # largest value; its square does not overflow
_FARTHEST = 80  # orders of magnitude between two values of which only the ratio counts
_PRIOR = 10.0  # weight of the usual change, in changes
_DECAYS = (0.94, 0.985)  # volatility of about a month and a quarter, as of the other transforms
_VOLATILITY = 0.32  # of a stock in a year; the medians of two markets' decades are 0.23 and 0.37
_SESSIONS = 252  # sessions in a year, where times are whole numbers
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days


@dataclasses.dataclass(frozen=True)
class LearnedOfAny(Learned):
    """What the series of a panel share, beside their networks.

    - ``common_seasons``: for series whose times are whole numbers and that do not clearly show a
      season of their own
    - ``usually_counts``: whether half of the series are counts, see :func:`usually_counts`
    - ``unit``: the usual change from one row to the next in units of a series' level, for series
      that have hardly any rows; by default wide
    - ``known``: the effects of the calendar and the responses to covariates
    - ``blending``: what components and blends share
    """

    common_seasons: Seasons = ()
    usually_counts: bool = False
    unit: Annotated[float, Meta(ge=0, lt=1e6)] = 0.2
    known: KnownPriors = NOTHING_KNOWN
    blending: Blending = NOTHING


@dataclasses.dataclass(frozen=True)
class AnySeries(Transform):
    """A transform that takes any series.

    - ``natures``: properties of each series by name; fixed at the fit, so that later rows do not
      change the features
    - ``alone``: the classical model that forecasts alone, of :data:`CLASSICAL`; None: all
      components are blended
    """

    natures: Mapping[str, Nature] = dataclasses.field(default_factory=dict[str, Nature])
    alone: str | None = None
    learned: LearnedOfAny = LearnedOfAny()

    names: ClassVar[tuple[str, ...]] = NAMES[2:]
    takes_any: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alone is not None and (self.alone not in CLASSICAL or self.name != "combined"):
            raise ValueError(f"transform: {self.name} of the classical model {self.alone!r}")

    def with_series(self, panel: Panel, season: int | Sequence[int] | None) -> Self:
        """Return the transform with further series; ``season``: steps in one, or in several."""
        given = (season,) if isinstance(season, int) else season
        given = given if self.name == "combined" else ()
        made = {
            name: Nature.from_rows(times, values, own_frequency(times, panel.frequency), given)
            for name, (values, times) in zip(panel.ids, panel.rows(), strict=True)
        }
        shared = self.learned
        made = as_usual(made, panel, shared.common_seasons, counts=shared.usually_counts)
        return super().with_series(panel, season)._with_natures(made)

    def learned_from(
        self, panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"] | None = None
    ) -> Self:
        """Return the transform with what the series of a panel share, learned from their past.

        For the combination these are blends, and effects known in advance. Where times are whole
        numbers, series also take the seasons that most others have. ``held_back`` is not used.
        """
        natures = self._rows(panel).natures
        if self.name == "last_value":
            usual = self.learned.unit if panel.target == "y" else unit_of_prices(panel)
            return self.with_learned(unit=learned_unit(panel, natures, usual))
        common = common_seasons(natures) if panel.frequency.alias == "step" else ()
        counts = self.alone is None and usually_counts(natures)
        natures = as_usual(natures, panel, common, counts=counts)
        made = self._with_natures(natures)
        made = made.with_learned(common_seasons=common, usually_counts=counts)
        every = made._rows(panel)
        if self.alone is None:
            every = made._rows(made.seen(panel))
            made = made.with_learned(known=learn_effects(every))
            every = with_known_effects(every, made.learned.known)
        rows = [row for row, _ in every.filled()]
        natures = list(every.natures.values())
        return made.with_learned(blending=learn(rows, natures, horizon, self.alone))

    def with_components(
        self, panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"] | None = None
    ) -> Self:
        """Return the transform with components fitted to the series of a panel.

        ``held_back``: the number of latest rows of each series that they are not fitted on, and
        that their blend is learned from; None: the blend is known
        """
        if self.name != "combined":
            return self
        early = self._rows(self.seen(panel))._replace(held_back=held_back)
        early = with_known_effects(early, self.learned.known)
        rows = [row for row, _ in early._replace(held_back=None).filled()]
        first = [row for row, _ in early.filled()]
        known = list(early.natures.values())
        kinds = kinds_of(rows, known, self.alone, [len(row) for row in first])
        shared = self.learned.blending
        if held_back is None:
            made = with_blends(rows, fitted(rows, known, kinds, shared.pools, horizon), shared)
            shared = shared._replace(early=())
        else:
            made = fitted(first, known, kinds, shared.early or shared.pools, horizon)
            made = with_judged_blends(rows, made, horizon, shared)
        made = dict(zip(panel.ids, made, strict=True))
        return self._with_natures(made).with_learned(blending=shared)

    def _with_natures(self, natures: Mapping[str, Nature]) -> Self:
        """Return the transform with some series added, or changed."""
        return dataclasses.replace(self, natures={**self.natures, **natures})

    def _rows(self, panel: Panel) -> KnownRows:
        """Return the rows of a panel, with the properties of its series."""
        return KnownRows(panel, {n: self._nature(n) for n in panel.ids}, self.covariates)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        blending = self.learned.blending._replace(early=())
        return Transform.to_dict(self.with_learned(blending=blending))

    def sound(self, horizon: int) -> dict[str, bool]:
        """Return which parts fit the rest; raise ValueError for a series whose own do not."""
        shared, columns = self.learned, len(self.covariates.future)
        for name, nature in self.natures.items():
            nature.check(name, horizon, columns)
        return super().sound(horizon) | {
            "calendar": shared.known.calendar.fits(),
            "responses": shared.known.responses.fits(columns),
            "blending": shared.blending.fits(horizon),
        }

    def feature_count(self, horizon: int) -> int:
        """Return the number of features of each step."""
        return (FEATURES if self.name == "combined" else 4) + self.covariates.count(horizon)

    @property
    def natures_are_alike(self) -> bool:
        """Whether most series of the panel have seasons in common, or are counts."""
        return bool(self.learned.common_seasons or self.learned.usually_counts)

    def usual_responses(self) -> tuple[float, ...]:
        """Return the mean effect of a change of each future covariate by 1, as a share."""
        return self.learned.known.responses.per_unit(
            [nature.logarithmic for nature in self.natures.values()]
        )

    def seen(self, panel: Panel) -> Panel:
        """Return the panel without dips, and with the kinds of events that the fit knows."""
        panel = super().seen(panel)
        dips = [row for row, name in enumerate(panel.ids) if self._nature(name).dip]
        if self.name != "combined" or not dips:
            return panel
        values, channel = panel.values.copy(), panel.channels.index(panel.target)
        for row in dips:
            there, nature = panel.mask[row], self._nature(panel.ids[row])
            own = nature.without_dip(values[row, there, channel], panel.times[there])
            values[row, there, channel] = own
        return dataclasses.replace(panel, values=values)

    def _nature(self, name: str) -> Nature:
        return self.natures.get(name, Nature())

    def _least(self, ids: Sequence[str]) -> Float[np.ndarray, " series"]:
        """Return the value that no forecast of each series lies below."""
        natures = map(self._nature, ids)  # those always above zero are called logarithmic
        return np.where([one.nonnegative or one.logarithmic for one in natures], 0.0, -np.inf)

    def reasons(self, panel: Panel) -> dict[str, Skipped]:
        """Return the series of a panel that cannot be transformed, with the reason."""
        prices = panel.target != "y" and self.name == "last_value"
        no_logarithm = panel.mask & ~(panel.channel(panel.target) > 0)
        no_logarithm &= (self.logarithmic(panel.ids) | prices)[:, None]
        kind = Kind.NOT_POSITIVE if prices else Kind.NO_LONGER_POSITIVE
        far = named(panel, self._far(panel), Kind.TOO_FAR_APART)
        return far | named(panel, no_logarithm, kind)

    def unusable(self, panel: Panel) -> Bool[np.ndarray, "series time"]:
        """Return the rows that no forecast can be made from, or from which on errors overflow."""
        return super().unusable(panel) | self._far(panel)

    def _far(self, panel: Panel) -> Bool[np.ndarray, "series time"]:
        """Return the rows from which on errors would overflow.

        Their value is too large, or too many orders of magnitude from an earlier one of a series of
        which only ratios count.
        """
        values = np.where(panel.mask, panel.channel(panel.target), np.nan)
        relative = self.of_natures(panel.ids, lambda nature: nature.logarithmic) > 0
        far = np.abs(values) > _LARGEST
        logs = np.log10(np.where(values > 0, values, np.nan)[relative])
        range_so_far = np.fmax.accumulate(logs, axis=1) - np.fmin.accumulate(logs, axis=1)
        far[relative] = range_so_far > _FARTHEST
        return far

    def applied(
        self, panel: Panel, histories: Histories, horizon: int, parts: Parts | None = None
    ) -> Transformed:
        """Transform histories; see :meth:`apply`."""
        z = histories.channel(panel.target)
        if self.name == "combined":
            return self._combined(panel, histories, z, horizon, parts)
        logarithmic = self.logarithmic(panel.ids)
        z = np.where(logarithmic[:, None], np.log(np.where(z > 0, z, np.nan)), z)
        change = z - shift(z, 1)
        features, _ = change_features(change, 1e-12 + 1e-8 * decayed_mean(z**2, 0.999))
        # The level is the largest value yet, so that a price at zero may move, too.
        level = np.fmax.accumulate(np.abs(z), axis=1)
        level = np.where(logarithmic[:, None] | ~(level > 0), 1.0, level)
        month, quarter = (decayed_mean(change**2, decay) for decay in _DECAYS)
        scale = shrunk_to_usual(
            np.sqrt((month + quarter) / 2), change, self.learned.unit * level, np.inf
        )
        made = walk(z, scale, features, histories, horizon, logarithmic)
        return dataclasses.replace(made, least=self._least(panel.ids))

    def _combined(
        self,
        panel: Panel,
        histories: Histories,
        z: np.ndarray,
        horizon: int,
        parts: Parts | None,
    ) -> Transformed:
        """Transform histories of values ``z`` whose base is the blend of components."""
        series, steps = z.shape
        base, scale = (np.full((series, steps, horizon), np.nan) for _ in range(2))
        features = np.full((series, steps, FEATURES), np.nan)
        every = self._rows(panel)
        filled = every.filled()
        rows = [row for row, _ in filled]
        natures = with_blends(rows, list(every.natures.values()), self.learned.blending)
        for row, made in enumerate(combine(rows, natures, horizon, keep=parts is not None)):
            nature, middle, width = natures[row], made.base, made.scale
            if nature.counts:  # mean and deviation
                middle, width = count_forecasts(rows[row], middle, self.learned.blending.counts)
            elif nature.nonnegative or nature.logarithmic:
                middle = np.maximum(middle, 0.0)
            if parts is not None:
                at = np.maximum(parts.origins[row] - histories.first[row], 0)
                its = KeptBlend(parts, row, rows[row], nature, filled[row][1][at])
                its.keep(made, middle, width)
            own = middle, width, features_of(rows[row], nature.seasons, middle, width)
            for whole, part in zip((base, scale, features), own, strict=True):
                whole[row, histories.first[row] :] = part[filled[row][1]]
        unit = np.array([nature.unit for nature in natures])[:, None, None]
        base, scale = base * unit, scale * unit
        add_effects_ahead(every, histories, base, scale, parts)
        first = histories.first + max(FIRST_CHANGES, horizon)  # when all errors are known
        return Transformed(
            features=stacked(np.moveaxis(features, -1, 0)),
            z=z,
            base=base,
            scale=scale,
            first=np.minimum(first, steps),
            positions=histories.positions,
            logarithmic=self.logarithmic(panel.ids),
            least=self._least(panel.ids),
            counted=self.counted(panel.ids),
            networks=0.5,
        )


def unit_of_prices(panel: Panel) -> float:
    """Return the usual change of a stock from one row of a panel to the next, as a share."""
    times = max((times for _, times in panel.rows()), key=len)
    if len(times) < 3 or times.dtype.kind != "M":
        return _VOLATILITY / _SESSIONS**0.5
    return float(_VOLATILITY * np.sqrt((times[-1] - times[0]) / _YEAR / (len(times) - 1)))


def learned_unit(panel: Panel, natures: Mapping[str, Nature], usual: float) -> float:
    """Return the usual change from one row to the next of a panel's series, in units of the level.

    Series move together, so all changes of a row count for one.

    ``usual``: the usual change of other panels, to which it is shrunk
    """
    squares: list[np.ndarray] = []
    for name, (values, _) in zip(panel.ids, panel.rows(), strict=True):
        if len(values) > 1 and values.any():
            with np.errstate(all="ignore"):  # of numbers that no double can hold
                changes = np.diff(natures[name].as_features(values))
                level = 1.0 if natures[name].logarithmic else np.abs(values).mean()
                squares.append(np.square(changes / level))
    known = [each for each in squares if np.isfinite(each).all()]
    if not known:
        return usual
    count = max(map(len, known))
    mean = float(np.concatenate(known).mean())
    return float(np.sqrt((count * mean + _PRIOR * usual**2) / (count + _PRIOR)))
