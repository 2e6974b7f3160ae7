"""A population of agents learns to balance a pole by PPO, in an environment written in JAX.

Schulman et al. (2017), arXiv 1707.06347; the cart-pole is that of Barto, Sutton & Anderson (1983).
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from forecaster.swarm import Swarm, module_functions

agents, updates, steps, carts = (4, 3, 32, 4) if "--quick" in sys.argv else (24, 80, 128, 8)


@module_functions  # two logits and a value, as pure functions
def functions(rngs):
    return nnx.Sequential(nnx.Linear(4, 64, rngs=rngs), nnx.tanh, nnx.Linear(64, 3, rngs=rngs))


def move(state, action):
    """Return position, speed, angle, angular speed after 20 ms; whether the pole had fallen."""
    _, speed, angle, turning = state
    push = (20.0 * action - 10 + 0.05 * turning**2 * jnp.sin(angle)) / 1.1
    falling = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / (2 / 3 - jnp.cos(angle) ** 2 / 22)
    slope = jnp.stack([speed, push - 0.05 * falling * jnp.cos(angle) / 1.1, turning, falling])
    return state + 0.02 * slope, (jnp.abs(state[0]) > 2.4) | (jnp.abs(angle) > 0.2095)


def rollout(params, state, key):
    """Return the observations and actions of an agent's carts in some steps, and the returns."""

    def act(state, key):
        out = functions.apply(params, state)
        action = jax.random.categorical(key, out[:, :2])
        after, fallen = jax.vmap(move)(state, action)
        start = jax.random.uniform(key, state.shape, minval=-0.05, maxval=0.05)
        taken = jnp.take_along_axis(nnx.log_softmax(out[:, :2]), action[:, None], 1)[:, 0]
        seen = {"action": action, "before": taken, "value": out[:, 2], "fallen": fallen}
        return jnp.where(fallen[:, None], start, after), (state, seen)

    def back(carry, step):  # TD(0.95): a mixture of rewards and expectations
        carry = jnp.where(step["fallen"], 0, 1 + 0.99 * carry)
        return 0.95 * carry + 0.05 * step["value"], carry

    last, (states, seen) = jax.lax.scan(act, state, jax.random.split(key, steps))
    seen["return"] = jax.lax.scan(back, functions.apply(params, last)[:, 2], seen, reverse=True)[1]
    return last, *jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (states, seen))


def clipped(params, batch, key):
    out, seen = functions.apply(params, batch.inputs), batch.targets
    taken = jnp.take_along_axis(nnx.log_softmax(out[:, :2]), seen["action"][:, None], 1)[:, 0]
    ratio = jnp.exp(taken - seen["before"])
    advantage = jax.nn.standardize(seen["return"] - seen["value"], where=batch.weight > 0)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
    return jnp.average(0.005 * (out[:, 2] - seen["return"]) ** 2 - gain, weights=batch.weight)


rates = np.geomspace(1e-4, 1e-1, agents)
swarm = Swarm(functions, [f"agent {i}" for i in range(agents)], loss_fn=clipped,
              optimizer=optax.adam, hyperparams={"learning_rate": rates})  # fmt: skip
play, state, stood = jax.jit(jax.vmap(rollout)), np.zeros((agents, carts, 4), np.float32), []
for keys in jax.random.split(jax.random.key(0), (updates, agents)):
    state, states, seen = play(swarm.params, state, keys)
    swarm = swarm.fit(states, seen, epochs=4, batch_size=256)
    stood.append(1 / np.maximum(np.asarray(seen["fallen"]).mean(1), 1 / (steps * carts)))
print(f"steps between falls: {stood[0].max():.0f} at first, {stood[-1].max():.0f} in the end")

figure, place = plt.subplots(figsize=(6, 3.4))
drawn = place.pcolormesh(np.arange(1, updates + 1), rates, np.transpose(stood), norm="log")
figure.colorbar(drawn, label="steps between two falls")
place.set(title="each row is an agent", xlabel="update", ylabel="learning rate", yscale="log")
figure.savefig("cart_pole.png")
