"""Forecast with a model: distributions, bands, and a long frame of forecasts."""

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, Unpack

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from forecaster import swarm
from forecaster.errors import ForecasterWarning, Kind, ModelError, Skipped, UsageError, name_reasons
from forecaster.forecasting.bands.calibration import Calibrated, calibrated, normal_scores_of
from forecaster.forecasting.bands.columns import around_columns, bounds_of, quantile_column
from forecaster.forecasting.bands.counts import Counted, Units
from forecaster.forecasting.bands.distribution import Distribution, ndtri
from forecaster.forecasting.bands.drift import Drift, with_drift
from forecaster.forecasting.bands.heads import HEADS
from forecaster.forecasting.bands.scales import with_common
from forecaster.forecasting.config import Config
from forecaster.forecasting.model import (
    Model,
    Networks,
    Params,
    check_model,
    leading_axes,
    merge_members,
    split_members,
)
from forecaster.forecasting.networks import OwnNetwork
from forecaster.forecasting.predicting.matching import (
    match_panel,
    warn_of_networks_to_come,
    warn_of_unknown_state,
    with_newcomers,
)
from forecaster.forecasting.rungs import FORECAST_BY
from forecaster.forecasting.task import trained_apply
from forecaster.forecasting.windows import gather
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.machine import free_memory
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
_PADDED = 10_000  # steps of a window that a shorter history is filled up to


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


RISE = "probability_of_rise"
"""The column with the probability that a value lies above the latest one."""

ByHorizon: TypeAlias = Float[np.ndarray, "series origin horizon"]


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
    check_model(model)
    level, quantiles = check_levels(level), check_quantiles(quantiles)
    model, panel = prepared(model, as_panel(panel, **columns))
    horizon = model.config.horizon
    steps = int(panel.mask.sum(1).max())
    parts: list[dict[str, ByHorizon]] = []
    # The combination computes series that are alike together: parts would change their last bits.
    whole = model.transform.name == "combined"
    for some in [panel] if whole else _few_at_a_time(panel, steps):
        transformed = model.transform.apply(some, horizon, steps)
        parts.append(forecast_latest(model, some, transformed, 1, level, quantiles))
    forecast = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    finite = finite_rows(panel, forecast)
    panel = panel.only([name for name, sound in zip(panel.ids, finite, strict=True) if sound])
    forecast = {name: values[finite] for name, values in forecast.items()}
    factor = price_factor(panel)[:, None]
    times = panel.of_times(lambda times: times_ahead(times, horizon, model.frequency))
    names = np.repeat(np.array(panel.ids, object), horizon)
    frame = pd.DataFrame({"unique_id": names, "ds": np.concatenate(times)})
    for name, values in forecast.items():
        values = values[:, 0]  # (series, horizon)
        frame[name] = (values if name == RISE else values * factor).ravel()
    if model.transform.takes_any:
        rungs = model.networks.rungs[model.networks.rows_of(panel.ids)]
        frame[FORECAST_BY] = np.repeat(np.array([str(rung) for rung in rungs], object), horizon)
    return frame


def prepared(model: Model, panel: Panel) -> tuple[Model, Panel]:
    """Return the series that can be forecast, and the model with weights for each of them.

    Warns of what a user should know. Raises ModelError as :func:`predict` does.
    """
    panel = match_panel(model, panel.masked(forecasting=True))
    warn_of_networks_to_come(model, panel)
    warn_of_unknown_state(model, panel)
    say_findings(findings_of(panel, forecasting=True), len(panel.ids))
    _warn_of_hindsight(model, panel)
    _check_known_ahead(model, panel)
    return with_newcomers(model, panel), panel


