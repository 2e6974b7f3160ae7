"""Train a swarm of agents with their own seeds and learning rates, in a cart-pole in JAX.

    python scripts/experiments/cart_pole.py [--quick]

REINFORCE (Williams 1992) with the mean return as a baseline. The environment is from Barto, Sutton
and Anderson (1983), with the constants of the usual CartPole-v1: 500 steps are a full episode. All
agents act and learn at the same time; reward curves are quantiles over seeds.
"""

import harness
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from flax import nnx

from forecaster.swarm import Swarm

STEPS, EPISODES = 500, 8
RATES = (3e-4, 3e-3, 3e-2)


def policy(rngs):
    return nnx.Sequential(nnx.Linear(4, 32, rngs=rngs), nnx.tanh, nnx.Linear(32, 2, rngs=rngs))


def move(state, action):
    """Move by one step of 20 ms; the state is position, speed, angle, angular speed."""
    _, speed, angle, turning = state
    force = jnp.where(action == 1, 10.0, -10.0)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * turning**2 * sine) / 1.1
    falling = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    pushed = push - 0.05 * falling * cosine / 1.1
    return jnp.array(state) + 0.02 * jnp.array([speed, pushed, turning, falling])


def episode(act, key):
    """Return states (step, 4), actions (step,) and whether the pole still stood, (step,)."""
    first, key = jax.random.split(key)

    def step(carry, key):
        state, alive = carry
        action = jax.random.categorical(key, act(state[None])[0])
        after = move(state, action)
        standing = alive & (jnp.abs(after[0]) < 2.4) & (jnp.abs(after[2]) < 0.2095)
        return (jnp.where(standing, after, state), standing), (state, action, alive)

    start = jax.random.uniform(first, (4,), minval=-0.05, maxval=0.05)
    return jax.lax.scan(step, (start, jnp.array(True)), jax.random.split(key, STEPS))[1]


def surrogate(params, batch, key):
    """Return log-probabilities times later rewards; the gradient is that of the expected return."""
    act = lambda x: APPLY(params, x)  # noqa: E731
    seeds = jax.random.split(jax.random.wrap_key_data(batch.inputs[0]), EPISODES)
    states, actions, alive = jax.vmap(lambda k: episode(act, k))(seeds)
    reward = alive.astype(float)
    to_go = jnp.cumsum(reward[:, ::-1], 1)[:, ::-1]  # later rewards
    mean = (to_go * reward).sum(0) / jnp.maximum(reward.sum(0), 1)
    advantage = jax.lax.stop_gradient((to_go - mean) / 50)
    chosen = jnp.take_along_axis(nnx.log_softmax(act(states)), actions[..., None], -1)[..., 0]
    loss = -(chosen * advantage * reward).sum() / reward.sum()
    # The value is the mean length, for display; the gradient is that of the surrogate.
    return loss + jax.lax.stop_gradient(reward.sum(1).mean() - loss)


GRAPH, _ = nnx.split(policy(nnx.Rngs(0)))
APPLY = lambda params, x: nnx.merge(GRAPH, params)(x)  # noqa: E731


def main() -> None:
    options = harness.parser(__doc__, seeds=32, updates=200).parse_args()
    if options.quick:
        options.seeds, options.updates = 2, 2
    ids = [f"rate {rate}, seed {seed}" for rate in RATES for seed in range(options.seeds)]
    rates = np.repeat(RATES, options.seeds)
    agents = Swarm(
        (lambda key: nnx.split(policy(nnx.Rngs(key)))[1], APPLY), ids,
        loss_fn=surrogate, optimizer=optax.adam, hyperparams={"learning_rate": rates},
        seed=options.seed,
    )  # fmt: skip
    lengths = []
    for update in range(options.updates):
        random = np.random.default_rng([options.seed, update])
        seeds = random.integers(0, 2**32, (len(ids), 1, 2), np.uint32)
        agents, length = agents.step(seeds)
        lengths.append(np.asarray(length))
    curve = np.stack(lengths)  # (update, agent)
    table = pd.DataFrame(
        [
            (rate, update + 1, *np.quantile(row[rates == rate], [0.1, 0.5, 0.9]))
            for rate in RATES
            for update, row in enumerate(curve)
        ],
        columns=["learning_rate", "update", "q10", "median", "q90"],
    )
    print(table.groupby("learning_rate").tail(1).round(1).to_string(index=False))
    harness.write(options, table.assign(seeds=options.seeds))
    drawn, (place,) = harness.axes()
    for colour, (rate, part) in zip(harness.COLOURS, table.groupby("learning_rate"), strict=False):
        place.plot(part["update"], part["median"], color=colour, label=f"learning rate {rate:g}")
        place.fill_between(part["update"], part["q10"], part["q90"], color=colour, alpha=0.2, lw=0)
    place.set(xlabel="update", ylabel="steps balanced", title=f"{options.seeds} agents a rate")
    place.legend(frameon=False, fontsize=8)
    harness.figure(options, drawn)


if __name__ == "__main__":
    main()
