"""Many independent models of one kind, as one value."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from forecaster.swarm import storage
from forecaster.swarm.checkpoint import Checkpoint
from forecaster.swarm.checks import SwarmError, broadcast_hyperparams, check_ids
from forecaster.swarm.cost import Cost, cost_of
from forecaster.swarm.data import Streamed
from forecaster.swarm.examples import part, training_data
from forecaster.swarm.fitting import FitResult, Progress, fit, fitted_of, from_the_best, take_rows
from forecaster.swarm.keys import member_keys
from forecaster.swarm.lanes import map_members
from forecaster.swarm.optimizers import adamw
from forecaster.swarm.recipe import Recipe
from forecaster.swarm.supervised import functions_of
from forecaster.swarm.training import Losses, State, Status


class Swarm:
    """N independent models with the same architecture, each with its own weights, random key,
    hyperparameters and training history.

    A swarm is a value: every method returns a new one or numbers, and none changes it.

    ``model``: ``build(rngs)`` of a ``flax.nnx`` module, a pair ``(init, apply)`` of pure functions,
    or :class:`Functions`. ``ids``: the members' names, each once; a member's weights depend on the
    seed and its name, not on its place. ``loss(predictions, targets)``: elementwise, such as
    ``optax.squared_error``; or ``loss_fn(params, batch, key)``, a scalar of a whole :class:`Batch`.
    ``optimizer``: an optax transformation, or a function such as ``optax.sgd`` whose arguments are
    hyperparameters. ``hyperparams``: by name, a scalar or an array (member,); ``learning_rate`` is 1e-3
    unless given. ``accumulate``: steps whose gradients are averaged into one update.
    ``compute_dtype``: of the model's arithmetic, e.g. ``jax.numpy.bfloat16``; weights stay float32.
    ``lanes``, ``chunk`` and ``memory``: see :func:`fit`.

    Raises SwarmError when any of these is not what it should be.
    """

    def __init__(
        self,
        model: Any,
        ids: Sequence[str],
        *,
        loss: Callable[[Any, Any], jax.Array] | None = None,
        loss_fn: Callable[..., jax.Array] | None = None,
        optimizer: Any = adamw,
        hyperparams: Mapping[str, Any] | None = None,
        seed: int = 0,
        accumulate: int = 1,
        compute_dtype: Any = None,
        lanes: int | None = None,
        chunk: int | None = None,
        memory: int | None = None,
    ):
        ids = tuple(ids)
        check_ids(ids)
        self.ids = ids
        self.hyperparams = broadcast_hyperparams(
            {"learning_rate": 1e-3} | dict(hyperparams or {}), len(ids)
        )
        self.seed = seed
        self._machine: Any = {"lanes": lanes, "chunk": chunk, "memory": memory}
        self._recipe = Recipe(
            functions_of(model), loss, loss_fn, optimizer, accumulate, compute_dtype
        )
        self._fitted = self._untrained(ids, self.hyperparams)

    def __len__(self) -> int:
        """How many members."""
        return len(self.ids)

    def __repr__(self) -> str:
        counts = {s.name.lower(): int((self.status == s).sum()) for s in Status}
        shown = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        return f"Swarm of {len(self)} ({shown}), {self.parameters} parameters each"

    # What there is to see

    @property
    def params(self) -> Any:
        """Weights, leaves (member, ...): the best ones where a validation chose them."""
        return self._fitted.params

    @property
    def parameters(self) -> int:
        """How many weights a member has."""
        return sum(leaf[0].size for leaf in jax.tree.leaves(self.params))

    @property
    def status(self) -> np.ndarray:
        """Of :class:`Status`, (member,)."""
        return self._fitted.status

    @property
    def epochs(self) -> np.ndarray:
        """Epochs trained, (member,)."""
        return self._fitted.epochs

    @property
    def losses(self) -> Losses:
        """Training and validation loss, each (member, epoch), NaN where a member did not train."""
        return self._fitted.losses

    @property
    def seconds(self) -> float:
        """How long the last fit took."""
        return self._fitted.seconds

    @property
    def diverged(self) -> dict[str, int]:
        """Members whose loss or weights became infinite or NaN, and the epoch it happened in."""
        rows = np.flatnonzero(self.status == Status.DIVERGED)
        return {self.ids[row]: int(self.epochs[row]) for row in rows}

    def summary(self) -> Any:
        """A pandas DataFrame, a row per member: status, epochs, losses, hyperparameters."""
        import pandas as pd

        known = self._fitted
        columns = {
            "status": [Status(s).name.lower() for s in known.status],
            "epochs": known.epochs,
            "best_epoch": known.best_epoch,
            "best_loss": known.best_loss,
            **self.hyperparams,
        }
        return pd.DataFrame(columns, index=pd.Index(self.ids, name="id"))

    # Training

    def fit(
        self,
        inputs: Any,
        targets: Any = None,
        *,
        weight: Any = None,
        validation: tuple[Any, ...] | None = None,
        epochs: int = 100,
        patience: Any = None,
        batch_size: int | None = 32,
        bootstrap: bool = False,
        check: bool = True,
        checkpoint: Checkpoint | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> "Swarm":
        """Train every member for ``epochs`` more epochs.

        ``inputs`` and ``targets``: arrays (member, example, ...) or pytrees of such; wrapped in
        :class:`Shared`, (example, ...) that all members learn from; or ``inputs`` a
        :class:`Streamed`, whose ``load`` returns ``(inputs, targets[, weight])`` or a
        :class:`Supervised`. ``weight``: (member, example), 0.0 for padding. ``validation``:
        ``(inputs, targets[, weight])``; where given, each member keeps the weights that were best
        on it, and stops after ``patience`` epochs (a number, or one per member) without getting
        better. ``batch_size``: None for all examples at once. ``bootstrap``: each member learns
        from a bootstrap sample of its examples, drawn by its key and never copied. ``check``: raise
        when a number is not finite; otherwise the members that meet it are set aside.
        ``checkpoint``: see :class:`Checkpoint`.

        A member that diverges keeps its best weights and is listed in ``diverged``; the others do
        not notice. Members that have diverged before do not train.
        """
        keys = np.asarray(self._fitted.state.key) if bootstrap else None
        data = training_data(self.ids, inputs, targets, weight, validation, keys, check)
        streamed = isinstance(data, Streamed)
        example = data.load(np.arange(1)) if streamed else data
        validated = example.validation_inputs is not None
        if patience is not None and not validated:
            raise SwarmError(
                "patience: nothing to measure it by; give validation=(inputs, targets)"
            )
        if isinstance(epochs, bool) or int(epochs) != epochs or epochs < 1:
            raise SwarmError(f"epochs: expected a whole number of 1 or more; got {epochs!r}")
        hyperparams = self.hyperparams | {
            "epochs": self.epochs + epochs,
            "patience": epochs if patience is None else patience,
        }
        fitted = fit(
            self._recipe.task(batch_size, validated),
            data,
            self.ids,
            seed=self.seed,
            hyperparams=hyperparams,
            previous=dataclasses.replace(self._fitted, state=from_the_best(self._fitted.state)),
            checkpoint=checkpoint,
            on_progress=on_progress,
            **self._machine,
        )
        return self._with(fitted)

    def step(self, inputs: Any, targets: Any = None, weight: Any = None) -> tuple["Swarm", Any]:
        """One step of every member on one batch; returns the swarm after it and the losses,
        (member,). A step counts as an epoch. A member that diverges keeps its weights."""
        batch = part(self.ids, inputs, targets, weight, "")
        state, loss = self._map(self._recipe.step, self._fitted.state, self.hyperparams, batch)
        losses = Losses(_longer(self.losses.train, state.epoch, loss), self.losses.validation)
        losses = losses._replace(validation=_longer(losses.validation, state.epoch, np.nan))
        return self._with(fitted_of(self.ids, State(*state), losses, self._fitted.seconds)), loss

    # Using

    def predict(self, inputs: Any) -> Any:
        """Every member's predictions, (member, example, ...), for inputs (member, example, ...) or
        :class:`Shared` ones."""
        inputs, _, _ = part(self.ids, inputs, None, None, "")
        return self._map(self._recipe.predict, self.params, self.hyperparams, inputs)

    def evaluate(self, inputs: Any, targets: Any = None, weight: Any = None) -> np.ndarray:
        """Every member's loss, (member,), averaged over its examples."""
        batch = part(self.ids, inputs, targets, weight, "")
        return self._map(self._recipe.evaluate, self.params, self.hyperparams, batch)

    def member(self, name: str) -> Any:
        """One member by itself: an ordinary Flax module, or a function of inputs."""
        row = self._row(name)
        hyperparams = {key: values[row] for key, values in self.hyperparams.items()}
        return self._recipe.functions.export(_rows(self.params, row), hyperparams)

    def cost(self, inputs: Any, targets: Any = None, *, batch_size: int | None = 32) -> Cost:
        """What training on these examples takes: parameters, arithmetic, memory, time to compile,
        achieved rate. Compiles the step, and times it."""
        data = training_data(self.ids, inputs, targets, None, None, None)
        assert not isinstance(data, Streamed)
        hyperparams = broadcast_hyperparams(
            self.hyperparams | {"epochs": 2**30, "patience": 2**30}, len(self)
        )
        return cost_of(self._recipe.task(batch_size, False), data, hyperparams, **self._machine)

    # Putting together and taking apart

    def select(self, names: Sequence[str]) -> "Swarm":
        """These members, in this order."""
        check_ids(tuple(names))
        return self._take([self._row(name) for name in names])

    def drop(self, names: Sequence[str]) -> "Swarm":
        """All but these members."""
        gone = {self._row(name) for name in names}
        return self._take([row for row in range(len(self)) if row not in gone])

    def append(self, other: "Swarm | Sequence[str]") -> "Swarm":
        """This swarm with the members of another, or with new untrained members of these names.

        New members get the hyperparameters of the first one.
        """
        if not isinstance(other, Swarm):
            names = tuple(other)
            check_ids(names)
            hyperparams = {
                name: np.repeat(values[:1], len(names)) for name, values in self.hyperparams.items()
            }
            fitted = self._untrained(names, hyperparams)
        else:
            names, hyperparams, fitted = other.ids, other.hyperparams, other._fitted
            storage.check_same_shapes(self._fitted.state, fitted.state, "the other swarm")
            if hyperparams.keys() != self.hyperparams.keys():
                raise SwarmError(
                    f"append: expected hyperparameters {', '.join(self.hyperparams)}; got "
                    f"{', '.join(hyperparams)}"
                )
        check_ids(self.ids + names)
        both = jax.tree.map(
            lambda a, b: np.concatenate([a, b]), self._fitted.state, State(*fitted.state)
        )
        width = max(self.losses.train.shape[1], fitted.losses.train.shape[1])
        losses = Losses(
            *(
                np.concatenate([_wide(a, width), _wide(b, width)])
                for a, b in zip(self.losses, fitted.losses, strict=True)
            )
        )
        together = {
            name: np.concatenate([self.hyperparams[name], hyperparams[name]])
            for name in hyperparams
        }
        ids = self.ids + names
        return self._with(fitted_of(ids, both, losses, self._fitted.seconds), together)

    def merge(self, name: str = "merged", weights: Any = None) -> "Swarm":
        """One untrained member whose weights are the mean of all members', by default all alike.

        ``weights``: how much each counts, (member,). McMahan et al. (2017), arXiv 1602.05629.
        """
        share = np.ones(len(self)) if weights is None else np.asarray(weights, float)
        if share.shape != (len(self),) or not np.isfinite(share).all() or share.sum() <= 0:
            raise SwarmError(
                f"weights: expected {len(self)} numbers with a sum above 0; got {weights}"
            )
        share = share / share.sum()

        def mean(leaf):
            return np.tensordot(share, leaf, 1).astype(leaf.dtype)

        hyperparams = {key: values[:1] for key, values in self.hyperparams.items()}
        one = self._with(self._untrained((name,), hyperparams), hyperparams)
        return one.with_params(jax.tree.map(mean, self.params))

    def with_params(self, params: Any) -> "Swarm":
        """The same members with these weights, leaves (member, ...) or, for all alike, (...), or
        those of a swarm of one.

        Histories and the optimiser's memory go on.
        """
        if isinstance(params, Swarm):
            if len(params) != 1:
                raise SwarmError(f"params: expected a swarm of one member; got {len(params)}")
            params = _rows(params.params, 0)
        shapes = jax.tree.map(np.shape, self.params)
        given = jax.tree.map(np.shape, params)
        one = jax.tree.map(lambda leaf: leaf.shape[1:], self.params)
        if given not in (shapes, one):
            raise SwarmError(f"params: expected shapes {shapes} or {one}; got {given}")
        full = jax.tree.map(
            lambda new, old: np.array(np.broadcast_to(new, old.shape), old.dtype),
            params,
            self.params,
        )
        state = self._fitted.state._replace(params=full, best_params=full)
        return self._with(fitted_of(self.ids, state, self.losses, self._fitted.seconds))

    def with_hyperparams(self, **hyperparams: Any) -> "Swarm":
        """The same members with other hyperparameters."""
        if unknown := hyperparams.keys() - self.hyperparams.keys():
            raise SwarmError(
                f"no hyperparameter {', '.join(sorted(unknown))}; there are "
                f"{', '.join(self.hyperparams)}. Others are given when the swarm is made"
            )
        return self._with(
            self._fitted, self.hyperparams | broadcast_hyperparams(hyperparams, len(self))
        )

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write weights, optimiser states, histories and hyperparameters to one file.

        Code is not saved: :meth:`load` wants the model again. The file is replaced whole.
        """
        storage.save(Path(path), self.ids, self.seed, self.hyperparams, self._fitted)

    @classmethod
    def load(cls, path: str | Path, model: Any, **options: Any) -> "Swarm":
        """Read a saved swarm; ``model`` and ``options`` as when it was made.

        Raises SwarmError when the file is damaged or of another model, FileNotFoundError when there
        is none.
        """
        ids, seed, hyperparams = storage.read_header(Path(path))
        made = cls(model, ids, hyperparams=hyperparams, seed=seed, **options)
        return made._with(storage.read(Path(path), made._fitted))

    # The rest

    def _with(self, fitted: FitResult, hyperparams: Mapping[str, Any] | None = None) -> "Swarm":
        new = object.__new__(Swarm)
        new.__dict__ |= self.__dict__
        new.ids, new._fitted = fitted.ids, fitted
        new.hyperparams = dict(self.hyperparams if hyperparams is None else hyperparams)
        return new

    def _take(self, rows: Sequence[int]) -> "Swarm":
        if not rows:
            raise SwarmError("no members would be left; expected at least one")
        fitted = take_rows(self._fitted, list(rows))
        return self._with(
            fitted, {name: values[list(rows)] for name, values in self.hyperparams.items()}
        )

    def _untrained(self, ids: tuple[str, ...], hyperparams: Mapping[str, np.ndarray]) -> FitResult:
        keys = member_keys(self.seed, ids)
        state = self._map(self._recipe.begin, keys, hyperparams, members=len(ids))
        none = np.zeros((len(ids), 0), np.float32)
        return fitted_of(ids, state, Losses(none, none), 0.0)

    def _row(self, name: str) -> int:
        try:
            return self.ids.index(name)
        except ValueError:
            raise SwarmError(
                f"no member {name!r}; there are {len(self)}: {', '.join(self.ids[:5])}"
                f"{', ...' if len(self) > 5 else ''}"
            ) from None

    def _map(self, function, *trees, members: int | None = None) -> Any:
        out = map_members(
            function, *trees, members=members or len(self.ids), lanes=self._machine["lanes"]
        )
        return State(*out) if isinstance(out, State) else out


def _rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)


def _wide(losses: np.ndarray, width: int) -> np.ndarray:
    extra = ((0, 0), (0, width - losses.shape[1]))
    return np.pad(losses, extra, constant_values=np.nan)


def _longer(losses: np.ndarray, epoch: np.ndarray, new: Any) -> np.ndarray:
    """Losses with those of each member's latest epoch."""
    longer = _wide(losses, max(losses.shape[1], int(epoch.max())))
    longer[np.arange(len(epoch)), epoch - 1] = new
    return longer
