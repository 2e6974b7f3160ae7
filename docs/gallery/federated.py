"""Federated averaging: twenty clients with two kinds of digits each, and one model of all ten.

Clients train on their own examples, the weights are averaged, and all continue from the average
(McMahan et al. 2017, arXiv 1602.05629). With ``opt_state=True`` Adam's moments are averaged as
well, and every client continues as if it had made all of these steps.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from forecaster.swarm import Shared, Swarm

quick = "--quick" in sys.argv
clients, rounds = (4, 3) if quick else (20, 60)
x, y = load_digits(return_X_y=True)
x, y = (x / 16).astype(np.float32), y.astype(np.int32)
random = np.random.default_rng(0)
order = random.permutation(len(x))
train, test = order[:1200], order[1200:]
own = [train[np.isin(y[train], [client % 10, (client + 1) % 10])][:80] for client in range(clients)]


def network(rngs):
    return nnx.Sequential(nnx.Linear(64, 32, rngs=rngs), nnx.relu, nnx.Linear(32, 10, rngs=rngs))


def correct(swarm):
    return (swarm.predict(Shared(x[test])).argmax(-1) == y[test]).mean(1)


data = np.stack([x[rows] for rows in own]), np.stack([y[rows] for rows in own])
ids = [f"client {i}" for i in range(clients)]
begin = Swarm(
    network, ids, optimizer=optax.adam, hyperparams={"learning_rate": 0.003},
    loss=optax.softmax_cross_entropy_with_integer_labels,
)  # fmt: skip
begin = begin.with_params(begin.select(ids[:1]))  # all start alike
weights_only = moments_too = alone = begin
curves = []
for _ in range(rounds):
    alone = alone.fit(*data, epochs=2, batch_size=16)
    weights_only = weights_only.fit(*data, epochs=2, batch_size=16)
    weights_only = weights_only.with_params(weights_only.merge())
    moments_too = moments_too.fit(*data, epochs=2, batch_size=16).merge("all", opt_state=True)
    moments_too = moments_too.select(["all"] * clients, ids=ids)
    curves.append((correct(weights_only)[0], correct(moments_too)[0], *correct(alone)))
curves = np.array(curves)
print(f"averaged {curves[-1, 0]:.1%}, with moments {curves[-1, 1]:.1%}, alone {curves[-1, 2]:.1%}")

figure, place = plt.subplots(figsize=(6, 3.4))
place.plot(curves[:, 2:], color="C5", alpha=0.3, lw=0.8)
place.plot([], color="C5", label="each client alone")
place.plot(curves[:, 0], "C0", label="weights averaged")
place.plot(curves[:, 1], "C1", label="weights and Adam's moments averaged")
place.set(xlabel="round", title="digits of ten kinds told right", ylim=(0, 1))
place.legend(fontsize=8, loc="center right")
figure.savefig("federated.png")
