"""Neural bandits: a swarm of beliefs learns from answers which visitors to make an offer.

An agent has ten networks that start differently, and each learns from half of the answers. For
every visitor one of them, drawn at random, decides: Thompson sampling with an ensemble (Osband et
al. 2016, arXiv 1602.04621). For comparison, other agents follow the mean of their beliefs, or make
one visitor in ten an offer whatever they believe. All agents of all kinds form one swarm.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from scipy.special import expit

from forecaster.swarm import Shared, Swarm

agents, days = (2, 15) if "--quick" in sys.argv else (10, 300)
kinds, beliefs, visitors = ["sampling", "mean", "mean, one in ten at random"], 10, 8


def network(rngs):
    """Predict the logit of the chance that an offer is accepted from four features of a visitor."""
    return nnx.Sequential(nnx.Linear(4, 32, rngs=rngs), nnx.relu, nnx.Linear(32, 1, rngs=rngs))


ids = [f"{kind}, agent {agent}, belief {belief}"
       for kind in kinds for agent in range(agents) for belief in range(beliefs)]  # fmt: skip
swarm = Swarm(network, ids, loss=optax.sigmoid_binary_cross_entropy, optimizer=optax.adam,
              hyperparams={"learning_rate": 0.01})  # fmt: skip
random, every = np.random.default_rng(0), len(kinds) * agents
x = random.normal(size=(days * visitors, 4)).astype(np.float32)
chance = expit(4 * x[:, 0] * x[:, 1] + 2 * x[:, 2] - 3)  # most visitors want nothing
accepts = (random.random(len(x)) < chance).astype(np.float32)
learns = random.random((every, beliefs, len(x))) < 0.5  # from whose answers, if there are any
offered = np.zeros((every, len(x)), bool)
for day in range(days):
    today = slice(day * visitors, (day + 1) * visitors)
    logits = swarm.predict(Shared(x[today]))[..., 0].reshape(every, beliefs, visitors)
    drawn = random.integers(beliefs, size=(every, 1, visitors))
    believed = np.take_along_axis(logits, drawn, 1)[:, 0]
    believed[agents:] = logits[agents:].mean(1)
    offered[:, today] = believed > 0
    offered[2 * agents :, today] |= random.random((agents, visitors)) < 0.1
    for _ in range(2):  # an offer costs as much as a success earns; who gets none gives no answer
        rows = random.integers(today.stop, size=128)
        weight = (offered[:, None, rows] & learns[:, :, rows]).reshape(-1, 128)
        swarm, _ = swarm.step(Shared(x[rows]), Shared(accepts[rows, None]), weight)

lost = np.maximum(2 * chance - 1, 0) - offered * (2 * chance - 1)  # beside who knew the chances
figure, place = plt.subplots(figsize=(6, 3.4))
for number, kind in enumerate(kinds):
    total = lost[number * agents : (number + 1) * agents].cumsum(1).T
    place.plot(total, color=f"C{number}", alpha=0.15, lw=0.8)
    place.plot(total.mean(1), color=f"C{number}", label=kind)
    print(f"{kind}: {total[-1].mean():.0f} lost")
place.set(xlabel="visitor", title="what was lost so far; thin lines: single agents")
place.legend(fontsize=8)
figure.savefig("bandits.png")
