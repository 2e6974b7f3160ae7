"""Small causal transformer encoders."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.forecasting.config import Config
from forecaster.forecasting.networks.base import Network

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
