"""Fit a model per series, and forecast with them."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ModelError, UsageError, name_reasons
from forecaster.forecasting.columns import bounds_of
from forecaster.forecasting.conformal import half_widths
from forecaster.forecasting.heads import HEADS
from forecaster.forecasting.training import Trained, functions, split_of, train
from forecaster.forecasting.windows import gather
from forecaster.series import Frequency, Panel, Transform, Transformed, infer_frequency


@dataclasses.dataclass(frozen=True)
class Model:
    """One trained network per series, and all that is needed to forecast with them.

    ``params``: a nested dict of arrays, each (series, ...); ``scores`` (series, origin, horizon):
    errors over forecast scales on the validation span; ``fitted_until`` (series,): the latest time
    each network has seen; ``report``: a row per series, how its training went; ``skipped``: series
    of the panel that have no network, with the reason; ``provenance``: seed, source, dates.
    """

    config: Config
    ids: tuple[str, ...]
    channels: tuple[str, ...]
    target: str
    frequency: Frequency
    transform: Transform
    params: Mapping[str, Any]
    scores: np.ndarray
    fitted_until: np.ndarray
    report: pd.DataFrame
    skipped: Mapping[str, str]
    provenance: Mapping[str, Any]


def fit(
    panel: Panel,
    config: Config | None = None,
    seed: int = 0,
    *,
    tune: bool = False,
    checkpoint: swarm.Checkpoint | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Model:
    """Train one independent network per series of the panel.

    A series that is too short, never changes or cannot be transformed is left out and named in
    ``skipped``. A series' network depends on its name, its values, the config and the seed alone.

    With ``tune``, each series first searches its own learning rate, weight decay and hidden size by
    its validation loss; the report says what it chose. With a ``checkpoint`` an interrupted fit can
    be resumed; see :class:`swarm.Checkpoint`.

    Raises DataError when no series is left.
    """
    train_now = functools.partial(train, tune=tune, checkpoint=checkpoint, on_progress=on_progress)
    return fit_with(train_now, panel, config or Config(), seed, tune)


def fit_with(
    train: Callable[[Config, Transformed, tuple[str, ...], int], Trained],
    panel: Panel,
    config: Config,
    seed: int,
    tuned: bool = False,
) -> Model:
    """As :func:`fit`, the networks trained by a function of their data, names and seed."""
    transform = Transform.choose(config.transform, panel, config.season)
    panel = _usable(panel, config, transform)
    transformed = transform.apply(panel, config.horizon)
    trained = train(config, transformed, panel.ids, seed)
    config, split = trained.config, split_of(config, transformed.z.shape[1])
    origins = np.tile(split.validation_origins, (len(panel.ids), 1))
    location, scale, _ = distributions(config, trained.params, transformed, origins)
    targets = np.take_along_axis(transformed.targets(), origins[:, :, None], axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = _errors(transform, transformed, origins, location)
    report = pd.DataFrame(
        {
            "rows": panel.mask.sum(1),
            **trained.report,
            **errors,
        },
        index=pd.Index(panel.ids, name="unique_id"),
    )
    sound = np.isfinite(trained.report["validation_loss"]) & np.isfinite(errors["mae"])
    why = trained.report.get("why_not", np.full(len(panel.ids), "", object))
    broken = {
        n: w or _UNSOUND for n, w, good in zip(panel.ids, why, sound, strict=True) if not good
    }
    panel = panel.only([name for name in panel.ids if name not in broken], broken)
    return Model(
        config=config,
        ids=panel.ids,
        channels=panel.channels,
        target=panel.target,
        frequency=panel.frequency,
        transform=transform,
        params=swarm.take_members(trained.params, np.flatnonzero(sound)),
        scores=((targets - location) / scale).astype(np.float32)[sound],
        fitted_until=panel.times[transformed.at[sound, -1]],
        report=report[sound],
        skipped=panel.skipped,
        provenance={"seed": seed, "training_seconds": trained.seconds, "tuned": tuned},
    )


_UNSOUND = "its forecasts on the validation span are not finite numbers; look at its values"


def predict(model: Model, panel: Panel, level: Sequence[float] = (80, 95)) -> pd.DataFrame:
    """Forecast every series of the panel from its own latest row.

    Returns a long frame ``unique_id, ds``, the median under the model's name (``LSTM``), bounds
    ``LSTM-lo-80, LSTM-hi-80, ...`` per level, and ``probability_of_rise``, the chance that the
    value lies above the latest one. Prices are in the units of ``close``, also where the model
    learned from ``adj_close``.

    Series that the model has no network for are left out with a warning. Raises ModelError when
    that is all of them or when channels are missing.
    """
    level = check_levels(level)
    panel = matching(model, panel)
    _warn_of_few_errors(model, level)
    transformed = model.transform.apply(panel, model.config.horizon)
    forecast = forecast_latest(model, panel, transformed, 1, level)
    quoted = quoted_over_target(panel)[:, None]
    horizon = model.config.horizon
    own = [panel.times[seen] for seen in panel.mask]  # each series goes on at its own frequency
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(np.array(panel.ids, object), horizon),
            "ds": np.concatenate([infer_frequency(t).after(t[-1], horizon) for t in own]),
        }
    )
    for name, values in forecast.items():
        values = values[:, 0]  # (series, horizon)
        frame[name] = (values if name == RISE else values * quoted).ravel()
    return frame


RISE = "probability_of_rise"


def forecast_latest(
    model: Model, panel: Panel, transformed: Transformed, count: int, level: Sequence[float]
) -> dict[str, np.ndarray]:
    """Forecasts made at the latest ``count`` steps, by column, each (series, count, horizon).

    Only what was known at a step has a part in its forecast: of the network's inputs, and of the
    errors that its bands are calibrated on, those since the fit included.
    """
    rows = rows_of(model, panel.ids)
    steps, horizon = transformed.z.shape[1], model.config.horizon
    fresh = _steps_since(panel, transformed, model.fitted_until[rows])
    # Errors of the last origins before the fit's end were not all known then.
    looked_at = min(steps, max(count, int(fresh.max()) + horizon))
    origins = np.tile(np.arange(steps - looked_at, steps), (len(rows), 1))
    location, scale, dof = distributions(
        model.config, swarm.take_members(model.params, rows), transformed, origins
    )
    targets = np.take_along_axis(transformed.targets(), origins[:, :, None], axis=1)
    scores = _append(model.scores[rows], (targets - location) / scale, fresh + horizon)
    widths = half_widths(scores, scores.shape[1] - 1 - fresh, level, model.config.validation, count)

    latest = origins[:, -count:]
    location, scale, dof = (part[:, -count:] for part in (location, scale, dof))
    level_at = np.take_along_axis(transformed.level, latest[:, :, None], axis=1)
    scale_at = np.take_along_axis(transformed.scale, latest[:, :, None], axis=1)
    now = np.take_along_axis(transformed.z, latest, axis=1)[:, :, None]

    def back(standardised):
        return model.transform.invert(level_at + scale_at * standardised)

    name = model.config.column
    columns = {name: back(location)}
    for percent, width in zip(level, widths, strict=True):
        low, high = bounds_of(name, percent)
        columns[low] = back(location - width * scale)
        columns[high] = back(location + width * scale)
    head = HEADS[model.config.head]
    columns[RISE] = head.probability_above((now - level_at) / scale_at, location, scale, dof)
    return columns


def _steps_since(panel: Panel, transformed: Transformed, fitted_until: np.ndarray) -> np.ndarray:
    """How many rows each series has after the latest one its network has seen, (series,)."""
    at = transformed.at
    times = panel.times[np.maximum(at, 0)]
    return ((times > fitted_until[:, None]) & (at >= 0)).sum(1)


def _append(stored: np.ndarray, recent: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Scores of the validation span and those since, (series, origin, horizon), in order of time.

    ``stored`` ends one origin before the fit's last row; of ``recent`` the last ``keep`` (series,)
    origins count and replace what they overlap. The last origin is "now"; NaN where nothing is.
    """
    series, span, horizon = stored.shape
    most = recent.shape[1]
    out = np.full((series, span + most, horizon), np.nan)
    for row in range(series):
        fresh = keep[row] - horizon  # origins after the fit's last row
        end = out.shape[1] - 1 - fresh
        begin = max(0, end - span)
        out[row, begin:end] = stored[row, span - (end - begin) :]
        taken = min(keep[row], most)
        out[row, out.shape[1] - taken :] = recent[row, most - taken :]
    return out


