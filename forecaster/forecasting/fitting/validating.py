"""Compare forecasts of held-back rows with outcomes, to calibrate bands and report errors."""

import dataclasses
from types import MappingProxyType

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import structs

from forecaster.forecasting.bands.calibration import (
    Calibrated,
    Widths,
    common_spread,
    normal_scores_of,
    spread_at_origins,
)
from forecaster.forecasting.bands.distribution import DOF_AT_START, Distribution
from forecaster.forecasting.bands.drift import growth_of
from forecaster.forecasting.comparing import (
    COMBINATION_COVERAGE,
    COMPONENTS,
    SEASONAL_NAIVE,
    beside,
)
from forecaster.forecasting.config import Config
from forecaster.forecasting.methods import Method
from forecaster.forecasting.model import Networks, Params
from forecaster.forecasting.network_task import split_of, validation_of
from forecaster.forecasting.networks import OwnNetwork
from forecaster.forecasting.predicting.forecast import (
    around_drift,
    at_origins,
    distribution_of,
    distributions,
)
from forecaster.series import (
    CommonVolatility,
    Panel,
    ScaleWeights,
    Transform,
    Transformed,
    by_fisher_scoring,
    sampled_names,
)

_COMPARED = 50  # series whose forecasts are compared with simpler ones, at most
_STEPS = 200_000  # the same, of rows times steps ahead of those whose components are
_LEARNED = 100  # series that weights of both scales are learned from, at most
_PRIOR = np.array([0.0, 0.6, 0.6])
_PENALTIES = np.array([0.0, 0.03, 0.03])
"""On squared distances from the prior; for both see ``research/008-common-volatility.md``."""
_ROUNDS = 10  # of Fisher scoring; further ones change nothing
_LIMITS = np.array([-2.0, 0.0, 0.0]), np.array([2.0, 2.0, 2.0])  # beyond: no usual prices


def validated(
    networks: Networks,
    transform: Transform,
    transformed: Transformed,
    panel: Panel,
    held_back: Int[np.ndarray, " series"],
) -> tuple[Networks, Float[np.ndarray, "series origin horizon"]]:
    """Return networks with errors over the validation span, and normal scores of its outcomes.

    ``held_back``: the latest rows of each series whose outcomes count
    """
    origins, inside, outcomes = _held_back(networks.config, transformed, held_back)
    made = distributions(networks, transformed, origins, growth_of(networks.config, panel))
    with np.errstate(over="ignore", invalid="ignore"):
        scores, median = made.scores(outcomes), made.quantiles(np.zeros(made.shape))
        seasons = transform.basic_seasons(panel.ids)
        errors = _validation_errors(transformed, origins, inside, median, seasons)
        if transform.name == "combined" and transform.alone is None:
            own = networks.trained
            rows = np.flatnonzero(own if own.any() else ~own)
            rows = rows[sampled_names([panel.ids[row] for row in rows.tolist()], _COMPARED)]
            part = panel.only([panel.ids[row] for row in rows.tolist()])
            held = origins[rows], inside[rows], outcomes[rows]
            for name, values in _simpler(transform, part, transformed.only(rows), *held).items():
                errors[name] = np.full(len(own), np.nan)
                errors[name][rows] = values
    report = networks.report.assign(**errors)
    return dataclasses.replace(networks, report=report), scores


