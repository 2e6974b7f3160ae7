"""Rows of trees of arrays."""

import numpy as np
import pytest

from forecaster.swarm import SwarmError, take_members
from forecaster.swarm.arrays.members import (
    append_members,
    broadcast_params,
    mean_members,
    named_leaves,
    write_members,
)
from tests.swarm.test_fitting import same


def tree(a, b):
    return {"a": np.array(a), "b": (np.array(b, float),)}


TREE = tree([0, 1, 2], [[0, 1], [2, 3], [4, 5]])


def test_members_are_taken_in_order():
    assert same(take_members(TREE, [2, 0]), tree([2, 0], [[4, 5], [0, 1]]))
    assert same(take_members(TREE, np.array([False, True, False])), take_members(TREE, [1]))
    assert same(take_members(TREE, 1), tree(1, [2, 3]))


def test_written_members_change_a_copy():
    new = tree([7], [[8, 9]])
    written = write_members(TREE, np.array([1]), new)
    assert same(written, tree([0, 7, 2], [[0, 1], [8, 9], [4, 5]]))
    assert list(TREE["a"]) == [0, 1, 2]


def test_appended_members_come_last():
    first, second = take_members(TREE, [0]), take_members(TREE, [1, 2])
    assert same(append_members(first, second), TREE)
    assert append_members(first) is first


def test_the_mean_is_weighted():
    mean = mean_members(TREE["b"], np.array([1.0, 0.0, 3.0]))
    np.testing.assert_allclose(mean[0], [3.0, 4.0])


def test_params_of_one_member_serve_all():
    like = {"w": np.zeros((3, 2), np.float32)}
    spread = broadcast_params({"w": np.array([1, 2])}, like)["w"]
    assert spread.dtype == np.float32
    np.testing.assert_array_equal(spread, [[1, 2]] * 3)
    assert same(broadcast_params({"w": np.ones((3, 2))}, like), {"w": np.ones((3, 2))})
    with pytest.raises(SwarmError, match="params: expected shapes"):
        broadcast_params({"w": np.zeros(3)}, like)


def test_leaves_have_names():
    assert [name for name, _ in named_leaves(TREE)] == ["['a']", "['b'][0]"]
