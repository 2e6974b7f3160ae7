"""Forecast with a model: distributions, bands, and a long frame of forecasts."""

import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from forecaster.errors import (
    ForecasterWarning,
    Kind,
    ModelError,
    Skipped,
    name_reasons,
    wrong_argument,
)
from forecaster.forecasting.bands.calibration import (
    Calibrated,
    normal_scores_of,
    spread_at_origins,
)
from forecaster.forecasting.bands.columns import around_columns, forecast_columns, quantile_column
from forecaster.forecasting.bands.distribution import Distribution, ndtri
from forecaster.forecasting.methods import FORECAST_BY
from forecaster.forecasting.model import Model, check_model
from forecaster.forecasting.predicting.distributions import (
    ByHorizon,
    Origins,
    at_origins,
    distributions,
)
from forecaster.forecasting.predicting.matching import match_panel, with_newcomers
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import (
    Frequency,
    Panel,
    Transformed,
    findings_in_words,
    findings_of,
    frequency_beside,
    missed_events,
    missing_ahead,
    say_findings,
    show_time,
)

_STEPS_AT_ONCE = 2**17  # steps of the series that are forecast at the same time
_AT_ONCE = 8  # origins
RISE = "probability_of_rise"
"""The column with the probability that a value lies above the latest one."""


def predict(
    model: Model,
    panel: Panel | Table,
    level: Sequence[float] = (80, 95),
    quantiles: Sequence[float] = (),
    **columns: Unpack[ColumnOptions],
) -> pd.DataFrame:
    """Forecast every series of the panel from its own latest row.

    Returns a long frame ``unique_id, ds``, the median under the model's name (``LSTM``), bounds
    ``LSTM-lo-80, LSTM-hi-80, ...`` per level in percent, and ``probability_of_rise``, the
    probability that the value lies above the latest one. Prices are in the units of ``close``, also
    where the model was fitted on ``adj_close``. The times of each series follow its own frequency.
    Of other series, ``forecast_by`` says what a forecast rests on: "own networks", "common
    network", "combination" (of simple forecasts, for a series too short for networks), "last
    value", "shrunken mean" (of a few counts, or of nothing but zeros), or the classical model that
    was asked for.

    - ``panel``: the series, or a frame with them as :func:`forecaster.load_panel` takes it
    - ``level``: levels of the bands, in percent
    - ``quantiles``: probabilities, each with a column such as ``LSTM-q-0.95``: the value that is
      not exceeded with this probability, such as the stock that covers a service level
    - ``columns``: meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`

    Series of counts (small whole numbers, zeros among them) have distributions of counts: their
    medians, bounds and quantiles are whole numbers, none below zero.

    Rows that are known to look wrong are left out, see :meth:`Panel.masked`, except for a jump at
    the latest row: most jumps are true, so it is forecast from, with a warning.

    Series that are new to the model are forecast, with a warning, by the common network from which
    all others started. Series that are too short for it are forecast by the combination of simple
    forecasts. A model of independent networks of prices has neither, and leaves new series out.
    A series whose forecast is not finite is left out, with a warning. Raises ModelError when no
    series can be forecast or channels are missing; UsageError for a level outside 0 to 100.
    """
    model, panel = prepared(model, panel, **columns)
    say_findings(findings_of(panel, forecasting=True), len(panel.ids))
    return forecast_frame(model, panel, level, quantiles)


