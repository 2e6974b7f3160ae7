"""Losses and metrics of one member.

A loss is elementwise, or the caller's own of a whole batch. Metrics are measured every epoch, and
one of them may decide when to stop.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Key

from forecaster.swarm.adapters.functions import Functions
from forecaster.swarm.arrays import Variables
from forecaster.swarm.checks import SwarmError, named_values, takes
from forecaster.swarm.devices.data_parallel import first_example
from forecaster.swarm.task import AnyArray, Hyperparams, Params, Tree

ElementwiseLoss: TypeAlias = Callable[[Tree, Tree], jax.Array]
"""``loss(predictions, targets)``: an array (example, ...)."""

Loss: TypeAlias = Float[jax.Array, ""] | tuple[Float[jax.Array, ""], Tree]
"""A scalar; in the training of a model with state, a scalar and the new state."""

_Key: TypeAlias = Key[jax.Array, ""]


class Batch(NamedTuple):
    """The examples of one step. ``weight`` is 0.0 for padding."""

    inputs: Tree  # arrays (example, ...)
    targets: Tree  # arrays (example, ...)
    weight: Float[AnyArray, " example"]


def loss_of(
    functions: Functions,
    loss: ElementwiseLoss | None,
    loss_fn: Callable[..., Any] | None,
    dtype: DTypeLike | None,
) -> Callable[..., Any]:
    """Return the ``loss`` of a task, of an elementwise loss or of one of a whole batch."""
    if loss is not None:
        return functools.partial(_mean_loss, functions, loss, dtype)
    return functools.partial(_whole_loss, cast(Callable[..., Any], loss_fn), dtype)


def check_one_loss(loss: object, loss_fn: object) -> None:
    """Raise SwarmError unless exactly one of the two is given, a function."""
    if (loss is None) == (loss_fn is None):
        got = "neither. For example loss=optax.squared_error" if loss is None else "both"
        raise SwarmError(
            f"give either loss, elementwise, or loss_fn(params, batch, key); got {got}"
        )
    name, function = ("loss", loss) if loss_fn is None else ("loss_fn", loss_fn)
    if not callable(function):
        raise SwarmError(f"{name}: expected a function; got {function!r:.80}")


def _takes_none_for_zero(loss: ElementwiseLoss) -> bool:
    """Return whether a loss's targets default to None, which means 0.0 in optax's losses."""
    try:
        taken = list(inspect.signature(loss).parameters.values())
    except (TypeError, ValueError):  # of a function that is not Python's
        return False
    return len(taken) > 1 and taken[1].default is None


def _check_examples(batch: Batch) -> None:
    """Raise SwarmError unless all arrays of a batch have as many examples as its weight."""
    expected = len(batch.weight)
    for name, tree in (("inputs", batch.inputs), ("targets", batch.targets)):
        for leaf in jax.tree.leaves(tree):
            if len(leaf) != expected:
                raise SwarmError(
                    f"{name}: expected {expected} examples, as in the weight; got {len(leaf)}"
                )


def _mean_loss(
    functions: Functions,
    loss: ElementwiseLoss,
    dtype: DTypeLike | None,
    params: Params,
    batch: Batch,
    key: _Key | None,
    hyperparams: Hyperparams,
) -> Loss:
    """Average an elementwise loss over the valid examples; return it with the model's new state."""
    if batch.targets is None and _takes_none_for_zero(loss):
        raise SwarmError(
            "targets: expected some, since this loss reads None as 0.0, as optax's do; got "
            "None. Give targets, the inputs themselves for an autoencoder, or make the swarm with "
            "loss_fn(params, batch, key)"
        )
    used = jnp.asarray(batch.weight > 0)
    _check_examples(batch)
    inputs, targets = _known((batch.inputs, batch.targets), used)
    if carries := key is not None and isinstance(params, Variables):
        inputs = _without_padding(inputs, used)
    call = _train_of(functions) if carries else functions.apply
    out = call(_cast(params, dtype), _cast(inputs, dtype), key=key, hyperparams=hyperparams)
    predictions, state = out if carries else (out, None)
    losses = loss(_cast(predictions, dtype and jnp.float32), targets)
    if losses.ndim == 0 or losses.shape[0] != len(used):
        raise SwarmError(
            f"loss(predictions, targets): expected one loss per example, shape ({len(used)}, "
            f"...); got {losses.shape} from predictions {_shapes(predictions)} and targets "
            f"{_shapes(targets)}. A loss of a whole batch goes in as loss_fn(params, batch, key)"
        )
    check_not_spread(losses, predictions, targets, "loss(predictions, targets)", "loss")
    mean = mean_of_examples(losses, batch.weight)
    return (mean, state) if carries else mean


def mean_of_examples(
    values: Float[jax.Array, "example ..."], weight: Float[AnyArray, " example"]
) -> Float[jax.Array, ""]:
    """Return the mean over the examples by their weight; 0.0 if none counts."""
    each = jnp.where(weight > 0, values.reshape(values.shape[0], -1).mean(1), 0)
    total = weight.sum()
    return (weight * each).sum() / jnp.where(total > 0, total, 1)


