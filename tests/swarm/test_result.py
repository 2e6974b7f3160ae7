"""Results of fits: rows selected, appended, changed."""

import numpy as np
import pytest

from forecaster.swarm import FitResult, Losses, State, Status
from tests.swarm.test_fitting import same


@pytest.fixture
def result() -> FitResult:
    rows = np.arange(3, dtype=np.int32)
    state = State(
        key=np.stack([rows, rows], 1).astype(np.uint32),
        params={"w": rows + 0.5},
        opt_state=(),
        epoch=np.array([2, 1, 2], np.int32),
        status=np.array([Status.FINISHED, Status.DIVERGED, Status.FINISHED], np.int32),
        best_params={"w": rows + 0.25},
        best_loss=np.array([0.3, np.inf, 0.1], np.float32),
        best_epoch=np.array([1, 0, 2], np.int32),
    )
    losses = np.array([[1, 2], [3, np.nan], [5, 6]], np.float32)
    return FitResult(("a", "b", "c"), state, Losses(losses, losses), 1.5)


def test_its_parts_are_those_of_the_state(result):
    np.testing.assert_array_equal(result.params["w"], [0.25, 1.25, 2.25])
    assert result.diverged == {"b": 1}
    table = result.summary()
    assert list(table["status"]) == ["finished", "diverged", "finished"]
    assert list(table["best_epoch"]) == [1, 0, 2] and list(table.index) == ["a", "b", "c"]


def test_selected_rows_keep_their_order_and_their_names(result):
    some = result.select([2, 0])
    assert some.ids == ("c", "a") and list(some.epochs) == [2, 2] and some.seconds == 1.5
    np.testing.assert_array_equal(some.losses.train, [[5, 6], [1, 2]])
    assert result.select(np.array([1]), ["other"]).ids == ("other",)


def test_parts_appended_are_the_whole(result):
    whole = result.select([0, 1]).append(result.select([2]))
    assert whole.ids == result.ids and same(whole.state, result.state)
    np.testing.assert_array_equal(whole.losses.validation, result.losses.validation)


def test_a_step_adds_an_epoch(result):
    state = result.state._replace(epoch=result.state.epoch + 1)
    after = result.after_step(state, np.array([7, 8, 9], np.float32))
    nan = np.nan
    np.testing.assert_array_equal(after.losses.train, [[1, 2, 7], [3, 8, nan], [5, 6, 9]])
    np.testing.assert_array_equal(after.losses.validation[:, 2], [nan] * 3)
    assert list(after.epochs) == [3, 2, 3]


def test_other_params_are_also_the_best(result):
    changed = result.with_params({"w": np.zeros(3)})
    assert same(changed.params, changed.state.params) and not changed.params["w"].any()
    assert same(changed.losses.train[0], result.losses.train[0])
