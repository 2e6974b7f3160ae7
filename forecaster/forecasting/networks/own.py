"""A user's own Flax module as the network of each series.

It is a class of ``flax.linen`` or ``flax.nnx`` modules. A module is called with ``inputs`` (window,
lookback, feature), zero in the padding, and ``valid`` (window, lookback), 1.0 for an input and 0.0
in the padding. It returns one of

- features of every step, (window, lookback, width), or of the window, (window, width): this program
  adds a last layer, which starts at zero, and the trained constants
- the outputs, (window, lookback, output) or (window, output), if its constructor has an
  argument ``outputs``, their number

Arguments of the constructor without a default are filled by name: ``inputs``, the number of
features at each step; ``lookback``, ``horizon``, ``hidden`` and ``layers`` of the config;
``outputs`` of the head; ``rngs`` in ``flax.nnx``.

A class attribute ``causal = True`` declares that it returns features of every step and that none
depends on later inputs. It is then trained at every step of a window, otherwise at the last.

If ``__call__`` has an argument ``deterministic``, ``train``, ``training`` or ``is_training``, it
says whether the call is for training. In training, linen modules have a random stream ``dropout``.
"""

import functools
import importlib
import inspect
import math
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax import Array

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.forecasting.config import Config

OwnNetwork: TypeAlias = type[linen.Module] | type[nnx.Module]

_TAKEN = (  # names of other columns of forecasts
    "unique_id", "ds", "cutoff", "y", "horizon", "latest", "sample_id", "probability_of_rise",
    "Naive", "PyTorch",
)  # fmt: skip


def check_class(network: object) -> OwnNetwork:
    """Return the network if it is a class of Flax modules. Raises UsageError otherwise."""
    if inspect.isclass(network) and issubclass(network, linen.Module | nnx.Module):
        if network.__name__ in _TAKEN:
            raise UsageError(
                f"network: a class named {network.__name__} would hide a column of that name in "
                "forecasts; rename it"
            )
        return cast(OwnNetwork, network)
    got, hint = repr(network), ""
    if isinstance(network, linen.Module | nnx.Module):
        name = type(network).__name__
        got = f"an instance of {name}"
        hint = f"; give the class {name} itself, with its settings as defaults of its arguments"
    raise UsageError(
        f"network: expected a class of flax.linen or flax.nnx modules; got {got}{hint}"
    )


def import_path(network: OwnNetwork) -> str:
    """Return the import path of a class, ``module:Class``."""
    return f"{network.__module__}:{network.__qualname__}"


def import_network(path: str) -> OwnNetwork:
    """Import the class at a path of :func:`import_path`. Raises UsageError where there is none."""
    module, _, name = path.partition(":")
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"network {path} cannot be imported ({error})") from error
    return check_class(found)


def imported_network(path: str) -> OwnNetwork:
    """Return the class at a path whose module has been imported already.

    For paths that come from files, which must not choose the code that runs. Raises UsageError
    where there is no such class, or its module has not been imported.
    """
    if path.partition(":")[0] not in sys.modules:
        raise UsageError(f"network {path} has not been imported")
    return import_network(path)


def own_functions(network: OwnNetwork, config: Config, features: int) -> swarm.Functions:
    """Return ``init`` and ``apply`` of a user's module, with the arguments of built-in networks.

    Raises UsageError where the module keeps state, returns other shapes than expected, or is not as
    causal as it says.
    """
    swarm.use_all_cores()  # before anything starts JAX
    # Not inspect.signature(network), which is that of the metaclass.
    parameters = dict([*inspect.signature(network.__init__).parameters.items()][1:])
    given, of_head = _arguments(network.__name__, parameters, config, features), 2 * config.horizon
    shapes = (2, config.lookback, features), (2, config.lookback)  # of two windows
    windows = tuple(np.zeros(shape, np.float32) for shape in shapes)
    if issubclass(network, linen.Module):
        own = swarm.linen_functions(network(**given), *windows)
    elif "rngs" in parameters:
        own = swarm.module_functions(functools.partial(network, **given))
    else:
        own = swarm.module_functions(lambda rngs: network(**given))
    kept = jax.eval_shape(own.init, jax.random.key(0))
    if isinstance(kept, swarm.Variables):
        raise UsageError(
            f"network {network.__name__}: keeps state that is not trained "
            f"({', '.join(kept.state)}); expected weights and random streams only, as a model "
            "keeps nothing else of a series. Use LayerNorm or GroupNorm in place of BatchNorm"
        )
    outputs = of_head if "outputs" in given else None

    def states_of(params: swarm.Params, inputs: Array, valid: Array, key: Array | None) -> Array:
        states = own.apply(params, inputs, valid, key=key)
        return _at_steps(network, states, inputs.shape, outputs)

    def init(key: Array) -> swarm.Params:
        params = {"network": own.init(key), "constants": jnp.zeros(config.horizon)}
        if outputs is None:  # a last layer that starts at zero
            width = jax.eval_shape(states_of, params["network"], *windows, None).shape[-1]
            params["out"] = {"kernel": jnp.zeros((width, of_head)), "bias": jnp.zeros(of_head)}
        return params

    def apply(
        params: Mapping[Any, Any],
        inputs: Array,
        valid: Array,
        *,
        last_only: bool,
        key: Array | None = None,
    ) -> tuple[Array, Array]:
        states = states_of(params.get("network", {}), inputs, valid, key)
        states = states[:, -1:] if last_only else states
        if outputs is None:
            states = states @ params["out"]["kernel"] + params["out"]["bias"]
        return states, params["constants"]

    made = swarm.Functions(init, apply, lambda params, _: functools.partial(apply, params))
    _check_returned(network, made, windows)
    return made


