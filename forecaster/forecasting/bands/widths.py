"""The width and the tails that bands start from, which a saved model holds; read without JAX."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

KNOTS = np.linspace(0.0, 4.0, 17)
"""The normal scores at which tails are measured; the last value also holds beyond the last knot."""
FARTHEST_TAIL = 1e3
"""The farthest that tails reach."""


class Widths(NamedTuple):
    """The width and the tails that the bands of all series start from, by horizon.

    - ``networks``: the spread of the scores of forecasts by networks; 1 where series are
      independent
    - ``without``: the same for forecasts without a network
    - ``tails``: from :func:`common_tails`, for forecasts without a network that are not counts
    """

    networks: Float[np.ndarray, " horizon"]
    without: Float[np.ndarray, " horizon"]
    tails: Float[np.ndarray, "horizon knot"]

    @staticmethod
    def unit(horizon: int) -> "Widths":
        """Return the widths and the tails of the forecast distributions."""
        return Widths(np.ones(horizon), np.ones(horizon), np.tile(KNOTS, (horizon, 1)))
