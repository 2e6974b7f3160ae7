"""Population-based training: learning rates that are found, and change, while networks train.

Every few epochs the worst quarter of the population copies members of the best, with their
optimisers' states, and continues with other learning rates (Jaderberg et al. 2017, arXiv
1711.09846). For comparison, the same networks keep their first rates: a random search.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from forecaster.swarm import Shared, Swarm

quick = "--quick" in sys.argv
members, generations, epochs = (8, 4, 3) if quick else (32, 40, 5)


def network(rngs):
    return nnx.Sequential(
        nnx.Linear(2, 32, rngs=rngs), nnx.relu, nnx.Linear(32, 32, rngs=rngs), nnx.relu,
        nnx.Linear(32, 1, rngs=rngs),
    )  # fmt: skip


random = np.random.default_rng(0)
x = random.uniform(-1, 1, (600, 2)).astype(np.float32)
y = np.sin(6 * x[:, :1]) * np.cos(4 * x[:, 1:]) + random.normal(0, 0.1, (600, 1)).astype("f4")
train, held_out = (Shared(x[:400]), Shared(y[:400])), (Shared(x[400:]), Shared(y[400:]))

rates = 10 ** random.uniform(-5, -0.5, members)
population = searched = Swarm(
    network, [f"member {i}" for i in range(members)], loss=optax.squared_error,
    optimizer=optax.adam, hyperparams={"learning_rate": rates},
)  # fmt: skip
losses, others, history = [], [], [rates]
for _ in range(generations):
    population = population.fit(*train, epochs=epochs)
    searched = searched.fit(*train, epochs=epochs)
    loss = population.evaluate(*held_out)
    losses.append(loss)
    others.append(searched.evaluate(*held_out))
    order = np.argsort(np.nan_to_num(loss, nan=np.inf))
    parents, quarter = np.arange(members), members // 4
    parents[order[-quarter:]] = random.choice(order[:quarter], quarter)
    population = population.select([population.ids[row] for row in parents], ids=population.ids)
    rates = population.hyperparams["learning_rate"].copy()
    rates[order[-quarter:]] *= random.choice([0.5, 0.8, 1.25, 2], quarter)
    population = population.with_hyperparams(learning_rate=rates)
    history.append(rates)
print(f"population {np.nanmin(losses[-1]):.4f}, random search {np.nanmin(others[-1]):.4f}")

figure, (left, right) = plt.subplots(1, 2)
left.semilogy(np.nanmin(losses, 1), label="population, best member")
left.semilogy(np.nanmin(others, 1), label="random search, best member")
left.semilogy(np.nanmedian(losses, 1), "C0:", label="population, median")
left.semilogy(np.nanmedian(others, 1), "C1:", label="random search, median")
left.set(xlabel="generation", title="squared error on held-out examples")
left.legend(fontsize=8)
right.semilogy(history, color="C0", alpha=0.4, lw=0.8)
right.set(xlabel="generation", title="learning rates of the population")
figure.savefig("population.png")
