"""What there is to see of members that were trained."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int32, Shaped

from forecaster.swarm.adapters.modules import on_device
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.arrays.variables import count_weights
from forecaster.swarm.checks import row_of, warn
from forecaster.swarm.estimators.recipe import Recipe
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import AnyArray, Params, Tree
from forecaster.swarm.training.training import Losses, Status

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
        """Whether nobody kept it, and nobody did anything with it but show it."""
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
    _recipe: Recipe
    _fitted: Fitted | None
    _use: Use

    def __len__(self) -> int:
        """How many members."""
        return len(self.ids)

    def __repr__(self) -> str:
        used = self._use.used
        counts = {s.name.lower(): int((self.status == s).sum()) for s in Status}
        shown = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        text = f"Swarm of {len(self)} ({shown}), {self.parameters} parameters each"
        self._use.used = used  # being shown is no use: notebooks show whatever is left over
        return text

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
        warn_dropped(self._fitted)
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
        warn_dropped(self._fitted)
        return self._result.summary().assign(**self.hyperparams)

    def member(self, name: str) -> Any:
        """One member by itself: an ordinary Flax module, or a function of inputs."""
        warn_dropped(self._fitted)
        params, hyperparams = take_members((self.params, self.hyperparams), row_of(self.ids, name))
        scalars = {key: jnp.asarray(value) for key, value in hyperparams.items()}
        return self._recipe.functions.export(params, scalars)

    def member_function(self, name: str) -> Callable[..., Tree]:
        """One member as a pure function ``f(inputs, *, params=..., key=None)``.

        For ``jax.grad``, ``jit`` and ``vmap``, by inputs or, given ``params`` in the place of its
        own, by weights; ``key``: for what is random in it.
        """
        warn_dropped(self._fitted)
        params, hyperparams = take_members((self.params, self.hyperparams), row_of(self.ids, name))
        params = jax.tree.map(on_device, params)  # modules write into arrays of their state
        return self._recipe.function(params, hyperparams)

    def _as_fitted(self) -> Fitted:
        """This one, as the swarm that it was fitted from remembers it."""
        return Fitted(weakref.ref(self), self._use)

    @property
    def _result(self) -> FitResult:
        """What training left, on the host."""
        raise NotImplementedError
