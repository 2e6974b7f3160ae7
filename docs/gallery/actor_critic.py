"""Sixty-four agents play and learn inside one compiled program, an actor-critic per learning rate.

Mnih et al. (2016), arXiv 1602.01783, here with an update after every sixteen games. The game is
"catch" of Mnih et al. (2014), arXiv 1406.6247: a ball falls through ten rows of nine places, and
the paddle below moves by one place a row.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from forecaster.swarm import Batch, Swarm, module_functions

agents, updates, games = (8, 100, 16) if "--quick" in sys.argv else (64, 1000, 16)
ROWS, PLACES = 10, 9


@module_functions  # three logits (left, stay, right) and a value
def functions(rngs):
    first, last = nnx.Linear(2 * PLACES, 32, rngs=rngs), nnx.Linear(32, 4, rngs=rngs)
    return nnx.Sequential(first, nnx.tanh, last)


def actor_critic(params, batch, key):
    out, seen = functions.apply(params, batch.inputs), batch.targets
    chances = nnx.log_softmax(out[:, :3])
    taken = jnp.take_along_axis(chances, seen["action"][:, None], 1)[:, 0]
    surprise = seen["reward"] - out[:, 3]
    entropy = -(jnp.exp(chances) * chances).sum(1)
    gain = taken * jax.lax.stop_gradient(surprise) + 0.02 * entropy
    return jnp.average(0.5 * surprise**2 - gain, weights=batch.weight)


rates = np.geomspace(1e-4, 1e-1, agents).astype(np.float32)
swarm = Swarm(functions, agents, loss_fn=actor_critic, optimizer=optax.adam,
              hyperparams={"learning_rate": rates})  # fmt: skip


def play(params, key):
    """Return what an agent saw and did in its games, and the reward of each game."""
    ball, paddle = jax.random.randint(key, (2, games), 0, PLACES)

    def move(paddle, key):
        inputs = jax.nn.one_hot(jnp.stack([ball, paddle], 1), PLACES).reshape(games, -1)
        action = jax.random.categorical(key, functions.apply(params, inputs)[:, :3])
        return jnp.clip(paddle + action - 1, 0, PLACES - 1), (inputs, action)

    paddle, (inputs, action) = jax.lax.scan(move, paddle, jax.random.split(key, ROWS))
    seen = {"action": action.ravel(), "reward": jnp.tile(ball == paddle, ROWS).astype(float)}
    return Batch(inputs.reshape(len(seen["reward"]), -1), seen, jnp.ones(ROWS * games))


@jax.jit
@jax.vmap
def learn(state, key, hyperparams):
    def turn(state, key):
        batch = play(state.params, key)
        return swarm.pure.update(state, batch, hyperparams)[0], batch.targets["reward"].mean()

    return jax.lax.scan(turn, state, jax.random.split(key, updates))


state, caught = learn(swarm.state, jax.random.split(jax.random.key(0), agents), swarm.hyperparams)
swarm = swarm.with_state(state)  # a swarm again, with its optimisers' states: fit, save, select
share = np.reshape(caught, (agents, -1, updates // 50)).mean(-1)
print(f"caught: {share[:, 0].mean():.0%} at first, {share[:, -1].max():.0%} by the best in the end")

figure, place = plt.subplots(figsize=(6, 3.4))
drawn = place.pcolormesh((np.arange(50) + 0.5) * updates / 50, rates, share)
figure.colorbar(drawn, label="share of balls that are caught")
place.set(title="each row is an agent", xlabel="update", ylabel="learning rate", yscale="log")
figure.savefig("actor_critic.png")
