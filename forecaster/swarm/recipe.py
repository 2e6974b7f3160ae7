"""What all members of a swarm have in common, and the functions of one member that follow."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from forecaster.swarm.modules import Functions
from forecaster.swarm.supervised import Batch, supervised
from forecaster.swarm.task import Task
from forecaster.swarm.training import init_state, train_step


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """What all members have in common. Compiled programs belong to a recipe."""

    functions: Functions
    loss: Callable[[Any, Any], jax.Array] | None
    loss_fn: Callable[..., jax.Array] | None
    optimizer: Any
    accumulate: int
    compute_dtype: Any

    @functools.lru_cache(maxsize=8)  # noqa: B019, a recipe lives as long as its programs
    def task(self, batch_size: int | None = None, validated: bool = False) -> Task:
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
    def begin(self):
        """A member's first state, from key and hyperparameters."""
        return lambda key, hyperparams: init_state(self.task(), key, hyperparams)

    @functools.cached_property
    def predict(self):
        """A member's predictions."""
        return lambda params, hyperparams, inputs: self.functions.apply(
            params, inputs, hyperparams=hyperparams
        )

    @functools.cached_property
    def evaluate(self):
        """A member's loss on a batch."""
        return lambda params, hyperparams, batch: self.task().loss(
            params, Batch(*batch), None, hyperparams
        )  # pyright: ignore[reportArgumentType]

    @functools.cached_property
    def step(self):
        """A member's step on a batch."""
        return lambda state, hyperparams, batch: train_step(
            self.task(), state, Batch(*batch), hyperparams
        )
