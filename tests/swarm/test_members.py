"""Rows of trees of arrays."""

import numpy as np
import pytest

from forecaster.swarm import SwarmError
from forecaster.swarm.arrays.members import (
    broadcast_params,
)
from tests.swarm.test_fitting import same


def test_params_of_one_member_serve_all():
    like = {"w": np.zeros((3, 2), np.float32)}
    spread = broadcast_params({"w": np.array([1, 2])}, like)["w"]
    assert spread.dtype == np.float32
    np.testing.assert_array_equal(spread, [[1, 2]] * 3)
    assert same(broadcast_params({"w": np.ones((3, 2))}, like), {"w": np.ones((3, 2))})
    with pytest.raises(SwarmError, match="params: expected shapes"):
        broadcast_params({"w": np.zeros(3)}, like)
