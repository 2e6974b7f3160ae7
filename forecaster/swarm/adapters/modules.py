"""Turn a Flax module into pure functions, and back."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float

from forecaster.swarm.adapters.functions import Functions, on_device
from forecaster.swarm.arrays.variables import Variables
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.task import Hyperparams, Params, Tree

Build: TypeAlias = Callable[..., nnx.Module]
"""A function ``build(rngs)`` that returns a module."""


def checked_build(build: Build) -> Build:
    """Return a function that builds the module and takes its random streams by position.

    Raises SwarmError for a module instead of a function.
    """
    check_not_made(build, "a function build(rngs)")
    given = cast(Any, build)
    made = given.func if isinstance(build, functools.partial) else given
    # Flax hides the signature of a module's class.
    called = made.__init__ if inspect.isclass(made) else given
    if "rngs" not in inspect.signature(called).parameters:
        return given

    def named(rngs: nnx.Rngs) -> nnx.Module:
        return given(rngs=rngs)

    return named


def check_not_made(build: object, expected: str) -> None:
    """Raise SwarmError unless ``build`` is a function, a class or a partial of one."""
    if inspect.isroutine(build) or inspect.isclass(build) or isinstance(build, functools.partial):
        return
    raise SwarmError(
        f"the model: expected {expected}; got a {type(build).__name__} that is already made. Give "
        "the class, or a function that makes it, as in lambda rngs: nnx.Linear(3, 1, rngs=rngs). "
        "Modules of Linen and Equinox go in by linen_functions and equinox_functions"
    )


_Path: TypeAlias = tuple[Any, ...]
_Untrained: TypeAlias = Sequence[tuple[_Path, Any]]  # paths and variables


class Rate(nnx.Variable[jax.Array]):
    """A hyperparameter inside a module: untrained, set from the member's hyperparameters."""


class Dropout(nnx.Module):
    """Dropout whose rate is a member's hyperparameter, so that it may differ between members.

    In training each value is zero with probability ``rate``, and the others are scaled up to keep
    the mean (Srivastava et al. 2014); otherwise values pass unchanged.

    - ``rate``: the rate if the hyperparameters do not have it
    - ``name``: the name of the hyperparameter
    """

    def __init__(self, rate: float = 0.0, *, name: str = "dropout", rngs: nnx.Rngs):
        self.rate = Rate(jnp.float32(rate), hyperparameter=name, default=float(rate))
        self.rngs = rngs.dropout.fork()
        self.deterministic = False

    def __call__(self, inputs: Float[jax.Array, "*shape"]) -> Float[jax.Array, "*shape"]:
        """Return inputs of any shape with dropout applied."""
        if self.deterministic:
            return inputs
        keep = 1.0 - self.rate[...]
        kept = jax.random.bernoulli(self.rngs(), keep, inputs.shape)
        return jnp.where(kept, inputs / jnp.maximum(keep, 1e-6), 0).astype(inputs.dtype)


def module_functions(build: Build) -> Functions:
    """Split a Flax module, which ``build(rngs)`` returns, into pure functions.

    ``build`` may be the class itself. It gets ``rngs`` by name if it has a parameter of that name.

    Params are a plain nested dict of arrays. The state of :class:`Variables` holds plain arrays and
    all variables other than weights (``nnx.Param``) and random streams, such as running statistics
    or variables of your own types. ``apply`` and ``train`` take a ``method`` to call instead of the
    module: its name, or a function of the module and the inputs.

    Raises SwarmError if ``build`` is not such a function; errors inside it pass through.
    """
    use_all_cores()  # before JAX starts
    model = _Model(checked_build(build))
    train = model.train if model.split.carries else None
    return Functions(model.init, model.apply, model.export, train, (build,), frozenset(model.takes))


