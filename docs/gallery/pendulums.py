"""A thousand pendulums: fit the length and friction of each to its own noisy film.

A member is an ordinary differential equation, solved by Runge-Kutta inside ``apply``; its params
are the unknown constants of the equation. There is no network.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from forecaster.swarm import Shared, Swarm

quick = "--quick" in sys.argv
count, epochs = (50, 100) if quick else (1000, 300)
times = np.arange(0, 3, 0.05, np.float32)  # seconds, 20 pictures in each


def init(key):
    return {"length": jnp.float32(0), "friction": jnp.float32(-1.5), "start": jnp.zeros(2)}


def solve(params, times):
    """Return the angle at each time; length and friction are given as logarithms."""
    pull, friction = 9.81 / jnp.exp(params["length"]), jnp.exp(params["friction"])

    def slope(state):
        angle, speed = state
        return jnp.stack([speed, -pull * jnp.sin(angle) - friction * speed])

    def step(state, h):
        a = slope(state)
        b = slope(state + h / 2 * a)
        c = slope(state + h / 2 * b)
        d = slope(state + h * c)
        return state + h / 6 * (a + 2 * b + 2 * c + d), state[0]

    return jax.lax.scan(step, params["start"], jnp.diff(times, append=times[-1]))[1]


random = np.random.default_rng(0)
truth = {
    "length": np.log(random.uniform(0.5, 2, count)),  # metres
    "friction": np.log(random.uniform(0.1, 1, count)),
    "start": random.uniform(-2, 2, (count, 2)),  # angle and speed
}
swarm = Swarm((init, solve), [f"pendulum {i}" for i in range(count)], loss=optax.squared_error,
              optimizer=optax.adam, hyperparams={"learning_rate": 0.05})  # fmt: skip
films = swarm.with_params(truth).predict(Shared(times))
films = films + random.normal(0, 0.1, films.shape).astype(np.float32)
swarm = swarm.fit(Shared(times), films, epochs=epochs, batch_size=None)

figure, (left, *right) = plt.subplots(1, 3)
for row, colour in zip(range(3), ["C0", "C1", "C2"], strict=True):
    left.plot(times, films[row], ".", color=colour, ms=4, alpha=0.5)
    left.plot(times, swarm.predict(Shared(times))[row], color=colour)
left.set(title="three films and their fits", xlabel="seconds", ylabel="angle")
for place, name, unit in zip(right, ["length", "friction"], ["m", "1/s"], strict=True):
    true, found = np.exp(truth[name]), np.exp(swarm.params[name])
    place.plot(true, found, ".", ms=3, alpha=0.4)
    place.plot([true.min(), true.max()], [true.min(), true.max()], color="black", lw=0.8)
    place.set(title=f"{name}, {unit}", xlabel="true", ylabel="found", ylim=(0, 1.3 * true.max()))
    print(f"{name}: median error {np.median(abs(found / true - 1)):.1%}")
figure.savefig("pendulums.png")