def _arguments(
    network: str, parameters: Mapping[str, inspect.Parameter], config: Config, features: int
) -> dict[str, Any]:
    """Return the arguments for a network's constructor."""
    values = {
        "inputs": features, "lookback": config.lookback, "horizon": config.horizon,
        "hidden": config.hidden, "layers": config.layers, "outputs": 2 * config.horizon,
    }  # fmt: skip
    required = [
        name for name, one in parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]  # fmt: skip
    for name in required:
        if name not in (*values, "rngs"):
            raise UsageError(
                f"network {network}: its argument {name} has no default; expected one, or a name "
                f"that is given: {', '.join((*values, 'rngs'))}"
            )
    taken = {*required, *({"outputs"} & parameters.keys())}
    return {name: value for name, value in values.items() if name in taken}


def _at_steps(
    network: OwnNetwork, states: Any, inputs: tuple[int, ...], outputs: int | None = None
) -> Array:
    """Return what a module returned as (window, step, width). Raises UsageError for other shapes.

    - ``inputs``: the shape of its inputs
    - ``outputs``: the width that the module says it has; None: any
    """
    windows, lookback = inputs[:2]
    causal = getattr(network, "causal", False)
    shape: tuple[int, ...] = tuple(getattr(states, "shape", ()))
    of_window = len(shape) == 2 and shape[0] == windows and not causal
    if not of_window and (len(shape) != 3 or shape[:2] != (windows, lookback)):
        either = "" if causal else f" or ({windows}, any width)"
        raise UsageError(
            f"network {network.__name__}: for {windows} windows of {lookback} steps expected an "
            f"array ({windows}, {lookback}, any width){either}; got {shape or type(states)}"
        )
    if outputs is not None and states.shape[-1] != outputs:
        raise UsageError(
            f"network {network.__name__}: its argument outputs says that it returns the head's "
            f"{outputs} outputs; got {states.shape[-1]}"
        )
    return states[:, None] if of_window else states


def _check_returned(
    network: OwnNetwork, functions: swarm.Functions, windows: tuple[np.ndarray, ...]
) -> None:
    """Raise UsageError for wrong shapes, and for a class that says it is causal but is not."""
    causal = bool(getattr(network, "causal", False))

    def outputs(inputs: Array, valid: Array) -> Array:
        params = functions.init(jax.random.key(0))
        # The last layer starts at zero, which would hide all differences.
        params = jax.tree.map(lambda leaf: leaf + 0.1 * _waves(leaf.shape), params)
        return functions.apply(params, inputs, valid, last_only=not causal)[0]

    if not causal:
        jax.eval_shape(outputs, *windows)
        return
    inputs, valid = np.random.default_rng(0).normal(size=windows[0].shape), windows[1] + 1
    inputs, steps, compiled = inputs.astype(np.float32), inputs.shape[1], jax.jit(outputs)
    middle = steps // 2
    later = np.arange(steps)[:, None] >= middle
    before, after = (np.asarray(compiled(x, valid)) for x in (inputs, inputs + later))
    if not np.allclose(before[:, :middle], after[:, :middle], rtol=1e-4, atol=1e-5):
        raise UsageError(
            f"network {network.__name__}: says causal = True, but what it returns for a step "
            "changes with later inputs, so it would learn from the future; make it causal, or "
            "leave out `causal`, and it is trained at the last step of each window"
        )


def _waves(shape: tuple[int, ...]) -> Array:
    """Return an array of this shape whose numbers differ."""
    return jnp.sin(jnp.arange(math.prod(shape), dtype=jnp.float32) + 1.0).reshape(shape)
