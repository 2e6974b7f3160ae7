"""Forecast with a model: from a panel to distributions, bands and a long frame."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ModelError, UsageError, name_reasons
from forecaster.forecasting.columns import bounds_of
from forecaster.forecasting.conformal import half_widths
from forecaster.forecasting.heads import HEADS
from forecaster.forecasting.model import Model, Networks, Params
from forecaster.forecasting.networks import OwnNetwork
from forecaster.forecasting.training import functions
from forecaster.forecasting.windows import gather
from forecaster.series import Panel, Transformed, infer_frequency

RISE = "probability_of_rise"
"""The column with the chance that a value lies above the latest one."""

ByHorizon: TypeAlias = Float[np.ndarray, "series origin horizon"]


def predict(model: Model, panel: Panel, level: Sequence[float] = (80, 95)) -> pd.DataFrame:
    """Forecast every series of the panel from its own latest row.

    Returns a long frame ``unique_id, ds``, the median under the model's name (``LSTM``), bounds
    ``LSTM-lo-80, LSTM-hi-80, ...`` per level in percent, and ``probability_of_rise``, the chance
    that the value lies above the latest one. Prices are in the units of ``close``, also where the
    model learned from ``adj_close``. The times of each series follow its own frequency.

    Series that the model has no network for are left out with a warning. Raises ModelError when
    that is all of them or when channels are missing, UsageError for a level outside 0 to 100.
    """
    level = check_levels(level)
    panel = match_panel(model, panel)
    _warn_of_few_residuals(model, level)
    horizon = model.config.horizon
    transformed = model.transform.apply(panel, horizon)
    forecast = forecast_latest(model, panel, transformed, 1, level)
    factor = price_factor(panel)[:, None]
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(np.array(panel.ids, object), horizon),
            "ds": np.concatenate([_times_ahead(panel.times[seen], horizon) for seen in panel.mask]),
        }
    )
    for name, values in forecast.items():
        values = values[:, 0]  # (series, horizon)
        frame[name] = (values if name == RISE else values * factor).ravel()
    return frame


def _times_ahead(series_times: np.ndarray, horizon: int) -> np.ndarray:
    return infer_frequency(series_times).after(series_times[-1], horizon)


def forecast_latest(
    model: Model, panel: Panel, transformed: Transformed, count: int, level: Sequence[float]
) -> dict[str, ByHorizon]:
    """Forecasts made at the latest ``count`` steps, by column, each (series, count, horizon).

    Only what was known at a step has a part in its forecast: of the network's inputs, and of the
    residuals that its bands are calibrated on, those since the fit included.

    - ``model``: has a network for every series of the panel
    - ``panel``: as :func:`match_panel` returns it
    - ``transformed``: the panel under the model's transform
    - ``count``: how many of the latest steps
    - ``level``: of the bands, in percent, sorted
    """
    model = model.only(panel.ids)
    steps, horizon = transformed.z.shape[1], model.config.horizon
    n_new = _steps_since_fit(panel, transformed, model.fitted_until)
    # The outcomes of the last origins before the fit's end were not all known then.
    n_origins = min(steps, max(count, int(n_new.max()) + horizon))
    origins = np.tile(np.arange(steps - n_origins, steps), (len(model.ids), 1))
    location, scale, dof = distributions(model.networks, transformed, origins)
    recent = standardised_residuals(transformed, origins, location, scale)
    residuals = _append(model.residuals, recent, n_new + horizon)
    first_new = residuals.shape[1] - 1 - n_new
    widths = half_widths(residuals, first_new, level, model.config.validation, count)
    latest = (part[:, -count:] for part in (location, scale, dof))
    bands = zip(level, widths, strict=True)
    return _columns(model, transformed, origins[:, -count:], tuple(latest), dict(bands))


def _columns(
    model: Model,
    transformed: Transformed,
    origins: Int[np.ndarray, "series origin"],
    distribution: tuple[ByHorizon, ...],
    widths: dict[float, ByHorizon],
) -> dict[str, ByHorizon]:
    """Forecasts in the series' own units, by column.

    ``distribution``: location, scale and degrees of freedom in standardised units; ``widths``: half
    widths of the band of each level in percent, in forecast scales.
    """
    location, scale, dof = distribution
    base = np.take_along_axis(transformed.base, origins[:, :, None], axis=1)
    unit = np.take_along_axis(transformed.scale, origins[:, :, None], axis=1)
    now = np.take_along_axis(transformed.z, origins, axis=1)[:, :, None]

    def in_own_units(standardised: ByHorizon) -> ByHorizon:
        return model.transform.invert(base + unit * standardised)

    name = model.config.column
    columns = {name: in_own_units(location)}
    for percent, width in widths.items():
        low, high = bounds_of(name, percent)
        columns[low] = in_own_units(location - width * scale)
        columns[high] = in_own_units(location + width * scale)
    head = HEADS[model.config.head]
    columns[RISE] = head.probability_above((now - base) / unit, location, scale, dof)
    return columns


def _steps_since_fit(
    panel: Panel, transformed: Transformed, fitted_until: np.ndarray
) -> Int[np.ndarray, " series"]:
    """How many rows each series has after the latest one that its network has seen."""
    positions = transformed.positions
    times = panel.times[np.maximum(positions, 0)]
    return ((times > fitted_until[:, None]) & (positions >= 0)).sum(1)


def standardised_residuals(
    transformed: Transformed,
    origins: Int[np.ndarray, "series origin"],
    location: ByHorizon,
    scale: ByHorizon,
) -> ByHorizon:
    """What came of forecasts made at these steps, minus location, over scale; NaN where unknown."""
    targets = np.take_along_axis(transformed.targets(), origins[:, :, None], axis=1)
    return (targets - location) / scale


def _append(stored: ByHorizon, recent: ByHorizon, keep: Int[np.ndarray, " series"]) -> ByHorizon:
    """Residuals of the validation span and those since, in order of time.

    ``stored`` ends one origin before the fit's last row; of ``recent`` the last ``keep`` origins
    count and replace what they overlap. The last origin is "now"; NaN where there is none.
    """
    series, span, horizon = stored.shape
    n_recent = recent.shape[1]
    joined = np.full((series, span + n_recent, horizon), np.nan)
    for row in range(series):
        n_new = keep[row] - horizon  # origins after the fit's last row
        end = joined.shape[1] - 1 - n_new
        begin = max(0, end - span)
        joined[row, begin:end] = stored[row, span - (end - begin) :]
        kept = min(keep[row], n_recent)
        joined[row, joined.shape[1] - kept :] = recent[row, n_recent - kept :]
    return joined


def distributions(
    networks: Networks, transformed: Transformed, origins: Int[np.ndarray, "series origin"]
) -> tuple[ByHorizon, ByHorizon, ByHorizon]:
    """Location, scale and degrees of freedom of forecasts made at these steps.

    In standardised units; the rows of ``transformed`` and ``origins`` are the networks' series.
    """
    return swarm.map_members(
        _forecast_function(networks.config, transformed.features.shape[-1], networks.network),
        networks.params,
        transformed.features,
        transformed.first.astype(np.int32),
        origins.astype(np.int32),
        members=len(origins),
    )


@functools.lru_cache(maxsize=8)
def _forecast_function(
    config: Config, features: int, network: OwnNetwork | None
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """The forecast of one series; cached, so that forecasting again compiles nothing."""
    apply = functions(config, features, network).apply
    head = HEADS[config.head](config.horizon)

    def forecast(
        params: Params, features: jax.Array, first: jax.Array, origins: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        starts = origins - config.lookback + 1
        inputs, valid = gather(features, first, starts, config.lookback)
        outputs, constants = apply(params, inputs, valid, last_only=True)
        return head.distribution(outputs[:, -1], constants)  # each (origin, horizon)

    return forecast


def match_panel(model: Model, panel: Panel) -> Panel:
    """The series of a panel that the model can forecast, with the channels it learned from.

    Warns of the others, which the panel's ``skipped`` names. Raises ModelError when none is left or
    the panel lacks one of the channels.
    """
    panel = _with_channels(model, panel)
    reasons = dict.fromkeys(panel.ids, "the model has no network for it")
    for name in model.ids:
        reasons.pop(name, None)
    reasons |= model.transform.unusable(panel)
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < model.config.lookback:
            reasons[name] = f"{rows} rows; a forecast is made from {model.config.lookback}"
    left_out = {name: reasons[name] for name in panel.ids if name in reasons}
    known = [name for name in panel.ids if name not in left_out]
    if not known:
        name, reason = next(iter(left_out.items()))
        raise ModelError(f"no forecast can be made: {name}: {reason}")
    if left_out:
        warnings.warn(f"{len(left_out)} series left out:\n{name_reasons(left_out)}", stacklevel=3)
    return panel.only(known, left_out)


def _with_channels(model: Model, panel: Panel) -> Panel:
    """The panel with the channels that the model learned from alone, in their order."""
    missing = [name for name in model.channels if name not in panel.channels]
    if missing:
        raise ModelError(
            f"the model was fitted on {', '.join(model.channels)}; these prices lack "
            f"{', '.join(missing)}. Fit again, or forecast from the same kind of data"
        )
    if panel.channels == model.channels:
        return panel
    values = panel.values[:, :, [panel.channels.index(name) for name in model.channels]]
    mask = np.isfinite(values[:, :, model.channels.index(model.target)])
    return dataclasses.replace(
        panel, values=values, mask=mask, channels=model.channels, target=model.target
    )


def check_levels(level: Sequence[float]) -> list[float]:
    """Levels of bands in percent, sorted. Raises UsageError unless each is between 0 and 100."""
    for percent in level:
        if not 0 < percent < 100:
            raise UsageError(f"level: expected percent above 0 and below 100; got {percent:g}")
    return sorted(set(level))


def _warn_of_few_residuals(model: Model, level: Sequence[float]) -> None:
    """A band of n residuals covers at most n / (n + 1); warn of levels above it."""
    count = model.config.validation - model.config.horizon + 1
    highest = 100 * count / (count + 1)
    if beyond := [f"{percent:g} %" for percent in level if percent > highest]:
        warnings.warn(
            f"the {' and '.join(beyond)} band is only as wide as the largest of {count} errors it "
            f"is calibrated on, which hold up to {highest:.1f} %; fit with a larger validation",
            stacklevel=3,
        )


def price_factor(panel: Panel) -> Float[np.ndarray, " series"]:
    """Factor from the target's units to quoted prices.

    Close over adjusted close at the latest row that has both; 1 for other targets.
    """
    if panel.target != "adj_close" or "close" not in panel.channels:
        return np.ones(len(panel.ids))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = panel.channel("close") / panel.channel("adj_close")
    usable = np.isfinite(ratio) & (ratio > 0)
    last = usable.shape[1] - 1 - np.argmax(usable[:, ::-1], axis=1)
    return np.where(usable.any(1), ratio[np.arange(len(ratio)), last], 1.0)
