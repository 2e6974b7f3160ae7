"""Transform series into features and targets of networks, and back, without looking ahead.

A transform makes three things for every step t of a history, each from the steps up to t alone:
features, a base from which the future is counted, and a scale. The target for horizon h is
``(z[t+h] - base[t, h]) / scale[t, h]`` with z the series (or its logarithm). The scale is an
exponentially weighted volatility (RiskMetrics Technical Document, J.P. Morgan, 1996), so that
targets are alike in calm and in volatile times, and a network that predicts 0 is a sensible one.
"""

import base64
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, cast

import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from forecaster.errors import Kind, Skipped, UsageError, listed
from forecaster.series.calendar.inferring import times_after_rows
from forecaster.series.calendar.times import show_time
from forecaster.series.causal import (
    FEW_CHANGES,
    Ahead,
    Rows,
    by_target_step,
    change_features,
    decayed_mean,
    shift,
    shrunk_to_usual,
)
from forecaster.series.common_volatility import (
    CommonVolatility,
    ScaleWeights,
    learn_common_volatility,
)
from forecaster.series.panel.covariates import Scaling
from forecaster.series.panel.histories import Histories
from forecaster.series.panel.panel import Panel
from forecaster.series.parts import Parts
from forecaster.series.price_features import (
    MARKET_FEATURES,
    PRICE_FEATURES,
    Factor,
    event_factors,
    event_volatility,
    market_features,
    price_features,
    usual_volatility,
)

# A scale up to this share of a series' level, or up to this number, is that of no change at all.
_NO_CHANGE, _LEAST_CHANGE = 1e-9, 2e-12
_ANOTHER_SCALE = 100.0  # growth of a scale by which an outcome belongs to another time


@dataclasses.dataclass(frozen=True)
class Transformed:
    """The features and targets of histories, aligned like :class:`~forecaster.series.Histories`.

    - ``features``: a network's inputs, float32
    - ``z``: the series or its logarithm
    - ``base``: the value that the future is counted from
    - ``scale``: the volatility, by horizon
    - ``first``: the first step of each series that may be an input
    - ``positions``: positions of the steps on the panel's time axis; -1 in the padding
    - ``logarithmic``: whether ``z`` is the logarithm, for each series
    - ``least``: the value that no forecast of a series lies below; minus infinity for most
    - ``counted``: which series are counts, whose base and scale are their mean and deviation
    - ``common``: for prices, the logarithm of the scale by the common model of volatility, in units
      of ``scale`` without its factor of events; NaN where unknown. None: there is no such model
    - ``scale_weights``: how it is combined with networks
    - ``networks``: the weight of what networks forecast, beside the base: one half where the base
      is a forecast itself
    """

    features: Float[np.ndarray, "series step feature"]
    z: Rows
    base: Ahead
    scale: Ahead
    first: Int[np.ndarray, " series"]
    positions: Int[np.ndarray, "series step"]
    logarithmic: Bool[np.ndarray, " series"]
    least: Float[np.ndarray, " series"]
    counted: Bool[np.ndarray, " series"]
    common: Ahead | None = None
    scale_weights: ScaleWeights = ()
    networks: float = 1.0

    def only(self, rows: Int[np.ndarray, " some"]) -> "Transformed":
        """Return some of the series, by their rows."""
        parts: dict[str, Any] = {
            name: part[rows] for name, part in vars(self).items() if isinstance(part, np.ndarray)
        }
        return dataclasses.replace(self, **parts)

    def beside_networks(self, model: CommonVolatility | None) -> "Transformed":
        """Return the same with new weights of the common model of volatility, or without it."""
        if model is None:
            return dataclasses.replace(self, common=None, scale_weights=())
        return dataclasses.replace(self, scale_weights=model.scale_weights)

    def targets(self) -> Ahead:
        """Return the standardised targets, float32; NaN where unknown.

        Before a series first moves, its errors have no unit. After it has hardly moved for long, an
        error may be so large that the scale known with it is a hundred times the one before. Such
        targets count as unknown: they say nothing about forecasts that are made when it moves.
        """
        # A scale may be zero; such targets count as unknown, or are reported after the fit.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            targets = (self._at_outcomes(self.z[..., None]) - self.base) / self.scale
            level = np.fmax.accumulate(np.abs(self.z), axis=1)
            level = np.where(self.logarithmic[:, None], 1.0, level)[..., None]
            still = self.scale <= _NO_CHANGE * level + _LEAST_CHANGE
            unlike = still | (self._at_outcomes(self.scale) > _ANOTHER_SCALE * self.scale)
            return np.where(unlike, np.nan, targets).astype(np.float32)

    def largest_errors(self) -> Ahead:
        """Return the largest absolute error of the base whose outcome is known at each step.

        It is in the units that networks see, also before the series first moved; NaN where no
        outcome is known.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.abs(self._at_outcomes(self.z[..., None]) - self.base)
        return np.fmax.accumulate(by_target_step(errors), axis=1)

    def _at_outcomes(self, values: np.ndarray) -> Ahead:
        """Return values, by step ahead or the same for all, at the steps that are forecast."""
        values = np.broadcast_to(values, self.base.shape)
        steps = range(self.base.shape[-1])
        return np.stack([shift(values[..., h], -h - 1) for h in steps], axis=-1)

    def invert(self, z: np.ndarray) -> np.ndarray:
        """Return values (series, ...) in the series' own units."""
        if self.logarithmic.all():
            return np.exp(z)
        each = (slice(None), *[None] * (z.ndim - 1))
        rows = self.logarithmic[each]
        z = np.where(rows, z, np.maximum(z, self.least[each]))
        z = np.where(self.counted[each], np.rint(z), z)
        return np.where(rows, np.exp(np.where(rows, z, 0.0)), z)


