"""The schedule: which members train when, and how long blocks are."""

from collections.abc import Callable

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Progress, Shared, Swarm
from forecaster.swarm.checks import broadcast_hyperparams, broadcast_limits
from forecaster.swarm.execution.schedule import Schedule
from forecaster.swarm.execution.shards import Job, Resources, Settings, Shard
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.loop import Status
from tests.swarm.test_fitting import HYPERPARAMS, IDS, MEMBERS, TASKS, data, same

__all__ = ["data"]  # the fixture


def lanes() -> int:
    return min(2, jax.local_device_count())


@pytest.fixture
def schedule(data):
    return made(data)


def made(data):
    """Room for two members on each of at most two lanes, blocks of two epochs."""
    hyperparams = broadcast_hyperparams(HYPERPARAMS, MEMBERS)
    limits = broadcast_limits(np.arange(MEMBERS) + 1, None, MEMBERS)
    settings = Settings(hyperparams, limits, member_keys(5, IDS), None)
    resources = Resources(chunk=2, block=2, lanes=lanes(), memory=1)
    shard = Shard(np.arange(MEMBERS), data, settings)
    return Schedule(Job(TASKS["Perceptron"], resources, ()), shard)


def test_waiting_members_take_the_places_of_those_that_stopped(schedule):
    running = []
    while not schedule.done():
        schedule.advance()
        running.append(schedule.started.sum() - schedule.stopped)
        assert running[-1] <= 2 * lanes() and len(running) < 30
    assert list(schedule.state.epoch) == list(range(1, MEMBERS + 1))
    assert (schedule.state.status == Status.FINISHED).all()
    # 66 epochs, two or four at a time, without waiting for slow members; the last trains alone.
    assert len(running) < MEMBERS


@pytest.mark.parametrize("watched", [True, False])
def test_a_second_fit_that_nobody_watches_takes_one_block(watched, monkeypatch):
    lengths, train = [], Schedule._trained

    def trained(self, call, epochs, **options):
        lengths.append(epochs)
        return train(self, call, epochs, **options)

    monkeypatch.setattr(Schedule, "_trained", trained)
    width = 2 + watched  # so that no swarm has told yet how long an epoch takes
    data = np.ones((3, 8, width), np.float32), np.ones((3, 8, 1), np.float32)
    swarm = Swarm(lambda rngs: nnx.Linear(width, 1, rngs=rngs), 3, loss=optax.squared_error)
    told: Callable[[Progress], None] | None = (lambda progress: None) if watched else None
    first = swarm.fit(*data, epochs=30, on_progress=told)
    blocks = len(lengths)
    second = swarm.fit(*data, epochs=30, on_progress=told)
    assert sum(lengths[:blocks]) == sum(lengths[blocks:]) == 30 and blocks > 1
    assert lengths[0] == 5 and (len(lengths) == blocks + 1) == (not watched)
    assert same(first.params, second.params) and same(first.losses, second.losses)
    wide = [Shared(part[0].repeat(9, 0).astype(np.float64)) for part in data]
    begun = len(lengths)
    third, fourth = (swarm.fit(*wide, epochs=30, on_progress=told) for _ in range(2))
    assert lengths[begun] == 5  # other data may take longer
    assert same(third.params, fourth.params) and same(third.losses, fourth.losses)
