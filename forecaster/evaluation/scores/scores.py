"""Score forecasts by series, model and horizon."""

import warnings

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.errors import (
    DataError,
    ForecasterWarning,
    UsageError,
    check_flag,
    check_type,
    check_whole,
    listed,
    printable,
)
from forecaster.evaluation.rolling_origin import NAIVE
from forecaster.evaluation.scores import metrics
from forecaster.evaluation.scores.returns import Realized, return_scores
from forecaster.forecasting import (
    FORECAST_BY,
    KEYS,
    around_columns,
    bounds_of,
    levels_of,
    models_of,
    quantile_columns,
)
from forecaster.series import Panel, Time, as_time, common_frequency, default_season, show_time

DRIFTLESS = "crps_driftless"
"""The column of the CRPS where every median is moved to the latest price."""
_OF_MEDIANS = ("mae", "rmse", "smape", "size")  # scores that need no band


def evaluate(
    frame: pd.DataFrame,
    *,
    by_horizon: bool = False,
    panel: Panel | None = None,
    first_cutoff: Time | Shaped[np.ndarray, ""] | None = None,
    season: int | None = None,
) -> pd.DataFrame:
    """Score a cross-validation frame: a row per series and model.

    - ``by_horizon``: a row per horizon, too, counted in rows from the cutoff
    - ``panel``: the series that were forecast, needed for ``mase`` and ``rmsse``
    - ``first_cutoff``: the time up to which ``mase`` and ``rmsse`` measure the error of the
      seasonal naive; by default the first cutoff in ``frame``. Pass it if ``frame`` is only a part
      of a cross-validation
    - ``season``: rows in a season; by default that of the panel's frequency up to the first cutoff.
      Pass it if ``panel`` has only some of the series

    Columns:

    - ``mae``, ``rmse``: in the units of the series; ``smape``: in percent
    - ``crps``: in the units of the series, from all quantiles that the frame has bounds for
    - ``crps_driftless``: the CRPS of the same distribution, moved so that its median is the latest
      price; with a ``panel`` of prices, where the frame has ``Naive``
    - ``qlike``, ``qlike_range``, ``fz0-0.05``, ``fz0-0.025``, ``log_score``: scores of the log
      return since the cutoff (below), under the same conditions, if the frame has a band of 90 % or
      more and another inside it. Only differences between models mean something
    - ``mae_relative_to_naive``: where the frame has ``Naive``; ``crps_relative_to_naive``: where it
      also has bands of ``Naive``, unlike that of :func:`forecaster.cross_validation`
    - ``size``: the mean absolute outcome, in the units of the series
    - ``wql``: the weighted quantile loss, ``crps`` over ``size``; infinite where that is zero
    - ``coverage-80`` (a share), ``width-80``, ``winkler-80``: per level. Outcomes that several
      quantiles equal, as those of counts do, are inside in part (:func:`.metrics.held`)
    - ``pinball-0.1``: per quantile
    - ``mase``, ``rmsse``: with a ``panel``, relative to the seasonal naive's error up to the first
      cutoff (Hyndman & Koehler 2006): the mean absolute and the root mean squared change over
      ``season`` rows, which are five for daily prices and one where a frequency has no season
    - ``forecast_by``: where the frame has it, what our forecasts of the series rest on at its
      latest cutoff, in the rows of all models

    Scores of log returns, all lower where forecasts are better. The whole distribution is read from
    the quantiles, see :mod:`forecaster.evaluation.scores.returns`. A score is missing where any of
    the forecasts has none.

    - ``qlike``: :func:`.metrics.qlike` of the expected squared return (the variance, if returns
      have no drift), compared with the squared return. ``qlike_range`` compares it with the
      variance of the sessions by their ranges, a more exact measure (:class:`.realized.Realized`);
      it needs open, high, low and close in the panel
    - ``fz0-0.05``: :func:`.metrics.fz0` of the value at risk and the expected shortfall of 5 %
    - ``log_score``: the negative logarithm of the density at the outcome

    All forecasts count, but for those whose outcome is missing: a warning counts them. A score is
    missing where a model lacks one of the forecasts that it is made of.

    Raises DataError for a frame that is none of a cross-validation: a column is missing, holds no
    real numbers, or a forecast is there twice. Raises UsageError for a bad option.
    """
    _check_frame(frame)
    check_flag("by_horizon", by_horizon)
    check_type("panel", panel, Panel | None, "one of load_panel")
    if season is not None:
        check_whole("season", season, 1)
    if panel is None and first_cutoff is not None:
        raise UsageError("first_cutoff is for scaled errors; give the panel, too, or leave it out")
    _warn_of_missing(frame)
    keys = ["unique_id"]
    if by_horizon:
        frame = frame.assign(horizon=horizon_of(frame))
        keys.append("horizon")
    first = frame["cutoff"].min() if first_cutoff is None else first_cutoff
    if panel is not None and len(frame):
        first = as_time(first, panel.times.dtype.kind)
    realized = None
    if panel is not None and panel.target != "y" and NAIVE in frame:
        realized = Realized.from_panel(frame, panel, first)
    parts = {name: _scores(frame, name, keys, realized) for name in models_of(frame)}
    naive = parts.get(NAIVE, pd.DataFrame())
    for part in parts.values():
        for score in ("mae", "crps"):
            if score in naive and score in part:
                part[f"{score}_relative_to_naive"] = part[score] / naive[score]
    table = pd.concat(parts, names=["model"]).reset_index()
    if panel is not None:
        scale = _in_sample(panel, first, season_at(panel, first) if season is None else season)
        table["mase"] = table["mae"] / table["unique_id"].map(scale["absolute"])
        table["rmsse"] = table["rmse"] / np.sqrt(table["unique_id"].map(scale["squared"]))
    if FORECAST_BY in frame:
        table[FORECAST_BY] = table["unique_id"].map(_latest_rungs(frame))
    return table.sort_values([*keys, "model"], ignore_index=True)


