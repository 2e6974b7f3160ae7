"""Explain forecasts: the factors of a band, the terms of a median, and what changed between dates.

The width of a band of prices, the logarithm of its upper bound over its lower one, is a product of
named factors, and the logarithm of the median over the latest price a sum. Of other series the
width is a product, and the median a sum in their own units. Every number is one that the forecast
itself was made of: nothing is stored, and another date is explained by forecasting from it.
"""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from forecaster.errors import ForecasterWarning, ModelError
from forecaster.forecasting.bands.calibration import Calibrated, normal_scores_of
from forecaster.forecasting.bands.distribution import Distribution
from forecaster.forecasting.explanation import (
    BAND,
    COMPONENT,
    FORECAST,
    KEYS,
    MEDIAN,
    NEW_FIT,
    TOTAL,
    Explanation,
)
from forecaster.forecasting.model import Model
from forecaster.forecasting.predicting.forecast import (
    Origins,
    around_drift,
    at_origins,
    calibrated_at,
    distributions,
    in_parts,
    latest_of,
    price_factor,
)
from forecaster.forecasting.predicting.predicting import prepared
from forecaster.series import (
    Histories,
    KnownRows,
    Nature,
    Panel,
    Transformed,
    blended,
    component_forecasts,
    count_forecasts,
    event_volatility,
    groups_of,
    lagged,
    latest_mean,
    level_of,
    next_times,
    shift,
    show_time,
    standardised,
    times_after_rows,
    volatility_terms,
    with_blends,
)

Parts: TypeAlias = dict[str, Float[np.ndarray, "series origin horizon"]]

_ROWS, _EVERY = 252, 4  # the latest rows that say what is usual, and how many apart
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days
_LEAST_SHARED = 0.02  # change, of a band's logarithm or in widths of the band, that has shares


def explained(
    model: Model,
    panel: Panel,
    ids: Sequence[str],
    *,
    level: float = 80.0,
    before: Panel | None = None,
    older: Model | None = None,
    notes: Sequence[str] = (),
) -> Explanation:
    """Explain the forecasts of some series, and what changed since an earlier date.

    - ``panel``: as it was known at the date that is explained; ``before``: at the earlier one
    - ``older``: the model of the earlier date, where it is another one
    """
    frame = _factors_of(model, panel, ids, level)
    if frame is None:
        raise ModelError(f"{', '.join(ids[:5])}: no forecast can be made, so none is explained")
    if before is None:
        return Explanation(frame, level, notes=tuple(notes))
    with warnings.catch_warnings():  # all is said of the later date already
        warnings.simplefilter("ignore", ForecasterWarning)
        past = _factors_of(model, before, ids, level)
        was = None if older is None else _factors_of(older, before, ids, level)
    since = before.times[before.mask.any(0)][-1]
    if past is None:
        notes = *notes, f"Nothing could be forecast from {show_time(since)}, so no change is shown."
        return Explanation(frame, level, notes=notes)
    moves = dict(_moves(panel.masked(forecasting=True).only([*ids]), since))
    changes = compared(frame, past, was)
    if changes["then"].isna().all():
        notes = *notes, f"No time is forecast from {show_time(since)}, too: no change is shown."
    return Explanation(changes, level, moves, show_time(since), notes=tuple(notes))


def _factors_of(
    model: Model, panel: Panel, ids: Sequence[str], level: float
) -> pd.DataFrame | None:
    """Return the factors of those series that can be forecast; None where none can be."""
    model, panel = prepared(model, panel)
    some = [name for name in ids if name in panel.ids]
    return factors_of(model, panel.only(some), level) if some else None