class _Model:
    """A module's structure, and the function that builds it."""

    def __init__(self, build: Build):
        self._build = build

    @functools.cached_property
    def split(self) -> "_Split":
        return _split(self._build)

    @functools.cached_property
    def takes(self) -> list[str]:
        """The names of the hyperparameters that it uses."""
        rates = (variable for _, variable in self.split.random if isinstance(variable, Rate))
        return sorted(rate.get_metadata()["hyperparameter"] for rate in rates)

    def init(self, key: jax.Array) -> Params:
        module = _with_arrays(self._build(nnx.Rngs(key)))
        weights = nnx.to_pure_dict(nnx.state(module, nnx.Param))
        return Variables(weights, _carried(module)) if self.split.carries else weights

    def apply(
        self,
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> Tree:
        training = key is not None and not self.split.carries
        return self._call(params, inputs, key, hyperparams, options, training=training)[0]

    def train(
        self,
        params: Params,
        *inputs: Tree,
        key: jax.Array | None = None,
        hyperparams: Hyperparams | None = None,
        **options: Any,
    ) -> tuple[Tree, Tree]:
        given = params, inputs, key, hyperparams, options
        predictions, module = self._call(*given, training=True)
        return predictions, _carried(module)

    def export(self, params: Params, hyperparams: Hyperparams) -> nnx.Module:
        module = self._build(nnx.Rngs(0))
        for part in _parts(params):
            nnx.update(module, jax.tree.map(on_device, part))
        _set_rates(module, hyperparams)
        module.eval()
        return module

    def _call(
        self,
        params: Params,
        inputs: Sequence[Tree],
        key: jax.Array | None,
        hyperparams: Hyperparams | None,
        options: Mapping[str, Any],
        *,
        training: bool,
    ) -> tuple[Tree, nnx.Module]:
        random = _state(self.split.random, key, hyperparams or {})
        module: Any = nnx.merge(self.split.graph, *_parts(params), random)
        drawn = training or key is not None
        if training:
            module.train()
        else:
            module.eval()
            module.set_attributes(deterministic=not drawn, raise_if_not_found=False)
        call = method_of(module, options.get("method"))
        known = flags(call, training=training, drawn=drawn)
        named = {name: value for name, value in options.items() if name != "method"}
        args, named = arguments(call, inputs, **(known | named))
        return call(*args, **named), module


class _Split(NamedTuple):
    """The structure of a module without its arrays.

    - ``graph``: of Flax, from which it is made again
    - ``random``: its random streams and rates
    - ``carries``: whether it has other untrained variables, its state
    """

    graph: Any
    random: _Untrained
    carries: bool


_RANDOM = nnx.RngState, Rate


def _split(build: Build) -> _Split:
    graph: Any = None

    def parts() -> tuple[Any, Any]:
        nonlocal graph
        split = cast(Callable[..., tuple[Any, ...]], nnx.split)
        graph, _, random, carried = split(_with_arrays(_module(build)), nnx.Param, _RANDOM, ...)
        return random, carried

    random, carried = jax.eval_shape(parts)  # shapes only
    for path, variable in cast(_Untrained, nnx.to_flat_state(carried)):
        kinds = [getattr(leaf, "dtype", None) for leaf in jax.tree.leaves(variable)]
        if any(kind is not None and jnp.issubdtype(kind, jax.dtypes.prng_key) for kind in kinds):
            raise SwarmError(
                f"module variable {'.'.join(map(str, path))} holds a random key; expected random "
                "streams of nnx.Rngs, as in self.rngs = rngs.fork(), which draw anew in every step"
            )
    carries = bool(jax.tree.leaves(carried))
    return _Split(graph, cast(_Untrained, nnx.to_flat_state(random)), carries)


def _carried(module: nnx.Module) -> Tree:
    """Return a module's state: variables other than weights, random streams and intermediates."""
    others = nnx.Not(nnx.Any(nnx.Param, nnx.Intermediate, *_RANDOM))
    return nnx.to_pure_dict(nnx.state(module, others))


def _parts(params: Params) -> tuple[Tree, ...]:
    """Return the weights, and the state if there is any."""
    return tuple(params) if isinstance(params, Variables) else (params,)


def _state(
    untrained: _Untrained,
    key: jax.Array | None,
    hyperparams: Hyperparams,
) -> Any:
    """Return random streams seeded by the key, and rates from the hyperparameters."""
    values: list[tuple[_Path, Any]] = []
    for position, (path, variable) in enumerate(untrained):
        shape = np.shape(variable.get_value())  # () except in vmapped layers
        if isinstance(variable, nnx.RngKey):
            value = jax.random.fold_in(jax.random.key(0) if key is None else key, position)
            value = jax.random.split(value, shape) if shape else value
        elif isinstance(variable, nnx.RngState):
            value = jnp.zeros(shape, jnp.uint32)
        else:
            known = variable.get_metadata()
            rate = hyperparams.get(known["hyperparameter"], known["default"])
            value = jnp.broadcast_to(jnp.float32(rate), shape)
        values.append((path, variable.replace(value)))
    return cast(Any, nnx.from_flat_state(values))


_TRAINING = "train", "training", "is_training"  # common names of the argument


def flags(call: Callable[..., Any], *, training: bool, drawn: bool) -> dict[str, bool]:
    """Return the flags for training or prediction that a call takes, by argument name.

    - ``training``: whether the module's state is updated
    - ``drawn``: whether its random layers draw
    """
    values = dict.fromkeys(_TRAINING, training)
    values |= {"deterministic": not drawn, "use_running_average": not training}
    try:
        taken = inspect.signature(call).parameters
    except ValueError:  # no signature
        return {}
    return {name: value for name, value in values.items() if name in taken}


def method_of(module: Any, method: Any) -> Callable[..., Any]:
    """Return the module itself, its method of this name, or a function bound to the module."""
    if method is None:
        return module
    return getattr(module, method) if isinstance(method, str) else functools.partial(method, module)


def arguments(
    call: Callable[..., Any], inputs: Sequence[Tree], **options: Any
) -> tuple[tuple[Tree, ...], dict[str, Any]]:
    """Return positional and named arguments to call a module on its inputs.

    A single tuple, list or dict is unpacked if the module takes several inputs. ``options``:
    arguments by name.
    """
    given: object = inputs[0] if len(inputs) == 1 else None
    if isinstance(given, tuple | list | dict):
        try:
            inspect.signature(call).bind(given, **options)
        except TypeError:
            if isinstance(given, dict):
                return (), {**cast(dict[str, Any], given), **options}
            return tuple(cast(Sequence[Tree], given)), options
        except ValueError:  # no signature
            pass
    return tuple(inputs), options


def _set_rates(module: nnx.Module, hyperparams: Hyperparams) -> None:
    for _, node in nnx.iter_graph(module):
        if isinstance(node, Rate):
            name = node.get_metadata()["hyperparameter"]
            if name in hyperparams:
                rate = jnp.float32(hyperparams[name])
                node.set_value(jnp.broadcast_to(rate, np.shape(node.get_value())))


def _module(build: Build) -> nnx.Module:
    """Return the module that ``build`` makes. Raises SwarmError for anything else."""
    module = cast(object, build(nnx.Rngs(0)))
    if not isinstance(module, nnx.Module):
        raise SwarmError(f"build(rngs): expected a flax.nnx module; got {type(module).__name__}")
    return module


def _with_arrays(module: nnx.Module) -> nnx.Module:
    """Return the module with its plain arrays registered as data, traced ones too.

    Flax decides on assignment what is data, and may take traced arrays for static attributes.
    """
    for _, node in list(nnx.iter_graph(module)):
        if isinstance(node, nnx.Pytree):
            for name, value in list(vars(node).items()):
                if isinstance(value, jax.Array) and not nnx.is_data(value):
                    setattr(node, name, nnx.data(value))
    return module