def _latest_rungs(frame: pd.DataFrame) -> pd.Series:
    """Return what the forecasts of each series rest on at its latest cutoff."""
    latest = frame["cutoff"] == frame.groupby("unique_id", sort=False)["cutoff"].transform("max")
    return frame[latest].drop_duplicates("unique_id").set_index("unique_id")[FORECAST_BY]


def horizon_of(frame: pd.DataFrame) -> pd.Series:
    """Return the horizon of each row: its rank by ``ds`` among the rows of a series and cutoff."""
    ordered = frame[["unique_id", "ds", "cutoff"]].reset_index(drop=True).sort_values("ds")
    ahead = ordered.groupby(["unique_id", "cutoff"], sort=False).cumcount() + 1
    return pd.Series(ahead.sort_index().to_numpy(), frame.index)


def _check_frame(frame: pd.DataFrame) -> None:
    """Raise DataError unless a frame holds forecasts beside the outcomes, each once."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"frame: expected one of cross_validation; got {printable(type(frame).__name__)}"
        )
    names = list(map(str, frame.columns))
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"frame: column {twice[0]!r} appears twice; keep one")
    if missing := [name for name in KEYS if name not in names]:
        raise DataError(
            f"frame: no column {listed(missing)}; expected those of cross_validation "
            f"({', '.join(KEYS)}, and one for each model); got {listed(names)}"
        )
    models = models_of(frame)
    if not models:
        raise DataError(f"frame: no column with the forecasts of a model; got {listed(names)}")
    bounds = list[str]()
    for model in models:
        for level in levels_of(frame, model):
            if not 0 < float(level) < 100:
                raise DataError(f"frame: a band of {level} %; expected levels between 0 and 100")
            bounds += bounds_of(model, level)
        bounds += quantile_columns(frame, model).values()
    for name in dict.fromkeys(["y", *models, *bounds]):
        if name not in names:
            raise DataError(f"frame: no column {name!r}, the other bound of a band that it has")
        if (kind := frame[name].dtype).kind not in "iuf":
            raise DataError(
                f"frame: column {name!r}: expected numbers; got {kind}. All columns other than "
                f"{', '.join(KEYS)} are forecasts of models; leave out what is none"
            )
    keys = ["unique_id", "ds", "cutoff"]
    for name in keys:
        if (empty := frame[name].isna().to_numpy()).any():
            raise DataError(f"frame: row {int(empty.argmax()) + 1}, column {name!r}: empty")
    if (again := frame.duplicated(keys).to_numpy()).any():
        row = frame.iloc[int(again.argmax())]
        raise DataError(
            f"frame: two rows for {printable(row['unique_id'])}, {show_time(row['ds'])}, from the "
            f"cutoff {show_time(row['cutoff'])}; keep one"
        )


def _warn_of_missing(frame: pd.DataFrame) -> None:
    """Warn of forecasts that no score counts, since their outcome is missing."""
    missing = frame["y"].isna()
    if missing.any():
        names = frame.loc[missing, "unique_id"].unique()
        warnings.warn(
            f"{int(missing.sum()):,} of {len(frame):,} forecasts have no outcome, and count in no "
            f"score: those of {listed(names)}",
            ForecasterWarning,
            stacklevel=3,
        )


def _scores(
    frame: pd.DataFrame, model: str, keys: list[str], realized: Realized | None
) -> pd.DataFrame:
    """Return the scores of a model by ``keys``; ``realized``: what prices did."""
    y, forecast = frame["y"].to_numpy(float), frame[model].to_numpy(float)
    errors = {
        "mae": metrics.absolute_error(y, forecast),
        "rmse": metrics.squared_error(y, forecast),
        "smape": metrics.symmetric_error(y, forecast),
    }
    around, quantiles = None, quantile_columns(frame, model)
    values, levels = frame[list(quantiles.values())].to_numpy(float), list(quantiles)
    if quantiles:
        errors["crps"] = metrics.crps(y, values, levels)
        if realized is not None:
            moved = values + (realized.latest - forecast)[:, None]
            errors[DRIFTLESS] = metrics.crps(y, moved, levels)
            errors |= return_scores(values, levels, realized)
        errors["size"] = np.abs(y)
        for quantile, losses in zip(levels, metrics.pinball(y, values, levels).T, strict=True):
            errors[f"pinball-{quantile:g}"] = losses
        around = around_outcomes(frame, model)
    for level in levels_of(frame, model):
        low, high = (frame[bound].to_numpy(float) for bound in bounds_of(model, level))
        errors[f"coverage-{level}"] = metrics.held(y, values, levels, float(level), around)
        errors[f"width-{level}"] = high - low
        errors[f"winkler-{level}"] = metrics.winkler(y, low, high, float(level))
    # A mean over some cutoffs cannot be compared with means over all of them.
    without_band = np.isnan(values).any(axis=1)
    lacking = {name: np.isnan(forecast) if name in _OF_MEDIANS else without_band for name in errors}
    errors = {n: np.where(lacking[n] & ~np.isnan(y), np.inf, each) for n, each in errors.items()}
    table = pd.concat([frame[keys], pd.DataFrame(errors, index=frame.index)], axis=1)
    means = table.groupby(keys, sort=False).mean().replace(np.inf, np.nan)
    means["rmse"] = np.sqrt(means["rmse"])
    if quantiles:
        means["wql"] = means["crps"] / means["size"]
    return means


def around_outcomes(frame: pd.DataFrame, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of less than each outcome, and of at most as much, (row,).

    They are those of the whole distribution where the frame has them; else as far as the quantiles
    tell, see :func:`.metrics.probabilities_around`.
    """
    columns = quantile_columns(frame, model)
    values = frame[list(columns.values())].to_numpy(float)
    made = metrics.probabilities_around(frame["y"].to_numpy(float), values, list(columns))
    names = list(around_columns(model))
    if not set(names) <= set(frame):
        return made
    whole = frame[names].to_numpy(float).T
    below, at_most = np.where(np.isfinite(whole), whole, made)
    return below, at_most


def season_at(panel: Panel, cutoff: Time | Shaped[np.ndarray, ""]) -> int:
    """Return the rows in a season by the most common frequency of the times up to a cutoff."""
    known = panel.times <= np.asarray(cutoff, panel.times.dtype)
    rows = (row & known for row in panel.mask)
    found = common_frequency(panel.times[row] for row in rows if row.any())
    return default_season(panel.frequency if panel.frequency.stated else found)


def _in_sample(
    panel: Panel, first_cutoff: Time | Shaped[np.ndarray, ""], season: int
) -> pd.DataFrame:
    """Return mean absolute and squared seasonal differences of each series up to a cutoff."""
    panel = panel.masked(first_cutoff, forecasting=True)
    known = panel.times <= np.asarray(first_cutoff, panel.times.dtype)
    rows = {}
    for row, name in enumerate(panel.ids):
        y = panel.channel(panel.target)[row, panel.mask[row] & known]
        change = y[season:] - y[:-season]
        if len(change):
            rows[name] = (np.abs(change).mean(), (change**2).mean())
    return pd.DataFrame.from_dict(rows, orient="index", columns=["absolute", "squared"])
