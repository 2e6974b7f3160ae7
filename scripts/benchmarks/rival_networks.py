"""Define the networks of ``rivals.py`` in plain JAX and optax, in Flax, and in PyTorch."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rival_work import Work

HEADS = 2  # attention heads of a transformer; its feed-forward layer is twice as wide as the rest


class Plain(NamedTuple):
    """A network and its training in plain JAX and optax: functions of one member."""

    init: Callable[[Any], Any]  # weights from a key
    apply: Callable[[Any, Any], Any]  # outputs from weights and inputs
    begin: Callable[[Any], Any]  # the optimiser's state from weights
    # One step from weights with that state, inputs and targets.
    step: Callable[[Any, Any, Any], Any]


def plain(work: Work) -> Plain:
    """Return a task's network in plain JAX and optax."""
    import jax
    import jax.numpy as jnp
    import optax

    kinds = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer, "lstm": _lstm, "gru": _gru}
    shapes, apply = kinds[work.network](work)
    adam = optax.adam(1e-3)

    def init(key):
        params = []
        for shape in shapes:
            key, own = jax.random.split(key)
            scale = math.prod(shape[:-1]) ** -0.5 if len(shape) > 1 else 0.0
            params.append(scale * jax.random.normal(own, shape) if scale else jnp.zeros(shape))
        return params

    def loss(params, x, y):
        each = optax.softmax_cross_entropy if work.classes else optax.squared_error
        return each(apply(params, x), y).mean()

    def step(carry, x, y):
        params, state = carry
        found, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = adam.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), found

    return Plain(init, apply, adam.init, step)


def _mlp(work: Work) -> tuple[list[tuple[int, ...]], Callable[..., Any]]:
    import jax

    shapes = [s for i, o in itertools.pairwise(work.sizes) for s in ((i, o), (o,))]

    def apply(params, x):
        *layers, (kernel, bias) = zip(params[::2], params[1::2], strict=True)
        for inner, inner_bias in layers:
            x = jax.nn.relu(x @ inner + inner_bias)
        return x @ kernel + bias

    return shapes, apply


