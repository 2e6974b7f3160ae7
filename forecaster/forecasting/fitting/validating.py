"""Compare forecasts of held-back rows with outcomes, to calibrate bands and report errors."""

import dataclasses
from types import MappingProxyType
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from forecaster.forecasting.bands import (
    DOF_AT_START,
    NORMAL,
    Calibrated,
    Distribution,
    Widths,
    common_spread,
    normal_scores_of,
    spread_at_origins,
)
from forecaster.forecasting.config import Config
from forecaster.forecasting.methods import Method, growth_of
from forecaster.forecasting.model import (
    COMBINATION_COVERAGE,
    COMPONENTS,
    SEASONAL_NAIVE,
    VOLATILITY,
    Networks,
    Params,
    beside,
    crps_of,
)
from forecaster.forecasting.network_task import split_of, validation_of
from forecaster.forecasting.networks import OwnNetwork
from forecaster.forecasting.predicting.forecast import (
    around_drift,
    at_origins,
    distribution_of,
    distributions,
    networks_alone,
    with_common,
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


class HeldBack(NamedTuple):
    """The latest rows of series, which networks did not learn from.

    - ``origins``: the steps that their forecasts are made at
    - ``inside``: which of these count; the earliest of short histories do not
    - ``outcomes``: standardised; NaN where unknown
    """

    origins: Int[np.ndarray, "series origin"]
    inside: Bool[np.ndarray, "series origin"]
    outcomes: Float[np.ndarray, "series origin horizon"]

    @staticmethod
    def from_transformed(
        config: Config, transformed: Transformed, rows: Int[np.ndarray, " series"]
    ) -> "HeldBack":
        """Return the held-back rows of series; ``rows``: how many each has."""
        split = split_of(config, transformed.z.shape[1])
        origins = np.tile(split.validation_origins, (len(rows), 1))
        inside = origins >= transformed.z.shape[1] - 1 - rows[:, None]
        origins = np.maximum(origins, 0)
        outcomes = np.where(inside[:, :, None], at_origins(transformed.targets(), origins), np.nan)
        return HeldBack(origins, inside, outcomes)

    def only(self, rows: Int[np.ndarray, " some"]) -> "HeldBack":
        """Return those of some series."""
        return HeldBack(*(part[rows] for part in self))

    def errors(
        self,
        transformed: Transformed,
        location: Float[np.ndarray, "series origin horizon"],
        seasons: Int[np.ndarray, " series"],
    ) -> dict[str, Float[np.ndarray, " series"]]:
        """Return mean absolute errors over all origins and steps ahead.

        - ``mae``: in the units of the series
        - ``mae_relative_to_naive``: divided by that of the last value
        - ``mae_relative_to_seasonal_naive``: divided by that of the season before; NaN without one
        - the error of the season before, divided by that of the last value
        """
        last_step, origins = transformed.z.shape[1] - 1, self.origins
        steps_ahead = np.arange(1, location.shape[-1] + 1)
        ahead = origins[:, :, None] + steps_ahead
        inside = (ahead <= last_step) & self.inside[:, :, None]
        rows = np.arange(len(origins))[:, None, None]
        actual = transformed.invert(transformed.z[rows, np.minimum(ahead, last_step)])
        base, scale = (at_origins(part, origins) for part in (transformed.base, transformed.scale))

        def mae(guess: np.ndarray) -> np.ndarray:
            return np.where(inside, np.abs(actual - guess), 0).sum((1, 2)) / inside.sum((1, 2))

        def before(seasons: np.ndarray) -> np.ndarray:
            """Return the latest values known at the origins that are whole seasons before."""
            back = -steps_ahead % seasons[:, None]  # from the origin, (series, horizon)
            known = np.maximum(origins[:, :, None] - back[:, None], 0)
            return transformed.invert(transformed.z[rows, known])

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


def validated(
    networks: Networks,
    transform: Transform,
    transformed: Transformed,
    panel: Panel,
    rows: Int[np.ndarray, " series"],
) -> tuple[Networks, Float[np.ndarray, "series origin horizon"]]:
    """Return networks with errors over the held-back rows, and normal scores of their outcomes.

    ``rows``: how many of each series are held back
    """
    held_back = HeldBack.from_transformed(networks.config, transformed, rows)
    growth = growth_of(networks.config, panel)
    own = networks_alone(networks, transformed, held_back.origins)
    made = distributions(networks, transformed, held_back.origins, growth, own)
    with np.errstate(over="ignore", invalid="ignore"):
        scores, median = made.scores(held_back.outcomes), made.quantiles(np.zeros(made.shape))
        errors = held_back.errors(transformed, median, transform.basic_seasons(panel.ids))
        report = networks.report.assign(**errors)
        if own is not None and np.isfinite(growth).any():
            scored = _scores_of_prices(networks, own, transformed, held_back, growth)
            report = report.join(scored)
        if transform.name == "combined" and transform.alone is None:
            trained = networks.trained
            some = np.flatnonzero(trained if trained.any() else ~trained)
            some = some[sampled_names([panel.ids[row] for row in some.tolist()], _COMPARED)]
            part = panel.only([panel.ids[row] for row in some.tolist()])
            simpler = _simpler(transform, part, transformed.only(some), held_back.only(some))
            report = report.join(pd.DataFrame(simpler, index=list(part.ids)))
    return dataclasses.replace(networks, report=report), scores


def _scores_of_prices(
    networks: Networks,
    own: Distribution,
    transformed: Transformed,
    held_back: HeldBack,
    growth: Float[np.ndarray, " series"],
) -> pd.DataFrame:
    """Return how well the parts of a band forecast a sample of prices, each alone and together.

    By the continuous ranked probability score of logarithms, in percent.

    ``own``: what the networks of the series that have some say alone
    """
    rows = np.flatnonzero(networks.trained)
    rows = rows[sampled_names([networks.ids[int(row)] for row in rows], _COMPARED)]
    names = [networks.ids[int(row)] for row in rows]
    among = np.searchsorted(np.flatnonzero(networks.networked), rows)
    transformed, held_back = transformed.only(rows), held_back.only(rows)
    origins, unit = held_back.origins, at_origins(transformed.scale, held_back.origins)
    own = Distribution(np.zeros_like(unit), own.scale[among], own.dof[among])
    alone = {str(Method.OWN): own, VOLATILITY: Distribution.unit(own.shape, NORMAL)}
    if transformed.common is not None:
        common = at_origins(transformed.common, origins)
        both = with_common(own.scale, common, transformed.scale_weights)
        linear = dataclasses.replace(own, scale=np.exp(common))
        together = dataclasses.replace(own, scale=both)
        alone = {str(Method.COMBINATION): together, str(Method.OWN): own, "linear": linear} | alone
    scores = {
        crps_of(name): 100 * np.nanmean(
            unit * around_drift(made, growth[rows], transformed, origins).crps(held_back.outcomes),
            (1, 2),
        )
        for name, made in alone.items()
    }  # fmt: skip
    return pd.DataFrame(scores, names)


def _simpler(
    transform: Transform, panel: Panel, transformed: Transformed, held_back: HeldBack
) -> dict[str, Float[np.ndarray, " series"]]:
    """Return how well the combination of a sample of series forecasts, and its components alone."""
    horizon, origins = transformed.base.shape[-1], held_back.origins
    series = np.arange(len(origins))

    def error(of: Transformed, rows: np.ndarray) -> np.ndarray:
        some = held_back.only(rows)
        errors = some.errors(of, np.zeros(some.outcomes.shape), 0 * rows)
        return errors["mae_relative_to_naive"]

    nowhere = np.full(len(origins), np.nan)  # the components say where the forecasts lie
    unit = Distribution.unit((*origins.shape, horizon), DOF_AT_START)
    unit = around_drift(unit, nowhere, transformed, origins)
    scores = unit.scores(held_back.outcomes)
    prior = np.stack([common_spread(one[None]) for one in scores])  # no series changes another
    kept = inside_bands(scores, prior, Widths.unit(horizon).tails, tailed=False)
    found = {
        beside(Method.COMBINATION): error(transformed, series),
        COMBINATION_COVERAGE: np.nansum(kept, (1, 2)) / np.isfinite(kept).sum((1, 2)),
    }
    small = series[np.cumsum(panel.mask.sum(1)) * horizon <= _STEPS].tolist()
    natures = [transform.natures[name] for name in panel.ids]
    for name in COMPONENTS:
        alone = {row: natures[row].by_component(name) for row in small}
        alone = {row: nature for row, nature in alone.items() if nature is not None}
        found[beside(name)] = np.full(len(series), np.nan)
        if alone:
            rows = [*alone]
            names = [panel.ids[row] for row in rows]
            of_names = dict(zip(names, alone.values(), strict=True))
            by_one = dataclasses.replace(transform, natures=MappingProxyType(of_names))
            made = by_one.apply(panel.only(names), horizon, transformed.z.shape[1])
            found[beside(name)][rows] = error(made, np.array(rows))
    return found


def inside_bands(
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
    held_back = HeldBack.from_transformed(
        config, transformed, validation_of(config, panel.mask[rows].sum(1))
    )
    params = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(rows), 0), start)
    forecast = distribution_of(config, network, params, transformed, held_back.origins)
    assert transformed.common is not None
    common = at_origins(transformed.common, held_back.origins)
    return model._replace(scale_weights=scale_weights(forecast, common, held_back.outcomes))


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
    found: list[tuple[float, float, float]] = []
    for step in range(outcomes.shape[-1]):
        own, shared, y = (part[..., step] for part in (np.log(made.scale), common, outcomes))
        known = np.isfinite(own) & np.isfinite(shared) & np.isfinite(y)
        if not known.any():
            found.append((0.0, 0.5, 0.5))
            continue
        x = np.stack([np.ones(int(known.sum())), own[known], shared[known]], -1).astype(float)
        weights = by_fisher_scoring(x, y[known].astype(float), _PRIOR, 2 * _PENALTIES, _ROUNDS)
        constant, of_networks, of_common = np.clip(weights, *_LIMITS).tolist()
        found.append((constant, of_networks, of_common))
    return tuple(found)