def distributions(
    config: Config, params: Any, transformed: Transformed, origins: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Location, scale and degrees of freedom in standardised units, (series, origin, horizon)."""
    members = len(origins)
    return swarm.map_members(
        _forecast_function(config, transformed.features.shape[-1]),
        params,
        transformed.features,
        transformed.first.astype(np.int32),
        origins.astype(np.int32),
        members=members,
    )


def rows_of(model: Model, ids: Sequence[str]) -> np.ndarray:
    """The rows of these series in a model's arrays."""
    place = {name: row for row, name in enumerate(model.ids)}
    return np.array([place[name] for name in ids])


def matching(model: Model, panel: Panel) -> Panel:
    """The series of a panel that a model has networks for; warns of the others.

    Raises ModelError when there are none, or when the panel lacks a channel the model learned from.
    """
    missing = [name for name in model.channels if name not in panel.channels]
    if missing:
        raise ModelError(
            f"the model was fitted on {', '.join(model.channels)}; these prices lack "
            f"{', '.join(missing)}. Fit again, or forecast from the same kind of data"
        )
    if panel.channels != model.channels:
        columns = [panel.channels.index(name) for name in model.channels]
        values = panel.values[:, :, columns]
        mask = np.isfinite(values[:, :, model.channels.index(model.target)])
        panel = dataclasses.replace(
            panel, values=values, mask=mask, channels=model.channels, target=model.target
        )
    bad = model.transform.unusable(panel)
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < model.config.lookback:
            bad[name] = f"{rows} rows; a forecast is made from {model.config.lookback}"
    known = [name for name in panel.ids if name in set(model.ids) and name not in bad]
    unknown = {name: bad.get(name, "the model has no network for it") for name in panel.ids}
    left_out = {name: reason for name, reason in unknown.items() if name not in set(known)}
    if not known:
        name, reason = next(iter(left_out.items()))
        raise ModelError(f"no forecast can be made: {name}: {reason}")
    if left_out:
        warnings.warn(f"{len(left_out)} series left out:\n{name_reasons(left_out)}", stacklevel=3)
    return panel.only(known, left_out)


def check_levels(level: Sequence[float]) -> list[float]:
    """Levels of bands in percent, sorted. Raises UsageError unless each is between 0 and 100."""
    for percent in level:
        if not 0 < percent < 100:
            raise UsageError(f"level: expected percent above 0 and below 100; got {percent:g}")
    return sorted(set(level))


def _warn_of_few_errors(model: Model, level: Sequence[float]) -> None:
    count = model.config.validation - model.config.horizon + 1
    highest = 100 * count / (count + 1)
    if beyond := [f"{percent:g} %" for percent in level if percent > highest]:
        warnings.warn(
            f"the {' and '.join(beyond)} band is only as wide as the largest of {count} errors it "
            f"is calibrated on, which hold up to {highest:.1f} %; fit with a larger validation",
            stacklevel=3,
        )


def _usable(panel: Panel, config: Config, transform: Transform) -> Panel:
    reasons = transform.unusable(panel)
    needed = config.lookback + config.horizon + config.validation
    seasonal = f" + season {transform.season}" if transform.season > 1 else ""
    needed += transform.season if seasonal else 0
    for name, rows in zip(panel.ids, panel.mask.sum(1), strict=True):
        if rows < needed:
            reasons[name] = (
                f"{rows} rows; {needed} needed (lookback {config.lookback} + horizon "
                f"{config.horizon} + validation {config.validation}{seasonal})"
            )
    return panel.only([name for name in panel.ids if name not in reasons], reasons)


@functools.lru_cache(maxsize=8)
def _forecast_function(config: Config, features: int):
    apply = functions(config, features).apply
    head = HEADS[config.head](config.horizon)

    def forecast(params, features, first, origins):
        starts = origins - config.lookback + 1
        inputs, valid = gather(features, first, starts, config.lookback)
        outputs, constants = apply(params, inputs, valid, last_only=True)
        return head.distribution(outputs[:, -1], constants)  # each (origin, horizon)

    return forecast


def _errors(transform, transformed, origins, location) -> dict[str, np.ndarray]:
    """Mean absolute error over the validation span in the series' own units, all horizons, and
    relative to the last value ("naive")."""
    horizon = location.shape[-1]
    ahead = origins[:, :, None] + 1 + np.arange(horizon)
    inside = ahead < transformed.z.shape[1]
    rows = np.arange(len(origins))[:, None, None]
    actual = transform.invert(transformed.z[rows, np.minimum(ahead, transformed.z.shape[1] - 1)])
    forecast = transform.invert(
        transformed.level[rows[:, :, 0], origins]
        + transformed.scale[rows[:, :, 0], origins] * location
    )
    naive = transform.invert(np.take_along_axis(transformed.z, origins, axis=1))[:, :, None]

    def mae(guess):
        return np.where(inside, np.abs(actual - guess), 0).sum((1, 2)) / inside.sum((1, 2))

    with np.errstate(divide="ignore", invalid="ignore"):
        return {"mae": mae(forecast), "mae_relative_to_naive": mae(forecast) / mae(naive)}


def quoted_over_target(panel: Panel) -> np.ndarray:
    """Factor from the target's units to quoted prices, (series,): close over adjusted close at the
    latest row that has both."""
    if panel.target != "adj_close" or "close" not in panel.channels:
        return np.ones(len(panel.ids))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = panel.channel("close") / panel.channel("adj_close")
    usable = np.isfinite(ratio) & (ratio > 0)
    last = usable.shape[1] - 1 - np.argmax(usable[:, ::-1], axis=1)
    return np.where(usable.any(1), ratio[np.arange(len(ratio)), last], 1.0)