def _simpler(
    transform: Transform,
    panel: Panel,
    transformed: Transformed,
    origins: Int[np.ndarray, "series origin"],
    inside: Bool[np.ndarray, "series origin"],
    outcomes: Float[np.ndarray, "series origin horizon"],
) -> dict[str, Float[np.ndarray, " series"]]:
    """Return how well the combination of a sample of series forecasts, and its components alone.

    Arguments after the panel are those of the sample, see :func:`_held_back`.
    """
    horizon, nothing = transformed.base.shape[-1], np.zeros(outcomes.shape)
    series = np.arange(len(origins))

    def error(of: Transformed, rows: np.ndarray) -> np.ndarray:
        errors = _validation_errors(of, origins[rows], inside[rows], nothing[rows], 0 * rows)
        return errors["mae_relative_to_naive"]

    nowhere = np.full(len(origins), np.nan)  # the components say where the forecasts lie
    unit = Distribution.unit((*origins.shape, horizon), DOF_AT_START)
    unit = around_drift(unit, nowhere, transformed, origins)
    scores = unit.scores(outcomes)
    prior = np.stack([common_spread(one[None]) for one in scores])  # no series changes another
    kept = held(scores, prior, Widths.unit(horizon).tails, tailed=False)
    found = {
        beside(Method.COMBINATION): error(transformed, series),
        COMBINATION_COVERAGE: np.nansum(kept, (1, 2)) / np.isfinite(kept).sum((1, 2)),
    }
    small = series[np.cumsum(panel.mask.sum(1)) * horizon <= _STEPS].tolist()
    natures = [transform.natures[name] for name in panel.ids]
    its = [one.components for one in natures]
    for name in COMPONENTS:
        rows = [row for row in small if name in its[row].kind.names and getattr(its[row], name, 1)]
        found[beside(name)] = np.full(len(series), np.nan)
        if rows:
            alone = {
                panel.ids[row]: dataclasses.replace(
                    natures[row],
                    components=structs.replace(
                        its[row], kind=its[row].kind._replace(names=(name,))
                    ),
                    blend=natures[row].blend._replace(weights=(1.0,)),
                )
                for row in rows
            }
            by_one = dataclasses.replace(transform, natures=MappingProxyType(alone))
            made = by_one.apply(panel.only([*alone]), horizon, transformed.z.shape[1])
            found[beside(name)][rows] = error(made, np.array(rows))
    return found


def held(
    scores: Float[np.ndarray, "series origin horizon"],
    prior: Float[np.ndarray, "*series horizon"],
    tails: Float[np.ndarray, "horizon knot"],
    *,
    tailed: bool,
) -> Float[np.ndarray, "series origin horizon"]:
    """Return whether bands of 80 % hold each outcome; NaN where it is unknown.

    - ``scores``: of the outcomes, of which the earlier ones calibrate
    - ``prior``: the width that bands start from
    - ``tails``, ``tailed``: as of :class:`Calibrated`, for all series
    """
    unlimited = np.full((2, *scores.shape), np.nan)
    which = np.full(len(scores), tailed)
    bands = Calibrated(spread_at_origins(scores, prior), unlimited, tails, which)
    low, high = bands.scores(normal_scores_of([0.1, 0.9])[:, None, None, None])
    return np.where(np.isfinite(scores), (scores >= low) & (scores <= high), np.nan)


def with_scale_weights(
    model: CommonVolatility | None,
    config: Config,
    network: OwnNetwork | None,
    start: Params,
    transformed: Transformed,
    panel: Panel,
    own: Bool[np.ndarray, " series"],
) -> CommonVolatility | None:
    """Return the common model with the weights by which networks and it are combined.

    - ``start``: the networks that all series start from, (member, ...)
    - ``transformed``, ``panel``: the series
    - ``own``: which of them have networks; the weights are learned from a sample of these
    """
    if model is None:
        return None
    rows = np.flatnonzero(own)
    rows = rows[sampled_names([panel.ids[int(row)] for row in rows], _LEARNED)]
    transformed = transformed.only(rows)
    held_back = validation_of(config, panel.mask[rows].sum(1))
    origins, _, outcomes = _held_back(config, transformed, held_back)
    params = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(origins), 0), start)
    forecast = distribution_of(config, network, params, transformed, origins)
    assert transformed.common is not None
    weights = scale_weights(forecast, at_origins(transformed.common, origins), outcomes)
    return model._replace(scale_weights=weights)


