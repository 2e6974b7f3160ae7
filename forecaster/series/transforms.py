"""Series to what a network learns from, and back, without looking ahead.

A transform gives three things for every step t of a history, each from steps up to t alone:
features, a base from which the future is counted, and a scale. The target for horizon h is
``(z[t+h] - base[t, h]) / scale[t, h]`` with z the series (or its logarithm). The scale is an
exponentially weighted volatility (RiskMetrics Technical Document, J.P. Morgan, 1996), so targets
look alike in calm and in wild times, and a network that predicts nothing new is already sensible.
"""

import dataclasses
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from forecaster.errors import DataError
from forecaster.series.frequency import Frequency
from forecaster.series.panel import Histories, Panel
from forecaster.series.times import show_time

Rows: TypeAlias = Float[np.ndarray, "series step"]

NAMES = ("log_return", "difference", "seasonal", "identity")
_FIRST_CHANGES = 10  # that a volatility needs to be worth anything
_DECAYS = (0.80, 0.94, 0.985)  # volatility of about a week, a month and a quarter
_SEASONS = {"step": 1, "B": 5, "D": 7, "3600s": 24, "MS": 12, "ME": 12, "QS": 4, "QE": 4}
_CLIP = 8.0


@dataclasses.dataclass(frozen=True)
class Transform:
    """Which transform: one of :data:`NAMES`, and the steps in a season where it has one."""

    name: str
    season: int = 1

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"transform: expected one of {', '.join(NAMES)}; got {self.name!r}")

    @staticmethod
    def choose(name: str, panel: Panel, season: int | None = None) -> "Transform":
        """Resolve ``"auto"``: log returns for prices, otherwise from the frequency."""
        season = season or default_season(panel.frequency)
        if name == "auto":
            if panel.target != "y":
                name = "log_return"
            else:
                name = "seasonal" if season > 1 else "difference"
        return Transform(name, season if name == "seasonal" else 1)

    @property
    def logarithmic(self) -> bool:
        """Whether networks see the logarithm of the series."""
        return self.name == "log_return"

    @property
    def features(self) -> int:
        """How many numbers a network sees of each step."""
        return 4 + (self.name in ("seasonal", "identity")) + 3 * self.logarithmic

    def unusable(self, panel: Panel) -> dict[str, str]:
        """Series of a panel that this transform cannot take, with the reason."""
        values = np.where(panel.mask, panel.channel(panel.target), np.nan)
        reasons: dict[str, str] = {}
        if self.logarithmic:
            bad = panel.mask & ~(values > 0)
            for row in np.flatnonzero(bad.any(1)):
                position = int(np.argmax(bad[row]))
                day = show_time(panel.times[position])
                reasons[panel.ids[row]] = (
                    f"{panel.target} is {values[row, position]:g} on {day}; "
                    "a price must be above zero"
                )
        highest = np.max(values, axis=1, where=panel.mask, initial=-np.inf)
        still = highest == np.min(values, axis=1, where=panel.mask, initial=np.inf)
        for row in np.flatnonzero(still):
            reasons.setdefault(panel.ids[row], f"{panel.target} never changes")
        return reasons

    def without_bad_rows(self, panel: Panel) -> Panel:
        """The panel with rows that this transform cannot take as if they had not been observed."""
        if not self.logarithmic:
            return panel
        return dataclasses.replace(panel, mask=panel.mask & (panel.channel(panel.target) > 0))

    def apply(self, panel: Panel, horizon: int) -> "Transformed":
        """Transform all histories of a panel, with targets up to ``horizon`` steps ahead.

        Raises DataError when a series is unusable; see :meth:`unusable`.
        """
        if reasons := self.unusable(panel):
            name, reason = next(iter(reasons.items()))
            raise DataError(f"{name}: {reason}")
        # Values that end up NaN or infinite are detected and named after the fit.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return self._apply(panel, horizon)

    def _apply(self, panel: Panel, horizon: int) -> "Transformed":
        histories = Histories.of(panel)
        y = histories.values[:, :, panel.channels.index(panel.target)]
        z = np.log(y) if self.logarithmic else y
        change = z - _shift(z, self.season)  # one-step, or one-season, change
        variances = [_decayed_mean(change**2, decay) for decay in _DECAYS]
        floor = 1e-8 if self.logarithmic else 1e-12 + 1e-8 * _decayed_mean(z**2, 0.999)
        weekly, monthly, quarterly = (np.sqrt(v + floor) for v in variances)
        scale = np.sqrt((monthly**2 + quarterly**2) / 2)
        features = [
            _squash(change / _shift(scale, 1)),
            np.log(np.abs(change) / _shift(scale, 1) + 0.1),
            np.log(weekly / monthly),
            np.log(monthly / quarterly),
        ]
        if self.name in ("seasonal", "identity"):
            features.append(_squash((z - _decayed_mean(z, 0.99)) / scale))
        if self.logarithmic:
            features += _price_features(panel, histories, scale)
        bases, scales = self._counted_from(z, scale, horizon)
        stacked = np.stack(features, axis=-1)
        return Transformed(
            features=np.nan_to_num(stacked, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32),
            z=z,
            base=bases,
            scale=scales,
            first=np.minimum(histories.first + max(_FIRST_CHANGES, self.season), z.shape[1]),
            positions=histories.positions,
        )

    def invert(self, z: np.ndarray) -> np.ndarray:
        """Back to the series' own units."""
        return np.exp(z) if self.logarithmic else z

    def _counted_from(
        self, z: Rows, scale: Rows, horizon: int
    ) -> tuple[Float[np.ndarray, "series step horizon"], Float[np.ndarray, "series step horizon"]]:
        """Base and scale by horizon."""
        ahead = np.arange(1, horizon + 1)
        if self.name == "seasonal":
            # The latest known value of the same season: h steps ahead, a whole season or more back.
            back = np.ceil(ahead / self.season).astype(int) * self.season - ahead
            base = np.stack([_shift(z, b) for b in back], axis=-1)
            return base, np.repeat(scale[:, :, None], horizon, axis=-1)
        if self.name == "identity":
            base = np.repeat(_decayed_mean(z, 0.99)[:, :, None], horizon, axis=-1)
            return base, np.repeat(scale[:, :, None], horizon, axis=-1)
        return np.repeat(z[:, :, None], horizon, axis=-1), scale[:, :, None] * np.sqrt(ahead)


