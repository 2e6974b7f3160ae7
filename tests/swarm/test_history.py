"""Losses of members at different epochs."""

import numpy as np

from forecaster.swarm import Losses
from forecaster.swarm.checkpoints.history import History, append_losses, widened, write_latest

NAN = np.nan


def block(*rows: list[float]) -> Losses:
    """Training losses, and validation losses that are ten times as large."""
    return Losses(np.array(rows, np.float32), 10 * np.array(rows, np.float32))


def test_blocks_are_written_where_each_member_is():
    start = History.empty(3)
    first = start.with_block(
        np.array([0, 2]), block([1, 2], [3, NAN]), before=np.array([0, 0]), after=np.array([2, 1])
    )
    second = first.with_block(
        np.array([1, 2]), block([4, NAN], [5, 6]), before=np.array([0, 1]), after=np.array([1, 3])
    )
    expected = [[1, 2, NAN], [4, NAN, NAN], [3, 5, 6]]
    np.testing.assert_array_equal(second.losses.train, expected)
    np.testing.assert_array_equal(second.losses.validation, 10 * np.array(expected))
    np.testing.assert_array_equal(second.latest, [20, 40, 60])
    # It is immutable: an interruption between two blocks loses nothing.
    assert start.losses.train.shape == (3, 0) and np.isnan(start.latest).all()
    np.testing.assert_array_equal(first.losses.train, [[1, 2], [NAN, NAN], [3, NAN]])
    np.testing.assert_array_equal(first.latest, [20, NAN, 30])


def test_a_history_continues():
    history = History.of(block([1, 2], [3, NAN], [NAN, NAN]), np.array([2, 1, 0]))
    np.testing.assert_array_equal(history.latest, [20, 30, NAN])


def test_losses_of_two_swarms_become_one():
    both = append_losses(block([1, 2, 3]), block([4], [5]))
    np.testing.assert_array_equal(both.train, [[1, 2, 3], [4, NAN, NAN], [5, NAN, NAN]])
    np.testing.assert_array_equal(both.validation[0], [10, 20, 30])


def test_the_latest_epoch_is_written():
    losses = np.array([[1, NAN], [1, 2]])
    later = write_latest(losses, np.array([2, 3]), np.array([7.0, 8.0]))
    np.testing.assert_array_equal(later, [[1, 7, NAN], [1, 2, 8]])
    assert np.isnan(losses[0, 1])


def test_losses_are_never_cut():
    np.testing.assert_array_equal(widened(np.ones((1, 3)), 2), np.ones((1, 3)))
