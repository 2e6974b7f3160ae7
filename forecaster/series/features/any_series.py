"""The transforms that take any series, also short or constant ones: not those of prices.

``combined`` counts the future from a blend of components, and ``last_value`` from the last value,
where prices have too few rows for networks.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.series.causal import change_features, decayed_mean, shift
from forecaster.series.combination.blend import FEATURES, features_of
from forecaster.series.combination.components import CLASSICAL, Name, Row, Seasons, fit_components
from forecaster.series.combination.counts import count_forecasts
from forecaster.series.combination.learning import (
    NOTHING,
    Blending,
    combine,
    judged_blends,
    kinds_of,
    learn,
    usual_blends,
)
from forecaster.series.combination.nature import (
    Nature,
    as_usual,
    common_seasons,
    usually_counts,
)
from forecaster.series.features.known_effects import (
    NOTHING_KNOWN,
    Rows,
    Shared,
    add_effects_ahead,
    learn_effects,
    rows_without_effects,
    with_known_effects,
    without_effects,
)
from forecaster.series.features.last_value import (
    learned_unit,
    unit_of_prices,
    usual_changes,
    walk_scale,
)
from forecaster.series.features.transformed import Transformed, stacked
from forecaster.series.features.transforms import (
    FIRST_CHANGES,
    NAMES,
    Learned,
    Transform,
    check_parts,
    walk,
)
from forecaster.series.features.usable import UsableRows
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel


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
    known: Shared = NOTHING_KNOWN
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
    alone: Name | None = None
    learned: LearnedOfAny = LearnedOfAny()

    names: ClassVar[tuple[str, ...]] = NAMES[2:]
    takes_any: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alone is not None and (self.alone not in CLASSICAL or self.name != "combined"):
            raise ValueError(f"transform: {self.name} of the classical model {self.alone!r}")

    def as_usual_of(self, panel: Panel) -> Self:
        """Return the transform with the change from row to row that is usual of prices."""
        of_prices = self.name == "last_value" and panel.target != "y"
        return self.with_learned(unit=unit_of_prices(panel)) if of_prices else self

    def with_series(self, panel: Panel, season: int | Sequence[int] | None) -> Self:
        """Return the transform with further series; ``season``: steps in one, or in several."""
        given = (season,) if isinstance(season, int) else season
        given = given if self.name == "combined" else ()
        made = {
            name: Nature.of(times, values, given)
            for name, (values, times) in zip(panel.ids, panel.rows(), strict=True)
        }
        shared = self.learned
        made = as_usual(made, panel, shared.common_seasons, counts=shared.usually_counts)
        return super().with_series(panel, season)._with_natures(made)

    def learned_from(
        self,
        panel: Panel,
        horizon: int,
        held_back: Int[np.ndarray, " series"] | None = None,
    ) -> Self:
        """Return the transform with what the series of a panel share, learned from their past.

        For the combination these are blends, and effects known in advance. Where times are whole
        numbers, series also take the seasons that most others have. ``held_back`` is not used.
        """
        natures = {name: self._nature(name) for name in panel.ids}
        if self.name == "last_value":
            usual = self.learned.unit if panel.target == "y" else unit_of_prices(panel)
            return self.with_learned(unit=learned_unit(panel, natures, usual))
        common = common_seasons(natures) if panel.frequency.alias == "step" else ()
        counts = self.alone is None and usually_counts(natures)
        natures = as_usual(natures, panel, common, counts=counts)
        made = self._with_natures(natures)
        made = made.with_learned(common_seasons=common, usually_counts=counts)
        if self.alone is None:
            panel = made.seen(panel)
            known = learn_effects(Rows(panel, natures, self.covariates))
            made = made.with_learned(known=known)
            natures = made._with_effects(panel)
        rows = rows_without_effects(Rows(panel, natures, self.covariates))
        return made.with_learned(blending=learn(rows, list(natures.values()), horizon, self.alone))

    def with_components(
        self, panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"] | None = None
    ) -> Self:
        """Return the transform with components fitted to the series of a panel.

        ``held_back``: the number of latest rows of each series that they are not fitted on, and
        that their blend is learned from; None: the blend is known
        """
        if self.name != "combined":
            return self
        panel = self.seen(panel)
        natures = self._with_effects(panel, held_back)
        known, alone = list(natures.values()), self.alone is not None
        rows = rows_without_effects(Rows(panel, natures, self.covariates))
        first = rows_without_effects(Rows(panel, natures, self.covariates, held_back))
        kinds = kinds_of(rows, known, self.alone, [len(row) for row in first])
        shared = self.learned.blending
        if held_back is None:
            fitted = fit_components(rows, kinds, dict(shared.pools), horizon, alone=alone)
            usual = usual_blends(rows, known, fitted, shared)
            blends = [one.blend or its for one, its in zip(known, usual, strict=True)]
            shared = shared._replace(early=())
        else:
            pools = dict(shared.early or shared.pools)
            fitted = fit_components(first, kinds, pools, horizon, alone=alone)
            blends = judged_blends(rows, known, fitted, horizon, shared)
        made = {
            name: dataclasses.replace(nature, components=one, blend=blend)
            for (name, nature), one, blend in zip(natures.items(), fitted, blends, strict=True)
        }
        return self._with_natures(made).with_learned(blending=shared)

    def _with_natures(self, natures: Mapping[str, Nature]) -> Self:
        """Return the transform with some series added, or changed."""
        return dataclasses.replace(self, natures={**self.natures, **natures})

    def _with_effects(
        self, panel: Panel, held_back: Int[np.ndarray, " series"] | None = None
    ) -> dict[str, Nature]:
        """Return the properties of each series with what is known in advance of it."""
        natures = {name: self._nature(name) for name in panel.ids}
        rows = Rows(panel, natures, self.covariates, held_back)
        return with_known_effects(rows, self.learned.known)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        blending = self.learned.blending._replace(early=())
        return Transform.to_dict(self.with_learned(blending=blending))

    def check(self, horizon: int) -> None:
        """Raise ValueError unless all parts fit together, as they may not in a file."""
        super().check(horizon)
        shared, columns = self.learned, len(self.covariates.future)
        check_parts(
            calendar=shared.known.calendar.fits(),
            responses=shared.known.responses.fits(columns),
            blending=shared.blending.fits(horizon),
        )
        for name, nature in self.natures.items():
            nature.check(name, horizon, columns)

    def feature_count(self, horizon: int) -> int:
        """Return the number of features of each step."""
        return (FEATURES if self.name == "combined" else 4) + self.covariates.count(horizon)

    def logarithmic(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return for each series whether networks see its logarithm."""
        last_value = self.name == "last_value"
        return np.array([last_value and self._nature(name).logarithmic for name in ids], bool)

    def stands_alone(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return for each series whether it has the classical model that forecasts alone."""
        alone = self.alone
        return np.array(
            [alone is not None and self._nature(name).components.has(alone) for name in ids], bool
        )

    @property
    def natures_are_alike(self) -> bool:
        """Whether most series of the panel have seasons in common, or are counts."""
        return bool(self.learned.common_seasons or self.learned.usually_counts)

    def usual_responses(self) -> tuple[float, ...]:
        """Return the mean effect of a change of each future covariate by 1, as a share."""
        return self.learned.known.responses.per_unit(
            [nature.logarithmic for nature in self.natures.values()]
        )

    def rows_to_forecast(self, horizon: int) -> int:
        """Return the fewest rows of a series with a base and a scale for each step ahead."""
        return horizon + 1 if self.name == "combined" else 1

    def usable_rows(self, panel: Panel) -> UsableRows:
        """Return which rows of a panel can be transformed."""
        of_prices = panel.target != "y" and self.name == "last_value"
        positive = np.array([self._nature(name).logarithmic for name in panel.ids], bool)
        return UsableRows(panel, self.logarithmic(panel.ids), True, of_prices, positive)

    def counted(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return which series are counts."""
        combined = self.name == "combined"
        return np.array([combined and self._nature(name).counts for name in ids], bool)

    def basic_seasons(self, ids: Sequence[str]) -> Int[np.ndarray, " series"]:
        """Return the steps in the shortest season of each series; 0 for none."""
        return np.array([min(self._nature(name).seasons, default=0) for name in ids], int)

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
        natures = [self._nature(name) for name in ids]
        return np.where([one.nonnegative or one.logarithmic for one in natures], 0.0, -np.inf)

    def applied(self, panel: Panel, histories: Histories, horizon: int) -> Transformed:
        """Transform histories; see :meth:`apply`."""
        z = histories.channel(panel.target)
        if self.name == "combined":
            return self._combined(panel, histories, z, horizon)
        logarithmic = self.logarithmic(panel.ids)
        z = np.where(logarithmic[:, None], np.log(np.where(z > 0, z, np.nan)), z)
        change = z - shift(z, 1)
        features, _ = change_features(change, 1e-12 + 1e-8 * decayed_mean(z**2, 0.999))
        scale = walk_scale(change, usual_changes(z, logarithmic, self.learned.unit))
        made = walk(z, scale, features, histories, horizon, logarithmic)
        return dataclasses.replace(made, least=self._least(panel.ids))

    def _combined(
        self, panel: Panel, histories: Histories, z: np.ndarray, horizon: int
    ) -> Transformed:
        """Transform histories of values ``z`` whose base is the blend of components."""
        series, steps = z.shape
        base, scale = (np.full((series, steps, horizon), np.nan) for _ in range(2))
        features = np.full((series, steps, FEATURES), np.nan)
        natures = [self._nature(name) for name in panel.ids]
        rows: list[Row] = []
        there: list[np.ndarray] = []
        for row, (name, nature) in enumerate(zip(panel.ids, natures, strict=True)):
            begin = histories.first[row]
            times = panel.times[histories.positions[row, begin:]]
            own = without_effects(panel, nature, self.covariates, name, z[row, begin:], times)
            filled, steps_there = nature.without_gaps(own / nature.unit, times)
            rows.append(filled)
            there.append(steps_there)
        components = [nature.components for nature in natures]
        usual = usual_blends(rows, natures, components, self.learned.blending)
        blends = [nature.blend or its for nature, its in zip(natures, usual, strict=True)]
        for row, blend in enumerate(combine(rows, natures, components, blends, horizon)):
            own = self._of_nature(rows[row], natures[row], *blend)
            for whole, part in zip((base, scale, features), own, strict=True):
                whole[row, histories.first[row] :] = part[there[row]]
        unit = np.array([nature.unit for nature in natures])[:, None, None]
        base, scale = base * unit, scale * unit
        add_effects_ahead(panel, natures, self.covariates, histories, (base, scale))
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

    def _of_nature(
        self, z: Row, nature: Nature, base: np.ndarray, scale: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return base, scale and features of a series: counts are mean and deviation."""
        if nature.counts:
            base, scale = count_forecasts(z, base, self.learned.blending.counts)
        elif nature.nonnegative or nature.logarithmic:
            base = np.maximum(base, 0.0)
        return base, scale, features_of(z, nature.seasons, base, scale)
