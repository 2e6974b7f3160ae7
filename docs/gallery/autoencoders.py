"""Ten variational autoencoders, one for each digit: they draw digits, and classify them.

Kingma & Welling (2014), arXiv 1312.6114. A member's bound says how well it can explain an image, so
the member with the best bound gives the class, although no member ever saw another digit.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from sklearn.datasets import load_digits

from forecaster.swarm import Shared, Swarm, stack

quick = "--quick" in sys.argv
epochs, hidden, latent = (20 if quick else 500), 48, 4
SHAPES = {
    "in": (64, hidden), "code": (hidden, 2 * latent), "up": (latent, hidden), "out": (hidden, 64)
}  # fmt: skip


def init(key):
    keys = jax.random.split(key, len(SHAPES))
    return {
        name: {"w": jax.random.normal(key, shape) / np.sqrt(shape[0]), "b": jnp.zeros(shape[1])}
        for key, (name, shape) in zip(keys, SHAPES.items(), strict=True)
    }


def layer(params, x):
    return x @ params["w"] + params["b"]


def decode(params, z):
    """Return images (example, 64), as logits of pixels, from (example, latent)."""
    return layer(params["out"], jnp.tanh(layer(params["up"], z)))


def bound(params, x, key=None):
    """Return each image's negative evidence lower bound; without a key at the mean of its code."""
    code = layer(params["code"], jnp.tanh(layer(params["in"], x)))
    z, log_variance = jnp.split(code, 2, -1)
    surprise = (z**2 + jnp.exp(log_variance) - log_variance - 1).sum(-1) / 2
    if key is not None:
        z += jnp.exp(log_variance / 2) * jax.random.normal(key, z.shape)
    return optax.sigmoid_binary_cross_entropy(decode(params, z), x).sum(-1) + surprise


x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
images, weight = stack([x[:1200][y[:1200] == digit] for digit in range(10)])
coders = Swarm((init, bound), [f"digit {digit}" for digit in range(10)],
               loss=lambda bounds, _: bounds, optimizer=optax.adam,
               hyperparams={"learning_rate": 0.003})  # fmt: skip
coders = coders.fit(images, sample_weight=weight, epochs=epochs)
told = coders.predict(Shared(x[1200:])).argmin(0)  # bounds: (member, image)
print(f"{(told == y[1200:]).mean():.1%} of new images told right by the best bound")

z = jax.random.normal(jax.random.key(0), (10, 12, latent))
drawn = jax.nn.sigmoid(jax.vmap(decode)(coders.params, z)).reshape(10, 12, 8, 8)
drawn = np.pad(drawn, ((0, 0), (0, 0), (1, 1), (1, 1)))  # a margin for each
figure, (left, right) = plt.subplots(1, 2, width_ratios=[1.25, 1])
left.imshow(drawn.transpose(0, 2, 1, 3).reshape(100, 120), cmap="gray_r")
left.set(title="drawn by ten members", xticks=[], yticks=range(5, 100, 10), yticklabels=range(10))
counts = np.zeros((10, 10), int)
np.add.at(counts, (y[1200:], told), 1)
right.imshow(np.log1p(counts), cmap="Blues")
right.set(title="new images", xlabel="member with the best bound", ylabel="digit")
right.set(xticks=range(10), yticks=range(10))
figure.savefig("autoencoders.png")