def _cnn(work: Work) -> tuple[list[tuple[int, ...]], Callable[..., Any]]:
    import jax

    first, second, out = work.sizes
    shapes = [(3, 3, 1, first), (first,), (3, 3, first, second), (second,), (second, out), (out,)]
    convolve = functools.partial(
        jax.lax.conv_general_dilated, window_strides=(1, 1), padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip

    def apply(params, x):
        one, one_bias, two, two_bias, kernel, bias = params
        x = jax.nn.relu(convolve(x, one) + one_bias)
        x = x.reshape(len(x), 4, 2, 4, 2, first).mean((2, 4))
        x = jax.nn.relu(convolve(x, two) + two_bias)
        return x.mean((1, 2)) @ kernel + bias

    return shapes, apply


def _transformer(work: Work) -> tuple[list[tuple[int, ...]], Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    inputs, width, out = work.sizes
    wide = 2 * width
    shapes = [
        (inputs, width), (width,), (width,), (width,), (width, 3 * width), (3 * width,),
        (width, width), (width,), (width,), (width,), (width, wide), (wide,), (wide, width),
        (width,), (width, out), (out,),
    ]  # fmt: skip

    def normal(x, scale, bias):
        x = x - x.mean(-1, keepdims=True)
        return (1 + scale) * x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) + bias

    def attend(x, kernel, bias):
        shape = (*x.shape[:-1], HEADS, width // HEADS)
        query, key, value = (part.reshape(shape) for part in jnp.split(x @ kernel + bias, 3, -1))
        return jax.nn.dot_product_attention(query, key, value).reshape(x.shape)

    def apply(params, x):
        e, eb, n1, n1b, qkv, qkvb, o, ob, n2, n2b, f, fb, g, gb, kernel, bias = params
        x = x @ e + eb
        x = x + attend(normal(x, n1, n1b), qkv, qkvb) @ o + ob
        x = x + jax.nn.relu(normal(x, n2, n2b) @ f + fb) @ g + gb
        return x.mean(1) @ kernel + bias

    return shapes, apply


def _lstm(work: Work) -> tuple[list[tuple[int, ...]], Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    inputs, hidden, out = work.sizes
    shapes = [(inputs + hidden, 4 * hidden), (4 * hidden,), (hidden, out), (out,)]

    def apply(params, x):
        kernel, bias, last, last_bias = params

        def cell(carry, now):
            h, c = carry
            gates = jnp.concatenate([now, h], -1) @ kernel + bias
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zero = jnp.zeros((len(x), hidden))
        (h, _), _ = jax.lax.scan(cell, (zero, zero), x.swapaxes(0, 1))
        return h @ last + last_bias

    return shapes, apply


def _gru(work: Work) -> tuple[list[tuple[int, ...]], Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    inputs, hidden, out = work.sizes
    shapes = [
        (inputs, 3 * hidden), (hidden, 3 * hidden), (3 * hidden,), (hidden,), (hidden, out), (out,)
    ]  # fmt: skip

    def apply(params, x):
        kernel, recurrent, bias, new_bias, last, last_bias = params

        def cell(h, now):
            r, z, n = jnp.split(now @ kernel + bias, 3, -1)
            rh, zh, nh = jnp.split(h @ recurrent, 3, -1)
            r, z = jax.nn.sigmoid(r + rh), jax.nn.sigmoid(z + zh)
            return (1 - z) * jnp.tanh(n + r * (nh + new_bias)) + z * h, None

        h, _ = jax.lax.scan(cell, jnp.zeros((len(x), hidden)), x.swapaxes(0, 1))
        return h @ last + last_bias

    return shapes, apply


def flax_module(work: Work) -> Callable[[Any], Any]:
    """Return a function that builds a task's network as a Flax module."""
    from flax import nnx

    if work.network in ("lstm", "gru", "transformer", "cnn"):
        return functools.partial(_FLAX[work.network](), work.sizes)
    sizes = work.sizes

    def network(rngs):
        layers = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nnx.Linear(inputs, outputs, rngs=rngs), nnx.relu]
        return nnx.Sequential(*layers[:-1])

    return network


def _flax_recurrent(kind: str) -> type:
    from flax import nnx

    from forecaster import swarm

    layer = getattr(swarm, kind)

    class Recurrent(nnx.Module):
        def __init__(self, sizes, rngs):
            self.cell = layer(*sizes[:2], rngs=rngs)
            self.out = nnx.Linear(*sizes[1:], rngs=rngs)

        def __call__(self, x):
            return self.out(self.cell(x.swapaxes(0, 1), last_only=True))

    return Recurrent


def _flax_cnn() -> type:
    from flax import nnx

    class Convolutions(nnx.Module):
        def __init__(self, sizes, rngs):
            first, second, out = sizes
            self.one = nnx.Conv(1, first, (3, 3), rngs=rngs)
            self.two = nnx.Conv(first, second, (3, 3), rngs=rngs)
            self.out = nnx.Linear(second, out, rngs=rngs)

        def __call__(self, x):
            x = nnx.avg_pool(nnx.relu(self.one(x)), (2, 2), (2, 2))
            return self.out(nnx.relu(self.two(x)).mean((1, 2)))

    return Convolutions


def _flax_transformer() -> type:
    from flax import nnx

    class Transformer(nnx.Module):
        def __init__(self, sizes, rngs):
            inputs, width, out = sizes
            self.embed = nnx.Linear(inputs, width, rngs=rngs)
            self.attend = nnx.MultiHeadAttention(HEADS, width, decode=False, rngs=rngs)
            self.wide = nnx.Linear(width, 2 * width, rngs=rngs)
            self.back = nnx.Linear(2 * width, width, rngs=rngs)
            self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
            self.out = nnx.Linear(width, out, rngs=rngs)

        def __call__(self, x):
            x = self.embed(x)
            x = x + self.attend(self.norms[0](x))
            x = x + self.back(nnx.relu(self.wide(self.norms[1](x))))
            return self.out(x.mean(1))

    return Transformer


_FLAX = {
    "lstm": functools.partial(_flax_recurrent, "LSTM"),
    "gru": functools.partial(_flax_recurrent, "GRU"),
    "cnn": _flax_cnn,
    "transformer": _flax_transformer,
}


def torch_module(work: Work) -> Callable[[], Any]:
    """Return a function that builds a task's network in PyTorch."""
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.LSTM if work.network == "lstm" else nn.GRU
            self.cell = layer(*work.sizes[:2], batch_first=True)
            self.out = nn.Linear(*work.sizes[1:])

        def forward(self, x):
            return self.out(self.cell(x)[0][:, -1])

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            inputs, width, out = work.sizes
            self.embed, self.out = nn.Linear(inputs, width), nn.Linear(width, out)
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.back = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            x = self.embed(x)
            parts = self.qkv(self.one(x)).chunk(3, -1)
            heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts]
            seen = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
            x = x + self.mix(seen)
            return self.out((x + self.back(torch.relu(self.wide(self.two(x))))).mean(1))

    if work.network in ("lstm", "gru"):
        return Recurrent
    if work.network == "transformer":
        return Transformer
    return functools.partial(_torch_layers, work)


def _torch_layers(work: Work) -> Any:
    """Return the layers of a network in order."""
    from torch import nn

    if work.network == "cnn":
        first, second, out = work.sizes
        return nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
            nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4),
            nn.Flatten(), nn.Linear(second, out),
        )  # fmt: skip
    layers = []
    for inputs, outputs in itertools.pairwise(work.sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
