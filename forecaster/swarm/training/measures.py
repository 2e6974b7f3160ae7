"""Metrics of every epoch, and which of them decides when to stop."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Float

from forecaster.swarm.checks import SwarmError, named_values, takes
from forecaster.swarm.task import AnyArray, Tree
from forecaster.swarm.training.losses import check_not_spread, mean_of_examples

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
