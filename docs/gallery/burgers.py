"""Four physics-informed networks solve Burgers' equation, each with its own viscosity.

The loss is the residual of u_t + u u_x = v u_xx at random points (Raissi et al. 2019,
doi:10.1016/j.jcp.2018.10.045). Initial and boundary conditions hold by construction.
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from scipy.integrate import solve_ivp

from forecaster.swarm import Shared, Swarm

epochs, points = (60, 50) if "--quick" in sys.argv else (2000, 300)
viscosity = np.array([0.03, 0.05, 0.1, 0.2], np.float32)
SIZES = [(2, 20), (20, 20), (20, 20), (20, 1)]


def init(key):
    return [
        {"w": jax.random.normal(key, size) / np.sqrt(size[0]), "b": jnp.zeros(size[1])}
        for key, size in zip(jax.random.split(key, len(SIZES)), SIZES, strict=True)
    ]


def network(params, tx):
    """Return u at one point (t, x): -sin(pi x) at t = 0, and zero at x = -1 and 1."""
    h = tx
    for layer in params[:-1]:
        h = jnp.tanh(h @ layer["w"] + layer["b"])
    t, x = tx
    return -jnp.sin(jnp.pi * x) + t * (1 - x**2) * (h @ params[-1]["w"] + params[-1]["b"])[0]


def residual(params, batch, key):
    def one(tx, viscosity):
        def slope(tx):  # in x, forward
            return jax.jvp(partial(network, params), (tx,), (jnp.array([0.0, 1.0]),))[1]

        u, u_t = jax.jvp(partial(network, params), (tx,), (jnp.array([1.0, 0.0]),))
        u_x, u_xx = jax.jvp(slope, (tx,), (jnp.array([0.0, 1.0]),))
        return (u_t + u * u_x - viscosity * u_xx) ** 2

    return jax.vmap(one)(batch.inputs["tx"], batch.inputs["viscosity"]).mean()


def decay(learning_rate):
    return optax.adam(optax.cosine_decay_schedule(learning_rate, epochs))


def differences(t, u, v):
    inside = v * np.diff(u, 2) * 200**2 - (u[2:] ** 2 - u[:-2] ** 2) * 200 / 4
    return np.pad(inside, 1)  # nothing changes at the edges


random = np.random.default_rng(0)
tx = random.uniform((0, -1), (1, 1), (len(viscosity), points, 2)).astype(np.float32)
swarm = Swarm((init, jax.vmap(network, (None, 0))), [f"viscosity {v:g}" for v in viscosity],
              loss_fn=residual, optimizer=decay, hyperparams={"learning_rate": 0.005})  # fmt: skip
inputs = {"tx": tx, "viscosity": np.repeat(viscosity[:, None], points, 1)}
swarm = swarm.fit(inputs, epochs=epochs, batch_size=None)

x, times = np.linspace(-1, 1, 401, dtype=np.float32), [0.0, 0.25, 0.5, 1.0]
figure, places = plt.subplots(1, len(viscosity), sharey=True)
for row, (place, v) in enumerate(zip(places, viscosity, strict=True)):
    solved = solve_ivp(differences, (0, 1), -np.sin(np.pi * x), "BDF", times, args=(v,)).y.T
    for t, truth, colour in zip(times, solved, ["C5", "C0", "C1", "C2"], strict=True):
        found = swarm.predict(Shared(np.stack([np.full_like(x, t), x], 1)))[row]
        place.plot(x, truth, color=colour, lw=4, alpha=0.3)
        place.plot(x, found, color=colour, label=f"t = {t:g}")
    print(f"viscosity {v:g}: largest error at the end {abs(found - truth).max():.4f}")
    place.set(title=f"viscosity {v:g}", xlabel="x")
places[-1].legend(fontsize=8, loc="upper right")
figure.savefig("burgers.png")
