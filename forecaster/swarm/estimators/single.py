"""Single: one network with the methods of a swarm, without the member axis."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Float

from forecaster.swarm.arrays import Shared, take_members
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.estimators.swarm import Swarm
from forecaster.swarm.task import Params, Tree
from forecaster.swarm.training.loop import Losses
from forecaster.swarm.training.supervised import Model


class Single:
    """One network, for arrays without a member axis. Immutable, as a :class:`Swarm` is.

    - ``model``, ``options``: as for a :class:`Swarm`, without ``ids``
    - ``swarm``: the underlying swarm of one member
    """

    def __init__(self, model: Model, **options: Any):
        self.swarm = Swarm(model, 1, **options)

    def fit(self, inputs: Tree, targets: Tree = None, **options: Any) -> "Single":
        """Train and return the network: ``network = network.fit(...)``.

        Arguments as in :meth:`Swarm.fit`, with arrays (example, ...).
        """
        if options.get("sample_weight") is not None:
            options["sample_weight"] = _shared(options["sample_weight"])
        if isinstance(given := options.get("validation_data"), tuple):
            options["validation_data"] = tuple(map(_shared, cast(tuple[Tree, ...], given)))
        return self._with(self.swarm.fit(_shared(inputs), _shared(targets), **options))

    def step(
        self, inputs: Tree, targets: Tree = None, sample_weight: Tree = None, **options: Any
    ) -> tuple["Single", float]:
        """Take one step on a batch; return the network after it and the loss.

        ``options``: as in :meth:`Swarm.step`.
        """
        given = _shared(inputs), _shared(targets), _shared(sample_weight)
        after, loss = self.swarm.step(*given, **options)
        return self._with(after), float(loss[0])

    def predict(
        self, inputs: Tree, *, key: int | jax.Array | None = None, check: bool = True
    ) -> Tree:
        """Return predictions, (example, ...); ``key`` and ``check`` as in :meth:`Swarm.predict`."""
        return take_members(self.swarm.predict(_shared(inputs), key=key, check=check), 0)

    def evaluate(
        self, inputs: Tree, targets: Tree = None, sample_weight: Tree = None, *, check: bool = True
    ) -> float:
        """Return the mean loss over the examples; ``check`` as in :meth:`Swarm.evaluate`."""
        given = _shared(inputs), _shared(targets), _shared(sample_weight)
        return float(self.swarm.evaluate(*given, check=check)[0])

    @property
    def params(self) -> Params:
        """Weights; :class:`Variables` for a model with state."""
        return take_members(self.swarm.params, 0)

    @property
    def losses(self) -> Losses:
        """Training and validation loss, each (epoch,), and metrics."""
        return take_members(self.swarm.losses, 0)

    @property
    def metrics(self) -> Mapping[str, Float[np.ndarray, " epoch"]]:
        """Metrics by name, each (epoch,)."""
        return cast(Mapping[str, np.ndarray], self.losses.metrics)

    def module(self) -> Any:
        """Return the network as an ordinary Flax module, or as a function of inputs."""
        return self.swarm.member(self.swarm.ids[0])

    def function(self) -> Callable[..., Tree]:
        """Return the network as a pure function ``f(inputs, *, params=..., key=None)``."""
        return self.swarm.member_function(self.swarm.ids[0])

    def save(self, path: str | Path) -> None:
        """Write the network to a file; see :meth:`Swarm.save`."""
        self.swarm.save(path)

    @classmethod
    def load(cls, path: str | Path, model: Model, **options: Any) -> "Single":
        """Read a saved network; see :meth:`Swarm.load`."""
        swarm = Swarm.load(path, model, **options)
        if len(swarm) != 1:
            raise SwarmError(f"{path}: expected one network; got {len(swarm)}. Use Swarm.load")
        return cls._with(swarm)

    def __repr__(self) -> str:
        return repr(self.swarm).replace("Swarm of 1", "Network")

    @classmethod
    def _with(cls, swarm: Swarm) -> "Single":
        new = object.__new__(cls)
        new.swarm = swarm
        return new


def _shared(tree: Tree) -> Tree:
    """Wrap arrays without a member axis as Shared."""
    if isinstance(tree, Shared):
        raise SwarmError("Single: expected arrays (example, ...); got Shared. Give it their values")
    return None if tree is None else Shared(jax.tree.map(np.asarray, tree))
