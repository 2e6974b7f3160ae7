"""The schedule: which members train when, and how long blocks are."""

import jax
import numpy as np

from forecaster.swarm.checks import broadcast_hyperparams, broadcast_limits
from forecaster.swarm.execution import fitting
from forecaster.swarm.execution.schedule import Schedule
from forecaster.swarm.execution.shards import Job, Resources, Settings, Shard
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.loop import Status
from tests.swarm.test_fitting import HYPERPARAMS, IDS, MEMBERS, TASKS, data

__all__ = ["data"]  # the fixture


def lanes() -> int:
    return min(2, jax.local_device_count())


def made(data):
    """Room for two members on each of at most two lanes, blocks of two epochs."""
    hyperparams = broadcast_hyperparams(HYPERPARAMS, MEMBERS)
    limits = broadcast_limits(np.arange(MEMBERS) + 1, None, MEMBERS)
    keys = member_keys(5, IDS)
    begun = fitting.untrained_members(
        fitting._init_of(TASKS["Perceptron"]), IDS, keys, hyperparams, None
    )
    settings = Settings(hyperparams, limits, begun.state, begun.losses)
    resources = Resources(chunk=2, block=2, lanes=lanes(), memory=1)
    shard = Shard(np.arange(MEMBERS), data, settings)
    return Schedule(Job(TASKS["Perceptron"], resources, ()), shard)


def test_waiting_members_take_the_places_of_those_that_stopped(data):
    schedule, running = made(data), []
    while not schedule.done():
        schedule.advance()
        running.append((schedule.started & ~schedule.ended).sum())
        assert running[-1] <= 2 * lanes() and len(running) < 30
    assert list(schedule.state.epoch) == list(range(1, MEMBERS + 1))
    assert (schedule.state.status == Status.FINISHED).all()
    # 66 epochs, two or four at a time, without waiting for slow members; the last trains alone.
    assert len(running) < MEMBERS
