"""Explain forecasts: the factors of a band, the terms of a median, and what changed between dates.

The width of a band of prices, the logarithm of its upper bound over its lower one, is a product of
named factors, and the logarithm of the median over the latest price a sum. Of other series the
width is a product, and the median a sum in their own units. Every number is one that the forecast
itself was made of: nothing is stored, and another date is explained by forecasting from it.
"""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from forecaster.errors import ForecasterWarning, ModelError
from forecaster.forecasting.bands import normal_scores_of
from forecaster.forecasting.explanation import (
    BAND,
    CALENDAR,
    COMPONENT,
    FORECAST,
    KEYS,
    MEDIAN,
    NEW_FIT,
    TOTAL,
    Explanation,
    Move,
)
from forecaster.forecasting.model import Model
from forecaster.forecasting.predicting.forecast import (
    Forecast,
    at_origins,
    forecast_at,
    in_parts,
    latest_of,
    price_factor,
)
from forecaster.forecasting.predicting.predicting import prepared
from forecaster.series import CONSTANT, Factors, Panel, Parts, effect_name, next_times, show_time

_ROWS, _EVERY = 252, 4  # the latest rows that say what is usual, and how many apart
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days
ONE_DEVIATION = 0.15865525393145707, 0.8413447460685429
"""The shares of a normal distribution below minus one deviation, and below one."""
_LEAST_SHARED = 0.02  # change of a band's logarithm that has shares


def explained(
    model: Model,
    panel: Panel,
    ids: Sequence[str],
    *,
    level: float = 80.0,
    step: int = 1,
    before: Panel | None = None,
    older: Model | None = None,
    notes: Sequence[str] = (),
) -> Explanation:
    """Explain the forecasts of some series, and what changed since an earlier date.

    - ``panel``: as it was known at the date that is explained; ``before``: at the earlier one
    - ``step``: the step ahead that is shown
    - ``older``: the model of the earlier date, where it is another one
    """
    frame = _factors_of(model, panel, ids, level)
    if frame is None:
        raise ModelError(f"{', '.join(ids[:5])}: no forecast can be made, so none is explained")
    known = panel.masked(forecasting=True).only([*ids])
    each = map(_seen, known.rows()) if known.target == "y" else ()
    seen = dict(zip(known.ids, each, strict=False))
    alone = Explanation(frame, level, step, seen=seen, notes=tuple(notes))
    if before is None:
        return alone
    with warnings.catch_warnings():  # all is said of the later date already
        warnings.simplefilter("ignore", ForecasterWarning)
        past = _factors_of(model, before, ids, level, usual=False)
        was = None if older is None else _factors_of(older, before, ids, level, usual=False)
    since = before.times[before.mask.any(0)][-1]
    if past is None:
        notes = *notes, f"Nothing could be forecast from {show_time(since)}, so no change is shown."
        return dataclasses.replace(alone, notes=notes)
    changes = compared(frame, past, was)
    if changes["then"].isna().all():
        notes = *notes, f"No time is forecast from {show_time(since)}, too: no change is shown."
    moves, at = dict(_moves(known, since)), show_time(since)
    return dataclasses.replace(alone, frame=changes, moves=moves, since=at, notes=tuple(notes))


def _factors_of(
    model: Model, panel: Panel, ids: Sequence[str], level: float, *, usual: bool = True
) -> pd.DataFrame | None:
    """Return the factors of those series that can be forecast; None where none can be."""
    model, panel = prepared(model, panel)
    some = [name for name in ids if name in panel.ids]
    return factors_of(model, panel.only(some), level, usual=usual) if some else None


def _seen(rows: tuple[np.ndarray, np.ndarray]) -> str:
    """Return what the latest rows of counts have been, in words; ``rows``: values and times."""
    values, times = (part[-_ROWS:] for part in rows)
    dated = len(times) > 1 and times.dtype.kind == "M"
    days = int(np.median(np.diff(times)) / np.timedelta64(1, "D")) if dated else 0
    each = {1: "days", 7: "weeks", 30: "months", 31: "months"}.get(days, "rows")
    some = values[values != 0]
    said = f"in {len(values) - len(some)} of the last {len(values)} {each} it was 0"
    ends = sorted({some.min(), some.max()}) if len(some) else []
    return f"{said}, otherwise {' to '.join(f'{end:.4g}' for end in ends)}" if ends else said