def _moves(panel: Panel, since: object) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield each series with its change since a time, and that over its usual change by row."""
    for name, (values, times) in zip(panel.ids, panel.rows(), strict=True):
        relative = panel.target != "y" and bool((values > 0).all())
        z = np.log(values) if relative else values
        if (later := int((times > since).sum())) in (0, len(z)):
            continue
        move, usual = z[-1] - z[-1 - later], float(np.median(np.abs(np.diff(z[-_ROWS:]))))
        often = abs(move) / usual if later == 1 and usual > 0 else np.nan
        yield name, (float(np.expm1(move) if relative else move), often)


def factors_of(model: Model, panel: Panel, level: float = 80.0) -> pd.DataFrame:
    """Return what the forecasts from the latest rows of a panel are made of, as a long frame.

    Its columns: ``unique_id, cutoff, ds, step``; ``relative``, whether the width is the logarithm
    of the bounds' ratio, as of prices, and not their difference; ``of``, which is the ``band``,
    whose factors multiply, the ``median``, whose terms add up, the ``forecast`` itself, or a
    ``component``; ``factor``, a name, where ``total`` is the whole; its ``value`` now; the
    ``usual`` one, the median over the rows of the last year, the latest 252 at most; the
    ``percentile`` of the value among these; and the ``weight`` of a component.

    - ``model``, ``panel``: as :func:`~forecaster.forecasting.prepared` returns them
    - ``level``: of the band, in percent
    """
    parts = [_of_part(model, *part, level) for part in in_parts(model, panel)]
    frame = pd.concat(parts, ignore_index=True)
    order = {name: row for row, name in enumerate(panel.ids)}
    by = [frame["unique_id"].map(order), frame["step"]]
    return frame.iloc[np.lexsort([np.arange(len(frame)), by[1], by[0]])].reset_index(drop=True)


def compared(
    now: pd.DataFrame, then: pd.DataFrame, older: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return factors with those of another date beside them, and what each did to the change.

    Prices are compared at the same step ahead, other series at the same time. Adds the value
    ``then``; the ``change``, a difference of logarithms of factors and a plain one
    of terms, so that changes add up to that of the total; and the ``share`` of that.

    - ``now``, ``then``: by the same model, from :func:`factors_of`
    - ``older``: at the date of ``then`` by the model of that time; a new fit is then a factor of
      its own
    """
    on = ["unique_id", "when", "of", "factor"]
    frame, *others = (
        part.assign(when=part["step"].astype(object).where(part["relative"], part["ds"]))
        for part in (now, then, *(() if older is None else (older,)))
    )
    for name, part in zip(("then", "was"), others, strict=False):
        values = part[[*on, "value"]].rename(columns={"value": name})
        frame = frame.merge(values, "left", on=on)
    frame = frame.drop(columns="when")
    if older is not None:
        was, band = frame.pop("was"), frame["of"] == BAND
        total = frame["factor"] == TOTAL
        fit = frame.assign(
            factor=NEW_FIT,
            value=np.where(band, 1.0, 0.0),
            then=np.where(band, was / frame["then"], was - frame["then"]),
            usual=np.nan,
            percentile=np.nan,
        )[total & was.notna()]
        whole = (total | (frame["of"] == FORECAST)) & was.notna()
        frame["then"] = frame["then"].mask(whole, was)
        frame = pd.concat([frame, fit]).sort_index(kind="stable").reset_index(drop=True)
    value, before = (frame[name].to_numpy(float) for name in ("value", "then"))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(value == before, 0.0, np.log(value / before))
    frame["change"] = np.where(frame["of"] == BAND, ratio, value - before)
    totals = frame[frame["factor"] == TOTAL].set_index(KEYS[:3])["change"]
    total = totals.reindex(pd.MultiIndex.from_frame(frame[KEYS[:3]])).to_numpy()
    # Of a small change the shares would be a hundred times the whole, and cancel.
    widths = frame[(frame["of"] == BAND) & (frame["factor"] == TOTAL)].set_index(KEYS[:2])["value"]
    width = widths.reindex(pd.MultiIndex.from_frame(frame[KEYS[:2]])).to_numpy()
    least = _LEAST_SHARED * np.where(frame["of"] == BAND, 1.0, width)
    added = frame["of"].isin([BAND, MEDIAN]) & (np.abs(total) > least)
    frame["share"] = (frame["change"] / total).where(added)
    return frame