def scale_weights(
    made: Distribution,
    common: Float[np.ndarray, "series origin horizon"],
    outcomes: Float[np.ndarray, "series origin horizon"],
) -> ScaleWeights:
    """Return the weights of both scales that past outcomes support, by step ahead.

    They maximise the likelihood of Student-t distributions, less a penalty on the distance from
    usual weights.

    ``outcomes``: standardised; NaN where unknown
    """
    parts = np.log(made.scale), common, outcomes
    return tuple(_weights(*(part[..., h] for part in parts)) for h in range(outcomes.shape[-1]))


def _weights(
    own: Float[np.ndarray, "series origin"],
    common: Float[np.ndarray, "series origin"],
    outcomes: Float[np.ndarray, "series origin"],
) -> tuple[float, float, float]:
    known = np.isfinite(own) & np.isfinite(common) & np.isfinite(outcomes)
    if not known.any():
        return (0.0, 0.5, 0.5)
    x = np.stack([np.ones(int(known.sum())), own[known], common[known]], axis=-1).astype(float)
    y = outcomes[known].astype(float)
    (weights,) = by_fisher_scoring(x, y, _PRIOR, [2 * _PENALTIES], _ROUNDS)
    constant, of_networks, of_common = np.clip(weights, *_LIMITS).tolist()
    return constant, of_networks, of_common


def _held_back(
    config: Config, transformed: Transformed, held_back: Int[np.ndarray, " series"]
) -> tuple[
    Int[np.ndarray, "series origin"],
    Bool[np.ndarray, "series origin"],
    Float[np.ndarray, "series origin horizon"],
]:
    """Return the origins of the validation span, which of them count, and the outcomes of these."""
    split = split_of(config, transformed.z.shape[1])
    origins = np.tile(split.validation_origins, (len(held_back), 1))
    inside = origins >= transformed.z.shape[1] - 1 - held_back[:, None]
    # The earliest origins of short histories lie before the first step; they do not count.
    origins = np.maximum(origins, 0)
    outcomes = np.where(inside[:, :, None], at_origins(transformed.targets(), origins), np.nan)
    return origins, inside, outcomes


def _validation_errors(
    transformed: Transformed,
    origins: Int[np.ndarray, "series origin"],
    validated: Bool[np.ndarray, "series origin"],
    location: Float[np.ndarray, "series origin horizon"],
    seasons: Int[np.ndarray, " series"],
) -> dict[str, Float[np.ndarray, " series"]]:
    """Return mean absolute errors over the validation span and all horizons.

    - ``mae``: in the units of the series
    - ``mae_relative_to_naive``: divided by that of the last value
    - ``mae_relative_to_seasonal_naive``: divided by that of the season before; NaN without a season
    - the error of the season before, divided by that of the last value
    """
    last_step = transformed.z.shape[1] - 1
    steps_ahead = np.arange(1, location.shape[-1] + 1)
    ahead = origins[:, :, None] + steps_ahead
    inside = (ahead <= last_step) & validated[:, :, None]
    rows = np.arange(len(origins))[:, None, None]
    actual = transformed.invert(transformed.z[rows, np.minimum(ahead, last_step)])
    base, scale = (at_origins(part, origins) for part in (transformed.base, transformed.scale))

    def mae(guess: np.ndarray) -> np.ndarray:
        return np.where(inside, np.abs(actual - guess), 0).sum((1, 2)) / inside.sum((1, 2))

    def before(seasons: np.ndarray) -> np.ndarray:
        """Return the latest values known at the origins that are whole seasons before."""
        steps = seasons[:, None]
        back = -(-steps_ahead // steps) * steps - steps_ahead  # from the origin, (series, horizon)
        return transformed.invert(
            transformed.z[rows, np.maximum(origins[:, :, None] - back[:, None], 0)]
        )

    with np.errstate(divide="ignore", invalid="ignore"):
        error = mae(transformed.invert(base + scale * location))
        naive = mae(before(np.ones_like(seasons)))
        of_season = np.where(seasons > 0, mae(before(np.maximum(seasons, 1))), np.nan)
        return {
            "mae": error,
            "mae_relative_to_naive": error / naive,
            "mae_relative_to_seasonal_naive": error / of_season,
            beside(SEASONAL_NAIVE): of_season / naive,
        }
