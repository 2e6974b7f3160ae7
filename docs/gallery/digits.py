"""Twenty convolutional networks that know what they do not know.

Each learns from a bootstrap sample of 300 of scikit-learn's digits. If each member is sure but they
disagree, more examples would help (Houlsby et al. 2011, arXiv 1112.5745).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from scipy.special import softmax, xlogy
from sklearn.datasets import load_digits

from forecaster.swarm import Shared, Swarm

members, epochs, images = (3, 6, 500) if "--quick" in sys.argv else (20, 40, 1797)
x, y = load_digits(return_X_y=True)
x, y = (x[:images] / 16).astype(np.float32).reshape(-1, 8, 8, 1), y[:images].astype(np.int32)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(16 * 4 * 4, 10, rngs=rngs)

    def __call__(self, x):
        h = nnx.relu(self.second(nnx.relu(self.first(x))))
        return self.out(h.reshape(len(h), -1))


def entropy(chance):
    return -xlogy(chance, chance).sum(-1)


swarm = Swarm(
    Network, [f"network {i}" for i in range(members)], optimizer=optax.adam,
    loss=optax.softmax_cross_entropy_with_integer_labels, hyperparams={"learning_rate": 0.005},
)  # fmt: skip
swarm = swarm.fit(Shared(x[:300]), Shared(y[:300]), bootstrap=True, epochs=epochs)
new, label = x[300:], y[300:]
chance = softmax(swarm.predict(Shared(new)), axis=-1)  # (member, image, digit)
together = chance.mean(0)
disagreement = entropy(together) - entropy(chance).mean(0)
alone = (chance.argmax(-1) == label).mean()
right = together.argmax(-1) == label
print(f"a member {alone:.1%}, together {right.mean():.1%}")

share = np.arange(1, len(new) + 1) / len(new)
figure, (left, place) = plt.subplots(1, 2, width_ratios=[1, 1.4])
doubtful = disagreement.argsort()[::-1][:15]
tiles = np.pad(new[doubtful, ..., 0], ((0, 0), (1, 1), (1, 1))).reshape(3, 5, 10, 10)
left.imshow(tiles.swapaxes(1, 2).reshape(30, 50), cmap="gray_r")
left.set(title="where members disagree most", xticks=[], yticks=[])
for name, doubt in {"together": entropy(together), "one member": entropy(chance[0])}.items():
    correct = right if name == "together" else chance[0].argmax(-1) == label
    place.plot(share, (~correct[doubt.argsort()]).cumsum() / share / len(new), label=name)
place.set(title="errors, if only the surest are answered", xlabel="share that is answered")
place.legend(fontsize=8)
figure.savefig("digits.png")
