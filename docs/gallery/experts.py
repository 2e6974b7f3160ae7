"""A mixture of experts: networks that share the work, and one that learns whom to ask.

Expectation-maximisation (Jacobs et al. 1991, Neural Computation 3): an expert that explained an
example well is responsible for it and learns from it; the gate learns to predict the responsible
expert from the inputs. Responsibilities are the example weights of the next fit.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from scipy.special import softmax

from forecaster.swarm import Shared, Swarm

quick = "--quick" in sys.argv
experts, rounds, epochs = (4, 4, 4) if quick else (4, 40, 10)


def network(outputs, hidden=12):
    def build(rngs):
        return nnx.Sequential(
            nnx.Linear(2, hidden, rngs=rngs), nnx.tanh, nnx.Linear(hidden, outputs, rngs=rngs)
        )

    return build


def measured(count, random):
    """Return targets by a different law in each of four regions."""
    x = random.uniform(-1, 1, (count, 2)).astype(np.float32)
    a, b = x.T
    laws = [2 + a, -2 + np.sin(4 * a), -1 - b, 1 + a * b]
    y = np.choose((a > b) + 2 * (a + b > 0), laws) + random.normal(0, 0.1, count)
    return x, y[:, None].astype(np.float32)


random = np.random.default_rng(0)
(x, y), (new, truth) = measured(1500, random), measured(2000, random)
options = {"optimizer": optax.adam, "hyperparams": {"learning_rate": 0.01}}
ids = [f"expert {i}" for i in range(experts)]
swarm = Swarm(network(1), ids, loss=optax.squared_error, **options)
gate = Swarm(network(experts), ["gate"], loss=optax.softmax_cross_entropy, **options)
share = random.dirichlet(np.ones(experts), len(x)).T.astype(np.float32)  # (expert, example)
for spread in np.geomspace(1, 0.15, rounds):  # from a soft division of the work to a hard one
    swarm = swarm.fit(Shared(x), Shared(y), sample_weight=share, epochs=epochs)
    gate = gate.fit(Shared(x), Shared(share.T), epochs=epochs)
    error = (swarm.predict(Shared(x)) - y)[..., 0] / spread
    share = softmax(gate.predict(Shared(x))[0].T - error**2 / 2, axis=0).astype(np.float32)
single = Swarm(network(1, 56), ["single"], loss=optax.squared_error, **options)
single = single.fit(Shared(x), Shared(y), epochs=epochs * rounds)

asked = gate.predict(Shared(new))[0].argmax(-1)
mixed = swarm.predict(Shared(new))[asked, np.arange(len(new))]
alone = single.predict(Shared(new))[0]
for name, found in {"experts and gate": mixed, "one network as large": alone}.items():
    print(f"{name}: median error {np.median(abs(found - truth)):.3f}, "
          f"root mean square {np.sqrt(((found - truth) ** 2).mean()):.3f}")  # fmt: skip

figure, places = plt.subplots(1, 3, sharey=True)
places[0].scatter(*new.T, c=np.array(["C0", "C1", "C2", "C3"])[asked], s=2)
for place, found in zip(places[1:], (mixed, alone), strict=True):
    drawn = place.scatter(*new.T, c=abs(found - truth)[:, 0], s=2, vmax=1, cmap="Reds")
titles = ["whom the gate asks", "error of the mixture", "error of one network"]
for place, title in zip(places, titles, strict=True):
    place.set(title=title, aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
figure.colorbar(drawn, shrink=0.7, label="absolute error")
figure.savefig("experts.png")
