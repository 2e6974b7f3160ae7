"""The number of members that fit is computed from shapes, not by trying."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from forecaster.swarm import Supervised, supervised
from forecaster.swarm.arrays.data import Held
from forecaster.swarm.execution import memory

WIDTH, MEMBERS = 256, 6
MODEL = (lambda key: jnp.zeros(WIDTH), lambda params, inputs: inputs @ params)
TASK = supervised(MODEL, optax.squared_error, optimizer=optax.sgd, validated=False)
HYPERPARAMS = {
    "learning_rate": np.full(MEMBERS, 0.1, np.float32),
    "epochs": np.ones(MEMBERS, np.int32),
    "patience": np.ones(MEMBERS, np.int32),
}


def held():
    x, one = np.ones((MEMBERS, 10, WIDTH), np.float32), np.ones((MEMBERS, 10), np.float32)
    return Held(Supervised(x, one, one), MEMBERS)


def test_more_memory_is_room_for_more_members(monkeypatch):
    monkeypatch.setattr(memory, "_used", lambda: 0)
    fits = [
        memory.members_at_once(kibibytes * 2**10, TASK, held(), HYPERPARAMS, 2)
        for kibibytes in (10, 1000, 100_000)
    ]
    assert fits[0] == 1 and 1 < fits[1] < fits[2]


class Gpu:
    platform = "gpu"

    def memory_stats(self):
        return {"bytes_limit": 2**20}


def test_on_gpus_half_of_the_memory_is_used_unless_more_is_asked_for(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu()])
    half = memory.members_at_once(None, TASK, held(), HYPERPARAMS, 2)
    assert half == memory.members_at_once(2**20, TASK, held(), HYPERPARAMS, 2) > 1