def applied(functions: Functions, dtype: DTypeLike | None) -> Callable[..., Tree]:
    """Return a model's ``apply`` that computes in ``dtype`` and returns float32."""

    def apply(params: Params, *inputs: Tree, **options: Any) -> Tree:
        out = functions.apply(_cast(params, dtype), *_cast(inputs, dtype), **options)
        return _cast(out, dtype and jnp.float32)

    return apply if dtype is not None else functions.apply


def predictions_of(
    functions: Functions,
    dtype: DTypeLike | None,
    params: Params,
    batch: Batch,
    hyperparams: Hyperparams,
) -> tuple[Tree, Tree]:
    """Return a member's predictions without randomness, and the targets; padding gives no NaN."""
    inputs, targets = _known((batch.inputs, batch.targets), jnp.asarray(batch.weight > 0))
    return applied(functions, dtype)(params, inputs, hyperparams=hyperparams), targets


def _known(tree: Tree, used: Bool[jax.Array, " example"]) -> Tree:
    """Return arrays (example, ...) with the first example that counts instead of padding.

    Padding may hold NaN, which must not spread, and a loss or a model may turn zeros into NaN.
    Zero where no example counts.
    """

    def known(x: AnyArray) -> jax.Array:
        return jnp.where(used.reshape(-1, *[1] * (x.ndim - 1)), x, first_example(x, used))

    return jax.tree.map(known, tree)


def _train_of(functions: Functions) -> Callable[..., tuple[Tree, Tree]]:
    if functions.train is None:
        raise SwarmError(
            "Functions: init returns Variables, and there is no train; expected "
            "Functions(init, apply, export, train), train(params, *inputs, key=, hyperparams=) "
            "returning (predictions, state)"
        )
    return functions.train


def filled(batch: Batch) -> Batch:
    """Return a batch with examples instead of padding, for a loss that ignores the weights."""
    used = jnp.asarray(batch.weight > 0)
    inputs, targets = _without_padding((batch.inputs, batch.targets), used)
    return Batch(inputs, targets, batch.weight)


def _without_padding(inputs: Tree, used: Bool[jax.Array, " example"]) -> Tree:
    """Return arrays (example, ...) whose padding is replaced by copies of the used examples.

    The copies are spread evenly: no example has two copies more than another. A statistic of the
    whole batch is therefore close to that of the used examples, whatever the padding was.
    """
    positions, count = jnp.arange(len(used)), used.sum()
    valid = jnp.argsort(~used, stable=True)  # the valid ones first
    share = count / jnp.maximum(len(used) - count, 1)
    nth = ((jnp.cumsum(~used) - 0.5) * share).astype(jnp.int32)  # used for padding only
    source = jnp.where(used, positions, valid[jnp.minimum(nth, len(used) - 1)])
    return jax.tree.map(operator.itemgetter(source), inputs)


def check_not_spread(
    values: jax.Array, predictions: Tree, targets: Tree, what: str, kind: str
) -> None:
    """Raise SwarmError for more values than numbers; the error calls them ``what`` and ``kind``."""
    if values.size > max(leaf.size for leaf in jax.tree.leaves((predictions, targets))):
        raise SwarmError(
            f"{what}: expected at most one {kind} per number; got {values.shape} from predictions "
            f"{_shapes(predictions)} and targets {_shapes(targets)}, which were broadcast against "
            "each other. Give both the same shape"
        )


def _whole_loss(
    loss_fn: Callable[..., jax.Array],
    dtype: DTypeLike | None,
    params: Params,
    batch: Batch,
    key: _Key | None,
    hyperparams: Hyperparams,
) -> Loss:
    """Compute the caller's own loss of a whole batch; return it with the model's new state."""
    extra = {"hyperparams": hyperparams} if takes(loss_fn, "hyperparams") else {}
    batch = batch._replace(inputs=_cast(batch.inputs, dtype))
    out: object = loss_fn(_cast(params, dtype), batch, key, **extra)
    carries = isinstance(params, Variables)
    pair = carries and isinstance(out, tuple)
    loss, state = cast(tuple[jax.Array, Tree], out if pair else (out, getattr(params, "state", ())))
    if jnp.shape(loss) != ():
        raise SwarmError(
            f"loss_fn(params, batch, key): expected a scalar, shape (); got shape "
            f"{jnp.shape(loss)}. An elementwise loss goes in as loss(predictions, targets)"
        )
    if not hasattr(loss, "dtype"):
        raise SwarmError(
            "loss_fn(params, batch, key): expected a scalar array, computed from params by JAX; "
            f"got {loss!r:.80} ({type(loss).__name__})"
        )
    loss = loss.astype(jnp.float32)
    if not carries or key is None:
        return loss
    return loss, state


