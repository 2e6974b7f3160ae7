"""The path of a forecast, from what components say to the values that users see.

1. The networks of a series, one component, say a Student-t distribution for each step ahead, in
   units of the series' scale and counted from its base (:func:`distribution_of`). Series without
   networks have the base as their location, and the scale as their scale.
2. Its scale is blended with that of the other component of prices, the common model of volatility
   (:func:`with_common`).
3. Its location becomes that at which the mean of a price grows by the premium, or it becomes a
   distribution of counts (:func:`around_drift`).
4. Past outcomes say how far its scores must be spread and, without networks, how heavy its tails
   are (:func:`forecast_at`): the only thing between a distribution and its bands.
5. Quantiles, and the base and the scale, lead back into units (:class:`Forecast`), and become a
   frame (:func:`forecast_frame`).

The file reads from top to bottom: each function uses only those above it. Steps 1 to 3 together are
:func:`distributions`, which a fit also takes for the rows that it holds back. A :class:`Forecast`
keeps what it is made of, so that ``explaining.py`` only has to name it.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from forecaster import swarm
from forecaster.errors import ForecasterWarning, Kind, ModelError, Skipped
from forecaster.forecasting.bands import (
    DOF_AT_START,
    Calibrated,
    Counts,
    Distribution,
    ndtri,
    normal_scores_of,
    said_by,
    spread_at_origins,
)
from forecaster.forecasting.columns import around_columns, check_levels, check_quantiles, shares_of
from forecaster.forecasting.config import Config
from forecaster.forecasting.methods import FORECAST_BY
from forecaster.forecasting.model import Model, Networks, Params, merge_members, split_members
from forecaster.forecasting.networks import OwnNetwork, functions, gather
from forecaster.series import Panel, ScaleWeights, Transformed, next_times

ByHorizon: TypeAlias = Float[np.ndarray, "series origin horizon"]
Origins: TypeAlias = Int[np.ndarray, "series origin"]

RISE = "probability_of_rise"
"""The column with the probability that a value lies above the latest one."""
_STEPS_AT_ONCE = 2**17  # steps of the series that are forecast at the same time
_AT_ONCE = 8  # origins
_PADDED = 10_000  # steps of a window that a shorter history is filled up to
_FARTHEST = 1e6  # largest move of a price, in units of its scale
# Of the variance of a price's logarithm: the largest scale, and the fewest degrees of freedom above
# 2 that it is computed with. Heavier tails than these have hardly a mean.
_LARGEST_SCALE, _LEAST_EXCESS = 0.5, 0.5
_FAR = 5.0  # the most that a scale's logarithm changes by, unless a model is damaged
_GOLDEN, _SILVER = 0.6180339887498949, 0.4142135623730951  # fractions that spread evenly


def at_origins(by_step: Float[np.ndarray, "series step horizon"], origins: Origins) -> ByHorizon:
    """Return what is known at the steps that forecasts are made at."""
    return np.take_along_axis(by_step, origins[:, :, None], axis=1)


@functools.lru_cache(maxsize=8)
def _forecast_function(
    config: Config, features: int, network: OwnNetwork | None
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """Return the function that forecasts one series; cached, so that it is compiled once."""
    apply = functions(config, features, network).apply

    def forecast(
        params: Params, data: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        features, first, origins = data
        window = config.lookback
        if not config.sees_whole_window:  # what lies before a history is padding, and ignored
            window = min(window, max(len(features), _PADDED))
        inputs, valid = gather(features, first, origins - window + 1, window)
        outputs, constants = apply(params, inputs, valid, last_only=True)
        return said_by(outputs[:, -1], constants)  # each (origin, horizon)

    return forecast


def distribution_of(
    config: Config,
    network: OwnNetwork | None,
    params: Params,
    transformed: Transformed,
    origins: Origins,
) -> Distribution:
    """Return what networks say alone; ``params``: their weights (series, member, ...)."""
    # The steps that no forecast sees are left out, so that one program serves all lengths.
    begin = max(0, int(origins.min()) - config.lookback + 1)
    features, first = transformed.features[:, begin:], np.maximum(transformed.first - begin, 0)
    series, each = jax.tree.leaves(params)[0].shape[:2]
    rows = np.repeat(np.arange(series), each)
    data = features, first.astype(np.int32), (origins - begin).astype(np.int32)
    parts = swarm.map_members(
        _forecast_function(config, features.shape[-1], network),
        merge_members(params),
        swarm.Shared(data, rows) if each > 1 else data,
        members=series * each,
    )
    return Distribution.of_members(
        *(np.moveaxis(split_members(np.asarray(part), each), 1, -1) for part in parts)
    )


def with_common(
    scale: ByHorizon, common: ByHorizon | None, weights: ScaleWeights
) -> Float[np.ndarray, "series origin horizon"]:
    """Return scales that combine those of networks and of a common model.

    The logarithm of a combined scale is a constant and a weighted sum of those of both. The weights
    need not sum to one: each scale is cautious, so a mean of both would be too close to the usual
    scale (Satopaa et al. 2014, International Journal of Forecasting 30, on probabilities).

    - ``common``: the logarithm of the model's scale, standardised. Where it is NaN, unknown, the
      networks stand alone. None: there is no model
    - ``weights``: those that past outcomes supported, by step ahead
    """
    if common is None:
        return scale
    constant, of_networks, of_common = np.array(weights).T
    # By how much the logarithm of the networks' scale changes: nothing where the model is unknown.
    wider = constant + (of_networks - 1) * np.log(scale) + of_common * common
    wider = np.clip(np.where(np.isfinite(wider), wider, 0.0), -_FAR, _FAR)
    return (scale * np.exp(wider)).astype(scale.dtype)


def around_drift(
    made: Distribution,
    growth: Float[np.ndarray, " series"],
    transformed: Transformed,
    origins: Origins,
    spread: ByHorizon | float = 1.0,
) -> Distribution:
    """Return distributions of prices whose mean grows as expected, or distributions of counts.

    - ``made``: what networks and the common model forecast at ``origins``
    - ``growth``: from :func:`.growth_of`; where it is NaN the location stays
    - ``spread``: by which the distributions will be widened
    """
    unit = at_origins(transformed.scale, origins)
    ahead = np.arange(1, unit.shape[-1] + 1)
    if np.isfinite(growth).any():
        # The median lies half the variance of the logarithm below its mean.
        variance = np.minimum(unit * made.scale * spread, _LARGEST_SCALE) ** 2
        variance = variance * made.dof / np.maximum(made.dof - 2, _LEAST_EXCESS)
        with np.errstate(divide="ignore", invalid="ignore"):
            moves = (growth[:, None, None] * ahead - variance / 2) / unit
        # A move that no series makes comes from a damaged model; it is kept, so that users see it.
        kept = np.isnan(growth)[:, None, None] | ~(np.abs(made.location) < _FARTHEST)
        location = np.where(kept, made.location, moves)
        location = np.where(unit == 0, 0.0, location)
        made = dataclasses.replace(made, location=location.astype(made.location.dtype))
    rows = np.flatnonzero(transformed.counted)
    if not len(rows):
        return made
    number = origins[rows] - (transformed.positions[rows] < 0).sum(1, keepdims=True)  # of the row
    draws = 0.001 + 0.998 * ((number[:, :, None] * _GOLDEN + ahead * _SILVER) % 1.0)
    base = at_origins(transformed.base[rows], origins[rows])
    return dataclasses.replace(made, counts=Counts(rows, base, unit[rows], draws))


def networks_alone(
    networks: Networks, transformed: Transformed, origins: Origins
) -> Distribution | None:
    """Return what the networks of all series that have some say alone; None where none has."""
    rows = np.flatnonzero(networks.networked)
    if not len(rows):
        return None
    if len(rows) < len(origins):
        transformed, origins = transformed.only(rows), origins[rows]
    config, params = networks.config, networks.params_of(rows)
    return distribution_of(config, networks.network, params, transformed, origins)


def distributions(
    networks: Networks,
    transformed: Transformed,
    origins: Origins,
    growth: Float[np.ndarray, " series"],
    own: Distribution | None = None,
) -> Distribution:
    """Return the distributions of all series' forecasts made at these steps, standardised.

    - ``growth``: as of :func:`around_drift`
    - ``own``: what :func:`networks_alone` returns, if it is known
    """
    # In double precision, whatever other series there are.
    made = Distribution.unit((*origins.shape, networks.config.horizon), DOF_AT_START)
    own = networks_alone(networks, transformed, origins) if own is None else own
    if own is not None:
        rows = np.flatnonzero(networks.networked)
        common = transformed.common
        common = None if common is None else at_origins(common[rows], origins[rows])
        made.location[rows] = np.float32(transformed.networks) * own.location
        made.scale[rows] = with_common(own.scale, common, transformed.scale_weights)
        made.dof[rows] = own.dof
    return around_drift(made, growth, transformed, origins)


def _with_recent(
    stored: ByHorizon, recent: ByHorizon, new: Int[np.ndarray, " series"]
) -> ByHorizon:
    """Join the normal scores of the validation span with later ones, in order of time.

    The last origin of the result is "now"; NaN where there is no score.

    - ``stored``: ends one origin before the fit's last row
    - ``recent``: scores of the latest origins
    - ``new``: how many of the latest origins had an outcome after the fit, or have none yet
    """
    (series, span, horizon), latest = stored.shape, recent.shape[1]
    stored = np.pad(stored, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)  # up to the last row
    joined = np.full((series, span + latest, horizon), np.nan)
    for row, (own, count) in enumerate(zip(joined, new.tolist(), strict=True)):
        kept = min(count, latest)
        own[latest + span - kept :] = recent[row, latest - kept :]
        # Outcomes of the last ``horizon - 1`` stored origins were not all known at the fit.
        before = stored[row, : span + 1 - horizon + count - kept][-(latest + span - kept) :]
        own[latest + span - kept - len(before) : latest + span - kept] = before
    return joined


class Errors(NamedTuple):
    """Past errors of series, in order of time from the validation span until now, the last origin.

    - ``scores``: normal scores of the outcomes; NaN where unknown
    - ``spread``: of the scores, as known at each origin
    """

    scores: ByHorizon
    spread: ByHorizon


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Forecasts made at some steps, and every quantity that moves them.

    - ``transformed``, ``origins``: the histories, and the steps
    - ``base``, ``unit``: a standardised value x stands for ``base + unit * x``, before
      :meth:`Transformed.invert`
    - ``distribution``: standardised; of the components together, around the drift of prices
    - ``calibrated``: by how much past errors spread it
    - ``errors``: these past errors
    """

    transformed: Transformed
    origins: Origins
    base: ByHorizon
    unit: ByHorizon
    distribution: Distribution
    calibrated: Calibrated
    errors: Errors

    def ahead(self, steps: Sequence[int]) -> "Forecast":
        """Return the forecasts of some steps ahead; 0: of the next one."""
        steps, spread = [*steps], self.calibrated
        return dataclasses.replace(
            self,
            base=self.base[..., steps],
            unit=self.unit[..., steps],
            distribution=self.distribution.picked(lambda part: part[..., steps]),
            calibrated=spread._replace(
                spread=spread.spread[..., steps],
                reach=spread.reach[..., steps],
                tails=spread.tails[steps],
            ),
        )

    def in_units(self, standardised: ByHorizon) -> ByHorizon:
        """Return standardised values in the series' own units."""
        return self.transformed.invert(self.base + self.unit * standardised)

    def quantiles(self, shares: Sequence[float]) -> Iterator[ByHorizon]:
        """Yield the standardised quantiles of these probabilities."""
        usual = normal_scores_of(shares)[:, None, None, None]
        return map(self.distribution.quantiles, self.calibrated.scores(usual))

    def at_most(self, z: np.ndarray) -> ByHorizon:
        """Return the probability of a value or a lower one; ``z``: before the way into units."""
        with np.errstate(divide="ignore", invalid="ignore"):
            sure = np.where(z < self.base, -np.inf, np.inf)
            far = np.where(self.unit == 0, sure, (z - self.base) / self.unit)
        return self.calibrated.probability_below(-ndtri(self.distribution.probability_above(far)))


