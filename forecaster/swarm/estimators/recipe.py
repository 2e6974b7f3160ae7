"""Model, loss and optimiser that all members share, and the functions of one member from them."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, UInt32

from forecaster.swarm.adapters.functions import Functions
from forecaster.swarm.arrays.shapes import expecting, naming_arrays
from forecaster.swarm.checks import SwarmError, warn
from forecaster.swarm.devices.stored import described
from forecaster.swarm.task import Hyperparams, Params, Task, Tree
from forecaster.swarm.training.content import Content, Unreadable, text_of
from forecaster.swarm.training.equality import same_function
from forecaster.swarm.training.keys import typed_key
from forecaster.swarm.training.loop import State, Status, init_state, train_on_batch, where
from forecaster.swarm.training.losses import Batch, applied, filled, loss_of, takes_hyperparams
from forecaster.swarm.training.metrics import NOTHING, Watched
from forecaster.swarm.training.optimizers import SWARM_LEARNING_RATE, Optimizer, names_taken
from forecaster.swarm.training.supervised import Model, functions_of, supervised


class Machine(NamedTuple):
    """Settings of how a swarm uses the machine; see :func:`forecaster.swarm.fit`."""

    lanes: int | None
    chunk: int | None
    memory: int | None
    data_parallel: int = 1


class Pure(NamedTuple):
    """How one member begins, learns and predicts: pure functions for ``jit``, ``vmap``, ``scan``.

    - ``initialise(key, hyperparams) -> State``: ``key`` is raw, as of :func:`member_keys`
    - ``update(state, batch, hyperparams) -> (State, loss)``: a step on a :class:`Batch`, from
      ``state.best_params``, as :meth:`Swarm.step`; whoever sets weights sets both,
      ``state._replace(params=weights, best_params=weights)``
    - ``apply(params, inputs, hyperparams) -> predictions``

    ``hyperparams`` are scalars by name. ``jax.vmap`` of each is that of all members. ``update``
    raises SwarmError for a state of several members, and for a batch without a weight; ``update``
    and ``apply`` for arrays that the model or the loss does not take.
    """

    initialise: Callable[[UInt32[jax.Array, "2"], Hyperparams], State]
    update: Callable[[State, Batch, Hyperparams], tuple[State, Float[jax.Array, ""]]]
    apply: Callable[[Params, Tree, Hyperparams], Tree]


def _check_one(state: State, batch: Sequence[Tree]) -> None:
    """Raise SwarmError unless these are one member's state and a whole batch."""
    if np.ndim(state.key) != 1:
        raise SwarmError(
            f"state: expected one member's, with a key of shape (2,); got a key of shape "
            f"{np.shape(state.key)}. jax.vmap(swarm.pure.update) takes those of all members"
        )
    if len(batch) != len(Batch._fields) or batch[2] is None:
        got = "no weight" if len(batch) == len(Batch._fields) else f"{len(batch)} parts"
        raise SwarmError(
            f"batch: expected Batch(inputs, targets, weight); got {got}. Where all examples count "
            "alike, the weight is an array of 1.0 for each"
        )


