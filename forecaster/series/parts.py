"""What the base and the scale of forecasts are made of, kept at the steps that are explained.

Transforms put it here as they compute it. A forecast that is not explained keeps nothing.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.causal import Ahead

Factors: TypeAlias = dict[str, Float[np.ndarray, "series origin horizon"]]
"""What adds up to, or multiplies to, a quantity of forecasts, by name."""


class Parts(NamedTuple):
    """What the base and the scale of forecasts made at some steps consist of.

    - ``origins``: the steps, of histories that are aligned at their end
    - ``scale``: factors of the scale; of prices, that of events alone
    - ``base``: terms that add up to the base; of prices, which have the latest value, none
    - ``common``: terms that add up to the logarithm of the scale by the common model of volatility
    - ``components``, ``weights``: what each component of a blend forecasts, and its weight
    """

    origins: Int[np.ndarray, "series origin"]
    scale: Factors
    base: Factors
    common: Factors
    components: Factors
    weights: Factors

    @staticmethod
    def at(origins: Int[np.ndarray, "series origin"]) -> "Parts":
        """Return the parts of forecasts made at these steps, to be filled."""
        return Parts(origins, {}, {}, {}, {}, {})

    def at_origins(self, by_step: Ahead) -> Float[np.ndarray, "series origin horizon"]:
        """Return what is known at the steps that forecasts are made at."""
        return np.take_along_axis(by_step, self.origins[:, :, None], axis=1)

    def put(
        self, into: Factors, name: str, row: int, values: Ahead, elsewhere: float = np.nan
    ) -> None:
        """Keep the part of one series, (origin, horizon); ``elsewhere``: that of the others."""
        if name not in into:
            into[name] = np.full((*self.origins.shape, values.shape[-1]), elsewhere)
        into[name][row] = values

    def sliced(self, some: slice) -> "Parts":
        """Return the parts of some of the origins."""
        each = ({name: own[:, some] for name, own in part.items()} for part in self[1:])
        return Parts(self.origins[:, some], *each)
