"""What all members of a swarm have in common, and the functions of one member that follow."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, UInt32

from forecaster.swarm.adapters.modules import Functions
from forecaster.swarm.arrays.shapes import naming_arrays
from forecaster.swarm.checks import SwarmError, warn
from forecaster.swarm.task import Hyperparams, Params, Task, Tree
from forecaster.swarm.training.equality import (
    Globals,
    changed_globals,
    globals_named,
    same_function,
)
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.losses import Batch, applied, filled, loss_of, takes_hyperparams
from forecaster.swarm.training.metrics import NOTHING, Watched
from forecaster.swarm.training.optimizers import Optimizer, names_taken
from forecaster.swarm.training.supervised import supervised
from forecaster.swarm.training.training import State, init_state, train_step

LEARNING_RATE = np.float32(1e-3)  # unless given


class Machine(NamedTuple):
    """How a swarm uses the machine; see :func:`forecaster.swarm.fit`."""

    lanes: int | None
    chunk: int | None
    memory: int | None
    data_parallel: int = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """What all members have in common. Compiled programs belong to a recipe."""

    functions: Functions
    loss: Callable[[Tree, Tree], jax.Array] | None
    loss_fn: Callable[..., Any] | None
    optimizer: Optimizer
    accumulate: int
    compute_dtype: DTypeLike | None
    globals_then: Mapping[str, Globals] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the globals that the functions name: what is compiled goes on using these."""
        model = self.functions.made_of or self.functions
        functions = {"model": model, "loss": self.loss, "loss_fn": self.loss_fn}
        functions |= {"optimizer": self.optimizer}
        named = {name: globals_named(function) for name, function in functions.items()}
        object.__setattr__(self, "globals_then", named)

    @functools.lru_cache(maxsize=32)  # noqa: B019, equal recipes of other swarms find their tasks
    def task(
        self,
        batch_size: int | None = None,
        *,
        validated: bool = False,
        seen: Watched = NOTHING,
    ) -> Task:
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
            metrics=dict(seen.metrics),
            monitor=seen.monitor,
            mode=seen.mode,
        )

    @functools.cached_property
    def init_state(self) -> Callable[[UInt32[jax.Array, "2"], Hyperparams], State]:
        """A member's first state, from key and hyperparameters."""

        def initialise(key: jax.Array, hyperparams: Hyperparams) -> State:
            return init_state(self.task(), key, hyperparams)

        return initialise

    @functools.cached_property
    def predict(self) -> Callable[[Params, Hyperparams, Tree], Tree]:
        """A member's predictions."""

        def predict(params: Params, hyperparams: Hyperparams, inputs: Tree) -> Tree:
            with naming_arrays(inputs=inputs):
                return self._apply(params, inputs, hyperparams=hyperparams)

        return predict

    @functools.cached_property
    def sample(self) -> Callable[[Params, Hyperparams, Tree], Tree]:
        """A member's predictions, drawn by its own key and that of the call.

        The inputs come with both, ``(inputs, member's raw key, raw key)``.
        """

        def sample(params: Params, hyperparams: Hyperparams, given: Tree) -> Tree:
            inputs, own, words = given
            key = typed_key(own)
            for word in (words[0], words[1]):
                key = jax.random.fold_in(key, word)
            with naming_arrays(inputs=inputs):
                return self._apply(params, inputs, key=key, hyperparams=hyperparams)

        return sample

    @functools.cached_property
    def evaluate(self) -> Callable[[Params, Hyperparams, Batch], Float[jax.Array, ""]]:
        """A member's loss on a batch, with nothing random: without a key. NaN without examples."""
        loss = loss_of(self.functions, self.loss, self.loss_fn, self.compute_dtype)

        def evaluate(params: Params, hyperparams: Hyperparams, batch: Batch) -> jax.Array:
            found = loss(params, self._whole(batch), None, hyperparams)
            return jnp.where((jnp.asarray(batch[2]) > 0).any(), found, jnp.nan)

        return evaluate

    @functools.cached_property
    def step(
        self,
    ) -> Callable[[State, Hyperparams, Batch], tuple[State, Float[jax.Array, ""]]]:
        """A member's step on a batch."""

        def step(
            state: State, hyperparams: Hyperparams, batch: Batch
        ) -> tuple[State, Float[jax.Array, ""]]:
            active = (jnp.asarray(batch[2]) > 0).any()
            return train_step(self.task(), state, self._whole(batch), hyperparams, active)

        return step

    @functools.cached_property
    def _apply(self) -> Callable[..., Tree]:
        """The model, in the arithmetic that it is trained in."""
        return applied(self.functions, self.compute_dtype)

    def _whole(self, batch: Batch) -> Batch:
        """A batch of the caller's, as the loss gets it."""
        return filled(Batch(*batch)) if self.loss_fn else Batch(*batch)

    def function(self, params: Params, hyperparams: Hyperparams) -> Callable[..., Tree]:
        """One member as a pure function of its inputs."""
        apply, own = self._apply, params

        def member(
            *inputs: Tree, params: Params = own, key: jax.Array | None = None, **options: Any
        ) -> Tree:
            return apply(params, *inputs, key=key, hyperparams=hyperparams, **options)

        return member

    def warn_unused(self, hyperparams: Mapping[str, np.ndarray]) -> None:
        """Warn of hyperparameters, each (member,), that reach neither optimiser, model nor loss."""
        made, taken = names_taken(self.optimizer), self.functions.takes
        if made is None or taken is None or (self.loss_fn and takes_hyperparams(self.loss_fn)):
            return
        unused = sorted(hyperparams.keys() - made - taken)
        if "learning_rate" in unused and (hyperparams["learning_rate"] == LEARNING_RATE).all():
            unused.remove("learning_rate")  # as it is where none was given
        if unused:
            used = ", ".join(sorted(made | taken)) or "none, because the optimiser is made already"
            warn(
                f"hyperparams: nothing uses {', '.join(unused)}; the optimiser and the model take "
                f"{used}. Give the optimiser as a function, such as optax.adam, and arguments "
                "by their names"
            )

    def check_same(self, other: "Recipe") -> None:
        """Raise SwarmError unless members of the other recipe learn as those of this one do."""
        mine, others = self.functions.made_of, other.functions.made_of
        if not same_function(mine or self.functions, others or other.functions):
            raise SwarmError(
                f"the other swarm: has another model: expected {_name(mine)}; got {_name(others)}. "
                "Members of one swarm share one: make both swarms from the same object"
            )
        for name in ("loss", "loss_fn", "optimizer", "accumulate", "compute_dtype"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if not same_function(ours, theirs):
                raise SwarmError(
                    f"the other swarm: has another {name}: expected {_name(ours)}; got "
                    f"{_name(theirs)}. Members of one swarm learn alike"
                )
        for name, ours in self.globals_then.items():
            if changed := changed_globals(ours, other.globals_then[name]):
                raise SwarmError(
                    f"the other swarm: has another {name}: expected {', '.join(changed)} as it was "
                    "when this swarm was made; got another value of this global. Members of one "
                    "swarm share one: make both swarms with the same values"
                )


def _name(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_name, cast(tuple[Any, ...], value)))
    return getattr(value, "__qualname__", None) or f"{value!r:.60}"
