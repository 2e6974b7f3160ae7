"""Two opinions of how wide a distribution is: a series' networks, and the common volatility."""

import dataclasses

import numpy as np
from jaxtyping import Float

from forecaster.forecasting.bands.mixture import Mixture

_WEIGHT = 0.5
"""The weight of the common model; that of a series' networks is the rest."""
_FAR = 5.0  # the most that the logarithms of both scales differ by, unless a model is damaged


def with_common(
    mixture: Mixture, common: Float[np.ndarray, "series origin horizon"] | None
) -> Mixture:
    """Return distributions whose widths are geometric means of those of networks and of a model.

    Degrees of freedom and locations stay those of the networks. The figures that the weight was
    chosen by are in ``docs/evaluation.md``.

    ``common``: the logarithm of the model's scale, standardised. Where it is NaN, unknown, the
    networks stand alone. None: there is no model
    """
    if common is None:
        return mixture
    wider = common - np.log(mixture.scale).mean(-1)
    wider = np.clip(np.where(np.isfinite(wider), wider, 0.0), -_FAR, _FAR)
    factor = np.exp(_WEIGHT * wider)[..., None]
    return dataclasses.replace(mixture, scale=(mixture.scale * factor).astype(mixture.scale.dtype))