@dataclasses.dataclass
class Sharing:
    """What a shared recipe was made of; ``stale`` is True once any of it has changed."""

    made: tuple[Any, ...]
    key: Hashable
    kept: list[Any]
    stale: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """Model, loss and optimiser of all members. Programs are traced once per recipe.

    ``sharing``: None if the recipe is one swarm's own.
    """

    functions: Functions
    loss: Callable[[Tree, Tree], jax.Array] | None
    loss_fn: Callable[..., Any] | None
    optimizer: Optimizer
    accumulate: int
    compute_dtype: DTypeLike | None
    sharing: Sharing | None = None

    def current(self) -> "Recipe":
        """Return this recipe, or an unshared copy if its functions read other values now."""
        return self.alone() if self.sharing and self.sharing.stale else self

    def alone(self) -> "Recipe":
        """Return this recipe, or a copy that is not shared."""
        return dataclasses.replace(self, sharing=None) if self.sharing else self

    def _notice(self) -> None:
        """Stop sharing if what the functions read has changed; called whenever they are traced."""
        sharing = self.sharing
        if sharing is None or sharing.stale:
            return
        try:
            sharing.stale = _key(sharing.made)[0] != sharing.key
        except Unreadable:
            sharing.stale = True
        if sharing.stale and _recipes.get(sharing.key) is self:
            del _recipes[sharing.key]

    def _noticing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def noticing(*args: Any, **options: Any) -> Any:
            self._notice()
            return function(*args, **options)

        return noticing

    def _described(self, function: Callable[..., Any], *settings: Any) -> Callable[..., Any]:
        """Return a function of the recipe, with a description of what it computes."""
        return described(function, lambda: self._description(function.__name__, *settings))

    def _description(self, *settings: Any) -> str | None:
        """Describe a function of the recipe, by its name or settings; None if it is not shared."""
        self._notice()
        if self.sharing is None or self.sharing.stale:
            return None
        return _text((self.sharing.made, settings))

    @functools.lru_cache(maxsize=32)  # noqa: B019, keeps few recipes alive
    def task(
        self,
        batch_size: int | None = None,
        *,
        validated: bool = False,
        seen: Watched = NOTHING,
    ) -> Task:
        """Return the task of a fit."""
        task = supervised(
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
        return dataclasses.replace(
            task,
            init=self._noticing(task.init),
            loss=self._noticing(task.loss),
            description=lambda: self._description("task", batch_size, validated, seen),
        )

    @functools.cached_property
    def init_state(self) -> Callable[[UInt32[jax.Array, "2"], Hyperparams], State]:
        """Function that returns a member's initial state from raw key and hyperparameters."""

        def initialise(key: jax.Array, hyperparams: Hyperparams) -> State:
            return init_state(self.task(), key, hyperparams)

        return self._described(initialise)

    @functools.cached_property
    def predict(self) -> Callable[[Params, Hyperparams, Tree], Tree]:
        """Function that returns a member's predictions."""

        def predict(params: Params, hyperparams: Hyperparams, inputs: Tree) -> Tree:
            self._notice()
            with naming_arrays(inputs=inputs):
                return self._apply(params, inputs, hyperparams=hyperparams)

        return self._described(predict)

    @functools.cached_property
    def sample(self) -> Callable[[Params, Hyperparams, Tree], Tree]:
        """Function that returns a member's predictions with random layers drawing.

        Its last argument is ``(inputs, member's raw key, raw key of the call)``.
        """

        def sample(params: Params, hyperparams: Hyperparams, given: Tree) -> Tree:
            self._notice()
            inputs, own, words = given
            key = typed_key(own)
            for word in (words[0], words[1]):
                key = jax.random.fold_in(key, word)
            with naming_arrays(inputs=inputs):
                return self._apply(params, inputs, key=key, hyperparams=hyperparams)

        return self._described(sample)

    @functools.cached_property
    def evaluate(self) -> Callable[[Params, Hyperparams, Batch], Float[jax.Array, ""]]:
        """Function that returns a member's loss on a batch without a key; NaN without examples."""
        loss = loss_of(self.functions, self.loss, self.loss_fn, self.compute_dtype)

        def evaluate(params: Params, hyperparams: Hyperparams, batch: Batch) -> jax.Array:
            self._notice()
            found = loss(params, self._batch(batch), None, hyperparams)
            return jnp.where((jnp.asarray(batch[2]) > 0).any(), found, jnp.nan)

        return self._described(evaluate)

    @functools.cached_property
    def step(
        self,
    ) -> Callable[[State, Hyperparams, Batch], tuple[State, Float[jax.Array, ""]]]:
        """Function that takes a member's training step on a batch."""

        def step(
            state: State, hyperparams: Hyperparams, batch: Batch
        ) -> tuple[State, Float[jax.Array, ""]]:
            active = (jnp.asarray(batch[2]) > 0).any()
            return train_on_batch(self.task(), state, self._batch(batch), hyperparams, active)

        return self._described(step)

    @functools.cached_property
    def step_best(
        self,
    ) -> Callable[[State, Hyperparams, Batch], tuple[State, Float[jax.Array, ""]]]:
        """Function that does what ``step`` does, to states without ``params``.

        A step begins at the best weights. After it ``params`` are the best ones too, except of a
        member whose step did not count: see :func:`latest_params`.
        """

        def step(
            state: State, hyperparams: Hyperparams, batch: Batch
        ) -> tuple[State, Float[jax.Array, ""]]:
            state, loss = self.step(state._replace(params=state.best_params), hyperparams, batch)
            return state._replace(params=None), loss

        return self._described(step, "best")

    @functools.cached_property
    def pure(self) -> Pure:
        """One member's training as pure functions."""

        def update(
            state: State, batch: Batch, hyperparams: Hyperparams
        ) -> tuple[State, Float[jax.Array, ""]]:
            _check_one(state, batch)
            with expecting({}, {}, "pure.update"):
                return self.step(state, hyperparams, Batch(*batch))

        def apply(params: Params, inputs: Tree, hyperparams: Hyperparams) -> Tree:
            with expecting({}, {}, "pure.apply"):
                return self.predict(params, hyperparams, inputs)

        return Pure(self.init_state, update, apply)

    @functools.cached_property
    def predict_all(self) -> Any:
        """Jitted function that returns all members' predictions, from what ``predict`` takes."""
        return jax.jit(jax.vmap(self.predict))

    @functools.cached_property
    def bound(self) -> dict[Hashable, Callable[..., Tree]]:
        """What :class:`Bound` calls, by shapes and devices: kept, since reading it takes ms."""
        return {}

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

    @property
    def names(self) -> dict[str, str]:
        """The names of loss and optimiser, as a file of the swarm keeps them."""
        return {
            "loss" if self.loss_fn is None else "loss_fn": _short(self.loss or self.loss_fn),
            "optimizer": _short(self.optimizer),
        }

    def warn_unused(self, hyperparams: Mapping[str, np.ndarray]) -> None:
        """Warn of hyperparameters, each (member,), that neither optimiser, model nor loss takes."""
        made, taken = names_taken(self.optimizer), self.functions.takes
        if made is None or taken is None or (self.loss_fn and takes_hyperparams(self.loss_fn)):
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

    def check_same(self, other: "Recipe") -> None:
        """Raise SwarmError unless the other recipe has the same model, loss and optimiser."""
        mine, others = self.functions.made_of, other.functions.made_of
        if not same_function(mine or self.functions, others or other.functions):
            raise SwarmError(
                f"the other swarm has another model: expected {_name(mine)}; got {_name(others)}. "
                "Members of a swarm share one model: make both swarms from the same object"
            )
        for name in ("loss", "loss_fn", "optimizer", "accumulate", "compute_dtype"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if not same_function(ours, theirs):
                raise SwarmError(
                    f"the other swarm has another {name}: expected {_name(ours)}; got "
                    f"{_name(theirs)}. Members of a swarm share it"
                )


def latest_params(state: State, before: Params) -> Params:
    """Return the ``params`` after ``step_best``, from its state and the ``params`` before it."""
    counted = (state.best_epoch == state.epoch) & (state.status != Status.DIVERGED)
    return where(cast(jax.Array, counted), state.best_params, before)


_MOST = 32  # recipes that are kept
_recipes: collections.OrderedDict[Hashable, Recipe] = collections.OrderedDict()


def recipe_of(model: Model, *made: Any) -> Recipe:
    """Return the recipe of a model and the other fields of :class:`Recipe`.

    Swarms of the same functions share it, and with it everything that was traced. Two functions are
    the same if they have the same code and everything that they read (closures, defaults, globals,
    attributes) is the same. What they read may be

    - numbers, texts, tuples and JAX arrays, of equal values
    - the same lists, dicts, sets, NumPy arrays and classes, with unchanged values
    - other functions that are the same in this sense
    - anything of JAX, Flax, Optax, NumPy and the few other libraries that ``content`` lists

    A swarm gets a recipe of its own if its functions read anything else (objects of other classes,
    bound methods, other modules, files, the environment, NumPy's random numbers) or call back from
    compiled code. It also gets one when its functions are traced after something that they read has
    changed since the swarm was made.

    Two kinds of changes are not noticed: in attributes of those libraries, and in variables of an
    enclosing function that are bound anew between making a second swarm and using it. Programs on
    disk outlive the process, so there a recipe whose functions use an attribute that is not the
    library's own is traced anew; what other functions of the library use is not looked at.
    """
    try:
        key, kept = _key((model, *made))
    except Unreadable:
        return Recipe(functions_of(model), *made)
    if key not in _recipes:
        functions = functions_of(model, lambda: _text(model))
        recipe = Recipe(functions, *made, sharing=Sharing((model, *made), key, kept))
        while len(_recipes) >= _MOST:
            _recipes.popitem(last=False)
        _recipes[key] = recipe
    _recipes.move_to_end(key)
    return _recipes[key]


def _text(value: object) -> str | None:
    """Return a text of what a value computes, the same in all processes; None if none can tell."""
    try:
        return text_of(value)
    except (Unreadable, RecursionError, ValueError):  # the last of numbers with 5,000 digits
        return None


def _key(made: tuple[Any, ...]) -> tuple[Hashable, list[Any]]:
    """Return what decides the programs of a recipe, and the objects that it names by identity."""
    content = Content()
    try:
        return (content.of(made), _settings()), content.kept
    except (RecursionError, ValueError) as error:  # the latter of numbers with 5,000 digits
        raise Unreadable("nested too deeply") from error


def _settings() -> tuple[Any, ...]:
    """Return the settings of JAX that decide what is traced."""
    names = (
        "jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion", "jax_debug_nans", "jax_disable_jit", "jax_default_prng_impl",
    )  # fmt: skip
    return tuple(getattr(jax.config, name, None) for name in names)


def _short(function: Any) -> str:
    """Return a function's own name, the same in every process."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    return getattr(function, "__name__", type(function).__name__)


def _name(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_name, cast(tuple[Any, ...], value)))
    return getattr(value, "__qualname__", None) or f"{value!r:.60}"
