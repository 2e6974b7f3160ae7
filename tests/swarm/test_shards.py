"""Fits in shards have the same bits, train nothing twice, and name the members that are lost."""

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest

from forecaster import swarm
from forecaster.swarm import Checkpoint, Failed, Local, Status
from forecaster.swarm.execution import shards
from tests.slow import slow
from tests.swarm.test_fitting import HYPERPARAMS, IDS, MEMBERS, TASKS, data, rows, run, same

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


@pytest.mark.slow
def test_shards_go_on_from_a_fit_of_this_process(data, tmp_path):
    path = tmp_path / "fit.checkpoint"
    options: dict[str, Any] = {"epochs": np.arange(MEMBERS) + 2}

    def interrupt(progress):
        if progress.stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint = Checkpoint(path)
        run(TASK, data, **options, block=1, on_progress=interrupt, checkpoint=checkpoint)
    executor = Elsewhere(3)
    checkpoint = Checkpoint(path, resume=True)
    resumed = run(TASK, data, **options, executor=executor, checkpoint=checkpoint)
    assert_same(resumed, run(TASK, data, **options))
    assert 0 < sum(map(len, executor.trained)) < MEMBERS


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


@pytest.mark.slow
def test_a_search_goes_on_without_what_was_lost(data):
    candidates = swarm.grid_candidates(learning_rate=[1e-2, 3e-2])
    hyperparams = {name: HYPERPARAMS[name] for name in ("weight_decay", "clip")}
    options = {"seed": 5, "epochs": 6, "hyperparams": hyperparams}
    make = lambda: TASK  # noqa: E731
    whole = swarm.tune(make, data, IDS, candidates, **options)
    lossy = Elsewhere(2, lost=[2])  # a shard of the first rung, of both candidates of a series
    tuned = swarm.tune(
        make, data, IDS, candidates, **options, executor=lossy,
        on_progress=lambda now: lossy.lost.clear() if now.stage.startswith("rung 2") else None,
    )  # fmt: skip
    assert tuned.winners[0].result.failed.keys() == {IDS[1]}
    kept = [k for k in range(MEMBERS) if k != 1]
    assert np.array_equal(tuned.choice[kept], whole.choice[kept])


def test_shards_shrink_towards_the_end_so_that_workers_end_together(data):
    many = 8000
    work = shards.Work(
        TASK, rows(data, np.arange(many) % MEMBERS), tuple(map(str, range(many))),
        shards.Settings(
            {name: np.full(many, np.float32(value)) for name, value in HYPERPARAMS.items()},
            swarm.task.Limits(np.full(many, 9), np.full(many, 9)),
            swarm.member_keys(0, [str(k) for k in range(many)]), None,
        ),
        shards.Resources(4, 5, None, None),
    )  # fmt: skip
    cutter = shards.Cutter(work, np.arange(many), Elsewhere())
    sizes = [len(shard.rows) for shard in cutter.shards()]
    assert sizes[:3] == [128] * 3 and sum(sizes) == many and sizes[-1] <= 8
