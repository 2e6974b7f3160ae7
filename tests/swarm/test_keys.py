"""Random keys are decided by names."""

import numpy as np

from forecaster.swarm import member_keys


def test_a_key_depends_on_seed_and_name_alone():
    keys = member_keys(3, ["a", "b", "c"])
    assert keys.shape == (3, 2) and keys.dtype == np.uint32
    np.testing.assert_array_equal(member_keys(3, ["c", "new", "a"])[[2, 0]], keys[[0, 2]])
    assert (member_keys(4, ["a", "b", "c"]) != keys).any(1).all()


def test_keys_differ():
    keys = member_keys(0, [f"series {number}" for number in range(2000)])
    assert len(np.unique(keys, axis=0)) == 2000


def test_keys_are_the_same_on_every_machine_and_in_every_version():
    expected = [[4162277946, 3138552394], [1960861972, 3984813095]]
    np.testing.assert_array_equal(member_keys(7, ["AAPL", "MSFT"]), expected)
