"""The data of members: rows, shared arrays, streams."""

import jax
import numpy as np
import pytest

from forecaster.swarm import Shared, Streamed, SwarmError
from forecaster.swarm.arrays.data import (
    Held,
    split_shared,
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


def test_a_stream_that_gives_other_rows_is_an_error():
    held = Held(Streamed(lambda rows: X[:1]), 4)
    with pytest.raises(SwarmError, match=r"load\(rows\): expected a leading axis of 2 members"):
        held.rows(np.array([0, 1]))
