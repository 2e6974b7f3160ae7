"""Model, loss and optimiser that all members share, and the functions of one member from them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, UInt32

from forecaster.swarm.checks import SwarmError, takes, warn
from forecaster.swarm.task import Hyperparams, Params, Tree
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import State, chosen_state, init_state, train_on_batch
from forecaster.swarm.training.losses import Batch, applied, filled
from forecaster.swarm.training.optimizers import SWARM_LEARNING_RATE, names_taken
from forecaster.swarm.training.supervised import Recipe


class Pure(NamedTuple):
    """How one member begins, learns and predicts: pure functions for ``jit``, ``vmap``, ``scan``.

    - ``initialise(key, hyperparams) -> State``: ``key`` is raw, as of :func:`member_keys`
    - ``update(state, batch, hyperparams) -> (State, loss)``: a step on a :class:`Batch`, from
      ``state.best_params``, as :meth:`Swarm.step`; whoever sets weights sets both,
      ``state._replace(params=weights, best_params=weights)``
    - ``apply(params, inputs, hyperparams) -> predictions``

    ``hyperparams`` are scalars by name. ``jax.vmap`` of each is that of all members. A batch has a
    weight for each example, 1.0 where all count alike.
    """

    initialise: Callable[[UInt32[jax.Array, "2"], Hyperparams], State]
    update: Callable[[State, Batch, Hyperparams], tuple[State, Float[jax.Array, ""]]]
    apply: Callable[[Params, Tree, Hyperparams], Tree]


class SwarmRecipe(Recipe):
    """Model, loss and optimiser of all members, and the functions of one member."""

    # Methods that programs are made of: functions of one member.

    def initialise(self, key: UInt32[jax.Array, "2"], hyperparams: Hyperparams) -> State:
        """Return a member's initial state from its raw key."""
        return init_state(self.task(), key, hyperparams)

    def predict(self, params: Params, inputs: Tree, hyperparams: Hyperparams) -> Tree:
        """Return a member's predictions."""
        return self._apply(params, inputs, hyperparams=hyperparams)

    def sample(self, params: Params, given: Tree, hyperparams: Hyperparams) -> Tree:
        """Return a member's predictions with random layers drawing.

        ``given``: ``(inputs, member's raw key, raw key of the call)``
        """
        inputs, own, words = given
        key = typed_key(own)
        for word in (words[0], words[1]):
            key = jax.random.fold_in(key, word)
        return self._apply(params, inputs, key=key, hyperparams=hyperparams)

    def evaluate(
        self, params: Params, batch: Batch, hyperparams: Hyperparams
    ) -> Float[jax.Array, ""]:
        """Return a member's loss on a batch without a key; NaN without examples."""
        found = self.loss_of_batch(params, self._batch(batch), None, hyperparams)
        return jnp.where((jnp.asarray(batch[2]) > 0).any(), found, jnp.nan)

    def step(
        self, state: State, batch: Batch, hyperparams: Hyperparams
    ) -> tuple[State, Float[jax.Array, ""], Bool[jax.Array, ""]]:
        """Take the step of a state without its latest weights, which none but validation needs.

        Returns what :func:`train_on_batch` does.
        """
        active = (jnp.asarray(batch[2]) > 0).any()
        batch = self._batch(batch)
        after, loss, counts = train_on_batch(self.task(), state, batch, hyperparams, active)
        return after._replace(params=None), loss, counts

    def update(
        self, state: State, batch: Batch, hyperparams: Hyperparams
    ) -> tuple[State, Float[jax.Array, ""]]:
        """Take a member's training step on a batch."""
        after, loss, counts = self.step(state, batch, hyperparams)
        return chosen_state(counts, after._replace(params=after.best_params), state), loss

    @property
    def pure(self) -> Pure:
        """One member's training as pure functions."""
        return Pure(self.initialise, self.update, self.predict)

    @functools.cached_property
    def _apply(self) -> Callable[..., Tree]:
        """The model's ``apply`` in ``compute_dtype``."""
        return applied(self.functions, self.compute_dtype)

    def _batch(self, batch: Batch) -> Batch:
        """Return the caller's batch in the form that the loss takes."""
        return filled(Batch(*batch)) if self.loss_fn else Batch(*batch)

    def function(self, params: Params, hyperparams: Hyperparams) -> Callable[..., Tree]:
        """Return one member as a pure function of its inputs."""
        apply, own = self._apply, params

        def member(
            *inputs: Tree, params: Params = own, key: jax.Array | None = None, **options: Any
        ) -> Tree:
            return apply(params, *inputs, key=key, hyperparams=hyperparams, **options)

        return member

    def warn_unused(self, hyperparams: Mapping[str, np.ndarray]) -> None:
        """Warn of hyperparameters, each (member,), that neither optimiser, model nor loss takes."""
        made, taken = names_taken(self.optimizer), self.functions.takes
        if made is None or taken is None or (self.loss_fn and takes(self.loss_fn, "hyperparams")):
            return
        unused = sorted(hyperparams.keys() - made - taken)
        if (
            "learning_rate" in unused
            and (hyperparams["learning_rate"] == SWARM_LEARNING_RATE).all()
        ):
            unused.remove("learning_rate")  # the default
        if unused:
            used = ", ".join(sorted(made | taken)) or "none, because the optimiser is already made"
            warn(
                f"hyperparams: nothing uses {', '.join(unused)}; the optimiser and the model take "
                f"{used}. Give the optimiser as a function with named arguments, such as "
                "optax.adam"
            )

    def check_same(self, other: Recipe) -> None:
        """Raise SwarmError unless the other recipe has the same model, loss and optimiser."""
        models = [recipe.functions.made_of or recipe.functions for recipe in (self, other)]
        names = "loss", "loss_fn", "optimizer", "accumulate", "compute_dtype"
        shared = [("model", *models), *((n, getattr(self, n), getattr(other, n)) for n in names)]
        for name, ours, theirs in shared:
            if ours != theirs:
                raise SwarmError(
                    f"the other swarm has another {name}: {_apart(ours, theirs)}. Members of a "
                    "swarm share it: make both from the same object"
                )


def _apart(ours: Any, theirs: Any) -> str:
    expected, got = _name(ours), _name(theirs)
    if expected == got:
        return f"both are called {got}, but they are different objects"
    return f"expected {expected}; got {got}"


def _name(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_name, cast(tuple[Any, ...], value)))
    return getattr(value, "__qualname__", None) or f"{value!r:.60}"
