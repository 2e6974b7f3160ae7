"""Turn a module of Flax, or of its older Linen, into pure functions, and back."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float

from forecaster.swarm.adapters.functions import Functions, Given, functions_of_module, on_device
from forecaster.swarm.arrays import Variables
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.task import Hyperparams, Params, Tree

if TYPE_CHECKING:
    from flax import linen

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
    make = checked_build(build)
    graph, untrained, carries = _split(make)

    def init(key: jax.Array) -> Params:
        module = _with_arrays(make(nnx.Rngs(key)))
        weights = nnx.to_pure_dict(nnx.state(module, nnx.Param))
        return Variables(weights, _carried(module)) if carries else weights

    def call(params: Params, given: Given) -> tuple[Tree, Tree]:
        random = _state(untrained, given.key, given.hyperparams)
        module: Any = nnx.merge(graph, *_parts(params), random)
        if given.training:
            module.train()
        else:
            module.eval()
            module.set_attributes(deterministic=not given.drawn, raise_if_not_found=False)
        options = dict(given.options)
        called = method_of(module, options.pop("method", None))
        args, options = arguments(called, given.inputs, **(flags(called, given) | options))
        return called(*args, **options), _carried(module)

    def export(params: Params, hyperparams: Hyperparams) -> nnx.Module:
        module = make(nnx.Rngs(0))
        for part in _parts(params):
            nnx.update(module, jax.tree.map(on_device, part))
        _set_rates(module, hyperparams)
        module.eval()
        return module

    rates = (variable for _, variable in untrained if isinstance(variable, Rate))
    takes = frozenset(rate.get_metadata()["hyperparameter"] for rate in rates)
    return functions_of_module(init, call, export, (build,), takes)


_RANDOM = nnx.RngState, Rate


def _split(build: Build) -> tuple[Any, _Untrained, bool]:
    """Return a module's structure, its random streams and rates, and whether it has other state.

    The structure is Flax's, from which the module is made again.
    """
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
    return graph, cast(_Untrained, nnx.to_flat_state(random)), carries


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


def flags(call: Callable[..., Any], given: Given) -> dict[str, bool]:
    """Return the flags for training or prediction that a call takes, by argument name."""
    values = dict.fromkeys(_TRAINING, given.training)
    values |= {"deterministic": not given.drawn, "use_running_average": not given.training}
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


def linen_functions(
    module: "linen.Module", *sample: Tree, streams: Sequence[str] = ("dropout",)
) -> Functions:
    """Return the functions of a ``flax.linen`` module.

    - ``sample``: an example of each of its inputs, (example, ...)
    - ``streams``: the names of its random streams, which are seeded by the key

    Collections other than ``params``, such as ``batch_stats``, are the state of :class:`Variables`.
    A module with an argument ``train``, ``training``, ``is_training``, ``deterministic`` or
    ``use_running_average`` gets it set for training or prediction. ``Swarm.predict(key=)`` draws at
    random with frozen statistics: a module with both needs two arguments, ``train`` and
    ``deterministic``; with a single one for both it draws nothing.
    """
    use_all_cores()  # before JAX starts

    def init(key: jax.Array) -> Params:
        keys = dict.fromkeys(("params", *streams), key)
        args, options = _arguments(module, Given(sample, None, {}, {}, training=False))
        state = dict(cast(Mapping[str, Tree], module.init(keys, *args, **options)))
        params = state.pop("params", {})
        return Variables(params, state) if jax.tree.leaves(state) else params

    def call(params: Params, given: Given) -> tuple[Tree, Tree]:
        args, options = _arguments(module, given)
        apply = functools.partial(module.apply, _collections(params), rngs=_rngs(given, streams))
        if not given.training or not isinstance(params, Variables):
            return apply(*args, **options), None
        state = cast(Mapping[str, Tree], params.state)
        out, after = cast(tuple[Tree, Any], apply(*args, **options, mutable=list(state)))
        return out, dict(state) | dict(after)

    def export(params: Params, _: Hyperparams) -> Callable[..., Tree]:
        return cast(Callable[..., Tree], module.bind(_collections(params)))

    return functions_of_module(init, call, export, (module, tuple(streams)))


def _arguments(module: "linen.Module", given: Given) -> tuple[tuple[Tree, ...], dict[str, Any]]:
    """Return a call's arguments, with flags such as ``train`` added."""
    options = dict(given.options)
    method = options.pop("method", None)
    called = method or "__call__"
    called = getattr(type(module), called) if isinstance(called, str) else called
    options = flags(called, given) | options
    args, options = arguments(method_of(module, method), given.inputs, **options)
    return args, options if method is None else options | {"method": method}


def _collections(params: Params) -> dict[str, Tree]:
    """Return all collections of variables by name."""
    if isinstance(params, Variables):
        return {"params": params.params, **cast(Mapping[str, Tree], params.state)}
    return {"params": params}


def _rngs(given: Given, streams: Sequence[str]) -> dict[str, jax.Array] | None:
    """Return a key for every random stream; the first stream gets the key itself."""
    if (key := given.key) is None:
        return None
    return {
        name: jax.random.fold_in(key, number) if number else key
        for number, name in enumerate(streams)
    }
