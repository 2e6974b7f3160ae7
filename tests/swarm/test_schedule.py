"""The schedule: which members train when, and how long blocks are."""

from collections.abc import Callable

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from forecaster.swarm import Progress, Shared, Swarm
from forecaster.swarm.checkpoints.checkpoint import Checkpoint, Fingerprint, read
from forecaster.swarm.checkpoints.history import History
from forecaster.swarm.checks import broadcast_hyperparams, broadcast_limits
from forecaster.swarm.execution.schedule import Pace, Schedule, run_to_the_end
from forecaster.swarm.execution.shards import Job, Resources, Settings, Shard
from forecaster.swarm.training.keys import member_keys
from forecaster.swarm.training.loop import Losses, Status
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


def grown(pace, seconds, moving=0.0, blocks=8):
    lengths = []
    for _ in range(blocks):
        pace.adapt(seconds, moving)
        lengths.append(pace.epochs)
    return lengths


def test_blocks_grow_while_they_are_short_and_shrink_to_the_first_length():
    pace = Pace(2, validated=True)
    assert grown(pace, 0.01) == [4, 8, 16, 32, 64, 128, 128, 128]
    assert grown(pace, 100.0)[-1] == 2
    assert grown(pace, 0.2) == [2] * 8  # long enough, and busy
    assert grown(pace, 0.2, moving=0.1, blocks=1) == [4]  # half of it spent on moving states


def test_without_validation_blocks_grow_to_what_takes_a_tenth_of_a_second():
    assert grown(Pace(5, validated=False), 0.0, blocks=3) == [40, 320, 1024]
    assert grown(Pace(5, validated=False), 0.02, blocks=1) == [25]
    assert grown(Pace(5, validated=False), 0.06, blocks=2) == [10, 20]
    assert Pace(2000, validated=False).longest == 2000


def test_unwatched_a_program_goes_on_as_long_as_it_can():
    class Program:
        pass

    def begun(program, kind, chunks, *, validated=False, watched=False):
        pace = Pace(5, validated=validated, watched=watched)
        pace.begin(program, kind, chunks)
        return pace

    program, other = Program(), Program()
    first = begun(program, "small", 4)
    assert first.epochs == 5
    first.keep(chunks=4, epochs=5, seconds=60.0)  # compiled meanwhile
    assert begun(program, "small", 4).epochs == 5
    first.keep(chunks=4, epochs=40, seconds=0.8)  # 5 ms each
    first.keep(
        chunks=4, epochs=1, seconds=1.0
    )  # a short rest, in which the host takes most of the time
    for chunks, epochs in ((2, 50), (1000, 5), (0, 1024)):
        assert begun(program, "small", chunks).epochs == epochs
    assert begun(program, "large", 2).epochs == begun(other, "small", 2).epochs == 5
    assert begun(program, "small", 2, watched=True).epochs == 5
    assert begun(program, "small", 2, validated=True).epochs == 5
    assert grown(first, 0.2, blocks=2) == [10, 20] and grown(first, 0.6, blocks=2) == [20, 20]


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


def test_what_is_saved_is_restored(schedule, data, tmp_path):
    path = tmp_path / "checkpoint"
    schedule.advance()
    this = Fingerprint("this fit")
    schedule.save(Checkpoint(path), this)
    started, state, history = schedule.started, schedule.state, schedule.history
    run_to_the_end(schedule)
    assert not same(schedule.state, state)
    schedule = made(data)
    earlier = np.full((MEMBERS, 3), 7.0, np.float32)  # losses of an earlier fit
    before = History(Losses(earlier, earlier), np.full(MEMBERS, 7.0))
    schedule._snapshot = schedule._snapshot._replace(history=before)
    schedule.restore(read(path, this, schedule.state))
    assert same(schedule.started, started) and same(schedule.state, state)
    known, waits = schedule.history.losses.train, ~np.asarray(started)
    np.testing.assert_array_equal(known[~waits, :2], history.losses.train[~waits])
    assert (known[waits] == 7.0).all() and waits.any()  # they keep the losses from before
    np.testing.assert_array_equal(schedule.history.latest, history.latest)