def _of_part(model: Model, panel: Panel, transformed: Transformed, level: float) -> pd.DataFrame:
    model = model.only(panel.ids)
    latest = latest_of(model, panel, transformed, 1)
    back = _steps_back(panel, transformed)
    past = np.maximum(latest.origins - back, 0)
    made = [(latest.origins, latest.distribution, latest.calibrated)]
    if len(back):
        before = distributions(model.networks, transformed, past, model.growth)
        known = latest.spread.shape[1]
        spread = latest.spread[:, np.maximum(known - 1 - back, 0)]
        before = around_drift(before, model.growth, transformed, past, spread)
        made.insert(0, (past, before, calibrated_at(model, transformed, past, before, spread)))
    origins = np.concatenate([at for at, _, _ in made], axis=1)
    # By origin: median, bounds, and the same without calibration, standardised.
    bounds = (1 - level / 100) / 2, (1 + level / 100) / 2
    scores = normal_scores_of([0.5, *bounds])
    points = np.concatenate([_points(*one[1:], scores) for one in made], axis=2)
    scale = np.concatenate([one.scale for _, one, _ in made], axis=1)
    spread = np.concatenate([one.spread for _, _, one in made], axis=1)
    at = _At(model, panel, transformed, origins, points, scale, spread, scores)
    band, median = at.band(), at.median()
    unknown = origins < transformed.first[:, None]
    unknown[:, -1] = False
    rows = [
        _rows(of, name, values, unknown)
        for of, parts in ((BAND, band), (MEDIAN, median), (FORECAST, at.forecast()))
        for name, values in parts.items()
    ]
    rows += [_rows(COMPONENT, n, made, unknown, weight) for n, made, weight in at.components()]
    horizon = model.config.horizon
    ahead = panel.of_times(lambda times: next_times(times, horizon, model.frequency))
    ends = panel.of_times(lambda times: times[-1:])
    keys: dict[str, Any] = {
        "unique_id": np.repeat(np.array(panel.ids, object), horizon),
        "cutoff": np.repeat(np.concatenate(ends), horizon),
        "ds": np.concatenate(ahead),
        "step": np.tile(np.arange(1, horizon + 1), len(panel.ids)),
        "relative": np.repeat(transformed.logarithmic, horizon),
    }
    frame = pd.concat([pd.DataFrame(keys | row) for row in rows], ignore_index=True)
    return frame[frame["value"].notna()]


def _steps_back(panel: Panel, transformed: Transformed) -> Int[np.ndarray, " origin"]:
    """Return how far back the origins lie that say what is usual: every few rows of a year."""
    steps, rows = int(transformed.z.shape[1]), _ROWS
    if panel.times.dtype.kind == "M":
        within = panel.of_times(lambda times: int((times > times[-1] - _YEAR).sum()))
        rows = min(rows, max(within))
    every = _EVERY if rows >= 2 * _EVERY * _EVERY else 1
    return np.arange(every, min(rows, steps - 1) + 1, every)[::-1]


def _points(
    made: Distribution, calibrated: Calibrated, scores: np.ndarray
) -> Float[np.ndarray, "point series origin horizon"]:
    """Return median and bounds as they are forecast, then as without calibration."""
    usual = scores[:, None, None, None]
    plain = Distribution(made.location, made.scale, made.dof)  # also of counts
    each = (plain.quantiles(np.broadcast_to(one, made.shape)) for one in usual)
    return np.stack([*map(made.quantiles, calibrated.scores(usual)), *each])


def _rows(
    of: str, name: str, values: np.ndarray, unknown: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, Any]:
    """Return the columns of one factor; ``values`` end with those of now."""
    now, past = values[:, -1], np.where(unknown[:, :-1, None], np.nan, values[:, :-1])
    known = np.isfinite(past)
    count = np.where(known.any(1), known.sum(1), np.nan)
    below = ((past < now[:, None]) + (past == now[:, None]) / 2).sum(1)
    usual = np.full(now.shape, np.nan)
    there = known.any(1)
    if there.any():
        usual[there] = np.nanmedian(np.moveaxis(past, 1, -1)[there], axis=-1)
    return {
        "of": of,
        "factor": name,
        "value": now.ravel(),
        "usual": usual.ravel(),
        "percentile": (100 * below / count).ravel(),
        "weight": np.nan if weight is None else weight.ravel(),
    }