def forecast_frame(
    model: Model, panel: Panel, level: Sequence[float], quantiles: Sequence[float]
) -> pd.DataFrame:
    """Return the frame of :func:`predict` from what :func:`prepared` returns."""
    level, quantiles = check_levels(level), check_quantiles(quantiles)
    horizon = model.config.horizon
    steps = int(panel.mask.sum(1).max())
    parts: list[dict[str, ByHorizon]] = []
    # The combination computes series that are alike together: parts would change their last bits.
    whole = model.transform.name == "combined"
    count = 1 if whole else -(-len(panel.ids) * steps // _STEPS_AT_ONCE)
    for names in np.array_split(np.array(panel.ids, object), min(count, len(panel.ids))):
        some = panel if count == 1 else panel.only(names.tolist())
        transformed = model.transform.apply(some, horizon, steps)
        parts.append(forecast_latest(model, some, transformed, 1, level, quantiles))
    forecast = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    panel, finite = finite_rows(panel, forecast)
    forecast = {name: values[finite] for name, values in forecast.items()}
    factor = price_factor(panel)[:, None]
    times = panel.of_times(lambda times: times_ahead(times, horizon, model.frequency))
    names = np.repeat(np.array(panel.ids, object), horizon)
    frame = pd.DataFrame({"unique_id": names, "ds": np.concatenate(times)})
    for name, values in forecast.items():
        values = values[:, 0]  # (series, horizon)
        frame[name] = (values if name == RISE else values * factor).ravel()
    if model.transform.takes_any:
        methods = model.networks.methods[model.networks.rows_of(panel.ids)]
        frame[FORECAST_BY] = np.repeat(np.array([*map(str, methods)], object), horizon)
    return frame


def prepared(
    model: Model, panel: Panel | Table, **columns: Unpack[ColumnOptions]
) -> tuple[Model, Panel]:
    """Return the series that can be forecast, and the model with weights for each of them.

    Warns of series that are new, or that cannot be forecast, and of networks that have seen the
    future. Raises ModelError as :func:`predict` does.
    """
    check_model(model)
    panel = match_panel(model, as_panel(panel, **columns).masked(forecasting=True))
    _warn_of_hindsight(model, panel)
    if panel.future is not None:
        _check_known_ahead(model, panel)
    return with_newcomers(model, panel), panel


def _warn_of_hindsight(model: Model, panel: Panel) -> None:
    """Warn of series that end before their networks' training: the networks saw their future."""
    until = dict(zip(model.ids, model.fitted_until, strict=True))
    early = {
        name: f"ends {show_time(times[-1])}; its networks have seen rows up to "
        f"{show_time(until[name])}, so this is no forecast. Fit on the rows until then, or use "
        "cross_validation"
        for name, row in zip(panel.ids, panel.mask, strict=True)
        if name in until and (times := panel.times[row])[-1] < until[name]
    }
    if early:
        message = f"{len(early)} series end before the fit did:\n{name_reasons(early)}"
        warnings.warn(message, ForecasterWarning, stacklevel=4)


def _check_known_ahead(model: Model, panel: Panel) -> None:
    """Raise ModelError where a future covariate is not known for a time that is forecast.

    Warns of events to come that fall on none of these times, and of kinds that the model does not
    know.
    """
    assert panel.future is not None
    kinds = model.transform.covariates.future
    horizon, usual = model.config.horizon, model.frequency
    times = panel.of_times(lambda times: times_ahead(times, horizon, usual))
    ahead = dict(zip(panel.ids, times, strict=True))
    panel.future.warn_of_unknown_kinds(kinds, ahead)
    if not kinds:
        return
    if missing := missing_ahead(panel.future, panel.ids, ahead):
        raise ModelError(f"{missing}. Add the rows that are missing")
    latest = panel.of_times(lambda times: times[-1:])
    rows = map(np.concatenate, zip(latest, times, strict=True))
    each = (missed_events(panel.future, *of) for of in zip(panel.ids, rows, strict=True))
    for said in findings_in_words([*itertools.chain(*each)], len(panel.ids)).values():
        warnings.warn(said, ForecasterWarning, stacklevel=4)


def finite_rows(
    panel: Panel, forecast: dict[str, ByHorizon]
) -> tuple[Panel, Bool[np.ndarray, " series"]]:
    """Return the series with finite forecasts, and which they are; warn of the others.

    No network of a sound model makes one that is not finite. Raises ModelError where no series has
    a finite forecast.
    """
    finite = np.all([np.isfinite(values).all((1, 2)) for values in forecast.values()], axis=0)
    wrong = [name for name, sound in zip(panel.ids, finite, strict=True) if not sound]
    if not wrong:
        return panel, finite
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    if not finite.any():
        raise ModelError(f"{wrong[0]}{more}: {Skipped(Kind.FORECAST_NOT_FINITE)}")
    warnings.warn(
        f"{wrong[0]}{more}: left out: {Skipped(Kind.FORECAST_NOT_FINITE)}",
        ForecasterWarning,
        stacklevel=3,
    )
    return panel.only([name for name in panel.ids if name not in wrong]), finite


def times_ahead(series_times: np.ndarray, horizon: int, usual: Frequency) -> np.ndarray:
    """Return the times of the next rows of a series, (horizon,), by its own frequency.

    ``usual``: the frequency of most series, for one whose rows are too few to tell its own
    """
    return frequency_beside(series_times, usual).after(series_times[-1], horizon)


def forecast_latest(
    model: Model,
    panel: Panel,
    transformed: Transformed,
    count: int,
    level: Sequence[float],
    quantiles: Sequence[float] = (),
    outcomes: ByHorizon | None = None,
) -> dict[str, ByHorizon]:
    """Return forecasts made at the latest ``count`` steps, by column, (series, count, horizon).

    A forecast uses only what was known at its step, both for the inputs of networks and for the
    outcomes that calibrate the bands, which include those since the fit.

    - ``model``: has networks for every series of the panel
    - ``panel``: as :func:`match_panel` returns it
    - ``transformed``: the panel under the model's transform
    - ``count``: the number of latest steps
    - ``level``: levels of the bands, in percent, sorted
    - ``quantiles``: further probabilities, each with a column of its own
    - ``outcomes`` (series, count, horizon): NaN where unknown; if given, the probabilities of less
      and of at most as much are in :func:`.around_columns`, but only of counts: others are NaN
    """
    latest = latest_of(model, panel, transformed, count)
    origins, distribution, calibrated = latest.origins, latest.distribution, latest.calibrated
    base, unit = (at_origins(part, origins) for part in (transformed.base, transformed.scale))
    name = model.config.column
    names = forecast_columns(name, level) + [quantile_column(name, q) for q in quantiles]
    # A quantile is a bound of a band, to the bit.
    beside = normal_scores_of([round(200 * abs(q - 0.5), 9) for q in quantiles])
    others = [own[int(q > 0.5)] for own, q in zip(beside, quantiles, strict=True)]
    usual = np.array([0.0, *normal_scores_of(level).ravel(), *others])

    def at_most(z: np.ndarray) -> ByHorizon:
        """Return the probability of a value or a lower one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.where(unit == 0, np.where(z < base, -np.inf, np.inf), (z - base) / unit)
        return calibrated.probability_below(-ndtri(distribution.probability_above(far)))

    columns = {
        column: transformed.invert(base + unit * distribution.quantiles(score))
        for column, score in zip(names, calibrated.scores(usual[:, None, None, None]), strict=True)
    }
    if outcomes is not None:
        counts = np.where(transformed.counted[:, None, None], outcomes, np.nan)
        around = np.ceil(counts) - 1, counts
        columns |= dict(zip(around_columns(name), map(at_most, around), strict=True))
    now = np.take_along_axis(transformed.z, origins, axis=1)[:, :, None]
    return columns | {RISE: 1 - at_most(now)}


class Latest(NamedTuple):
    """The distributions forecast at the latest steps, and how they are calibrated.

    - ``origins``: the steps
    - ``distribution``: the distributions forecast at them, in standardised units
    - ``calibrated``: what past outcomes say of them
    - ``scores``: normal scores of the outcomes from the validation span until now, in order of
      time, NaN where unknown; the last origin is "now"
    - ``spread``: of the scores, as known at each origin
    """

    origins: Origins
    distribution: Distribution
    calibrated: Calibrated
    scores: ByHorizon
    spread: ByHorizon


def latest_of(model: Model, panel: Panel, transformed: Transformed, count: int) -> Latest:
    """Forecast at the ``count`` latest steps; arguments as of :func:`forecast_latest`."""
    model = model.only(panel.ids)
    steps, horizon = transformed.z.shape[1], model.config.horizon
    times = panel.times[np.maximum(transformed.positions, 0)]
    new = (times > model.fitted_until[:, None]) & (transformed.positions >= 0)
    since = new.sum(1)  # the rows of each series after the fit
    # At the fit, not all outcomes of the last origins were known. The number is rounded up, so that
    # one program serves several days.
    needed = int(since.max()) + horizon
    n_origins = min(steps, max(count, -(-needed // _AT_ONCE) * _AT_ONCE))
    origins = np.tile(np.arange(steps - n_origins, steps), (len(model.ids), 1))
    outcomes = at_origins(transformed.targets(), origins)
    made, _ = distributions(model.networks, transformed, origins, outcomes)
    scores = _append(model.normal_scores, made.scores(outcomes), since + horizon)
    networked = model.networks.networked
    prior = np.where(networked[:, None], model.widths.networks, model.widths.without)
    spread = spread_at_origins(scores, prior)
    origins, made = origins[:, -count:], made.at(slice(-count, None))
    tailed = ~networked & ~transformed.counted  # distributions of counts have no heavy tails
    reach = np.full((2, *made.shape), np.nan)
    if tailed.any():
        # A score from calm times stands for a much larger error now, perhaps for one never seen.
        unit = at_origins(transformed.scale, origins)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            far = at_origins(transformed.largest_errors(), origins) / unit
            far[unit == 0] = np.nan  # what is sure has no score
            reach = np.stack([made.scores(-far), made.scores(far)])
    calibrated = Calibrated(spread[:, -count:], reach, model.widths.tails, tailed)
    return Latest(origins, made, calibrated, scores, spread)


def _append(stored: ByHorizon, recent: ByHorizon, keep: Int[np.ndarray, " series"]) -> ByHorizon:
    """Join the normal scores of the validation span with later ones, in order of time.

    The last origin of the result is "now"; NaN where there is no score.

    - ``stored``: ends one origin before the fit's last row
    - ``recent``: scores of the latest origins; the last ``keep`` of them replace stored ones
    """
    (series, span, horizon), n_recent = stored.shape, recent.shape[1]
    unknown = np.full((series, 1, horizon), np.nan)
    both, at = np.concatenate([stored, recent, unknown], axis=1), np.arange(span + n_recent)
    earlier = at - n_recent + 1 + keep[:, None] - horizon  # among those stored
    earlier = np.where((earlier >= 0) & (earlier < span), earlier, len(at))
    kept = at >= len(at) - np.minimum(keep, n_recent)[:, None]
    return np.take_along_axis(both, np.where(kept, at, earlier)[:, :, None], axis=1)


def check_levels(level: Sequence[float] | float) -> list[float]:
    """Return the levels of bands, sorted. Raises UsageError unless each is 1 or more, below 100."""
    return _numbers("level", level, 1.0, 100.0, "percent of 1 or more, below 100, such as 80", 100)


def check_quantiles(quantiles: Sequence[float] | float) -> list[float]:
    """Return the probabilities, sorted. Raises UsageError unless each lies between 0 and 1."""
    least, expected = np.finfo(float).tiny, "probabilities above 0 and below 1, such as 0.95"
    return _numbers("quantiles", quantiles, least, 1.0, expected, 0.01)


def _numbers(
    name: str,
    given: Sequence[float] | float,
    least: float,
    below: float,
    expected: str,
    unit: float,
) -> list[float]:
    """Return what was given as sorted numbers. Raises UsageError for anything else.

    ``unit``: times what a user who mistakes shares and per cent has given
    """
    try:
        numbers = sorted({*np.atleast_1d(np.asarray(given, float)).tolist()})
    except (TypeError, ValueError):
        raise wrong_argument(name, given, expected) from None
    if wrong := [number for number in numbers if not least <= number < below]:
        meant = wrong[0] * unit
        hint = f" (did you mean {meant:g}?)" if least <= meant < below else ""
        raise wrong_argument(name, wrong[0], expected + hint)
    return numbers


def price_factor(panel: Panel) -> Float[np.ndarray, " series"]:
    """Return the factor from the target's units to quoted prices.

    It is close over adjusted close at the latest row that has both, and 1 for other targets.
    """
    if panel.target != "adj_close" or "close" not in panel.channels:
        return np.ones(len(panel.ids))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = panel.channel("close") / panel.channel("adj_close")
    usable = np.isfinite(ratio) & (ratio > 0)
    last = usable.shape[1] - 1 - np.argmax(usable[:, ::-1], axis=1)
    return np.where(usable.any(1), ratio[np.arange(len(ratio)), last], 1.0)
