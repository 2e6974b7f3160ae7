"""How good the forecasts are: rolling origins over all series, and scores per series."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from forecaster import metrics, swarm
from forecaster.config import Config
from forecaster.errors import DataError
from forecaster.forecasting import RISE, check_levels, fit, forecast_latest, matching
from forecaster.panel import Panel, show_time

NAIVE = "Naive"
_BAND = re.compile(r"^(?P<model>.+)-(?P<side>lo|hi)-(?P<level>[0-9.]+)$")


def cross_validation(
    panel: Panel,
    config: Config | None = None,
    n_windows: int = 1,
    step_size: int = 1,
    *,
    level: Sequence[float] = (80, 95),
    seed: int = 0,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> pd.DataFrame:
    """Forecasts from a rolling origin, next to what came.

    The last ``n_windows`` cutoffs, ``step_size`` times apart, the last of them ``horizon`` times
    before the panel's end. Networks are trained once, on what was known at the first cutoff.

    Returns a long frame ``unique_id, ds, cutoff, y``, the model's columns as in
    :func:`~forecaster.forecasting.predict`, and ``Naive``, the last value. ``y`` is in the units
    of the panel's target. Series are forecast from the cutoffs at which they were observed.

    Raises DataError when the panel is too short for so many cutoffs.
    """
    config = config or Config()
    level = check_levels(level)
    cutoffs = _cutoffs(panel, config.horizon, n_windows, step_size)
    model = fit(panel.until(panel.times[cutoffs[0]]), config, seed, on_progress=on_progress)
    # A bad row must not decide, before it is seen, whether its series is forecast at all.
    panel = matching(model, model.transform.without_bad_rows(panel))
    transformed = model.transform.apply(panel, config.horizon)
    since = panel.mask[:, cutoffs[0] :].sum(1).max()
    forecast = forecast_latest(model, panel, transformed, int(since), level)

    steps, horizon = transformed.z.shape[1], config.horizon
    origins = np.arange(steps - since, steps)
    at = transformed.at[:, origins]  # (series, origin), places in time
    target_steps = origins[:, None] + 1 + np.arange(horizon)  # (origin, horizon)
    known = (target_steps < steps) & np.isin(at, cutoffs)[:, :, None]
    row, origin, h = np.nonzero(known)
    ahead = target_steps[origin, h]
    y = model.transform.invert(transformed.z)
    frame = pd.DataFrame(
        {
            "unique_id": np.array(panel.ids, object)[row],
            "ds": panel.times[transformed.at[row, ahead]],
            "cutoff": panel.times[at[row, origin]],
            "y": y[row, ahead],
        }
    )
    for name, values in forecast.items():
        if name != RISE:
            frame[name] = values[row, origin, h]
    frame[NAIVE] = y[row, origins[origin]]
    return frame


def evaluate(frame: pd.DataFrame, *, by_horizon: bool = False) -> pd.DataFrame:
    """Scores of a cross-validation frame per series and model, one row each.

    Columns: ``mae`` and ``rmse`` in the units of the series, ``mae_relative_to_naive`` where the
    frame has ``Naive``, and per level ``coverage-80`` (share) and ``width-80``. ``by_horizon``
    adds the horizon, counted in rows from the cutoff.
    """
    models = [
        name
        for name in frame
        if name not in ("unique_id", "ds", "cutoff", "y") and not _BAND.match(str(name))
    ]
    keys = ["unique_id"]
    frame = frame.copy()
    if by_horizon:
        frame["horizon"] = frame.groupby(["unique_id", "cutoff"]).cumcount() + 1
        keys.append("horizon")
    parts = {str(name): _scores(frame, str(name), keys) for name in models}
    if NAIVE in parts:
        for part in parts.values():
            with np.errstate(divide="ignore", invalid="ignore"):
                part["mae_relative_to_naive"] = part["mae"] / parts[NAIVE]["mae"]
    table = pd.concat(parts, names=["model"]).reset_index()
    return table.sort_values([*keys, "model"], ignore_index=True)


def _scores(frame: pd.DataFrame, model: str, keys: list[str]) -> pd.DataFrame:
    y = frame["y"]
    errors = frame[keys].assign(
        mae=metrics.absolute_error(y, frame[model]), rmse=metrics.squared_error(y, frame[model])
    )
    for name in map(str, frame.columns):
        band = _BAND.match(name)
        if band and band["model"] == model and band["side"] == "lo":
            level = band["level"]
            high = frame[f"{model}-hi-{level}"]
            errors[f"coverage-{level}"] = metrics.covered(y, frame[name], high)
            errors[f"width-{level}"] = high - frame[name]
    means = errors.groupby(keys, sort=False).mean()
    means["rmse"] = np.sqrt(means["rmse"])
    return means


def _cutoffs(panel: Panel, horizon: int, n_windows: int, step_size: int) -> np.ndarray:
    """Places of the cutoffs on the time axis, in order."""
    if n_windows < 1 or step_size < 1:
        raise DataError(
            f"n_windows and step_size must be 1 or more; got {n_windows} and {step_size}"
        )
    last = len(panel.times) - 1 - horizon
    first = last - (n_windows - 1) * step_size
    if first < 1:
        raise DataError(
            f"{n_windows} cutoffs {step_size} apart need more than "
            f"{(n_windows - 1) * step_size + horizon + 1} times; the panel has {len(panel.times)}, "
            f"up to {show_time(panel.times[-1])}"
        )
    return np.arange(first, last + 1, step_size)
