"""Networks that are Flax modules: the built-in ones, and those of users.

A user's own is a class of ``flax.linen`` or ``flax.nnx`` modules. A module is called with
``inputs`` (window, lookback, feature), zero in the padding, and ``valid`` (window, lookback), 1.0
for an input and 0.0 in the padding. It returns one of

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


class Network(nnx.Module):
    """The base of all networks: it holds the trained constants, and a last layer.

    For each step ahead there are two outputs, a location and the logarithm of a scale, and a
    constant. The last layer starts at zero. An untrained network then forecasts "unchanged, with
    the current volatility". Training starts from there.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs):
        self.constants = nnx.Param(jnp.zeros(config.horizon))
        zeros, outputs = nnx.initializers.zeros, 2 * config.horizon
        self.out = nnx.Linear(config.hidden, outputs, kernel_init=zeros, rngs=rngs)


_SLOPES = (0.25, 0.03125)  # at the start one head looks back a few steps, the other about thirty
_glorot = nnx.initializers.glorot_uniform()


class Norm(nnx.Module):
    """Root mean square normalisation, with the sum of squares in place of their mean.

    Zhang & Sennrich (2019), NeurIPS. With the sum, units that are always zero change nothing, so
    that a network can be widened.
    """

    def __init__(self, hidden: int):
        self.gain = nnx.Param(jnp.full(hidden, jnp.sqrt(hidden)))

    def __call__(self, states: Array) -> Array:
        """Return normalised states (..., H)."""
        square = jnp.square(states).sum(-1, keepdims=True)
        return states * jax.lax.rsqrt(square + 1e-6) * self.gain[...]


class Attention(nnx.Module):
    """Causal attention with two heads, each as wide as the states, over valid steps.

    Each head has a trained bias for each distance between steps, which starts as in ALiBi (Press,
    Smith & Lewis 2022, ICLR). As only distances matter, padding before a short history changes
    nothing.
    """

    def __init__(self, hidden: int, lookback: int, *, rngs: nnx.Rngs):
        heads = len(_SLOPES)
        scale = jnp.ones((3, heads, hidden)).at[0].set(hidden**-0.5).reshape(-1)
        self.kernel = nnx.Param(_glorot(rngs.params(), (hidden, 3 * heads * hidden)) * scale)
        self.merge = nnx.Param(_glorot(rngs.params(), (heads * hidden, hidden)))
        self.distance = nnx.Param(-jnp.array(_SLOPES)[:, None] * jnp.arange(lookback))

    def __call__(self, states: Array, valid: Array, *, last_only: bool) -> Array:
        """Return the update (B, T or 1, H) of the states (B, T, H)."""
        batch, steps, hidden = states.shape
        heads = len(_SLOPES)
        projected = (states @ self.kernel[...]).reshape(batch, steps, 3, heads, hidden)
        query, key, value = (projected[:, :, part] for part in range(3))
        back = jnp.arange(steps)[:, None] - jnp.arange(steps)
        bias = jnp.take(self.distance[...], jnp.maximum(back, 0), axis=1)  # (heads, T, T)
        allowed = (back >= 0) & (valid > 0)[:, None]
        allowed |= back == 0  # padding attends to itself
        if last_only:
            query, bias, allowed = query[:, -1:], bias[:, -1:], allowed[:, -1:]
        scores = jnp.einsum("bthd,bshd->bhts", query, key) + bias
        weights = jax.nn.softmax(jnp.where(allowed[:, None], scores, -1e9), axis=-1)
        seen = jnp.einsum("bhts,bshd->bthd", weights, value)
        return seen.reshape(batch, -1, heads * hidden) @ self.merge[...]


class Transformer(Network):
    """Layers of attention and of a perceptron at each step; no step sees a later one.

    Vaswani et al. (2017), NeurIPS, with normalisation before each layer (Xiong et al. 2020).
    """

    def __init__(self, config: Config, features: int, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        hidden, layers = config.hidden, range(config.layers)
        self.embed = nnx.Linear(features, hidden, rngs=rngs)
        self.attention = nnx.List([Attention(hidden, config.lookback, rngs=rngs) for _ in layers])
        self.up = nnx.List([nnx.Linear(hidden, 2 * hidden, rngs=rngs) for _ in layers])
        self.down = nnx.List([nnx.Linear(2 * hidden, hidden, rngs=rngs) for _ in layers])
        self.norms = nnx.List([Norm(hidden) for _ in range(2 * config.layers + 1)])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, T or 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        states = self.embed(jnp.where(valid[..., None] > 0, inputs, 0.0))
        *norms, final = self.norms
        for layer, attention in enumerate(self.attention):
            only = last_only and layer == len(self.attention) - 1
            seen = attention(norms[2 * layer](states), valid, last_only=only)
            states = (states[:, -1:] if only else states) + seen
            wide = jax.nn.relu(self.up[layer](norms[2 * layer + 1](states)))
            states = states + self.down[layer](wide)
        return self.out(final(states)), self.constants[...]


class MLP(Network):
    """A multilayer perceptron over a whole window; it has outputs for the last step only."""

    def __init__(self, config: Config, features: int, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        widths = [config.lookback * features] + [config.hidden] * (config.layers - 1)
        self.layers = nnx.List([nnx.Linear(width, config.hidden, rngs=rngs) for width in widths])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """Return outputs (B, 1, K) and constants, for inputs (B, T, F) and valid (B, T)."""
        assert last_only, "an MLP has no output for each step"
        hidden = (inputs * valid[..., None]).reshape(inputs.shape[0], -1)
        for layer in self.layers:
            hidden = jax.nn.relu(layer(hidden))
        return self.out(hidden)[:, None], self.constants[...]


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
