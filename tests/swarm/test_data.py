"""The data of members: rows, shared arrays, streams."""

import jax
import numpy as np
import pytest

from forecaster.swarm import Shared, Streamed, SwarmError
from forecaster.swarm.arrays.data import (
    Held,
    check_data,
    check_rows,
    shared_rows,
    split_shared,
    total_bytes,
    with_shared,
)

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def of_member(data, row):
    """Return the data of member ``row``, as the engine assembles them."""
    by_member, shared = split_shared(data)
    return with_shared(jax.tree.map(lambda leaf: leaf[row], by_member), shared)


def test_shared_arrays_are_taken_out_and_put_back():
    data = {"own": X, "all": Shared(X), "some": Shared(X, np.array([3, 3, 0, 1]))}
    by_member, shared = split_shared(data)
    assert len(shared) == 2 and all(values is X for values in shared)
    assert sum(leaf.size for leaf in jax.tree.leaves(by_member)) == X.size + 4  # no copies
    seen = of_member(data, 2)
    np.testing.assert_array_equal(seen["own"], X[2])
    np.testing.assert_array_equal(seen["all"], X)
    np.testing.assert_array_equal(seen["some"], X[0])


def test_neighbouring_numbers_of_shared_rows_get_the_same_program():
    def rows_on_the_devices(count):
        (shared,) = Held(Shared(np.arange(count), np.zeros(3, int)), 3).shared
        np.testing.assert_array_equal(shared[:count], np.arange(count))
        assert (shared[count:] == 0).all()
        return len(shared)

    assert rows_on_the_devices(1) == rows_on_the_devices(2) == 2
    assert rows_on_the_devices(500) == rows_on_the_devices(505) == 512
    assert all(n <= rows_on_the_devices(n) <= 1 + 1.125 * n for n in range(1, 300))
    (whole,) = Held(Shared(np.arange(5)), 3).shared  # whole for every member
    assert len(whole) == 5


def test_streamed_rows_are_loaded_once_each_and_come_in_the_order_asked_for():
    loads = []

    def load(rows):
        loads.append(rows.tolist())
        return X[rows]

    held = Held(Streamed(load), 4)
    assert held.bytes_each == X[0].nbytes and held.example.shape == (3,)
    np.testing.assert_array_equal(held.rows(np.array([2, 0, 2, 2])), X[[2, 0, 2, 2]])
    assert loads == [[0], [0, 2]]


def test_a_stream_that_gives_other_rows_is_an_error():
    held = Held(Streamed(lambda rows: X[:1]), 4)
    with pytest.raises(SwarmError, match=r"load\(rows\): expected a leading axis of 2 members"):
        held.rows(np.array([0, 1]))


def test_rows_are_checked_and_named():
    with pytest.raises(SwarmError, match=r"data\['x'\]: expected a leading axis of 5 members"):
        check_rows({"x": X}, 5, "data")
    check_data({"x": X, "all": Shared(X, np.array([0, 3, 3, 0]))}, 4)
    for rows in (np.array([0, 1, 2, 4]), np.array([0, 1, 2, -1]), np.zeros(4)):
        with pytest.raises(SwarmError, match="expected whole numbers from 0 to 3"):
            check_data({"all": Shared(X, rows)}, 4)


def test_rows_of_data_that_may_be_shared_already():
    rows = np.array([2, 2, 0])
    assert shared_rows({"x": X}, rows).rows is rows  # one Shared of the whole tree
    chosen = shared_rows({"own": X, "all": Shared(X), "some": Shared(X, [3, 1, 0, 1])}, rows)
    for member, row in enumerate(rows):
        seen = of_member(chosen, member)
        np.testing.assert_array_equal(seen["own"], X[row])
        np.testing.assert_array_equal(seen["all"], X)
        np.testing.assert_array_equal(seen["some"], X[[3, 1, 0, 1][row]])


def test_bytes_of_a_tree():
    assert total_bytes({"x": X, "y": (X.astype(np.float64), 1.0)}) == 48 + 96 + 8