def _ratio(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return a ratio; 1 where the divisor is zero, as of a series that is sure."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(other == 0, 1.0, one / other)


@dataclasses.dataclass
class _At:
    """Forecasts of series at some origins, and what they are made of.

    - ``points``: from :func:`_points`
    - ``scale``, ``spread``: of the distributions, and of past scores
    - ``scores``: the normal scores of median and bounds
    """

    model: Model
    panel: Panel
    transformed: Transformed
    origins: Origins
    points: np.ndarray
    scale: np.ndarray
    spread: np.ndarray
    scores: np.ndarray

    def __post_init__(self) -> None:
        made, origins = self.transformed, self.origins
        self._base, self._unit = (at_origins(part, origins) for part in (made.base, made.scale))
        self._middle, self._low, self._high = (
            made.invert(self._base + self._unit * point) for point in self.points[:3]
        )
        self._logarithmic = made.logarithmic[:, None, None]
        self._counted = made.counted[:, None, None]
        self._ahead = np.arange(1, self.model.config.horizon + 1)
        self._blends = _Blends.of(self) if self.model.transform.name == "combined" else None

    def forecast(self) -> Parts:
        """Return the latest value, the median and the bounds, in quoted units."""
        factor = price_factor(self.panel)[:, None, None]
        z = np.take_along_axis(self.transformed.z, self.origins, axis=1)[:, :, None]
        latest = self.transformed.invert(np.broadcast_to(z, self._base.shape))
        named = {"latest": latest, "low": self._low, "median": self._middle, "high": self._high}
        if self._counted.any():
            mean, deviation = self._base + self._unit * self.points[3], self._unit * self.scale
            named["mean"] = np.where(self._counted, mean, np.nan)
            named["deviation"] = np.where(self._counted, deviation, np.nan)
        if self._blends is not None:
            named["a year before"] = self._a_year_before()
        return {name: values * factor for name, values in named.items()}

    def _a_year_before(self) -> np.ndarray:
        """Return the values a year, or 52 weeks, before the times that are forecast from now."""
        out, panel = np.full(self._base.shape, np.nan), self.panel
        for row, (values, times) in enumerate(panel.rows()):
            if times.dtype.kind == "M" and len(times):
                ahead = pd.DatetimeIndex(next_times(times, len(self._ahead), self.model.frequency))
                monthly = ahead[0] - times[-1] > pd.Timedelta(days=20)
                back = pd.DateOffset(years=1) if monthly else pd.Timedelta(days=364)
                out[row, -1] = pd.Series(values, index=times).reindex(ahead - back).to_numpy()
        return out

    def band(self) -> Parts:
        """Return the factors of the width, and their product."""
        _, low, high, _, plain_low, plain_high = self.points
        known, total = self._logarithmic, self._high - self._low
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.where(known, np.log(self._high) - np.log(self._low), total)
        usual = self.scores[2] - self.scores[1]
        plain = np.where(self._counted, usual * self.scale, plain_high - plain_low)
        wide = np.where(self._counted, self.spread * plain, high - low)
        parts = self._width() | {
            "spread of past errors": _ratio(wide, plain),
            "level and step": _ratio(plain, self.scale),
        }
        if not known.all():
            limit = np.where(known, np.nan, _ratio(total, self._unit * wide))
            parts["whole numbers"] = np.where(self._counted, limit, np.nan)
            parts["not below zero"] = np.where(self._counted, np.nan, limit)
        if "constant" in parts:
            parts["level and step"] = parts["level and step"] * parts.pop("constant")
        return {TOTAL: total, **parts}

    def _width(self) -> Parts:
        """Return the factors of the unit times the scale."""
        if self._blends is not None:
            return {**self._blends.unit, "networks": self.scale}
        if self.model.transform.name == "log_return":
            return self._width_of_prices()
        root = np.broadcast_to(np.sqrt(self._ahead), self._unit.shape)
        return {"own volatility": self._unit / root, "networks": self.scale, "constant": root}

    def _width_of_prices(self) -> Parts:
        """Return the factors of the width of prices, whose logarithms add up in groups of terms."""
        transform, made, origins = self.model.transform, self.transformed, self.origins
        panel, shared = transform.seen(self.panel), transform.learned
        logs: Parts = {}
        widened: np.ndarray | float = 1.0
        if shared.events and panel.future is not None:
            horizon = len(self._ahead)
            _, events = event_volatility(shared.events, panel, made.positions, horizon)
            widened = at_origins(events, origins)
            logs["events"] = np.log(widened)
        root = np.log(self._ahead) / 2
        own = np.log(self._unit / widened) - root
        logs |= {"own volatility": own, "constant": np.broadcast_to(root, own.shape)}
        scale = np.log(self.scale)
        model = shared.common_volatility
        if model is not None and made.common is not None:
            common = at_origins(made.common, origins)
            known = np.isfinite(common)
            weighted = np.where(known[..., None], made.scale_weights, [0.0, 1.0, 0.0])
            constant, _, weight = np.moveaxis(weighted, -1, 0)
            weights = np.array(model.weights)
            histories = Histories.of(panel, int(made.z.shape[1]))
            market = panel.market if model.market else None
            with np.errstate(all="ignore"):
                change = made.z - shift(made.z, 1)
                level, terms = volatility_terms(panel, histories, change, market)
                level, usual = level[..., None], np.log(shared.volatility or 0.02)
                logs["own volatility"] = (1 - weight) * own + weight * at_origins(level, origins)
                logs["constant"] = logs["constant"] + constant + weight * weights[:, 0]
                groups = groups_of(len(model.market))
                for number, (raw, (group, relative)) in enumerate(zip(terms, groups, strict=True)):
                    centre, spread = model.centre[number], model.spread[number]
                    slope = weight * weights[:, 1 + number]
                    value = at_origins(standardised(raw, centre, spread)[..., None], origins)
                    theirs = value
                    if relative:  # the market by itself, without the series' own volatility
                        absolute = np.nan_to_num((raw + level[..., 0] - usual - centre) / spread)
                        theirs = at_origins(absolute[..., None], origins)
                        logs["own volatility"] = logs["own volatility"] + slope * (value - theirs)
                    logs[group] = logs.get(group, 0.0) + slope * theirs
            scale = scale - constant - weight * np.where(known, common, 0.0)
        logs["networks"] = scale
        return {name: np.exp(value) for name, value in logs.items()}

    def median(self) -> Parts:
        """Return the terms of the median, and their sum."""
        moved = self._unit * self.points[0]
        if self.model.transform.name == "log_return":
            terms = {"networks": moved}
            if np.isfinite(growth := self.model.only(self.panel.ids).growth).all():
                mean = np.broadcast_to(growth[:, None, None] * self._ahead, moved.shape)
                terms = {"premium": mean, "half the variance": moved - mean}
            z = np.take_along_axis(self.transformed.z, self.origins, axis=1)[:, :, None]
            return {TOTAL: np.log(self._middle) - z, **terms}
        where = self._logarithmic
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.where(where, np.log(self._middle) - self._base, self._middle)
        if self._blends is not None:
            moved = np.where(self._counted, self._unit * self.points[3], moved)  # of the mean
            terms = self._blends.base
        else:
            terms = {"latest value": np.where(where, np.nan, self._base)}
        limit = np.where(where, np.nan, self._middle - (self._base + moved))
        counted = self._counted
        return {
            TOTAL: total,
            **terms,
            "networks": moved,
            "whole numbers": np.where(counted, limit, np.nan),
            "not below zero": np.where(counted, np.nan, limit),
        }

    def components(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield name, forecasts and weights of each component of a blend."""
        named = {} if self._blends is None else self._blends.named
        for name, (forecasts, weights) in named.items():
            yield name, forecasts, weights


@dataclasses.dataclass
class _Blends:
    """What the blends of series are made of, each array (series, origin, horizon).

    - ``names``: by component, its forecasts, and the weights of those of now
    """

    unit: Parts
    base: Parts
    named: dict[str, tuple[np.ndarray, np.ndarray]]

    @staticmethod
    def of(at: _At) -> "_Blends":
        """Find them as the transform does, with the components by themselves."""
        transform: Any = at.model.transform
        made, origins = at.transformed, at.origins
        panel = transform.seen(at.panel)
        natures = {name: transform.natures.get(name, Nature()) for name in panel.ids}
        every = KnownRows(panel, natures, transform.covariates)
        calendar = every._replace(
            natures={n: dataclasses.replace(one, responses=()) for n, one in natures.items()}
        )
        filled, blending = every.filled(), transform.learned.blending
        rows = [row for row, _ in filled]
        known = with_blends(rows, [*natures.values()], blending)
        horizon = at.model.config.horizon
        shape = *origins.shape, horizon
        terms = "latest season", "trend and smoothing", "running mean", "calendar", "covariates"
        base = {name: np.zeros(shape) for name in terms}
        unit = {name: np.ones(shape) for name in ("level", "usual error", "known effects")}
        named: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        first = (made.positions < 0).sum(1)
        for number, forecasts in component_forecasts(rows, known, horizon, [0] * len(rows)):
            name, row, one = panel.ids[number], rows[number], known[number]
            assert one.blend is not None
            place = np.maximum(origins[number] - first[number], 0)
            step, scale = filled[number][1][place], one.unit
            middle, width = blended(row, forecasts, one.seasons, horizon, one.blend)
            mean = middle
            if one.counts:
                mean, width = count_forecasts(row, middle, blending.counts)
            elif one.nonnegative or one.logarithmic:
                mean = middle = np.maximum(middle, 0.0)
            # A level and a season apart from it would change against each other with each new row.
            season = one.seasons[0] if one.seasons else 1
            lately = lagged(row, season, horizon)[step]
            lately = np.where(np.isnan(lately), latest_mean(row, season)[step][:, None], lately)
            own = {
                "latest season": lately,
                "trend and smoothing": middle[step] - lately,
                "running mean": mean[step] - middle[step],
            }
            for part, values in own.items():
                base[part][number] = values * scale
            size = np.sqrt(mean[step]) if one.counts else level_of(row, one.seasons)[step][:, None]
            unit["level"][number] = size * scale
            unit["usual error"][number] = width[step] / size
            times = panel.times[made.positions[number, first[number] :]]
            if one.effects or one.responses:
                ahead = times_after_rows(times, horizon, panel.frequency)[place]
                effects, dates = (their.effects_at(name, ahead) for their in (every, calendar))
                whole = mean[step] * scale if one.multiplies else 1.0
                base["calendar"][number] = whole * (dates - (1.0 if one.multiplies else 0.0))
                base["covariates"][number] = whole * (effects - dates)
                if one.multiplies:
                    unit["known effects"][number] = np.sqrt(effects) if one.counts else effects
            weights = np.array(one.blend.weights)[:, None]
            now = np.isfinite([each[step[-1]] for each in forecasts]) * weights
            with np.errstate(divide="ignore", invalid="ignore"):
                now = now / now.sum(0)
            names = one.components.kind.names
            for component, each, weight in zip(names, forecasts, now, strict=True):
                if component not in named:
                    named[component] = np.full(shape, np.nan), np.full((shape[0], horizon), np.nan)
                for into, values in zip(
                    named[component], (each[step] * scale, weight), strict=True
                ):
                    into[number] = values
        return _Blends(unit, base, named)
