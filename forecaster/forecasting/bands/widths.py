"""The width and the tails that the bands of all series start from."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

KNOTS = np.linspace(0.0, 4.0, 17)
"""The normal scores at which tails are known; beyond the last one they are as far out as there."""
FARTHEST_TAIL = 1e3
"""The farthest that tails reach."""


class Widths(NamedTuple):
    """The width and the tails that the bands of all series start from, by horizon.

    - ``networks``: the spread of the scores of forecasts by networks; 1 where series are
      independent
    - ``without``: the same for forecasts without a network
    - ``tails``: from :func:`~forecaster.forecasting.bands.calibration.common_tails`, for forecasts
      without a network that are not counts
    """

    networks: Float[np.ndarray, " horizon"]
    without: Float[np.ndarray, " horizon"]
    tails: Float[np.ndarray, "horizon knot"]

    @staticmethod
    def unit(horizon: int) -> "Widths":
        """Return the widths and the tails of the forecast distributions."""
        return Widths(np.ones(horizon), np.ones(horizon), np.tile(KNOTS, (horizon, 1)))


class Tails(NamedTuple):
    """The tails that the bands of some series start from.

    - ``reach``: from :func:`~forecaster.forecasting.bands.calibration.common_tails`
    - ``used``: the series that they are for; others have those of the forecast distribution
    """

    reach: Float[np.ndarray, "horizon knot"]
    used: Bool[np.ndarray, " series"]

    def of(
        self, scores: Float[np.ndarray, "*some #series #horizon"]
    ) -> Float[np.ndarray, "*some series horizon"]:
        """Return where the forecasts of series have what others have at these normal scores."""
        series, horizon = len(self.used), len(self.reach)
        out = np.array(np.broadcast_to(scores, (*scores.shape[:-2], series, horizon)))
        for h in range(horizon):
            out[..., self.used, h] = self._beyond(out[..., self.used, h], h)
        return out

    def inverse(
        self, scores: Float[np.ndarray, "*some series horizon"]
    ) -> Float[np.ndarray, "*some series horizon"]:
        """Return the normal scores that :meth:`of` turns into these."""
        out = np.array(scores)
        for h, reach in enumerate(self.reach):
            own = out[..., self.used, h]
            far = np.abs(own)
            within = np.interp(far, reach, KNOTS) + np.maximum(far - reach[-1], 0.0)
            out[..., self.used, h] = np.sign(own) * within
        return out

    def _beyond(self, scores: Float[np.ndarray, "*some"], h: int) -> Float[np.ndarray, "*some"]:
        far = np.abs(scores)
        after = np.maximum(far - KNOTS[-1], 0.0)
        return np.sign(scores) * (np.interp(far, KNOTS, self.reach[h]) + after)