def _moves(panel: Panel, since: object) -> Iterator[tuple[str, Move]]:
    """Yield each series that has later rows than a time, and had earlier ones, with its move."""
    for name, (values, times) in zip(panel.ids, panel.rows(), strict=True):
        relative = panel.target != "y" and bool((values > 0).all())
        z = np.log(values) if relative else values
        if (later := int((times > since).sum())) in (0, len(z)):
            continue
        changes = np.diff(z)
        usual = float(np.median(np.abs(changes[-_ROWS:])))
        largest = int(np.argmax(np.abs(changes[-later:]))) - later
        net, step = z[-1] - z[-1 - later], changes[largest]
        if relative:
            net, step = np.expm1(net), np.expm1(step)
        times_usual = abs(changes[-1]) / usual if later == 1 and usual > 0 else np.nan
        yield name, Move(float(net), float(times_usual), float(step), show_time(times[largest]))


def factors_of(
    model: Model, panel: Panel, level: float = 80.0, *, usual: bool = True
) -> pd.DataFrame:
    """Return what the forecasts from the latest rows of a panel are made of, as a long frame.

    Its columns: ``unique_id, cutoff, ds, step``; ``relative``, whether the width is the logarithm
    of the bounds' ratio, as of prices, and not their difference; ``of``, which is the ``band``,
    whose factors multiply, the ``median``, whose terms add up, the ``forecast`` itself, or a
    ``component``; ``factor``, a name, where ``total`` is the whole; its ``value`` now; the
    ``usual`` one, the median over every fourth row of the last year, 252 rows at most; the
    ``percentile`` of the value among these; the ``weight`` of a component; and which ``effect`` the
    calendar has.

    - ``model``, ``panel``: as :func:`~forecaster.forecasting.prepared` returns them
    - ``level``: of the band, in percent
    - ``usual``: False: leave the usual values and percentiles unknown, which takes half the time
    """
    made = [_of_part(model, *part, level, usual=usual) for part in in_parts(model, panel)]
    frame = pd.concat(made, ignore_index=True)
    order = {name: row for row, name in enumerate(panel.ids)}
    by = [frame["unique_id"].map(order), frame["step"]]
    return frame.iloc[np.lexsort([np.arange(len(frame)), by[1], by[0]])].reset_index(drop=True)


