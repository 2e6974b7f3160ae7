"""The forms of exponential smoothing, as state-space models."""

import itertools
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from msgspec import Meta

from forecaster.classical.innovations import Parameters, Space

MOST_SEASON = 24
"""Steps in the longest season that these models take: longer ones have too many initial states."""

Season: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_SEASON)]
_GRID = {
    "level": (0.02, 0.1, 0.2, 0.35, 0.55, 0.8, 0.98),
    "trend": (0.02, 0.1, 0.3),
    "damping": (0.85, 0.95),
    "season": (0.02, 0.1, 0.3),
}
_BOUNDS = {
    "level": (1e-4, 0.9999),
    "trend": (1e-4, 0.9999),
    "damping": (0.8, 0.98),
    "season": (1e-4, 0.9999),
}
_TRENDS: tuple[Literal["none", "additive", "damped"], ...] = ("none", "additive", "damped")


class Form(NamedTuple):
    """A form of exponential smoothing.

    - ``trend``: "none", "additive" or "damped"
    - ``season``: steps in a season; 1 for none
    - ``logarithmic``: whether logarithms are smoothed
    """

    trend: Literal["none", "additive", "damped"]
    season: Season = 1
    logarithmic: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters.

        The trend's parameter is a share of the level's. The season's is a share of one minus the
        level's.
        """
        names = {
            "level": True,
            "trend": self.trend != "none",
            "damping": self.trend == "damped",
            "season": self.season > 1,
        }
        return tuple(name for name, there in names.items() if there)

    @property
    def freedom(self) -> int:
        """The number of parameters, of free initial states, and one for the variance."""
        return len(self.names) + 1 + (self.trend != "none") + (self.season - 1) + 1

    def grid(self) -> Parameters:
        """Return the parameters that are tried on every series."""
        return np.array(list(itertools.product(*(_GRID[name] for name in self.names))))

    def bounds(self) -> Float[np.ndarray, "parameter 2"]:
        """Return the least and the greatest value of each parameter."""
        return np.array([_BOUNDS[name] for name in self.names])

    def space(self, parameters: Parameters) -> Space:
        """Return state-space models with these parameters; states are level, trend, seasons."""
        given = dict(zip(self.names, parameters.T, strict=True))
        models, trended, seasonal = len(parameters), self.trend != "none", self.season > 1
        size = 1 + trended + (self.season if seasonal else 0)
        transition = np.zeros((models, size, size))
        output, gain = np.zeros((models, size)), np.zeros((models, size))
        output[:, 0] = transition[:, 0, 0] = 1
        gain[:, 0] = given["level"]
        if trended:
            damping = given.get("damping", np.ones(models))
            output[:, 1] = transition[:, 0, 1] = transition[:, 1, 1] = damping
            gain[:, 1] = given["level"] * given["trend"]
        free = np.eye(size)
        if seasonal:  # the season that comes next stands first
            first = 1 + trended
            output[:, first] = transition[:, -1, first] = 1
            rows = np.arange(first, size - 1)
            transition[:, rows, rows + 1] = 1
            gain[:, -1] = given["season"] * (1 - given["level"])
            free = free[:, :-1]
            free[-1, first:] = -1  # seasons begin with a sum of zero
        return Space(transition, output, gain, free)


def forms_of(season: int) -> list[Form]:
    """Return all forms of series with a season; 1 for none."""
    seasons = (1, season) if 1 < season <= MOST_SEASON else (1,)
    return [Form(*each) for each in itertools.product(_TRENDS, seasons, (False, True))]
