"""Two scales of a distribution: that of a series' networks, and that of the common volatility.

The logarithm of the combined scale is a weighted sum of those of both. The weights need not sum to
one: each scale is cautious, so a mean of both would be too close to the usual scale (Satopaa et
al. 2014, International Journal of Forecasting 30, on probabilities).
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from forecaster.forecasting.bands.distribution import Distribution
from forecaster.series import ScaleWeights

_PRIOR = np.array([0.0, 0.6, 0.6])
_PENALTIES = np.array([0.0, 0.03, 0.03])
"""On squared distances from the prior; the figures behind both are in ``docs/evaluation.md``."""
_DEGREES = 5.0  # of freedom, about those of stocks; bands are calibrated afterwards
_ROUNDS = 10  # of Fisher scoring; further ones change nothing
_LIMITS = np.array([-2.0, 0.0, 0.0]), np.array([2.0, 2.0, 2.0])  # beyond: no usual prices
_FAR = 5.0  # the most that a scale's logarithm changes by, unless a model is damaged


def with_common(
    made: Distribution,
    common: Float[np.ndarray, "series origin horizon"] | None,
    weights: ScaleWeights,
) -> Distribution:
    """Return distributions whose scales combine those of networks and of a common model.

    Degrees of freedom and locations stay those of the networks.

    - ``common``: the logarithm of the model's scale, standardised. Where it is NaN, unknown, the
      networks stand alone. None: there is no model
    - ``weights``: from :func:`scale_weights`
    """
    if common is None:
        return made
    own = np.log(made.scale)
    constant, of_networks, of_common = np.array(weights).T
    wider = constant + (of_networks - 1) * own + of_common * common
    wider = np.clip(np.where(np.isfinite(wider), wider, 0.0), -_FAR, _FAR)
    scale = (made.scale * np.exp(wider)).astype(made.scale.dtype)
    return dataclasses.replace(made, scale=scale)


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
    own = np.log(made.scale)
    return tuple(
        _weights(own[..., h], common[..., h], outcomes[..., h]) for h in range(outcomes.shape[-1])
    )


def _weights(
    own: Float[np.ndarray, "series origin"],
    common: Float[np.ndarray, "series origin"],
    outcomes: Float[np.ndarray, "series origin"],
) -> tuple[float, float, float]:
    known = np.isfinite(own) & np.isfinite(common) & np.isfinite(outcomes)
    weights = _PRIOR
    if not known.any():
        return (0.0, 0.5, 0.5)
    x = np.stack([np.ones(int(known.sum())), own[known], common[known]], axis=-1).astype(float)
    y = outcomes[known].astype(float)
    information = 2 * _DEGREES / (_DEGREES + 3) * (x.T @ x) / len(x) + 2 * np.diag(_PENALTIES)
    for _ in range(_ROUNDS):
        squares = (y * np.exp(-x @ weights)) ** 2
        score = (_DEGREES + 1) * squares / (_DEGREES + squares) - 1
        slope = x.T @ score / len(x) - 2 * _PENALTIES * (weights - _PRIOR)
        weights = weights + np.linalg.solve(information, slope)
    constant, of_networks, of_common = np.clip(weights, *_LIMITS).tolist()
    return constant, of_networks, of_common
