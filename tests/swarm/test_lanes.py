"""Layouts of members over lanes, and functions mapped over them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.swarm.devices.lanes import (
    Layout,
    lane_mesh,
    packed_members,
    unpack_chunks,
)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 4), st.integers(1, 8), st.none() | st.integers(1, 99))
def test_placing_and_unpacking_loses_nobody(members, lanes, chunk, limit):
    lanes = min(lanes, lane_mesh().size)
    layout = Layout.of(members, lanes, chunk, limit)
    if limit is None:
        assert layout.capacity >= members
    else:
        assert layout.capacity <= max(limit, lanes * chunk)
    rows = np.random.default_rng(members).permutation(members)[: layout.capacity]
    values = np.arange(members) * 10
    calls = layout.by_call(rows)
    packed = [packed_members(values, call, layout) for call in calls]
    assert {call.shape for call in packed} == {
        (lanes, 1, chunk)
    }  # one shape for any number of members
    assert (unpack_chunks(packed, [len(call) for call in calls]) == values[rows]).all()
    assert set(np.concatenate([np.asarray(call).ravel() for call in packed])) == set(values[rows])


@pytest.mark.slow
def test_cores_that_stay_idle_are_said_once_at_the_callers_line(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import jax, optax\n"
        "jax.devices()\n"
        "from forecaster.swarm import Swarm\n"
        "line = (lambda key: jax.numpy.zeros(3)), (lambda params, x: x @ params)\n"
        "Swarm(line, ['a', 'b'], loss=optax.squared_error)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if (os.cpu_count() or 1) > 1:
        assert done.stderr.count("SwarmWarning") == 1
        assert f"{script}:5: SwarmWarning: JAX was already running" in done.stderr
