"""Transform series into features and targets of networks, and back, without looking ahead.

A transform makes three things for every step t of a history, each from the steps up to t alone:
features, a base from which the future is counted, and a scale. The target for horizon h is
``(z[t+h] - base[t, h]) / scale[t, h]`` with z the series (or its logarithm). The scale is an
exponentially weighted volatility (RiskMetrics Technical Document, J.P. Morgan, 1996), so that
targets are alike in calm and in volatile times, and a network that predicts 0 is a sensible one.
"""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, cast

import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.errors import DataError, UsageError, listed
from forecaster.series.causal import Rows, change_features, decayed_mean, shift
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
    natures_of,
    usually_counts,
)
from forecaster.series.features.known_effects import (
    NOTHING_KNOWN,
    Shared,
    add_effects_ahead,
    covariate_features,
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
from forecaster.series.features.usable import UsableRows
from forecaster.series.panel.covariates import Scaling
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.prices.common_volatility import CommonVolatility, learn_common_volatility
from forecaster.series.prices.events import Factor, event_factors, event_volatility
from forecaster.series.prices.features import (
    price_feature_count,
    price_features,
    usual_volatility,
    with_few_changes,
)
from forecaster.series.prices.market import MARKET_FEATURES, market_features

NAMES = ("log_return", "difference", "combined", "last_value")
_FIRST_CHANGES = 10  # changes that a volatility needs


@dataclasses.dataclass(frozen=True)
class Learned:
    """What the series of a panel share, beside their networks.

    - ``common_seasons``: for series whose times are whole numbers and that do not clearly show a
      season of their own
    - ``usually_counts``: whether half of the series are counts, see :func:`usually_counts`
    - ``unit``: the usual change from one row to the next in units of a series' level, for series
      that have hardly any rows; by default wide
    - ``known``: the effects of the calendar and the responses to covariates
    - ``blending``: what components and blends share
    - ``volatility``: the usual volatility of a panel's prices; None: unknown
    - ``events``: for prices, the factor of each future covariate on the volatility of the days that
      it marks; empty where there are none
    - ``common_volatility``: of prices, the model of volatility; None: there is none
    """

    common_seasons: Seasons = ()
    usually_counts: bool = False
    unit: Annotated[float, Meta(ge=0, lt=1e6)] = 0.2
    known: Shared = NOTHING_KNOWN
    blending: Blending = NOTHING
    volatility: Annotated[float, Meta(gt=0, lt=1e3)] | None = None
    events: tuple[Factor, ...] = ()
    common_volatility: CommonVolatility | None = None


@dataclasses.dataclass(frozen=True)
class Transform:
    """One of the transforms of :data:`NAMES`, with what it needs to know of the series.

    - ``name``: the name of the transform
    - ``natures``: properties of each series by name, for the transforms that take any; fixed at the
      fit, so that later rows do not change the features
    - ``covariates``: how covariates become features
    - ``market``: the declared indices that networks see beside each series, see
      :meth:`Panel.with_market`
    - ``alone``: the classical model that forecasts alone, of :data:`CLASSICAL`; None: all
      components are blended
    - ``learned``: what the series share
    """

    name: str
    natures: Mapping[str, Nature] = dataclasses.field(
        default_factory=lambda: MappingProxyType(dict[str, Nature]())
    )
    covariates: Scaling = dataclasses.field(default_factory=Scaling)
    market: tuple[str, ...] = ()
    alone: Name | None = None
    learned: Learned = Learned()

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"transform: expected one of {', '.join(NAMES)}; got {self.name!r}")
        if self.alone is not None and (self.alone not in CLASSICAL or self.name != "combined"):
            raise ValueError(f"transform: {self.name} of the classical model {self.alone!r}")
        if self.market and self.name != "log_return":
            raise UsageError(
                f"market {listed(self.market)}: only the transform 'log_return', of prices, has "
                f"features of a market; the transform of these series is {self.name!r}. Leave the "
                "market out, or take transform = 'log_return' where all values are above zero"
            )

    @staticmethod
    def choose(
        name: str,
        panel: Panel,
        season: int | Sequence[int] | None = None,
        alone: str | None = None,
    ) -> "Transform":
        """Return the transform of this name for a panel.

        - ``name``: one of :data:`NAMES`, or ``"auto"``: ``log_return`` for prices, ``combined`` for
          other series
        - ``alone``: the classical model that forecasts alone, in the transform ``combined``
        - ``season``: the steps in a season, or in several; by default from the frequency, or where
          times are whole numbers from the values

        Constant properties of series are added by :meth:`with_static`, once it is known which
        series are fitted on.
        """
        if name == "auto":
            name = "combined" if panel.target == "y" else "log_return"
        known = Scaling.of(panel.future, panel.times_of_rows())
        market = () if panel.market is None else panel.market.ids
        classical = cast(Name | None, alone) if name == "combined" else None
        made = Transform(name, covariates=known, market=market, alone=classical)
        made = made.with_series(panel, season)
        if name == "last_value" and panel.target != "y":
            return made.with_learned(unit=unit_of_prices(panel))
        return made

    def with_static(self, panel: Panel) -> "Transform":
        """Return the transform with the static covariates of a panel, whose series are fitted on.

        Raises DataError for a series without a row.
        """
        if panel.static is None:
            return self
        known = self.covariates.with_static(panel.static, panel.ids)
        return dataclasses.replace(self, covariates=known)

    def with_series(self, panel: Panel, season: int | Sequence[int] | None) -> "Transform":
        """Return the transform with further series; ``season`` as for :meth:`choose`."""
        known = self.covariates
        if panel.future is not None and known.future:
            known = known.with_scales(panel.future, panel.times_of_rows())
        natures = self.natures
        if self.takes_any:
            given = (season,) if isinstance(season, int) else season
            given = given if self.name == "combined" else ()
            made = natures_of(panel, given)
            shared = self.learned
            made = as_usual(made, panel, shared.common_seasons, counts=shared.usually_counts)
            natures = MappingProxyType({**natures, **made})
        return dataclasses.replace(self, natures=natures, covariates=known)

    def learned_from(
        self,
        panel: Panel,
        horizon: int,
        held_back: Int[np.ndarray, " series"] | None = None,
    ) -> "Transform":
        """Return the transform with what the series of a panel share, learned from their past.

        For the combination these are blends, and effects known in advance. Where times are whole
        numbers, series also take the seasons that most others have. Of prices, only the usual
        volatility, the effects of events and the common model of volatility are learned.

        ``held_back``: the number of latest rows of each series; the penalty of the model of
        volatility is chosen by them. None: there is no such model
        """
        if self.name == "log_return":
            volatility, events = usual_volatility(panel), event_factors(self._seen(panel))
            common = None
            if held_back is not None:
                common = learn_common_volatility(panel, horizon, held_back)
            return self.with_learned(volatility=volatility, events=events, common_volatility=common)
        if self.name == "last_value":
            natures = {name: self._nature(name) for name in panel.ids}
            usual = self.learned.unit if panel.target == "y" else unit_of_prices(panel)
            return self.with_learned(unit=learned_unit(panel, natures, usual))
        if self.name != "combined":
            return self
        natures = {name: self._nature(name) for name in panel.ids}
        common = common_seasons(natures) if panel.frequency.alias == "step" else ()
        counts = self.alone is None and usually_counts(natures)
        natures = as_usual(natures, panel, common, counts=counts)
        made = dataclasses.replace(self, natures=MappingProxyType({**self.natures, **natures}))
        made = made.with_learned(common_seasons=common, usually_counts=counts)
        if self.alone is None:
            panel = made._seen(panel)
            made = made.with_learned(known=learn_effects(panel, natures, self.covariates))
            natures = made._with_effects(panel)
        rows = rows_without_effects(panel, natures, self.covariates)
        blending = learn(rows, list(natures.values()), horizon, self.alone)
        return made.with_learned(blending=blending)

    def with_learned(self, **changes: Any) -> "Transform":
        """Return the transform with other fields of :class:`Learned`."""
        return dataclasses.replace(self, learned=dataclasses.replace(self.learned, **changes))

    def with_components(
        self, panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"] | None = None
    ) -> "Transform":
        """Return the transform with components fitted to the series of a panel.

        ``held_back``: the number of latest rows of each series that they are not fitted on, and
        that their blend is learned from; None: the blend is known
        """
        if self.name != "combined":
            return self
        panel = self._seen(panel)
        natures = self._with_effects(panel, held_back)
        known, alone = list(natures.values()), self.alone is not None
        rows = rows_without_effects(panel, natures, self.covariates)
        first = rows_without_effects(panel, natures, self.covariates, held_back)
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
        natures = MappingProxyType({**self.natures, **made})
        return dataclasses.replace(self, natures=natures).with_learned(blending=shared)

    def _with_effects(
        self, panel: Panel, held_back: Int[np.ndarray, " series"] | None = None
    ) -> dict[str, Nature]:
        """Return the properties of each series with what is known in advance of it."""
        natures = {name: self._nature(name) for name in panel.ids}
        return with_known_effects(panel, natures, self.covariates, self.learned.known, held_back)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        bare = self.with_learned(blending=self.learned.blending._replace(early=()))
        return msgspec.to_builtins(bare, enc_hook=_plain)

    @staticmethod
    def from_dict(fields: Mapping[str, Any], horizon: int) -> "Transform":
        """Read what :meth:`to_dict` returned. Raises ValueError for anything else.

        ``horizon``: the steps ahead that are forecast
        """
        try:
            made = msgspec.convert(fields, Transform, dec_hook=_array)
            parts = (fields, Transform), (fields.get("learned", {}), Learned)
            natures = [(one, Nature) for one in fields.get("natures", {}).values()]
            for part, kind in (*parts, *natures):
                if missing := [f.name for f in dataclasses.fields(kind) if f.name not in part]:
                    raise ValueError(f"{missing[0]}: missing")
            made._check(horizon)
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(f"transform: {error}") from error
        return made

    def _check(self, horizon: int) -> None:
        """Raise ValueError unless all parts fit together, as they may not in a file."""
        shared, columns, common = (
            self.learned,
            len(self.covariates.future),
            (self.learned.common_volatility),
        )
        for what, sound in {
            "covariates": self.covariates.fits(),
            "calendar": shared.known.calendar.fits(),
            "responses": shared.known.responses.fits(columns),
            "events": len(shared.events) in (0, columns),
            "blending": shared.blending.fits(horizon),
            "common_volatility": common is None or common.fits(horizon, self.market),
        }.items():
            if not sound:
                raise ValueError(f"{what}: its numbers do not fit those of the rest")
        for name, nature in self.natures.items():
            nature.check(name, horizon, columns)

    def feature_count(self, horizon: int) -> int:
        """Return the number of features of each step."""
        more = self.covariates.count(horizon)
        if self.name == "combined":
            return FEATURES + more
        more += MARKET_FEATURES * len(self.market)
        return 4 + more + (price_feature_count(horizon) if self.name == "log_return" else 0)

    def logarithmic(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return for each series whether networks see its logarithm."""
        if self.name == "last_value":
            return np.array([self._nature(name).logarithmic for name in ids], bool)
        return np.full(len(ids), self.name == "log_return")

    @property
    def takes_any(self) -> bool:
        """Whether every series can be forecast, also a short or a constant one."""
        return self.name in ("combined", "last_value")

    def stands_alone(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return for each series whether it has the classical model that forecasts alone."""
        alone = self.alone
        return np.array(
            [alone is not None and self._nature(name).components.has(alone) for name in ids], bool
        )

    def usual_responses(self) -> tuple[float, ...]:
        """Return the mean effect of a change of each future covariate by 1, as a share."""
        return self.learned.known.responses.per_unit(
            [nature.logarithmic for nature in self.natures.values()]
        )

    def rows_to_forecast(self, horizon: int) -> int:
        """Return the fewest rows of a series with a base and a scale for each step ahead."""
        of_prices = 1 if self.learned.volatility is not None else _FIRST_CHANGES
        needed = {"combined": horizon, "log_return": of_prices}
        return needed.get(self.name, 0) + 1

    def usable_rows(self, panel: Panel) -> UsableRows:
        """Return which rows of a panel can be transformed."""
        of_prices = panel.target != "y" if self.name == "last_value" else not self.takes_any
        logarithmic = self.logarithmic(panel.ids)
        positive = np.array([self._nature(name).logarithmic for name in panel.ids], bool)
        return UsableRows(panel, logarithmic, self.takes_any, of_prices, logarithmic | positive)

    def apply(self, panel: Panel, horizon: int, steps: int | None = None) -> "Transformed":
        """Transform all histories of a panel, with targets up to ``horizon`` steps ahead.

        ``steps``: those of the longest history of the whole panel, if ``panel`` is a part of it

        Raises DataError for a series with rows that cannot be transformed.
        """
        if reasons := self.usable_rows(panel).reasons():
            name, reason = next(iter(reasons.items()))
            raise DataError(f"{name}: {reason}")
        panel = self._seen(panel)
        # Values that end up NaN or infinite are detected and named after the fit.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            apply = self._apply_combined if self.name == "combined" else self._apply
            made = apply(panel, Histories.of(panel, steps), horizon)
        if not self.covariates.count(horizon):
            return made
        more = covariate_features(self.covariates, panel, made.positions, horizon)
        return dataclasses.replace(made, features=np.concatenate([made.features, more], axis=-1))

    def _seen(self, panel: Panel) -> Panel:
        """Return the panel without dips, and with the kinds of events that the fit knows."""
        known = panel.future and panel.future.of_kinds(self.covariates.future)
        panel = dataclasses.replace(panel, future=known)
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
        if not self.takes_any:
            return np.full(len(ids), -np.inf)
        natures = [self._nature(name) for name in ids]
        return np.where([one.nonnegative or one.logarithmic for one in natures], 0.0, -np.inf)

    def counted(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return which series are counts."""
        combined = self.name == "combined"
        return np.array([combined and self._nature(name).counts for name in ids], bool)

    def basic_seasons(self, ids: Sequence[str]) -> Int[np.ndarray, " series"]:
        """Return the steps in the shortest season of each series; 0 for none."""
        return np.array([min(self._nature(name).seasons, default=0) for name in ids], int)

    def _z(self, panel: Panel, y: Rows) -> Rows:
        """Return the values, or their logarithms."""
        logarithmic = self.logarithmic(panel.ids)
        if logarithmic.all():
            return np.log(y)
        return np.where(logarithmic[:, None], np.log(np.where(y > 0, y, np.nan)), y)

    def _apply(self, panel: Panel, histories: Histories, horizon: int) -> "Transformed":
        y = histories.values[:, :, panel.channels.index(panel.target)]
        logarithmic = self.name == "log_return"
        z = self._z(panel, y)
        change = z - shift(z, 1)
        floor = 1e-8 if logarithmic else 1e-12 + 1e-8 * decayed_mean(z**2, 0.999)
        widened, raw, shared = 1.0, change, self.learned
        if shared.events and panel.future is not None:
            own, widened = event_volatility(
                shared.events, panel.future, panel, histories.positions, horizon
            )
            change = change / own  # a move on a marked day counts as the smaller move of other days
        features, scale = change_features(change, floor)
        if logarithmic:
            features += price_features(panel, histories, raw, scale, horizon)
        if panel.market is not None and self.market:
            features += market_features(
                panel.market, panel.target, panel.times, histories.positions, scale
            )
        scale = with_few_changes(scale, change, shared.volatility)
        if self.name == "last_value":
            scale = walk_scale(change, usual_changes(z, self.logarithmic(panel.ids), shared.unit))
        scales = scale[:, :, None] * np.sqrt(np.arange(1, horizon + 1))
        common, model = None, shared.common_volatility
        if model is not None:
            common = model.log_scale(panel, histories, raw) - np.log(scales)
        return Transformed(
            features=stacked(features),
            z=z,
            base=np.repeat(z[:, :, None], horizon, axis=-1),
            scale=scales * widened,
            first=np.minimum(histories.first + _FIRST_CHANGES, z.shape[1]),
            positions=histories.positions,
            logarithmic=self.logarithmic(panel.ids),
            least=self._least(panel.ids),
            counted=self.counted(panel.ids),
            common=common,
            scale_weights=() if model is None else model.scale_weights,
        )

    def _apply_combined(self, panel: Panel, histories: Histories, horizon: int) -> "Transformed":
        z = histories.values[:, :, panel.channels.index(panel.target)]
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
        first = histories.first + max(_FIRST_CHANGES, horizon)  # when all errors are known
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


def _plain(value: Any) -> Any:
    """Return plain values: of an array its shape, and base64 of little-endian float32."""
    if isinstance(value, np.ndarray):
        return [*value.shape, base64.b64encode(value.astype("<f4").tobytes()).decode()]
    if isinstance(value, np.generic):
        return cast(object, value.item())
    return dict(cast(Mapping[str, object], value))


def _array(kind: Any, value: Any) -> np.ndarray:
    """Read an array that :func:`_plain` returned. Raises TypeError or ValueError otherwise."""
    del kind
    *shape, text = value
    numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f4").reshape(shape)
    if not np.isfinite(numbers).all():
        raise ValueError("expected finite numbers")
    return numbers.astype(np.float32)