def forecast_at(
    model: Model,
    transformed: Transformed,
    origins: Origins,
    errors: Errors,
    made: Distribution | None = None,
) -> Forecast:
    """Return the forecasts that were made at some steps, with the errors that were known then.

    - ``model``: of the series of ``transformed``
    - ``made``: the distributions at these steps, if they are known
    """
    if made is None:
        made = distributions(model.networks, transformed, origins, model.growth)
    base, unit = (at_origins(part, origins) for part in (transformed.base, transformed.scale))
    behind = transformed.z.shape[1] - errors.spread.shape[1]  # steps before the first error
    spread = at_origins(errors.spread, np.maximum(origins - behind, 0))
    made = around_drift(made, model.growth, transformed, origins, spread)
    # Distributions of counts have no heavy tails.
    tailed = ~model.networks.networked & ~transformed.counted
    reach = np.full((2, *made.shape), np.nan)
    if tailed.any():
        # A score from calm times stands for a much larger error now, perhaps for one never seen.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            far = at_origins(transformed.largest_errors(), origins) / unit
            far[unit == 0] = np.nan  # what is sure has no score
            reach = np.stack([made.scores(-far), made.scores(far)])
    calibrated = Calibrated(spread, reach, model.widths.tails, tailed)
    return Forecast(transformed, origins, base, unit, made, calibrated, errors)


