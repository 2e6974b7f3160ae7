"""From the weights of networks to the distributions that are calibrated.

What the networks of a series say is combined, its scale with that of the common model of
volatility, and its location with the drift of prices. Series without a network have the base as
their location, and errors as large as the scale.

The logarithm of a combined scale is a weighted sum of those of both. The weights need not sum to
one: each scale is cautious, so a mean of both would be too close to the usual scale (Satopaa et
al. 2014, International Journal of Forecasting 30, on probabilities).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Int

from forecaster import swarm
from forecaster.forecasting.bands.counted import Counted, Units
from forecaster.forecasting.bands.distribution import DOF_AT_START, Distribution, said_by
from forecaster.forecasting.bands.drift import KEPT, Drift
from forecaster.forecasting.config import Config
from forecaster.forecasting.model import (
    Networks,
    Params,
    merge_members,
    split_members,
)
from forecaster.forecasting.networks import OwnNetwork, functions, gather
from forecaster.series import ScaleWeights, Transformed

ByHorizon: TypeAlias = Float[np.ndarray, "series origin horizon"]
Origins: TypeAlias = Int[np.ndarray, "series origin"]

_PADDED = 10_000  # steps of a window that a shorter history is filled up to
_FARTHEST = 1e6  # largest move of a price, in units of its scale
_FAR = 5.0  # the most that a scale's logarithm changes by, unless a model is damaged


def distributions(
    networks: Networks, transformed: Transformed, origins: Origins, outcomes: ByHorizon
) -> tuple[Distribution, Drift | None]:
    """Return the distributions of all series' forecasts made at these steps, and their drift.

    Both are standardised, as are the ``outcomes`` of these forecasts, NaN where unknown, from which
    the mean location of networks is taken where the drift lacks it.
    """
    made, drift = by_networks(networks, transformed, origins), networks.drift
    if drift is not None:
        latest = slice(-networks.config.longest_validation, None)
        drift = drift.completed(made.at(latest), outcomes[:, latest])
    return around_drift(made, drift, transformed, origins), drift


def by_networks(networks: Networks, transformed: Transformed, origins: Origins) -> Distribution:
    """Return what networks and the common model of volatility forecast at these steps."""
    config, rows = networks.config, np.flatnonzero(networks.networked)
    # In double precision, whatever other series there are.
    others = Distribution.unit((*origins.shape, config.horizon), DOF_AT_START)
    if not len(rows):
        return others
    whole = len(rows) == len(origins)
    some = transformed if whole else transformed.only(rows)
    at = origins if whole else origins[rows]
    made = distribution_of(config, networks.network, networks.params_of(rows), some, at)
    others.location[rows] = np.float32(transformed.networks) * made.location
    common = None if some.common is None else at_origins(some.common, at)
    others.scale[rows] = with_common(made.scale, common, transformed.scale_weights)
    others.dof[rows] = made.dof
    return others


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


def with_common(
    scale: ByHorizon, common: ByHorizon | None, weights: ScaleWeights
) -> Float[np.ndarray, "series origin horizon"]:
    """Return scales that combine those of networks and of a common model.

    - ``common``: the logarithm of the model's scale, standardised. Where it is NaN, unknown, the
      networks stand alone. None: there is no model
    - ``weights``: those that past outcomes supported, by step ahead
    """
    if common is None:
        return scale
    constant, of_networks, of_common = np.array(weights).T
    wider = constant + (of_networks - 1) * np.log(scale) + of_common * common
    wider = np.clip(np.where(np.isfinite(wider), wider, 0.0), -_FAR, _FAR)
    return (scale * np.exp(wider)).astype(scale.dtype)


def around_drift(
    made: Distribution, drift: Drift | None, transformed: Transformed, origins: Origins
) -> Distribution:
    """Return distributions around the drift of prices, which networks move a little; or of counts.

    No location lies beyond the lowest and the highest change.

    - ``made``: from :func:`by_networks`
    - ``drift``: complete; None for other series
    """
    if drift is not None:
        unit = at_origins(transformed.scale, origins)
        ahead = np.arange(1, unit.shape[-1] + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            moves = drift.per_row.T[:, :, None, None] * ahead / unit
        expected, low, high = np.where(np.isfinite(moves), moves, 0.0)
        beyond = made.location - drift.usual[:, None]
        location = np.clip(KEPT * beyond + expected, low, high)
        # A move that no series makes comes from a damaged model; it is kept, so that users see it.
        location = np.where(np.abs(beyond) < _FARTHEST, location, beyond)
        made = dataclasses.replace(made, location=location.astype(made.location.dtype))
    if transformed.counted.any():
        made = Counted.of(made, Units.of(transformed, origins))
    return made


def at_origins(by_step: Float[np.ndarray, "series step horizon"], origins: Origins) -> ByHorizon:
    """Return what is known at the steps that forecasts are made at."""
    return np.take_along_axis(by_step, origins[:, :, None], axis=1)
