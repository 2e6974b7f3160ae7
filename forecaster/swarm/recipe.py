"""What all members of a swarm have in common, and the functions of one member that follow."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.typing import DTypeLike
from jaxtyping import Float, UInt32

from forecaster.swarm.losses import Batch
from forecaster.swarm.modules import Functions
from forecaster.swarm.optimizers import Optimizer
from forecaster.swarm.supervised import supervised
from forecaster.swarm.task import Hyperparams, Params, Task, Tree
from forecaster.swarm.training import State, init_state, train_step

Model: TypeAlias = Functions | Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]]
"""``build(rngs)`` of a Flax module, a pair ``(init, apply)``, or :class:`Functions`."""


class Machine(NamedTuple):
    """How a swarm uses the machine; see :func:`forecaster.swarm.fit`."""

    lanes: int | None
    chunk: int | None
    memory: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """What all members have in common. Compiled programs belong to a recipe."""

    functions: Functions
    loss: Callable[[Tree, Tree], jax.Array] | None
    loss_fn: Callable[..., Any] | None
    optimizer: Optimizer
    accumulate: int
    compute_dtype: DTypeLike | None

    @functools.lru_cache(maxsize=8)  # noqa: B019, a recipe lives as long as its programs
    def task(self, batch_size: int | None = None, *, validated: bool = False) -> Task:
        """The task of a fit."""
        return supervised(
            self.functions,
            self.loss,
            loss_fn=self.loss_fn,
            batch_size=batch_size,
            optimizer=self.optimizer,
            accumulate=self.accumulate,
            validated=validated,
            compute_dtype=self.compute_dtype,
        )

    @functools.cached_property
    def init_state(self) -> Callable[[UInt32[jax.Array, "2"], Hyperparams], State]:
        """A member's first state, from key and hyperparameters."""
        return lambda key, hyperparams: init_state(self.task(), key, hyperparams)

    @functools.cached_property
    def predict(self) -> Callable[[Params, Hyperparams, Tree], Tree]:
        """A member's predictions."""
        return lambda params, hyperparams, inputs: self.functions.apply(
            params, inputs, hyperparams=hyperparams
        )

    @functools.cached_property
    def evaluate(self) -> Callable[[Params, Hyperparams, Batch], Float[jax.Array, ""]]:
        """A member's loss on a batch, with nothing random: without a key."""
        loss: Callable[..., jax.Array] = self.task().loss
        return lambda params, hyperparams, batch: loss(params, Batch(*batch), None, hyperparams)

    @functools.cached_property
    def step(
        self,
    ) -> Callable[[State, Hyperparams, Batch], tuple[State, Float[jax.Array, ""]]]:
        """A member's step on a batch."""
        return lambda state, hyperparams, batch: train_step(
            self.task(), state, Batch(*batch), hyperparams
        )