def latest_of(model: Model, panel: Panel, transformed: Transformed, count: int) -> Forecast:
    """Return the forecasts made at the ``count`` latest steps.

    A forecast uses only what was known at its step, both for the inputs of networks and for the
    outcomes that calibrate the bands, which include those since the fit.

    - ``model``: has networks for every series of the panel
    - ``panel``: as :func:`match_panel` returns it
    - ``transformed``: the panel under the model's transform
    """
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
    made = distributions(model.networks, transformed, origins, model.growth)
    scores = _with_recent(model.normal_scores, made.scores(outcomes), since + horizon)
    prior = np.where(model.networks.networked[:, None], model.widths.networks, model.widths.without)
    errors = Errors(scores, spread_at_origins(scores, prior))
    latest = slice(-count, None)
    return forecast_at(model, transformed, origins[:, latest], errors, made.at(latest))


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

    - the arguments before the levels: as of :func:`latest_of`
    - ``level``: levels of the bands, in percent, sorted
    - ``quantiles``: further probabilities, each with a column of its own
    - ``outcomes`` (series, count, horizon): NaN where unknown; if given, the probabilities of less
      and of at most as much are in :func:`.around_columns`, but only of counts: others are NaN
    """
    made = latest_of(model, panel, transformed, count)
    name = model.config.column
    shares = shares_of(name, level, quantiles)
    found = map(made.in_units, made.quantiles([*shares.values()]))
    columns = dict(zip(shares, found, strict=True))
    if outcomes is not None:
        counts = np.where(transformed.counted[:, None, None], outcomes, np.nan)
        around = np.ceil(counts) - 1, counts
        columns |= dict(zip(around_columns(name), map(made.at_most, around), strict=True))
    now = np.take_along_axis(transformed.z, made.origins, axis=1)[:, :, None]
    return columns | {RISE: 1 - made.at_most(now)}


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


def in_parts(model: Model, panel: Panel) -> Iterator[tuple[Panel, int]]:
    """Yield parts of a panel, few enough series to be forecast at the same time.

    Each with the steps of all histories, see :meth:`Transform.apply`.
    """
    steps = int(panel.mask.sum(1).max())
    # The combination computes series that are alike together: parts would change their last bits.
    whole = model.transform.name == "combined"
    count = 1 if whole else -(-len(panel.ids) * steps // _STEPS_AT_ONCE)
    for names in np.array_split(np.array(panel.ids, object), min(count, len(panel.ids))):
        some = panel if count == 1 else panel.only(names.tolist())
        yield some, steps


def forecast_frame(
    model: Model, panel: Panel, level: Sequence[float], quantiles: Sequence[float]
) -> pd.DataFrame:
    """Return the frame of :func:`predict` from what :func:`prepared` returns."""
    level, quantiles = check_levels(level), check_quantiles(quantiles)
    horizon = model.config.horizon
    parts = [
        forecast_latest(
            model, some, model.transform.apply(some, horizon, steps), 1, level, quantiles
        )
        for some, steps in in_parts(model, panel)
    ]
    forecast = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    panel, finite = finite_rows(panel, forecast)
    forecast = {name: values[finite] for name, values in forecast.items()}
    factor = price_factor(panel)[:, None]
    times = panel.of_times(lambda times: next_times(times, horizon, model.frequency))
    names = np.repeat(np.array(panel.ids, object), horizon)
    frame = pd.DataFrame({"unique_id": names, "ds": np.concatenate(times)})
    for name, values in forecast.items():
        values = values[:, 0]  # (series, horizon)
        frame[name] = (values if name == RISE else values * factor).ravel()
    if model.transform.takes_any:
        methods = model.networks.methods[model.networks.rows_of(panel.ids)]
        frame[FORECAST_BY] = np.repeat(np.array([*map(str, methods)], object), horizon)
    return frame
