"""Fits in shards have the same bits, train nothing twice, and name the members that are lost."""

import pickle

import cloudpickle
import numpy as np
import pytest

from forecaster.swarm import Checkpoint, Failed, Local, Status
from tests.slow import slow
from tests.swarm.test_fitting import IDS, MEMBERS, TASKS, data, rows, run, same

__all__ = ["data"]  # the fixture
TASK = TASKS["SmallLSTM"]


class Elsewhere:
    """Two workers that get everything by pickle; ``lost``: positions of members that they lose.

    ``trained``: the shards that they were sent. After ``most`` shards they are interrupted.
    """

    is_local = False

    def __init__(self, members=None, lost=(), most=99):
        self.members_per_shard, self.lost, self.most = members, set(lost), most
        self.trained = []

    def lanes(self):
        return [1, 1]

    def run(self, function, common, parts, *, per_core=False):
        common = cloudpickle.dumps((function, common))
        for part in parts:
            if len(self.trained) == self.most:
                raise KeyboardInterrupt
            self.trained.append(part.rows.tolist())
            if self.lost & {*part.rows.tolist()}:
                yield part, Failed("lost three times")
                continue
            function, job = pickle.loads(common)
            yield part, function(job, pickle.loads(cloudpickle.dumps(part)))


def assert_same(a, b):
    assert same(a.state, b.state)
    for one, other in zip(a.losses, b.losses, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def whole(data):
    return run(TASK, data)


@pytest.mark.parametrize(
    "executor", [slow(Local(1)), Local(4), slow(Elsewhere(3))], ids=["1", "4", "away"]
)
def test_shards_do_not_matter(data, whole, executor):
    reports = []
    assert_same(run(TASK, data, executor=executor, on_progress=reports.append), whole)
    assert reports[0].compiling and [r.stopped for r in reports][-1] == MEMBERS
    assert reports[-1].epochs_done == reports[-1].epochs_at_most == whole.epochs.sum()
    latest = whole.losses.validation[np.arange(MEMBERS), whole.epochs - 1]
    np.testing.assert_array_equal(reports[-1].validation_loss, latest)


@pytest.mark.slow
def test_what_is_done_is_not_done_again(data, whole, tmp_path):
    path = tmp_path / "fit.checkpoint"
    first = Elsewhere(2, most=2)
    with pytest.raises(KeyboardInterrupt):
        run(TASK, data, executor=first, checkpoint=Checkpoint(path))
    assert first.trained == [[0, 1], [2, 3]]
    second = Elsewhere(5, most=1)  # shards of another size
    with pytest.raises(KeyboardInterrupt):
        run(TASK, data, executor=second, checkpoint=Checkpoint(path, resume=True))
    assert second.trained == [[4, 5, 6, 7, 8]]
    third = Elsewhere(5)
    resumed = run(TASK, data, executor=third, checkpoint=Checkpoint(path, resume=True))
    assert third.trained == [[9, 10]]
    assert_same(resumed, whole)
    # Nothing is left to do; and a fit in this process takes over what was done elsewhere.
    for executor in (Elsewhere(5, most=0), None):
        resumed = run(TASK, data, executor=executor, checkpoint=Checkpoint(path, resume=True))
        assert_same(resumed, whole)
    run(TASK, data, seed=6, checkpoint=Checkpoint(path))  # begins anew
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("executor", [None, Local(4)], ids=["whole", "shards"])
def test_a_fit_that_a_callback_stopped_goes_on_to_the_same_end(data, whole, tmp_path, executor):
    def resumed(on_progress=None):
        there = any(tmp_path.iterdir())
        kept = Checkpoint(tmp_path / "c", resume=there)
        return run(TASK, data, checkpoint=kept, executor=executor, on_progress=on_progress)

    stopped = resumed(lambda now: now.epochs_done > 0)
    assert stopped.epochs.sum() < whole.epochs.sum() and any(tmp_path.iterdir())
    assert_same(resumed(), whole)


def test_members_that_no_worker_could_train_are_named_and_the_rest_goes_on(data, whole, tmp_path):
    path = tmp_path / "fit.checkpoint"
    lossy = Elsewhere(2, lost=[4])
    result = run(TASK, data, executor=lossy, checkpoint=Checkpoint(path))
    assert result.failed == {IDS[4]: "lost three times", IDS[5]: "lost three times"}
    assert [Status(s).name for s in result.status[4:6]] == ["FAILED", "FAILED"]
    assert np.isinf(result.best_loss[4:6]).all() and not result.diverged
    others = [k for k in range(MEMBERS) if k not in (4, 5)]
    assert same(rows(result.state, others), rows(whole.state, others))
    assert result.select([4, 0], ["a", "b"]).failed == {"a": "lost three times"}
    # They can be trained later, but not continued: they have no state.
    resumed = run(TASK, data, executor=Elsewhere(2), checkpoint=Checkpoint(path, resume=True))
    assert_same(resumed, whole)
    further = run(TASK, data, epochs=14, previous=result)
    assert further.failed == result.failed
    expected = run(TASK, data, epochs=14, previous=whole)
    assert same(rows(further.state, others), rows(expected.state, others))