def compared(
    now: pd.DataFrame, then: pd.DataFrame, older: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return factors with those of another date beside them, and what each did to the change.

    Prices are compared at the same step ahead, other series at the same time; a band of theirs for
    a time that was not forecast then, at the same step, too. Adds the value
    ``then``; the ``change``, a difference of logarithms of factors and a plain one
    of terms, so that changes add up to that of the total; and the ``share`` of that, of a band
    whose logarithm changed by 0.02 or more.

    - ``now``, ``then``: by the same model, from :func:`factors_of`
    - ``older``: at the date of ``then`` by the model of that time; a new fit is then a factor of
      its own
    """
    frame = now
    earlier = then[["unique_id", "ds"]].drop_duplicates()
    known = frame[["unique_id", "ds"]].merge(earlier, "left", indicator=True)["_merge"] == "both"
    by_step = frame["relative"] | (~known.to_numpy() & (frame["of"] == BAND))
    for name, part in (("then", then), ("was", older)):
        if part is not None:
            same = [_beside(frame, part, on) for on in ("step", "ds")]
            frame = frame.assign(**{name: np.where(by_step, *same)})
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
    # Of a small change the shares would be a hundred times the whole, and cancel; so would those of
    # a median, whose terms move against each other.
    shared = (frame["of"] == BAND) & (np.abs(total) > _LEAST_SHARED)
    frame["share"] = (frame["change"] / total).where(shared)
    return frame


def _beside(frame: pd.DataFrame, other: pd.DataFrame, on: str) -> np.ndarray:
    """Return for each row the value of the other frame's row of the same step, or time."""
    keys = ["unique_id", on, "of", "factor"]
    return frame[keys].merge(other[[*keys, "value"]], "left", on=keys)["value"].to_numpy()


def _of_part(model: Model, panel: Panel, steps: int, level: float, *, usual: bool) -> pd.DataFrame:
    """Return the rows of some series; ``steps``: of all histories."""
    model, horizon = model.only(panel.ids), model.config.horizon
    back = _steps_back(panel, steps) if usual else np.zeros(1, int)
    at = np.maximum(steps - 1 - back, 0)
    parts = Parts.at(np.tile(at, (len(panel.ids), 1)))
    transformed = model.transform.apply(panel, horizon, steps, parts)
    latest = latest_of(model, panel, transformed, 1)
    made = [_Explained(latest, parts.sliced(slice(-1, None)), model, level).parts()]
    if len(at) > 1:
        past = forecast_at(model, transformed, parts.origins[:, :-1], latest.errors)
        made.insert(0, _Explained(past, parts.sliced(slice(-1)), model, level).parts())
    unknown = parts.origins < transformed.first[:, None]
    unknown[:, -1] = False
    factor = price_factor(panel)[:, None, None]
    rows: list[dict[str, Any]] = []
    for of, name in made[-1]:
        values = np.concatenate([part[of, name] for part in made], axis=1)
        values = values * factor if of == FORECAST else values
        weight = parts.weights[name][:, -1] if of == COMPONENT else None
        rows.append(_rows(of, name, values, unknown, weight))
    if parts.components:
        before = np.full((len(panel.ids), len(at), horizon), np.nan)
        before[:, -1] = _a_year_before(model, panel)
        rows.append(_rows(FORECAST, "a year before", before, unknown))
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
    dates = frame["factor"] == CALENDAR
    natures, its = model.transform.natures, frame[dates]
    frame["effect"] = ""
    frame.loc[dates, "effect"] = [
        effect_name(natures[name].effects, time, natures[name].rhythm) if name in natures else ""
        for name, time in zip(its["unique_id"], its["ds"].to_numpy(), strict=True)
    ]
    return frame[frame["value"].notna()]


def _steps_back(panel: Panel, steps: int) -> Int[np.ndarray, " origin"]:
    """Return how far back the origins lie, every few rows of a year to say what is usual; 0: now.

    ``steps``: of the histories
    """
    rows = _ROWS
    if panel.times.dtype.kind == "M":
        within = panel.of_times(lambda times: int((times > times[-1] - _YEAR).sum()))
        rows = min(rows, max(within))
    every = _EVERY if rows >= 2 * _EVERY * _EVERY else 1
    back = np.arange(every, min(rows, steps - 1) + 1, every)
    return np.append(back[::-1], 0)


def _a_year_before(model: Model, panel: Panel) -> Float[np.ndarray, "series horizon"]:
    """Return the values a year, or 52 weeks, before the times that are forecast from now."""
    out = np.full((len(panel.ids), model.config.horizon), np.nan)
    for row, (values, times) in enumerate(panel.rows()):
        if times.dtype.kind == "M" and len(times):
            ahead = pd.DatetimeIndex(next_times(times, model.config.horizon, model.frequency))
            monthly = ahead[0] - times[-1] > pd.Timedelta(days=20)
            back = pd.DateOffset(years=1) if monthly else pd.Timedelta(days=364)
            out[row] = pd.Series(values, index=times).reindex(ahead - back).to_numpy()
    return out


def _rows(
    of: str, name: str, values: np.ndarray, unknown: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, Any]:
    """Return the columns of one factor; ``values`` end with those of now."""
    now, past = values[:, -1], np.where(unknown[:, :-1, None], np.nan, values[:, :-1])
    known = np.isfinite(past)
    count = np.where(known.any(1), known.sum(1), np.nan)
    same = np.isclose(past, now[:, None], rtol=1e-9, atol=0)  # a constant differs by rounding
    below = (((past < now[:, None]) & ~same) + same / 2).sum(1)
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


class _Explained:
    """A forecast, and the names of what it is made of.

    - ``made``: the forecast
    - ``parts``: what its base and unit are made of, at the same origins
    - ``level``: of the band
    """

    def __init__(self, made: Forecast, parts: Parts, model: Model, level: float) -> None:
        self._made, self._parts, self._model = made, parts, model
        self._transformed, distribution = made.transformed, made.distribution
        self._logarithmic = self._transformed.logarithmic[:, None, None]
        self._counted = self._transformed.counted[:, None, None]
        self._ahead = np.arange(1, model.config.horizon + 1)
        # As forecast, standardised and in units; then as without past errors, also of counts.
        shares = 0.5, (1 - level / 100) / 2, (1 + level / 100) / 2, *ONE_DEVIATION
        self._points = [*made.quantiles(shares)]
        self._middle, self._low, self._high = map(made.in_units, self._points[:3])
        plain = dataclasses.replace(distribution, counts=None)
        scores = normal_scores_of(shares[:3])
        self._usual = scores[2] - scores[1]
        self._plain = [plain.quantiles(np.broadcast_to(one, plain.shape)) for one in scores]

    def parts(self) -> dict[tuple[str, str], Float[np.ndarray, "series origin horizon"]]:
        """Return all parts by what they are of, and by name."""
        every = {
            BAND: self._band(),
            MEDIAN: self._median(),
            FORECAST: self._forecast(),
            COMPONENT: self._parts.components,
        }
        return {(of, name): each for of, own in every.items() for name, each in own.items()}

    def _forecast(self) -> Factors:
        """Return the latest value, the median, the bounds and the deviation.

        Of counts also the mean, and the chance that it is not zero.
        """
        made = self._made
        z = np.take_along_axis(self._transformed.z, made.origins, axis=1)[:, :, None]
        latest = self._transformed.invert(np.broadcast_to(z, made.base.shape))
        named = {"latest": latest, "low": self._low, "median": self._middle, "high": self._high}
        logs = np.where(self._logarithmic, (self._points[4] - self._points[3]) / 2, np.nan)
        scale = np.where(self._counted, made.distribution.scale, logs)
        named["deviation"] = made.unit * scale  # of prices that of the logarithm
        if self._counted.any():
            mean = made.base + made.unit * self._plain[0]
            named["mean"] = np.where(self._counted, mean, np.nan)
            some = 1 - made.at_most(np.zeros(made.base.shape))
            named["chance of any"] = np.where(self._counted, some, np.nan)
        return named

    def _band(self) -> Factors:
        """Return the factors of the width, and their product."""
        known, total = self._logarithmic, self._high - self._low
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.where(known, np.log(self._high) - np.log(self._low), total)
        scale = self._made.distribution.scale
        plain = np.where(self._counted, self._usual * scale, self._plain[2] - self._plain[1])
        spread = self._made.calibrated.spread
        wide = np.where(self._counted, spread * plain, self._points[2] - self._points[1])
        parts = self._width() | {
            "spread of past errors": _ratio(wide, plain),
            "level and step": _ratio(plain, scale),
        }
        if not known.all():
            limit = np.where(known, np.nan, _ratio(total, self._made.unit * wide))
            parts["whole numbers"] = np.where(self._counted, limit, np.nan)
            parts["not below zero"] = np.where(self._counted, np.nan, limit)
        if CONSTANT in parts:
            parts["level and step"] = parts["level and step"] * parts.pop(CONSTANT)
        return {TOTAL: total, **parts}

    def _width(self) -> Factors:
        """Return the factors of the unit times the scale, of prices in groups of terms."""
        scale, parts = self._made.distribution.scale, self._parts
        if parts.components:
            return {**parts.scale, "networks": scale}
        root = np.broadcast_to(np.sqrt(self._ahead), scale.shape)
        own = self._made.unit / (parts.scale.get("events", 1.0) * root)
        factors = {**parts.scale, "own volatility": own, CONSTANT: root}
        if (common := self._transformed.common) is None:
            return {**factors, "networks": scale}
        common = at_origins(common, self._made.origins)
        known = np.isfinite(common)
        weights = np.where(known[..., None], self._transformed.scale_weights, [0.0, 1.0, 0.0])
        constant, _, weight = np.moveaxis(weights, -1, 0)
        # The linear model takes the place of a part of the series' own volatility and its root.
        logs = {name: np.log(factors[name]) * (1 - weight) for name in ("own volatility", CONSTANT)}
        for name, term in parts.common.items():
            logs[name] = logs.get(name, 0.0) + weight * term
        logs[CONSTANT] = logs[CONSTANT] + constant
        logs["networks"] = np.log(scale) - constant - weight * np.where(known, common, 0.0)
        return factors | {name: np.exp(value) for name, value in logs.items()}

    def _median(self) -> Factors:
        """Return the terms of the median, and their sum."""
        made, where, counted = self._made, self._logarithmic, self._counted
        moved = made.unit * self._points[0]
        if self._model.transform.name == "log_return":
            terms = {"networks": moved}
            if np.isfinite(growth := self._model.growth).all():
                mean = np.broadcast_to(growth[:, None, None] * self._ahead, moved.shape)
                terms = {"premium": mean, "half the variance": moved - mean}
            return {TOTAL: np.log(self._middle) - made.base, **terms}
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.where(where, np.log(self._middle) - made.base, self._middle)
        moved = np.where(counted, made.unit * self._plain[0], moved)  # of the mean
        limit = np.where(where, np.nan, self._middle - (made.base + moved))
        return {
            TOTAL: total,
            **(self._parts.base or {"latest value": np.where(where, np.nan, made.base)}),
            "networks": moved,
            "whole numbers": np.where(counted, limit, np.nan),
            "not below zero": np.where(counted, np.nan, limit),
        }
