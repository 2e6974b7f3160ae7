"""A small causal transformer encoder."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from forecaster.forecasting.networks.base import Forecaster, Sizes

_SLOPES = (0.25, 0.03125)  # one head looks some steps back at first, the other some thirty
_glorot = nnx.initializers.glorot_uniform()


class Norm(nnx.Module):
    """Root mean square normalisation, which a unit that is always zero does not change.

    Zhang & Sennrich (2019), NeurIPS, with the sum in place of the mean, so that widening a network
    changes nothing.
    """

    def __init__(self, hidden: int):
        self.gain = nnx.Param(jnp.full(hidden, jnp.sqrt(hidden)))

    def __call__(self, states: Array) -> Array:
        """States (..., H)."""
        square = jnp.square(states).sum(-1, keepdims=True)
        return states * jax.lax.rsqrt(square + 1e-6) * self.gain[...]


class Attention(nnx.Module):
    """Causal attention in two heads, each as wide as the states, over steps that are valid.

    How far back a step lies counts by a trained number for each distance and head, which starts as
    in ALiBi (Press, Smith & Lewis 2022, ICLR). So only distances matter, and a history that begins
    late is seen as it would be without the padding before it.
    """

    def __init__(self, hidden: int, lookback: int, *, rngs: nnx.Rngs):
        heads = len(_SLOPES)
        scale = jnp.ones((3, heads, hidden)).at[0].set(hidden**-0.5).reshape(-1)
        self.kernel = nnx.Param(_glorot(rngs.params(), (hidden, 3 * heads * hidden)) * scale)
        self.merge = nnx.Param(_glorot(rngs.params(), (heads * hidden, hidden)))
        self.distance = nnx.Param(-jnp.array(_SLOPES)[:, None] * jnp.arange(lookback))

    def __call__(self, states: Array, valid: Array, *, last_only: bool) -> Array:
        """States (B, T, H) to what is added to them, (B, T or 1, H)."""
        batch, steps, hidden = states.shape
        heads = len(_SLOPES)
        projected = (states @ self.kernel[...]).reshape(batch, steps, 3, heads, hidden)
        query, key, value = (projected[:, :, part] for part in range(3))
        bias = by_distance(self.distance[:, :steps])  # (heads, T, T)
        allowed = jnp.tril(jnp.ones((steps, steps), bool)) & (valid > 0)[:, None]
        allowed |= jnp.eye(steps, dtype=bool)  # itself: padding sees padding alone
        if last_only:
            query, bias, allowed = query[:, -1:], bias[:, -1:], allowed[:, -1:]
        scores = jnp.einsum("bthd,bshd->bhts", query, key) + bias
        weights = jax.nn.softmax(jnp.where(allowed[:, None], scores, -1e9), axis=-1)
        seen = jnp.einsum("bhts,bshd->bthd", weights, value)
        return seen.reshape(batch, -1, heads * hidden) @ self.merge[...]


class Transformer(Forecaster):
    """Layers of attention and of a perceptron at each step, normalised before (Xiong et al. 2020).

    Vaswani et al. (2017), NeurIPS. No step sees a later one.
    """

    def __init__(self, sizes: Sizes, *, rngs: nnx.Rngs):
        super().__init__(sizes.hidden, sizes, rngs=rngs)
        hidden, layers = sizes.hidden, range(sizes.layers)
        self.embed = nnx.Linear(sizes.features, hidden, rngs=rngs)
        self.attention = nnx.List([Attention(hidden, sizes.lookback, rngs=rngs) for _ in layers])
        self.up = nnx.List([nnx.Linear(hidden, 2 * hidden, rngs=rngs) for _ in layers])
        self.down = nnx.List([nnx.Linear(2 * hidden, hidden, rngs=rngs) for _ in layers])
        self.norms = nnx.List([Norm(hidden) for _ in range(2 * sizes.layers + 1)])

    def __call__(self, inputs: Array, valid: Array, *, last_only: bool) -> tuple[Array, Array]:
        """``inputs`` (B, T, F), ``valid`` (B, T). Outputs (B, T or 1, K) and constants."""
        states = self.embed(jnp.where(valid[..., None] > 0, inputs, 0.0))
        *norms, final = self.norms
        for layer, attention in enumerate(self.attention):
            only = last_only and layer == len(self.attention) - 1
            seen = attention(norms[2 * layer](states), valid, last_only=only)
            states = (states[:, -1:] if only else states) + seen
            wide = jax.nn.relu(self.up[layer](norms[2 * layer + 1](states)))
            states = states + self.down[layer](wide)
        return self.out(final(states)), self.constants[...]


def by_distance(values: Array) -> Array:
    """Values (..., T) of distances 0 to T - 1 as (..., T, T): of step t and one before it, s.

    Entries with s after t are zero. Without a gather, whose gradient would be a slow scatter: each
    row of the square is the row above moved on by one.
    """
    steps = values.shape[-1]
    first = jnp.concatenate(
        [values[..., :1], jnp.zeros_like(values), values[..., :0:-1]], axis=-1
    )  # (..., 2T): by (s - t) modulo 2T
    rows = jnp.broadcast_to(first[..., None, :], (*values.shape[:-1], steps, 2 * steps))
    rows = rows.reshape(*values.shape[:-1], -1)[..., : steps * (2 * steps - 1)]
    return rows.reshape(*values.shape[:-1], steps, 2 * steps - 1)[..., :steps]
