"""What there is to see of members that were trained."""

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int32, Shaped

from forecaster.swarm.checks import warn
from forecaster.swarm.result import FitResult
from forecaster.swarm.task import AnyArray, Params
from forecaster.swarm.training import Losses, Status
from forecaster.swarm.variables import count_weights

if TYPE_CHECKING:
    import pandas as pd

HostHyperparams: TypeAlias = dict[str, Shaped[np.ndarray, " member"]]
"""Hyperparameters by name, a value per member."""


class Use:
    """Whether anything was done with a swarm: shared with the one that it was fitted from."""

    used = False


class Fitted(NamedTuple):
    """The swarm that a fit returned, as far as the one that it was called on remembers it."""

    swarm: "weakref.ref[Trained]"
    use: Use

    @property
    def dropped(self) -> bool:
        """Whether nobody kept it, and nobody looked at it."""
        return self.swarm() is None and not self.use.used


def warn_dropped(fitted: Fitted | None) -> None:
    """Warn where a swarm is used that was fitted, and the result was dropped."""
    if fitted is not None and fitted.dropped:
        warn(
            "this swarm is as it was before fit: fit changes nothing, it returns the trained "
            "swarm, which was dropped. Write swarm = swarm.fit(...)"
        )


class Trained:
    """Members, and what their training left: weights, losses, how it ended."""

    hyperparams: HostHyperparams
    _ids: tuple[str, ...]

    def __len__(self) -> int:
        """How many members."""
        return len(self.ids)

    def __repr__(self) -> str:
        counts = {s.name.lower(): int((self.status == s).sum()) for s in Status}
        shown = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        return f"Swarm of {len(self)} ({shown}), {self.parameters} parameters each"

    @property
    def ids(self) -> tuple[str, ...]:
        """The members' names."""
        return self._ids

    @property
    def params(self) -> Params:
        """Weights, leaves (member, ...): the best ones where a validation chose them.

        Of a model with state: :class:`Variables`, weights and state.
        """
        return self._result.params

    @property
    def parameters(self) -> int:
        """How many weights a member has."""
        return count_weights(self.params) // len(self)

    @property
    def status(self) -> Int32[np.ndarray, " member"]:
        """Of :class:`Status`."""
        return self._result.status

    @property
    def epochs(self) -> Int32[np.ndarray, " member"]:
        """Epochs trained."""
        return self._result.epochs

    @property
    def losses(self) -> Losses:
        """Training and validation loss, each (member, epoch), NaN where a member did not train."""
        return self._result.losses

    @property
    def metrics(self) -> Mapping[str, Float[AnyArray, "member epoch"]]:
        """Metrics by name, each (member, epoch), NaN where a member did not train."""
        return self.losses.metrics

    @property
    def seconds(self) -> float:
        """How long the last fit took."""
        return self._result.seconds

    @property
    def diverged(self) -> dict[str, int]:
        """Members whose loss or weights became infinite or NaN, and the epoch it happened in."""
        return self._result.diverged

    def summary(self) -> "pd.DataFrame":
        """A row per member: status, epochs, losses, hyperparameters."""
        return self._result.summary().assign(**self.hyperparams)

    @property
    def _result(self) -> FitResult:
        """What training left, on the host."""
        raise NotImplementedError
