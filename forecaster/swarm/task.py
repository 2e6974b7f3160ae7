"""What one member is and how it learns: pure functions and values of ONE member."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Key

if TYPE_CHECKING:
    import optax

AnyArray: TypeAlias = jax.Array | np.ndarray
"""An array on the devices or on the host."""

ArrayLike: TypeAlias = int | float | np.generic | AnyArray | Sequence[Any]
"""A number or an array, in any form that callers give it."""

Tree: TypeAlias = Any
"""Any pytree of arrays. (To a static type checker jaxtyping's ``PyTree`` is an unknown type.)"""

Params: TypeAlias = Tree
"""The weights of a model."""

Data: TypeAlias = Tree
"""The examples of one member, in whatever form its task takes them."""

OptState: TypeAlias = Tree
"""The state of an optimiser between two steps."""

Hyperparams: TypeAlias = Mapping[str, int | float | np.generic | AnyArray]
"""One member's hyperparameters, scalars by name. They are data: changing them compiles nothing."""


Candidate: TypeAlias = Mapping[str, Any]
"""Of a search: hyperparameters, and arguments that determine a network's size, by name."""


class Limits(NamedTuple):
    """When a member stops training. Like hyperparameters, limits are data and may differ."""

    epochs: Int[AnyArray, "*member"]  # in all, including those of earlier fits
    patience: Int[AnyArray, "*member"]  # epochs in a row without a better validation loss


class Member(NamedTuple):
    """What a member is given, and keeps while it trains. In a swarm each leaf has a member axis."""

    data: Data
    hyperparams: Hyperparams
    limits: Limits


@dataclasses.dataclass(frozen=True)
class Task:
    """The pure functions that define one member. The engine applies ``vmap`` to them once.

    - ``init(key) -> params``: the initial weights
    - ``loss(params, batch, key, hyperparams) -> scalar``: the training loss of one batch
    - ``batches(data, key) -> (index, active)``: the batches of one epoch. ``index`` is a pytree
      whose leaves have a leading axis of steps, ``active`` a bool (step,). A step that is not
      active changes nothing, so members with less data than others have fewer active steps
    - ``take(data, index) -> batch``: one batch, a pytree of arrays (example, ...); with
      ``data_parallel`` the devices share the examples
    - ``validate(params, data, hyperparams) -> scalar``: the validation loss, which decides early
      stopping and the best weights. With ``None`` no member stops early, and the latest weights
      are the best. With ``data_parallel`` devices share the arrays that it gives to
      :func:`shard_batch`
    - ``measure(params, data, hyperparams) -> {name: scalar}``: metrics of every epoch, by the names
      in ``metrics``
    - ``criterion(metrics) -> scalar``: decides in place of the validation loss; lower is better
    - ``optimizer(hyperparams) -> optax.GradientTransformation``: called while tracing, so that
      learning rates and the like may differ between members without recompiling
    - ``said``: a text that describes everything else that decides the result, so that a checkpoint
      is not continued with another batch size or loss. Without it only the names of loss and
      optimiser are compared

    Two tasks share a compiled program when they are the same object.
    """

    init: Callable[[Key[jax.Array, ""]], Params]
    loss: Callable[[Params, Tree, jax.Array, Hyperparams], Float[jax.Array, ""]]
    batches: Callable[[Data, Key[jax.Array, ""]], tuple[Tree, Bool[jax.Array, " step"]]]
    take: Callable[[Data, Tree], Tree]
    validate: Callable[[Params, Data, Hyperparams], Float[jax.Array, ""]] | None
    optimizer: "Callable[[Hyperparams], optax.GradientTransformation]"
    measure: Callable[[Params, Data, Hyperparams], dict[str, Float[jax.Array, ""]]] | None = None
    metrics: tuple[str, ...] = ()
    criterion: Callable[[Mapping[str, jax.Array]], jax.Array] | None = None
    said: str = ""