def _cast(tree: Tree, dtype: DTypeLike | None) -> Tree:
    """Return floats as ``dtype``, except in a model's state; None changes nothing."""
    if dtype is None:
        return tree
    if isinstance(tree, Variables):
        return tree._replace(params=_cast(tree.params, dtype))

    def convert(leaf: AnyArray) -> AnyArray:
        if not hasattr(leaf, "dtype"):  # a plain number
            return leaf
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(convert, tree)


def _shapes(tree: Tree) -> Tree:
    return jax.tree.map(jnp.shape, tree)


Metric: TypeAlias = Callable[..., Any]
"""``metric(predictions, targets)`` returns a value per example; ``metric(..., sample_weight)`` one
value of all examples."""


class Watched(NamedTuple):
    """The metrics of every epoch, and the one that chooses the best weights."""

    metrics: tuple[tuple[str, Metric], ...] = ()
    monitor: str | None = None  # None: the validation loss
    mode: str = "min"

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics' names."""
        return tuple(name for name, _ in self.metrics)

    def criterion(self, metrics: Mapping[str, jax.Array]) -> jax.Array:
        """Return the number that is lowest for the best weights, from the metrics of an epoch."""
        value = metrics[self.monitor or ""]
        return -value if self.mode == "max" else value

    def values(
        self, predictions: Tree, targets: Tree, weight: Float[AnyArray, " example"]
    ) -> dict[str, Float[jax.Array, ""]]:
        """Return every metric of one member's examples; ``weight`` is 0.0 for padding."""
        return {
            name: _value(name, metric, predictions, targets, weight)
            for name, metric in self.metrics
        }


NOTHING = Watched()
_COLUMNS = "status", "epochs", "best_epoch", "best_loss"  # of FitResult.summary


def watched(
    metrics: Mapping[str, Metric] | None,
    monitor: str | None,
    mode: str,
    *,
    validated: bool,
    taken: Iterable[str] = (),
) -> Watched:
    """Check the metrics of a fit; arguments as of :meth:`Swarm.fit`.

    ``taken``: names that a metric cannot have, besides the columns of a summary.

    Raises SwarmError for such a name, metrics that are not functions, a monitor that is not one of
    them, an unknown mode, and a monitor without validation examples.
    """
    metrics = named_values(metrics, "metrics", "{'accuracy': accuracy}")
    for name, metric in metrics.items():
        if not callable(metric) or not name.isprintable() or "'" in name or "\\" in name:
            raise SwarmError(
                "metrics: expected functions by name, such as {'accuracy': accuracy} with "
                f"accuracy(predictions, targets); got {name!r}: {metric!r}"
            )
    if reserved := sorted(metrics.keys() & {*_COLUMNS, *taken}):
        raise SwarmError(
            f"metrics: {', '.join(reserved)} is a column of summary() already; expected a name "
            "other than its columns and those of hyperparameters"
        )
    if mode not in ("min", "max"):
        raise SwarmError(f"mode: expected min or max; got {mode!r}")
    if monitor is not None and monitor not in metrics:
        raise SwarmError(
            f"monitor: expected one of the metrics ({', '.join(metrics) or 'none given'}); "
            f"got {monitor!r}"
        )
    if monitor is not None and not validated:
        raise SwarmError(
            "monitor: nothing to measure it on; give validation_data=(inputs, targets)"
        )
    return Watched(tuple(sorted(metrics.items())), monitor, mode)


def _value(
    name: str,
    metric: Metric,
    predictions: Tree,
    targets: Tree,
    weight: Float[AnyArray, " example"],
) -> Float[jax.Array, ""]:
    """Compute a metric of all examples; a value per example is averaged."""
    if takes(metric, "sample_weight"):
        value = _floats(name, metric(predictions, targets, sample_weight=weight))
        if value.shape != ():
            raise SwarmError(
                f"metric {name}: takes sample_weight, so one number was expected; got shape "
                f"{value.shape}. Without sample_weight, values per example are averaged"
            )
        return value
    each = _floats(name, metric(predictions, targets))
    if each.ndim == 0 or each.shape[0] != len(weight):
        raise SwarmError(
            f"metric {name}: expected a value per example, shape ({len(weight)}, ...); got "
            f"{each.shape}. A metric of all examples at once takes a third argument "
            "sample_weight, 0.0 where there is no example"
        )
    shapes = {jnp.shape(leaf) for leaf in jax.tree.leaves((predictions, targets))}
    if len(shapes) > 1:
        check_not_spread(each, predictions, targets, f"metric {name}", "value")
    return mean_of_examples(each, weight)


def _floats(name: str, value: Any) -> jax.Array:
    """Return what a metric returned as an array. Raises SwarmError unless it is one of numbers."""
    try:
        return jnp.asarray(value, jnp.float32)
    except (TypeError, ValueError) as error:
        raise SwarmError(
            f"metrics[{name!r}]: expected it to return an array of numbers; got {value!r:.80}"
        ) from error
