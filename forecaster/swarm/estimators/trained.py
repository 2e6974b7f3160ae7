"""Read-only views of a swarm's members: weights, losses, status, single members."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Int32, Shaped

from forecaster.swarm.adapters.functions import on_device
from forecaster.swarm.arrays.members import take_members
from forecaster.swarm.arrays.variables import count_weights
from forecaster.swarm.checks import row_of, warn
from forecaster.swarm.estimators.recipe import Recipe
from forecaster.swarm.execution.result import FitResult
from forecaster.swarm.task import AnyArray, Params, Tree
from forecaster.swarm.training.loop import Losses, Status

if TYPE_CHECKING:
    import pandas as pd

HostHyperparams: TypeAlias = dict[str, Shaped[np.ndarray, " member"]]
"""Hyperparameters by name, a value per member."""


class Use:
    """Whether a swarm was used; shared between a fitted swarm and the one it was fitted from."""

    used = False


class Trained:
    """Members with the results of their training: weights, losses, status."""

    hyperparams: HostHyperparams
    _ids: tuple[str, ...]
    _recipe: Recipe
    _use: Use
    _fitted: "tuple[weakref.ref[Trained], Use] | None"  # the swarm that ``fit`` returned, its use

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.ids)

    def __repr__(self) -> str:
        used = self._use.used
        counts = {s.name.lower(): int((self.status == s).sum()) for s in Status}
        shown = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        text = f"Swarm of {len(self)} ({shown}), {self.parameters} parameters each"
        self._use.used = used  # showing does not count: notebooks show results that are dropped
        return text

    @property
    def ids(self) -> tuple[str, ...]:
        """The members' names."""
        return self._ids

    @property
    def params(self) -> Params:
        """Weights, leaves (member, ...): the best ones if there was validation, else the latest.

        :class:`Variables`, weights and state, for a model with state.
        """
        return self._result.params

    @property
    def parameters(self) -> int:
        """The number of weights of a member."""
        return count_weights(self.params) // len(self)

    @property
    def status(self) -> Int32[np.ndarray, " member"]:
        """Each member's :class:`Status`."""
        return self._result.status

    @property
    def epochs(self) -> Int32[np.ndarray, " member"]:
        """The number of epochs that each member has trained."""
        return self._result.epochs

    @property
    def losses(self) -> Losses:
        """Training and validation loss, each (member, epoch), NaN where a member did not train."""
        self._warn_dropped()
        return self._result.losses

    @property
    def metrics(self) -> Mapping[str, Float[AnyArray, "member epoch"]]:
        """Metrics by name, each (member, epoch), NaN where a member did not train."""
        return self.losses.metrics

    @property
    def seconds(self) -> float:
        """Duration of the last fit."""
        return self._result.seconds

    @property
    def diverged(self) -> dict[str, int]:
        """Members whose loss or weights became infinite or NaN, with the epoch."""
        return self._result.diverged

    def summary(self) -> "pd.DataFrame":
        """Return a row per member: status, epochs, losses, hyperparameters."""
        self._warn_dropped()
        return self._result.summary().assign(**self.hyperparams)

    def member(self, name: str) -> Any:
        """Return one member as an ordinary Flax module, or as a function of inputs."""
        params, hyperparams = self._one(name)
        return self._recipe.functions.export(params, jax.tree.map(on_device, hyperparams))

    def member_function(self, name: str) -> Callable[..., Tree]:
        """Return one member as a pure function ``f(inputs, *, params=..., key=None)``.

        It can go through ``jax.grad``, ``jit`` and ``vmap``. ``params`` replaces the member's own
        weights, to differentiate by them; ``key`` seeds random layers.
        """
        params, hyperparams = self._one(name)
        params = jax.tree.map(on_device, params)  # modules write to their state arrays
        return self._recipe.function(params, hyperparams)

    def _one(self, name: str) -> tuple[Params, HostHyperparams]:
        self._warn_dropped()
        return take_members((self.params, self.hyperparams), row_of(self.ids, name))

    def _warn_dropped(self) -> None:
        """Warn if the swarm that ``fit`` returned is gone without having been used."""
        if self._fitted and self._fitted[0]() is None and not self._fitted[1].used:
            warn(
                "this swarm is as it was before fit: fit does not change it but returns the "
                "trained swarm, which was dropped. Write swarm = swarm.fit(...)"
            )

    @property
    def _result(self) -> FitResult:
        """The members' states and losses, on the host."""
        raise NotImplementedError