@dataclasses.dataclass(frozen=True)
class Transformed:
    """Histories as a network sees them; aligned as :class:`~forecaster.series.Histories` are.

    - ``features``: a network's inputs, float32
    - ``z``: the series or its logarithm
    - ``base``: the value that the future is counted from
    - ``scale``: the volatility, by horizon
    - ``first``: the first step that may be an input
    - ``positions``: where the steps stand on the panel's time axis; -1 in the padding
    """

    features: Float[np.ndarray, "series step feature"]
    z: Rows
    base: Float[np.ndarray, "series step horizon"]
    scale: Float[np.ndarray, "series step horizon"]
    first: Int[np.ndarray, " series"]
    positions: Int[np.ndarray, "series step"]

    def targets(self) -> Float[np.ndarray, "series step horizon"]:
        """Standardised targets, float32; NaN where unknown."""
        horizon = self.base.shape[-1]
        ahead = np.stack([_shift(self.z, -h) for h in range(1, horizon + 1)], axis=-1)
        return ((ahead - self.base) / self.scale).astype(np.float32)


def _price_features(panel: Panel, histories: Histories, scale: Rows) -> list[Rows]:
    """Range, move within the day, and volume; NaN where there is none.

    Always all of them: what one series has must not change another's network.
    """
    nothing = np.full(scale.shape, np.nan)

    def channel(name: str) -> Rows:
        if name not in panel.channels:
            return nothing
        return histories.values[:, :, panel.channels.index(name)]

    before = _shift(scale, 1)
    volume = np.log(np.maximum(channel("volume"), 1.0))
    return [
        np.log(np.log(channel("high") / channel("low")) / before + 0.1),
        # Within the day, so that splits and dividends do not show.
        _squash(np.log(channel("close") / channel("open")) / before),
        _squash(volume - _shift(_decayed_mean(volume, 0.94), 1)),
    ]


def default_season(frequency: Frequency) -> int:
    """Steps in a season of series with this frequency; 1 where there is no usual one."""
    if frequency.alias.startswith("W-"):
        return 1
    return _SEASONS.get(frequency.alias, 1)


def _shift(values: Rows, steps: int) -> Rows:
    """Values as they were ``steps`` ago (or will be, when negative); NaN where there are none."""
    if steps == 0:
        return values
    out = np.full_like(values, np.nan)
    if steps > 0:
        out[:, steps:] = values[:, :-steps]
    else:
        out[:, :steps] = values[:, -steps:]
    return out


def _decayed_mean(values: Rows, decay: float) -> Rows:
    """Exponentially weighted mean up to each step, weights normalised; NaN are skipped.

    Sequential, so that a step's value depends bit for bit on the steps before it and no others.
    """
    total = np.zeros(values.shape[0])
    weight = np.zeros(values.shape[0])
    out = np.empty_like(values)
    for step in range(values.shape[1]):
        now = values[:, step]
        known = ~np.isnan(now)
        total = np.where(known, decay * total + (1 - decay) * np.where(known, now, 0.0), total)
        weight = np.where(known, decay * weight + (1 - decay), weight)
        out[:, step] = total / np.where(weight > 0, weight, np.nan)
    return out


def _squash(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -_CLIP, _CLIP)