def _few_at_a_time(panel: Panel, steps: int) -> Iterator[Panel]:
    """Yield parts of a panel of nearly equal size, so that few features are in memory at once."""
    count = -(-len(panel.ids) * steps // _STEPS_AT_ONCE)
    for some in np.array_split(np.array(panel.ids, object), min(count, len(panel.ids))):
        yield panel.only(some.tolist())


def _check_known_ahead(model: Model, panel: Panel) -> None:
    """Raise ModelError where a future covariate is not known for a time that is forecast.

    Warns of events to come that fall on none of these times, and of kinds that the model does not
    know.
    """
    if panel.future is None:
        return
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


def finite_rows(panel: Panel, forecast: dict[str, ByHorizon]) -> Bool[np.ndarray, " series"]:
    """Return which series have finite forecasts; warn of the others.

    No network of a sound model makes one that is not finite. Raises ModelError where no series has
    a finite forecast.
    """
    finite = np.all([np.isfinite(values).all((1, 2)) for values in forecast.values()], axis=0)
    wrong = [name for name, sound in zip(panel.ids, finite, strict=True) if not sound]
    if not wrong:
        return finite
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    if not finite.any():
        raise ModelError(f"{wrong[0]}{more}: {Skipped(Kind.FORECAST_NOT_FINITE)}")
    warnings.warn(
        f"{wrong[0]}{more}: left out: {Skipped(Kind.FORECAST_NOT_FINITE)}",
        ForecasterWarning,
        stacklevel=3,
    )
    return finite


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
    latest = latest_scores(model, panel, transformed, count)
    origins, distribution = latest.origins[:, -count:], latest.distribution.latest(count)
    base = np.take_along_axis(transformed.base, origins[:, :, None], axis=1)
    unit = np.take_along_axis(transformed.scale, origins[:, :, None], axis=1)
    name = model.config.column
    names = [name, *(column for percent in level for column in bounds_of(name, percent))]
    names += [quantile_column(name, q) for q in quantiles]
    # A quantile is a bound of a band, to the bit.
    beside = normal_scores_of([round(200 * abs(q - 0.5), 9) for q in quantiles])
    others = [own[int(q > 0.5)] for own, q in zip(beside, quantiles, strict=True)]
    usual = np.array([0.0, *normal_scores_of(level).ravel(), *others])[:, None, None]
    each = list(calibrated_at(model, panel, transformed, latest, count))
    scores = np.stack([made.scores(usual) for made in each], axis=2)

    def at_most(z: np.ndarray) -> ByHorizon:
        """Return the probability of a value or a lower one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.where(unit == 0, np.where(z < base, -np.inf, np.inf), (z - base) / unit)
        found = -ndtri(distribution.probability_above(far))
        below = [made.probability_below(found[:, at]) for at, made in enumerate(each)]
        return np.stack(below, axis=1)

    columns = {
        column: transformed.invert(base + unit * distribution.quantiles(score))
        for column, score in zip(names, scores, strict=True)
    }
    if outcomes is not None:
        counts = np.where(transformed.counted[:, None, None], outcomes, np.nan)
        around = np.ceil(counts) - 1, counts
        columns |= dict(zip(around_columns(name), map(at_most, around), strict=True))
    now = np.take_along_axis(transformed.z, origins, axis=1)[:, :, None]
    return columns | {RISE: 1 - at_most(now)}


def calibrated_at(
    model: Model, panel: Panel, transformed: Transformed, latest: "Latest", count: int
) -> Iterator[Calibrated]:
    """Yield the calibrated distributions at each of the ``count`` latest steps.

    ``latest``: from :func:`latest_scores`; others as of :func:`forecast_latest`
    """
    some = model.only(panel.ids)
    reach = _reach(transformed, latest.origins[:, -count:], latest.distribution.latest(count))
    return calibrated(latest.scores, count, prior=some.spreads(), tails=some.tails(), reach=reach)


def _reach(
    transformed: Transformed, origins: Int[np.ndarray, "series origin"], distribution: Distribution
) -> Float[np.ndarray, "2 series origin horizon"]:
    """Return the scores of outcomes as far below and above the base as any was before.

    A score from calm times stands for a much larger error now, perhaps for one that never was. NaN
    where no error is known, and for counts, whose distributions have no heavy tails.

    ``distribution``: the distributions forecast at these steps
    """
    at = origins[:, :, None]
    unit = np.take_along_axis(transformed.scale, at, axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = np.take_along_axis(transformed.largest_errors(), at, axis=1) / unit
        far[unit == 0] = np.nan  # what is sure has no score
        reach = np.stack([distribution.scores(-far), distribution.scores(far)])
    reach[:, transformed.counted] = np.nan
    return reach


class Latest(NamedTuple):
    """The distributions forecast at the latest steps, and the scores of past outcomes.

    - ``origins`` (series, origin): the steps
    - ``distribution``: the distributions forecast at them, in standardised units
    - ``scores``: normal scores of the outcomes from the validation span until now, in order of
      time, NaN where unknown; the last origin is "now"
    """

    origins: Int[np.ndarray, "series origin"]
    distribution: Distribution
    scores: ByHorizon


def latest_scores(model: Model, panel: Panel, transformed: Transformed, count: int) -> Latest:
    """Forecast at ``count`` or more latest steps; arguments as of :func:`forecast_latest`."""
    model = model.only(panel.ids)
    steps, horizon = transformed.z.shape[1], model.config.horizon
    n_new = _steps_since_fit(panel, transformed, model.fitted_until)
    # At the fit, not all outcomes of the last origins were known. The number is rounded up, so that
    # one program serves several days.
    needed = int(n_new.max()) + horizon
    n_origins = min(steps, max(count, -(-needed // _AT_ONCE) * _AT_ONCE))
    origins = np.tile(np.arange(steps - n_origins, steps), (len(model.ids), 1))
    distribution = distributions(model.networks, transformed, origins)
    recent = distribution.scores(targets_at(transformed, origins))
    return Latest(origins, distribution, _append(model.normal_scores, recent, n_new + horizon))


def _steps_since_fit(
    panel: Panel, transformed: Transformed, fitted_until: np.ndarray
) -> Int[np.ndarray, " series"]:
    """Count the rows of each series after ``fitted_until``."""
    positions = transformed.positions
    times = panel.times[np.maximum(positions, 0)]
    return ((times > fitted_until[:, None]) & (positions >= 0)).sum(1)


def targets_at(transformed: Transformed, origins: Int[np.ndarray, "series origin"]) -> ByHorizon:
    """Return the targets of forecasts made at these steps, standardised; NaN where unknown."""
    return np.take_along_axis(transformed.targets(), origins[:, :, None], axis=1)


def common_at(
    transformed: Transformed, origins: Int[np.ndarray, "series origin"]
) -> ByHorizon | None:
    """Return the logarithm of the common model's scale at these steps; None without a model."""
    if transformed.common is None:
        return None
    return np.take_along_axis(transformed.common, origins[:, :, None], axis=1)


def _append(stored: ByHorizon, recent: ByHorizon, keep: Int[np.ndarray, " series"]) -> ByHorizon:
    """Join the normal scores of the validation span with later ones, in order of time.

    The last origin of the result is "now"; NaN where there is no score.

    - ``stored``: ends one origin before the fit's last row
    - ``recent``: scores of the latest origins; the last ``keep`` of them replace stored ones
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
) -> Distribution:
    """Return the distributions of all series' forecasts made at these steps, standardised."""
    made, drift = before_drift(networks, transformed, origins), networks.drift
    if drift is not None:
        latest = networks.config.longest_validation
        outcomes = targets_at(transformed, origins)[:, -latest:]
        drift = drift.completed(made.latest(latest), outcomes)
    return around_drift(made, drift, transformed, origins)


def before_drift(
    networks: Networks, transformed: Transformed, origins: Int[np.ndarray, "series origin"]
) -> Distribution:
    """Return what networks and the common model of volatility forecast at these steps.

    Without a network, a distribution has the base as its location, and errors as large as the
    scale.
    """
    rows = np.flatnonzero(networks.networked)
    config = networks.config
    others = Distribution.unit(
        (*origins.shape, config.horizon),
        HEADS[config.head](config.horizon).degrees_at_start,
    )
    if not len(rows):
        return others
    whole = len(rows) == len(origins)
    some = transformed if whole else transformed.only(rows)
    at = origins if whole else origins[rows]
    made = distribution_of(
        config, networks.network, networks.params_of(rows), some.features, some.first, at
    )
    made = made.beside_base(transformed.networks)
    made = with_common(made, common_at(some, at), transformed.scale_weights)
    return made.among(rows, others)  # in double precision, whatever other series there are


def around_drift(
    made: Distribution,
    drift: Drift | None,
    transformed: Transformed,
    origins: Int[np.ndarray, "series origin"],
) -> Distribution:
    """Return distributions with the drift of prices, and of counts as such.

    - ``made``: from :func:`before_drift`
    - ``drift``: complete; None for other series
    """
    if drift is not None:
        made = with_drift(made, drift.usual, drift.moves(transformed, origins))
    return Counted.of(made, Units.of(transformed, origins))


def distribution_of(
    config: Config,
    network: OwnNetwork | None,
    params: Params,
    features: Float[np.ndarray, "series step feature"],
    first: Int[np.ndarray, " series"],
    origins: Int[np.ndarray, "series origin"],
) -> Distribution:
    """Return :func:`distributions` from weights (series, member, ...) and features alone."""
    _check_window(config, features.shape[1], origins.shape[1], features.shape[-1])
    # The steps that no forecast sees are left out, so that one program serves all lengths.
    begin = max(0, int(origins.min()) - config.lookback + 1)
    features, first, origins = features[:, begin:], np.maximum(first - begin, 0), origins - begin
    series, each = leading_axes(params)
    rows = np.repeat(np.arange(series), each)
    data = features, first.astype(np.int32), origins.astype(np.int32)
    parts = swarm.map_members(
        _forecast_function(config, features.shape[-1], network),
        merge_members(params),
        swarm.Shared(data, rows) if each > 1 else data,
        members=series * each,
    )
    return Distribution.of_members(
        *(np.moveaxis(split_members(np.asarray(part), each), 1, -1) for part in parts)
    )


@functools.lru_cache(maxsize=8)
def _forecast_function(
    config: Config, features: int, network: OwnNetwork | None
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """Return the function that forecasts one series; cached, so that it is compiled once."""
    apply = trained_apply(config, features, network)
    head = HEADS[config.head](config.horizon)

    def forecast(
        params: Params, data: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        features, first, origins = data
        window = _window(config, len(features))
        inputs, valid = gather(features, first, origins - window + 1, window)
        outputs, constants = apply(params, inputs, valid, last_only=True)
        return head.distribution(outputs[:, -1], constants)  # each (origin, horizon)

    return forecast


def _window(config: Config, steps: int) -> int:
    """Return the steps of a window: the lookback, but not many more than histories have.

    What lies before a history is padding, which networks of windows of any length ignore.
    """
    return (
        config.lookback if config.sees_whole_window else min(config.lookback, max(steps, _PADDED))
    )


def _check_window(config: Config, steps: int, origins: int, features: int) -> None:
    """Raise ModelError if the windows of a single series do not fit into memory."""
    if (window := _window(config, steps)) <= max(steps, _PADDED):
        return
    need, free = 4 * window * origins * features, free_memory()
    if need > free:
        raise ModelError(
            f"lookback: windows of {window} steps need {need / 2**30:,.0f} GiB; "
            f"{free / 2**30:,.1f} GiB are free. Run `forecaster fit` again with a shorter one"
        )


def check_levels(level: Sequence[float] | float) -> list[float]:
    """Return the levels of bands, sorted. Raises UsageError unless each is 1 or more, below 100."""
    try:
        level = [float(percent) for percent in np.atleast_1d(np.asarray(level, float))]
    except (TypeError, ValueError):
        raise UsageError(f"level: expected percent, such as 80; got {level!r}") from None
    for percent in level:
        if not 0 < percent < 100:
            raise UsageError(f"level: expected percent above 0 and below 100; got {percent:g}")
        if percent < 1:
            raise UsageError(
                f"level: expected percent, such as 80; got {percent:g}; did you mean "
                f"{100 * percent:g}?"
            )
    return sorted(set(level))


def check_quantiles(quantiles: Sequence[float] | float) -> list[float]:
    """Return the probabilities, sorted. Raises UsageError unless each lies between 0 and 1."""
    try:
        quantiles = [float(q) for q in np.atleast_1d(np.asarray(quantiles, float))]
    except (TypeError, ValueError):
        raise UsageError(
            f"quantiles: expected probabilities, such as 0.95; got {quantiles!r}"
        ) from None
    for q in quantiles:
        if not 0 < q < 1:
            hint = f"; did you mean {q / 100:g}?" if 1 < q < 100 else ""
            raise UsageError(
                f"quantiles: expected probabilities above 0 and below 1; got {q:g}{hint}"
            )
    return sorted(set(quantiles))


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
