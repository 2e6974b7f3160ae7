"""Ten-fold cross-validation of twelve weight decays: 120 networks, one call.

``kfold_weights`` selects the examples that each fold learns from; the data are kept once. The
choice is by the mean over the folds, as in scikit-learn's GridSearchCV.
"""

import sys

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from forecaster.swarm import Shared, Swarm, kfold_weights

quick = "--quick" in sys.argv
folds, decays, epochs = (3, 4, 40) if quick else (10, 12, 400)


def network(rngs):
    return nnx.Sequential(nnx.Linear(6, 32, rngs=rngs), jnp.tanh, nnx.Linear(32, 1, rngs=rngs))


def measured(count, random):
    """Draw six inputs, of which two matter, and a noisy target."""
    x = random.normal(size=(count, 6)).astype(np.float32)
    y = np.sin(2 * x[:, :1]) + x[:, 1:2] ** 2 / 2
    return x, (y + random.normal(0, 0.5, y.shape)).astype(np.float32)


random = np.random.default_rng(0)
x, y = measured(150, random)
train, held_out = kfold_weights(len(x), folds, seed=0)
grid = np.geomspace(1e-3, 10, decays)
options = {"loss": optax.squared_error, "optimizer": optax.adamw}
sweep = Swarm(
    network, [f"decay {decay:.4f}, fold {fold}" for decay in grid for fold in range(folds)],
    hyperparams={"learning_rate": 0.01, "weight_decay": np.repeat(grid, folds)}, **options,
)  # fmt: skip
data = Shared(x), Shared(y)
sweep = sweep.fit(*data, sample_weight=np.tile(train, (decays, 1)), epochs=epochs, batch_size=None)
error = sweep.evaluate(*data, np.tile(held_out, (decays, 1))).reshape(decays, folds)
seen = sweep.evaluate(*data, np.tile(train, (decays, 1))).reshape(decays, folds)
best = grid[error.mean(1).argmin()]

ids = [f"decay {decay:.4f}" for decay in grid]  # all examples, to see what the choice is worth
final = Swarm(network, ids, hyperparams={"learning_rate": 0.01, "weight_decay": grid}, **options)
final = final.fit(*data, epochs=epochs, batch_size=None)
test = final.evaluate(*(Shared(array) for array in measured(5000, random)))
chosen = test[error.mean(1).argmin()]
print(f"weight decay {best:.3g}: {chosen:.3f} on new data; the best of them {test.min():.3f}")

figure, place = plt.subplots(figsize=(6, 3.4))
place.semilogx(grid, error, color="C0", alpha=0.2, lw=0.8)
place.semilogx(grid, error.mean(1), "C0o-", ms=4, label="held out, mean of the folds")
place.semilogx(grid, seen.mean(1), "C5:", label="learned from")
place.semilogx(grid, test, "C1", label="5,000 new examples")
place.axvline(best, color="black", lw=0.8)
place.set(xlabel="weight decay", title="squared error; the line is the choice", ylim=(0, 2))
place.legend(fontsize=8, frameon=True, edgecolor="none", loc="upper right")
figure.savefig("cross_validation.png")
