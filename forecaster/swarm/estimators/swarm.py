"""Swarm: many independent models of one architecture, trained at once."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jax
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, Int32, Shaped, UInt32

from forecaster.swarm.adapters.functions import on_device
from forecaster.swarm.arrays import (
    Shared,
    Streamed,
    append_members,
    broadcast_params,
    count_weights,
    take_members,
)
from forecaster.swarm.checkpoints import Checkpoint, check_same_shapes, restored
from forecaster.swarm.checks import (
    SwarmError,
    broadcast_hyperparams,
    broadcast_limits,
    check_ids,
    checked_names,
    named_values,
    names_of,
    row_of,
    warn,
)
from forecaster.swarm.devices.lanes import map_members
from forecaster.swarm.estimators import storage
from forecaster.swarm.estimators.cost import Cost, cost_of
from forecaster.swarm.estimators.recipe import Pure, SwarmRecipe
from forecaster.swarm.estimators.stepping import OnDevice, all_at_once
from forecaster.swarm.execution.fitting import Progress, fit, restart_from_best, untrained_members
from forecaster.swarm.execution.result import FitResult, copy_members, mean_member, selected_rows
from forecaster.swarm.task import AnyArray, ArrayLike, Params, Tree
from forecaster.swarm.training.examples import checked_inputs, first_of, part, training_data
from forecaster.swarm.training.keys import checked_seed, key_words, member_keys
from forecaster.swarm.training.loop import Losses, State, Status
from forecaster.swarm.training.losses import Metric, check_one_loss, watched
from forecaster.swarm.training.optimizers import SWARM_LEARNING_RATE, Optimizer, adamw, has_own_rate
from forecaster.swarm.training.supervised import Model, functions_of

if TYPE_CHECKING:
    import pandas as pd

HostHyperparams: TypeAlias = dict[str, Shaped[np.ndarray, " member"]]
"""Hyperparameters by name, a value per member."""

_Arrays: TypeAlias = Tree | Shared
"""A pytree of arrays with a leading member axis, or of shared ones."""


class _Use:
    """Whether a swarm was used; shared between a fitted swarm and the one it was fitted from."""

    used = False


class Swarm:
    """N independent models of one architecture, trained at once.

    Each has its own weights, random key, hyperparameters and training history. A swarm is
    immutable: its methods return numbers or a new swarm.

    - ``model``: a function ``build(rngs)`` that returns a ``flax.nnx`` module, a pair
      ``(init, apply)`` of pure functions, or :class:`Functions`
    - ``ids``: the members' unique names; a member's weights depend on the seed and its name, not
      on its position. An integer n makes n members, named ``"0"``, ``"1"``, ...
    - ``loss``: ``loss(predictions, targets)``, elementwise, such as ``optax.squared_error``
    - ``loss_fn``: instead of ``loss``, a function ``loss_fn(params, batch, key)`` that returns the
      scalar loss of a whole :class:`Batch`
    - ``optimizer``: an optax transformation, or a function such as ``optax.sgd`` whose arguments
      are hyperparameters
    - ``hyperparams``: by name, a scalar or an array (member,). ``learning_rate`` is 1e-3 unless
      given here or by the optimiser's default. A :class:`SwarmWarning` names those that neither
      optimiser, model nor loss takes
    - ``seed``: determines every member's random key, together with its name
    - ``accumulate``: the number of steps whose gradients are averaged into one update
    - ``compute_dtype``: type of the model's arithmetic, such as ``jax.numpy.bfloat16``; weights
      keep theirs
    - ``lanes``, ``chunk``, ``memory``, ``data_parallel``: how to use the machine; see :func:`fit`

    Raises SwarmError for an argument of the wrong type, shape or value.
    """

    def __init__(
        self,
        model: Model,
        ids: Sequence[str] | int,
        *,
        loss: Callable[[Any, Any], jax.Array] | None = None,
        loss_fn: Callable[..., Any] | None = None,
        optimizer: Optimizer = adamw,
        hyperparams: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
        accumulate: int = 1,
        compute_dtype: DTypeLike | None = None,
        lanes: int | None = None,
        chunk: int | None = None,
        memory: int | None = None,
        data_parallel: int = 1,
    ):
        ids = names_of(ids)
        given = named_values(hyperparams, "hyperparams", "{'learning_rate': 0.01}")
        hyperparams = (
            given if has_own_rate(optimizer) else {"learning_rate": SWARM_LEARNING_RATE} | given
        )
        self.hyperparams: HostHyperparams = broadcast_hyperparams(hyperparams, len(ids))
        self.seed, self._lanes = checked_seed(seed), lanes
        self._machine: dict[str, Any] = {"lanes": lanes, "chunk": chunk, "memory": memory}
        self._machine |= {"data_parallel": data_parallel}
        made = loss, loss_fn, optimizer, accumulate, compute_dtype
        self._recipe = SwarmRecipe(functions_of(model), *made)
        check_one_loss(loss, loss_fn)
        self._recipe.warn_unused(self.hyperparams)
        self._ids, self._device = ids, cast(OnDevice | None, None)
        self._use = _Use()
        self._fitted: tuple[weakref.ref[Swarm], _Use] | None = None
        self._at_host: FitResult | None = self._untrained(ids, self.hyperparams)

    # Training

    def fit(
        self,
        inputs: _Arrays | Streamed,
        targets: _Arrays | None = None,
        *,
        sample_weight: _Arrays | None = None,
        validation_data: tuple[Any, ...] | None = None,
        epochs: ArrayLike = 100,
        patience: ArrayLike | None = None,
        batch_size: int | None = 32,
        bootstrap: bool = False,
        metrics: Mapping[str, Metric] | None = None,
        monitor: str | None = None,
        mode: str = "min",
        check: bool = True,
        checkpoint: Checkpoint | str | Path | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> "Swarm":
        """Train every member for up to ``epochs`` more epochs; return the trained swarm.

        The swarm itself does not change: write ``swarm = swarm.fit(...)``.

        - ``inputs``, ``targets``: arrays (member, example, ...) or pytrees of them; arrays
          (example, ...) wrapped in :class:`Shared` for examples that all members learn from; or
          ``inputs`` is a :class:`Streamed`, whose ``load`` returns
          ``(inputs, targets[, sample_weight])`` or a :class:`Supervised`
        - ``sample_weight``: (member, example), 0.0 for padding; a batch's loss is the weighted mean
        - ``validation_data``: ``(inputs, targets[, sample_weight])``, with at least one example per
          member; each member keeps the weights that were best on it
        - ``epochs``: the maximum number of further epochs; a number, or an array (member,)
        - ``patience``: a member stops after this many epochs without a better validation loss; a
          number, or an array (member,). By default no member stops early
        - ``batch_size``: examples per batch, at most all that there are; None for all at once
        - ``bootstrap``: train each member on a bootstrap sample of its examples, drawn by its key.
          Examples are not copied
        - ``metrics``: by name, ``metric(predictions, targets)`` with a value per example, of which
          the mean is recorded every epoch; or ``metric(predictions, targets, sample_weight)`` with
          one value. Measured on the validation examples, or on the training examples without them
        - ``monitor``, ``mode``: the metric that, instead of the validation loss, decides when to
          stop and which weights are best; ``"min"`` or ``"max"``
        - ``check``: raise SwarmError for numbers that are not finite; otherwise members that meet
          one stop as diverged
        - ``checkpoint``: a :class:`Checkpoint`, or its path
        - ``on_progress``: called with a :class:`Progress` after every block of epochs; if it
          returns True, training ends there

        A member that diverges keeps its best weights and is listed in ``diverged``; the others are
        unaffected. Members that diverged in an earlier fit do not train.
        """
        if not getattr(checkpoint, "resume", False):  # a resumed fit continues from the file
            self._warn_dropped()
        keys = self._keys if bootstrap else None
        data = training_data(
            self.ids, inputs, targets, sample_weight, validation_data, keys, check=check
        )
        validated = first_of(data).validation_inputs is not None
        if patience is not None and not validated:
            raise SwarmError(
                "patience: needs validation data; give validation_data=(inputs, targets)"
            )
        limits = broadcast_limits(epochs, patience, len(self))
        seen = watched(metrics, monitor, mode, validated=validated, taken=self.hyperparams)
        result = fit(
            self._recipe.task(batch_size, validated=validated, seen=seen),
            data,
            self.ids,
            seed=self.seed,
            epochs=self.epochs + limits.epochs,
            patience=limits.patience,
            hyperparams=self.hyperparams,
            previous=restart_from_best(self._result),
            checkpoint=checkpoint,
            on_progress=on_progress,
            **self._machine,
        )
        new = self._with(result)
        self._fitted = weakref.ref(new), new._use
        return new

    def step(
        self,
        inputs: _Arrays,
        targets: _Arrays | None = None,
        sample_weight: _Arrays | None = None,
        *,
        check: bool = True,
    ) -> tuple["Swarm", Float[np.ndarray, " member"]]:
        """Take one step of every member on one batch; return the swarm after it and the losses.

        It starts from the weights that :meth:`predict` uses, the best ones, and counts as an epoch.
        The member's key and the epoch seed its random draws. A member that diverges, or whose
        sample weights are all 0.0, keeps its weights and optimiser state. ``check``: as in
        :meth:`fit`.
        """
        self._warn_dropped()
        batch = part(self.ids, inputs, targets, sample_weight, "", check=check)
        if (now := self._on_device(batch)) is None:
            given = self._result.state, batch, self.hyperparams
            state, loss = self._map(self._recipe.update, *given)
            return self._with(self._result.after_step(state, loss)), loss
        after, loss = now.step(self._recipe.step, batch, self.hyperparams)
        new = self._with(None)
        new._device = after
        return new, loss

    # Using

    def predict(
        self, inputs: _Arrays, *, key: int | jax.Array | None = None, check: bool = True
    ) -> Tree:
        """Return every member's predictions, (member, example, ...).

        - ``inputs``: arrays (member, example, ...), or :class:`Shared` ones
        - ``key``: a seed or a random key. With one, random layers draw, for samples or dropout at
          test time, by this key and the member's own; running statistics stay frozen
        - ``check``: raise SwarmError for inputs that are not finite
        """
        self._warn_dropped()
        given = checked_inputs(self.ids, inputs, check=check)
        function, data = self._recipe.predict, given
        if key is not None:
            function = self._recipe.sample
            data = data, self._keys, Shared(key_words(key))
        return self._call(function, data)

    def bind(self) -> Callable[[Tree], Tree]:
        """Return the members as one function of inputs (member, example, ...), for quick calls.

        A call is one dispatch of a program that is compiled once for each shape. Numbers are not
        checked, and predictions stay on the device as JAX arrays. It can go through ``jit`` and
        ``scan``. Its predictions are those of :meth:`predict` up to rounding.
        """
        self._warn_dropped()
        params, hyperparams = jax.device_put((self.params, self.hyperparams))
        predict = all_at_once(self._recipe.predict)
        return lambda inputs: predict(params, inputs, hyperparams)

    @property
    def pure(self) -> Pure:
        """One member's training as pure functions; :meth:`with_state` is the way back."""
        return self._recipe.pure

    @property
    def state(self) -> State:
        """The members' states, leaves (member, ...): weights, optimiser states, epochs, keys."""
        return self._result.state

    def with_state(self, state: State) -> "Swarm":
        """Return the members with this state, leaves (member, ...), as of :attr:`pure`.

        Losses of epochs that happened elsewhere are NaN. Raises SwarmError for a state of another
        model or optimiser, of another number of members, or with a leaf of another type.
        """
        new: State = jax.tree.map(np.asarray, jax.device_get(state))
        check_same_shapes(self._result.state, new, "the state")
        if len(new.epoch) != len(self):
            raise SwarmError(f"state: expected {len(self)} members; got {len(new.epoch)}")
        return self._with(self._result.with_state(new))

    def evaluate(
        self,
        inputs: _Arrays,
        targets: _Arrays | None = None,
        sample_weight: _Arrays | None = None,
        *,
        check: bool = True,
    ) -> Float[np.ndarray, " member"]:
        """Return every member's mean loss; NaN where all its sample weights are 0.

        ``check``: as in :meth:`predict`.
        """
        self._warn_dropped()
        batch = part(self.ids, inputs, targets, sample_weight, "", check=check)
        return self._call(self._recipe.evaluate, batch)

    def cost(
        self, inputs: _Arrays, targets: _Arrays | None = None, *, batch_size: int | None = 32
    ) -> Cost:
        """Return the cost of training on these examples; compiles and times the training step.

        Parameters, arithmetic, memory, time to compile, achieved rate.
        """
        data = training_data(self.ids, inputs, targets, None, None, None)
        task = self._recipe.task(batch_size)
        return cost_of(task, data, self.hyperparams, len(self), self._machine)

    # Looking at members

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

    # Selecting and combining members

    def select(self, names: Sequence[str], ids: Sequence[str] | None = None) -> "Swarm":
        """Return a swarm of these members, in this order.

        ``ids``: new names; with them a member may be selected more than once. A copy has the
        member's weights, hyperparameters, optimiser state and history; under a new name it gets a
        random key of its own.
        """
        rows, ids = selected_rows(self.ids, names, ids)
        copies = copy_members(self._result, rows, ids, self.seed)
        return self._with(copies, take_members(self.hyperparams, rows))

    def drop(self, names: Sequence[str]) -> "Swarm":
        """Return a swarm of all members except these."""
        dropped = {row_of(self.ids, name) for name in checked_names(names, "drop")}
        return self.select([name for row, name in enumerate(self.ids) if row not in dropped])

    def append(self, other: "Swarm | Sequence[str]") -> "Swarm":
        """Return this swarm with another swarm's members, or with new members of these names.

        New members are untrained and get the first member's hyperparameters. Raises SwarmError for
        a swarm of another model, loss or optimiser: both swarms are made from the same objects.
        """
        if not isinstance(other, Swarm):
            other = self._new_members(checked_names(other, "append"))
        self._recipe.check_same(other._recipe)
        check_same_shapes(self._result.state, other._result.state, "the other swarm")
        if other.hyperparams.keys() != self.hyperparams.keys():
            raise SwarmError(
                f"append: expected hyperparameters {', '.join(self.hyperparams) or 'none'}; got "
                f"{', '.join(other.hyperparams) or 'none'}"
            )
        check_ids(self.ids + other.ids)
        hyperparams = append_members(self.hyperparams, other.hyperparams)
        return self._with(self._result.append(other._result), hyperparams)

    def merge(
        self, name: str = "merged", weights: ArrayLike | None = None, *, opt_state: bool = False
    ) -> "Swarm":
        """Return a swarm of one member whose weights are the mean of all members'.

        - ``weights``: each member's weight in the mean, (member,); equal by default
        - ``opt_state``: average the optimisers' states too, and continue from the largest epoch;
          otherwise the merged member has a new optimiser state and no history

        McMahan et al. (2017), arXiv 1602.05629.
        """
        new = self._new_members((name,))
        mean = mean_member(self._result, new._result, weights, opt_state=opt_state)
        return new._with(mean)

    def with_params(self, params: "Params | Swarm") -> "Swarm":
        """Return the members with these weights; histories and optimiser states stay.

        ``params``: leaves (member, ...), or (...) for the same weights in all members, or a swarm
        of one member.
        """
        if isinstance(params, Swarm):
            if len(params) != 1:
                raise SwarmError(f"params: expected a swarm of one member; got {len(params)}")
            params = take_members(params.params, 0)
        return self._with(self._result.with_params(broadcast_params(params, self.params)))

    def with_hyperparams(self, **hyperparams: ArrayLike) -> "Swarm":
        """Return the members with these hyperparameters changed."""
        if unknown := hyperparams.keys() - self.hyperparams.keys():
            raise SwarmError(
                f"no hyperparameter {', '.join(sorted(unknown))}; this swarm has "
                f"{', '.join(self.hyperparams)}. Give others when the swarm is made"
            )
        changed = broadcast_hyperparams(hyperparams, len(self))
        return self._with(self._result, self.hyperparams | changed)

    # Saving

    def save(self, path: str | Path) -> None:
        """Write weights, optimiser states, histories and hyperparameters to one file.

        Code is not saved: :meth:`load` needs the model again. The file is replaced atomically;
        folders that are missing are made. Raises SwarmWriteError when it cannot be written.
        """
        self._warn_dropped()
        said = self._recipe.task().said
        storage.save(Path(path), self.seed, self.hyperparams, self._result, said)

    @classmethod
    def load(cls, path: str | Path, model: Model, **options: Any) -> "Swarm":
        """Read a saved swarm; give ``model`` and ``options`` as when it was made.

        Raises SwarmError for a damaged file or another model, and for a missing file, which is a
        FileNotFoundError too. A SwarmWarning says where the loss or the optimiser has another name.
        """
        path = Path(path)
        header, hyperparams, arrays = storage.read(path)
        first, ids = take_members(hyperparams, [0]), header.ids
        made = cls(model, ids[:1], hyperparams=first, seed=header.seed, **options)
        trained = restored(path, arrays, made._result.state, len(ids))
        then, now = (set(said.split("; ")) for said in (header.said, made._recipe.task().said))
        if header.said and then != now:
            warn(
                f"{path}: saved with {', '.join(sorted(then - now))}; loaded with "
                f"{', '.join(sorted(now - then))}, by which it would train on"
            )
        return made._with(FitResult(ids, *trained, header.seconds), hyperparams)

    @classmethod
    def from_result(cls, result: FitResult, model: Model, **options: Any) -> "Swarm":
        """Return a swarm of the members that :func:`fit` trained.

        ``model``, ``options``: as for a new swarm. Raises SwarmError if they do not match the
        trained model or optimiser.
        """
        made = cls(model, result.ids, **options)
        check_same_shapes(made._result.state, result.state, "the result")
        return made._with(result)

    # Internals

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
        self._use.used = True
        if self._at_host is None:
            self._at_host = cast(OnDevice, self._device).result
        return self._at_host

    @property
    def _keys(self) -> UInt32[np.ndarray, "member 2"]:
        """The members' raw keys, without copying states to the host."""
        known = self._at_host or cast(OnDevice, self._device).start
        return np.asarray(known.state.key)

    def _on_device(self, data: Tree) -> OnDevice | None:
        """Return the members on one device; None for a call that is better done on all lanes."""
        now = self._device = self._device or OnDevice.from_result(self._result)
        return now if now and now.is_small(data) else None

    def _with(self, result: FitResult | None, values: HostHyperparams | None = None) -> "Swarm":
        new = object.__new__(Swarm)
        new.__dict__ |= self.__dict__
        new._at_host, new._device, new._use, new._fitted = result, None, _Use(), None
        new._ids = self._ids if result is None else result.ids
        new.hyperparams = dict(self.hyperparams if values is None else values)
        return new

    def _new_members(self, names: tuple[str, ...]) -> "Swarm":
        """Return untrained members with the first member's hyperparameters."""
        check_ids(names)
        hyperparams = take_members(self.hyperparams, [0] * len(names))
        return self._with(self._untrained(names, hyperparams), hyperparams)

    def _untrained(self, ids: tuple[str, ...], hyperparams: HostHyperparams) -> FitResult:
        keys = member_keys(self.seed, ids)
        return untrained_members(self._recipe.initialise, ids, keys, hyperparams, self._lanes)

    def _call(self, function: Callable[..., Tree], data: Tree) -> Tree:
        """Apply a function to the best weights and data."""
        if (now := self._on_device(data)) is None:
            return self._map(function, self.params, data, self.hyperparams)
        return now.apply(function, data, self.hyperparams)

    def _map(self, function: Callable[..., Tree], *trees: Tree) -> Tree:
        return map_members(function, *trees, members=len(self), lanes=self._lanes)