def stacked(features: Iterable[Rows]) -> Float[np.ndarray, "series step feature"]:
    """Stack features as inputs of networks, float32; 0 where unknown."""
    known = [  # one at a time, to save memory
        np.nan_to_num(each, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32) for each in features
    ]
    return np.stack(known, axis=-1)


NAMES = ("log_return", "difference", "combined", "last_value")
FIRST_CHANGES = 10
"""Changes that a volatility needs."""


@dataclasses.dataclass(frozen=True)
class Learned:
    """What the series of a panel share, beside their networks.

    - ``volatility``: the usual volatility of a panel's prices; None: unknown
    - ``events``: for prices, the factor of each future covariate on the volatility of the days that
      it marks; empty where there are none
    - ``common_volatility``: of prices, the model of volatility; None: there is none
    """

    volatility: Annotated[float, Meta(gt=0, lt=1e3)] | None = None
    events: tuple[Factor, ...] = ()
    common_volatility: CommonVolatility | None = None


@dataclasses.dataclass(frozen=True)
class Transform:
    """The transform ``log_return`` of prices, or ``difference``, with what it knows of the series.

    For others see :class:`~forecaster.series.any_series.AnySeries`.

    - ``name``: the name of the transform
    - ``natures``: properties of each series by name; none of prices
    - ``covariates``: how covariates become features
    - ``market``: the declared indices that networks see beside each series, see
      :meth:`Panel.with_market`
    - ``alone``: the classical model that forecasts alone; none of prices
    - ``learned``: what the series share
    """

    name: str
    natures: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    covariates: Scaling = dataclasses.field(default_factory=Scaling)
    market: tuple[str, ...] = ()
    alone: Any = None
    learned: Learned = Learned()

    names: ClassVar[tuple[str, ...]] = NAMES[:2]
    takes_any: ClassVar[bool] = False
    """Whether every series can be forecast, also a short or a constant one."""

    def __post_init__(self) -> None:
        if self.name not in self.names:
            raise ValueError(
                f"transform: expected one of {', '.join(self.names)}; got {self.name!r}"
            )
        if self.market and self.name != "log_return":
            raise UsageError(
                f"market {listed(self.market)}: only the transform 'log_return', of prices, has "
                f"features of a market; the transform of these series is {self.name!r}. Leave the "
                "market out, or take transform = 'log_return' where all values are above zero"
            )

    def with_static(self, panel: Panel) -> Self:
        """Return the transform with the static covariates of a panel, whose series are fitted on.

        Raises DataError for a series without a row.
        """
        if panel.static is None:
            return self
        known = self.covariates.with_static(panel.static, panel.ids)
        return dataclasses.replace(self, covariates=known)

    def with_series(self, panel: Panel, season: int | Sequence[int] | None) -> Self:
        """Return the transform with further series; ``season``: steps in one, or in several."""
        del season  # prices have none
        if panel.future is None or not self.covariates.future:
            return self
        known = self.covariates.with_scales(panel.future, panel.times_of_rows())
        return dataclasses.replace(self, covariates=known)

    def learned_from(
        self, panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"] | None = None
    ) -> Self:
        """Return the transform with what the series of a panel share, learned from their past.

        Of prices, they are the usual volatility, the effects of events and the common model of
        volatility.

        ``held_back``: the number of latest rows of each series; the penalty of the model of
        volatility is chosen by them. None: there is no such model
        """
        if self.name != "log_return":
            return self
        common = None
        if held_back is not None:
            common = learn_common_volatility(panel, horizon, held_back)
        return self.with_learned(
            volatility=usual_volatility(panel),
            events=event_factors(self.seen(panel)),
            common_volatility=common,
        )

    def with_learned(self, **changes: Any) -> Self:
        """Return the transform with other fields of ``learned``."""
        return dataclasses.replace(self, learned=dataclasses.replace(self.learned, **changes))

    def with_components(
        self, panel: Panel, horizon: int, held_back: Int[np.ndarray, " series"] | None = None
    ) -> Self:
        """Return the transform with components fitted to the series of a panel; prices have none.

        ``held_back``: the number of latest rows of each series that they are not fitted on, and
        that their blend is learned from; None: the blend is known
        """
        del panel, horizon, held_back
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return msgspec.to_builtins(self, enc_hook=_plain)

    def sound(self, horizon: int) -> dict[str, bool]:
        """Return which parts fit the rest, as they may not in a file."""
        common, columns = self.learned.common_volatility, len(self.covariates.future)
        return {
            "covariates": self.covariates.fits(),
            "events": len(self.learned.events) in (0, columns),
            "common_volatility": common is None or common.fits(horizon, self.market),
            "natures": self.takes_any or not self.natures,
            "alone": self.takes_any or self.alone is None,
        }

    def feature_count(self, horizon: int) -> int:
        """Return the number of features of each step."""
        more = self.covariates.count(horizon) + MARKET_FEATURES * len(self.market)
        own = PRICE_FEATURES + (horizon > 1) if self.name == "log_return" else 0
        return 4 + more + own

    def of_natures(self, ids: Sequence[str], what: Callable[[Any], Any]) -> np.ndarray:
        """Return what a function makes of the properties of each series; 0 where there are none."""
        return np.array([what(self.natures[n]) if n in self.natures else 0 for n in ids], int)

    def logarithmic(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return for each series whether networks see its logarithm."""
        if self.name == "last_value":
            return self.of_natures(ids, lambda nature: nature.logarithmic) > 0
        return np.full(len(ids), self.name == "log_return")

    @property
    def natures_are_alike(self) -> bool:
        """Whether most series of the panel have seasons in common, or are counts."""
        return False

    def usual_responses(self) -> tuple[float, ...]:
        """Return the mean effect of a change of each future covariate by 1, as a share."""
        return ()

    def rows_to_forecast(self, horizon: int) -> int:
        """Return the fewest rows of a series with a base and a scale for each step ahead."""
        first = FIRST_CHANGES + 1 if self.learned.volatility is None else 2
        return {"log_return": first, "combined": horizon + 1}.get(self.name, 1)

    def reasons(self, panel: Panel) -> dict[str, Skipped]:
        """Return the series of a panel that cannot be transformed, with the reason."""
        reasons = named(panel, self.unusable(panel), Kind.NOT_POSITIVE)
        for row in np.flatnonzero(panel.constant()):
            reasons.setdefault(panel.ids[row], Skipped(Kind.CONSTANT, column=panel.target))
        return reasons

    def unusable(self, panel: Panel) -> Bool[np.ndarray, "series time"]:
        """Return the rows that no forecast can be made from: networks see a logarithm, if any."""
        values = panel.channel(panel.target)
        return panel.mask & ~(values > 0) & self.logarithmic(panel.ids)[:, None]

    def ends(self, panel: Panel) -> Int[np.ndarray, " series"]:
        """Return the position of each series' first row of :meth:`unusable`.

        It is the number of the panel's times if there is no such row.
        """
        bad = self.unusable(panel)
        return np.where(bad.any(1), np.argmax(bad, axis=1), len(panel.times))

    def why_ended(self, panel: Panel, row: int, end: int) -> Skipped:
        """Return the reason for an end of :meth:`ends`."""
        positive = panel.channel(panel.target)[row, end] > 0
        far = positive or not self.logarithmic(panel.ids)[row]
        return skipped_at(panel, row, end, Kind.TOO_FAR_APART if far else Kind.NO_LOGARITHM)

    def before_ends(self, panel: Panel) -> Panel:
        """Return the panel with the rows before those of :meth:`ends`."""
        ended = np.logical_or.accumulate(self.unusable(panel), axis=1)
        return dataclasses.replace(panel, mask=panel.mask & ~ended)

    def apply(
        self, panel: Panel, horizon: int, steps: int | None = None, parts: Parts | None = None
    ) -> Transformed:
        """Transform all histories of a panel, with targets up to ``horizon`` steps ahead.

        - ``panel``: without :meth:`reasons`
        - ``steps``: those of the longest history of the whole panel, if it is a part of one
        - ``parts``: where what base and scale are made of is kept
        """
        panel = self.seen(panel)
        # Values that end up NaN or infinite are detected and named after the fit.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            made = self.applied(panel, Histories.from_panel(panel, steps), horizon, parts)
        if not self.covariates.count(horizon):
            return made
        more = self._covariate_features(panel, made.positions, horizon)
        return dataclasses.replace(made, features=np.concatenate([made.features, more], axis=-1))

    def seen(self, panel: Panel) -> Panel:
        """Return the panel with the kinds of events that the fit knows."""
        known = panel.future and panel.future.of_kinds(self.covariates.future)
        return dataclasses.replace(panel, future=known)

    def counted(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return which series are counts."""
        counts = self.of_natures(ids, lambda nature: nature.counts) > 0
        return counts & (self.name == "combined")

    def basic_seasons(self, ids: Sequence[str]) -> Int[np.ndarray, " series"]:
        """Return the steps in the shortest season of each series; 0 for none."""
        return self.of_natures(ids, lambda nature: min(nature.seasons, default=0))

    def stands_alone(self, ids: Sequence[str]) -> Bool[np.ndarray, " series"]:
        """Return for each series whether it has the classical model that forecasts alone."""
        alone = self.alone
        return self.of_natures(ids, lambda nature: bool(getattr(nature.components, alone))) > 0

    def applied(
        self, panel: Panel, histories: Histories, horizon: int, parts: Parts | None = None
    ) -> Transformed:
        """Transform histories; see :meth:`apply`."""
        y = histories.channel(panel.target)
        z = np.log(y) if self.name == "log_return" else y
        change, shared = z - shift(z, 1), self.learned
        raw, widened = change, 1.0
        if shared.events and panel.future is not None:
            own, widened = event_volatility(shared.events, panel, histories.positions, horizon)
            change = change / own  # a move on a marked day counts as the smaller move of other days
            if parts is not None:
                parts.scale["events"] = parts.at_origins(widened)
        logarithmic = self.name == "log_return"
        floor = 1e-8 if logarithmic else 1e-12 + 1e-8 * decayed_mean(z**2, 0.999)
        features, scale = change_features(change, floor)
        if logarithmic:
            features += price_features(panel, histories, raw, scale, horizon)
        if self.market:
            features += market_features(panel, histories.positions, scale)
        if shared.volatility is not None:
            scale = shrunk_to_usual(scale, change, shared.volatility, FEW_CHANGES)
        made = walk(z, scale, features, histories, horizon, self.logarithmic(panel.ids))
        model = shared.common_volatility
        if model is not None:
            common = model.log_scale(panel, histories, raw, parts, shared.volatility)
            common -= np.log(made.scale)
            made = dataclasses.replace(made, common=common, scale_weights=model.scale_weights)
        return dataclasses.replace(made, scale=made.scale * widened)

    def _covariate_features(
        self, panel: Panel, positions: Int[np.ndarray, "series step"], horizon: int
    ) -> Float[np.ndarray, "series step feature"]:
        """Return the features of covariates at every step of each series; 0 at padding.

        ``positions``: positions of steps on the panel's time axis; -1: padding

        Raises DataError unless the panel has the covariates of the fit.
        """
        known = self.covariates
        known.check(panel.future, panel.static, panel.ids)
        made = np.zeros((*positions.shape, known.count(horizon)), np.float32)
        stated = panel.target == "y" or panel.frequency.stated
        usual = panel.frequency if stated else None
        of_future = len(known.future) * (horizon + 1)
        for row, name in enumerate(panel.ids):
            rows = positions[row][positions[row] >= 0]
            if panel.future is not None and known.future:
                own = panel.times[rows]
                ahead = times_after_rows(own, horizon, usual)
                features = known.future_features(panel.future, name, own, ahead)
                made[row, -len(rows) :, :of_future] = features
            if panel.static is not None:
                made[row, -len(rows) :, of_future:] = known.static_features(panel.static, name)
        return made


def walk(
    z: Rows,
    scale: Rows,
    features: Sequence[Rows],
    histories: Histories,
    horizon: int,
    logarithmic: Bool[np.ndarray, " series"],
) -> Transformed:
    """Return histories of which the future is counted from the latest value, as of a random walk.

    ``scale``: the deviation of the next change; others as the fields of :class:`Transformed`
    """
    return Transformed(
        features=stacked(features),
        z=z,
        base=np.repeat(z[:, :, None], horizon, axis=-1),
        scale=scale[:, :, None] * np.sqrt(np.arange(1, horizon + 1)),
        first=np.minimum(histories.first + FIRST_CHANGES, z.shape[1]),
        positions=histories.positions,
        logarithmic=logarithmic,
        least=np.full(len(z), -np.inf),
        counted=np.zeros(len(z), bool),
    )


def named(panel: Panel, bad: Bool[np.ndarray, "series time"], kind: Kind) -> dict[str, Skipped]:
    """Return the series with bad rows, and the reason for the first of them."""
    return {
        panel.ids[row]: skipped_at(panel, int(row), int(np.argmax(bad[row])), kind)
        for row in np.flatnonzero(bad.any(1))
    }


def skipped_at(panel: Panel, row: int, position: int, kind: Kind) -> Skipped:
    """Return the reason to skip a series for its value at a position of the time axis."""
    value, first = panel.channel(panel.target)[row, position], show_time(panel.times[position])
    return Skipped(kind, column=panel.target, value=float(value), first=first)


def _plain(value: Any) -> Any:
    """Return plain values: of an array its shape, and base64 of little-endian float32."""
    if isinstance(value, np.ndarray):
        return [*value.shape, base64.b64encode(value.astype("<f4").tobytes()).decode()]
    if isinstance(value, np.generic):
        return cast(object, value.item())
    return dict(cast(Mapping[str, object], value))
