"""Layouts of members over lanes, and functions mapped over them."""

import math
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax._src import monitoring

from forecaster.swarm.arrays.data import Shared
from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices import compiled, programs
from forecaster.swarm.devices.compiled import keep_compiled, look_after
from forecaster.swarm.devices.lanes import (
    Layout,
    _spread_whole,
    lane_mesh,
    map_members,
    map_placed,
    place,
    unpack,
)
from forecaster.swarm.training.keys import member_keys


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
    assert len(calls) <= layout.calls
    packed = [place(lambda rows: values[rows], call, layout, lane_mesh(lanes)) for call in calls]
    assert {call.shape for call in packed} == {
        (lanes, chunk)
    }  # one shape for any number of members
    assert (unpack(packed, [len(call) for call in calls]) == values[rows]).all()
    assert set(np.concatenate([np.asarray(call).ravel() for call in packed])) == set(values[rows])


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 70))
def test_mapping_gives_each_member_its_own_result(members):
    x = np.arange(members * 3, dtype=np.float32).reshape(members, 3)
    out = map_members(_double, x, members=members, chunk=4)
    np.testing.assert_array_equal(out, 2 * x)


def test_results_that_stay_on_the_devices_are_mapped_again():
    x = np.arange(50, dtype=np.float32)
    mesh = lane_mesh()
    layout = Layout.of(50, mesh.size, chunk=4)
    once = map_placed(_double, x, members=50, layout=layout, mesh=mesh, stay=True)
    assert all(isinstance(call, jax.Array) for call in once.by_call)
    np.testing.assert_array_equal(map_members(_double, once, members=50, chunk=4), 4 * x)


@pytest.mark.parametrize("members", [5, 9, 13, 16, 33, 50])
def test_chunks_of_one_call_follow_one_another(members):
    mesh = lane_mesh()
    layout = Layout.of(members, mesh.size, chunk=4).with_chunks(2)
    used = [np.asarray(layout.used(call, members)).sum() for call in range(layout.calls)]
    assert sum(used) == math.ceil(members / 4)
    x = np.arange(members * 3, dtype=np.float32).reshape(members, 3)
    out = map_placed(_double, x, members=members, layout=layout, mesh=mesh)
    np.testing.assert_array_equal(out.host, 2 * x)
    for rows in np.asarray(out.by_call[-1]).reshape(-1, 4, 3)[used[-1] :]:
        assert not rows.any()  # this chunk was not run


@pytest.mark.parametrize("rows", [[0, -1], [0, 3]])
def test_rows_that_are_not_there_are_refused(rows):
    x = Shared(np.arange(3, dtype=np.float32), rows=np.array(rows))
    with pytest.raises(SwarmError, match="rows of trees: expected whole numbers from 0 to 2"):
        map_members(_double, x, members=2)


def _double(x):
    return 2 * x


def test_keys_belong_to_names():
    names = ["AAPL", "MSFT", "BRK-B"]
    keys = member_keys(0, names)
    assert keys.shape == (3, 2) and keys.dtype == np.uint32
    assert (member_keys(0, names[::-1]) == keys[::-1]).all()
    assert len({tuple(key) for key in member_keys(0, [str(i) for i in range(2000)])}) == 2000
    assert (member_keys(1, names) != keys).any()


def test_a_folder_whose_name_is_no_text_keeps_nothing(tmp_path):
    """XLA takes paths as text; without a cache only time is lost."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    keep_compiled(tmp_path / Path(os.fsdecode(b"h\xf6m\xe9")))
    assert jax.config.jax_compilation_cache_dir == before  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def no_folder(tmp_path, monkeypatch):
    """JAX has no folder of programs, ours is a new one; afterwards all is as before."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = [getattr(jax.config, name) for name in names]
    monkeypatch.setenv("FORECASTER_CACHE", str(tmp_path / "ours"))
    compiled._choose(names, (None, 1.0, 0))
    compiled.default_folder.cache_clear()
    yield tmp_path / "ours"
    compiled._choose(names, tuple(before))
    compiled.default_folder.cache_clear()


def compiled_anew(function: Callable[[jax.Array], jax.Array], values: np.ndarray) -> list[str]:
    """Apply a function with no program in memory; return what JAX's cache on disk did."""
    events: list[str] = []
    jax.monitoring.register_event_listener(listener := lambda event, **_: events.append(event))
    try:
        programs.forget_programs()
        _spread_whole.cache_clear()
        map_members(function, values, members=len(values))
    finally:
        monitoring.unregister_event_listener(listener)
    wanted = "/jax/compilation_cache/cache_"
    return [event.removeprefix(wanted) for event in events if event.startswith(wanted)]


def test_a_second_process_compiles_nothing(no_folder, monkeypatch):
    """Programs of the swarm are kept in a folder of their own, other programs are not."""
    monkeypatch.setattr(compiled, "_WORTH_OF_OURS", 0.0)
    values = np.linspace(0, 1, 24, dtype=np.float32).reshape(8, 3)
    assert "hits" not in compiled_anew(jnp.sinh, values)
    kept = sorted(path.name for path in no_folder.rglob("*-cache"))
    assert len(kept) == 1 and kept[0].startswith("jit_swarm_sinh-")
    assert compiled_anew(jnp.sinh, values) == ["hits"]
    assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore[reportAttributeAccessIssue]
    jax.jit(lambda x: jnp.sinh(x) + 7)(values)  # somebody else's
    assert sorted(path.name for path in no_folder.rglob("*-cache")) == kept


def test_the_users_folder_is_used_where_there_is_one(no_folder, tmp_path, monkeypatch):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compiled_anew(jnp.cosh, np.ones((4, 3), np.float32))
    assert list((tmp_path / "theirs").glob("jit_swarm_cosh-*-cache"))
    assert not no_folder.exists()


def test_nothing_is_kept_where_that_is_turned_off(no_folder, monkeypatch):
    for off in ("off", "0"):
        monkeypatch.setenv("FORECASTER_CACHE", off)
        compiled.default_folder.cache_clear()
        assert compiled.default_folder() is None
        keep_compiled(no_folder)
        assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore[reportAttributeAccessIssue]
    assert compiled_anew(jnp.tanh, np.ones((4, 2), np.float32)) == []
    assert not no_folder.exists()


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


def zstd(cut: int | None = None) -> bytes:
    """A frame of two blocks as they are, with a checksum."""
    blocks = (5 << 3).to_bytes(3, "little") + b"hello" + (9 << 3 | 3).to_bytes(3, "little") + b"x"
    return (b"\x28\xb5\x2f\xfd\x04\x58" + blocks + b"1234")[:cut]


def test_a_pipe_among_compiled_programs_is_removed_before_anyone_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "jit_f-0123-cache")
    look_after(tmp_path)
    assert not (tmp_path / "jit_f-0123-cache").exists()


def test_compiled_programs_that_a_full_disk_left_are_removed(tmp_path):
    whole = zlib.compress(bytes(range(256)) * 100)
    sound = {"jit_a-cache": whole, "jit_b-cache": zstd(), "other": b""}
    damaged = {
        "jit_empty-cache": b"", "jit_cut-cache": whole[:-3], "jit_zero-cache": bytes(4096),
        **{f"jit_zstd{cut}-cache": zstd(cut) for cut in range(4, len(zstd()))},
    }  # fmt: skip
    for name, raw in (sound | damaged).items():
        (tmp_path / name).write_bytes(raw)
    look_after(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {".looked"} == set(sound)
    (tmp_path / "jit_later-cache").write_bytes(b"")
    look_after(tmp_path)
    assert not (tmp_path / "jit_later-cache").exists()
    look_after(tmp_path / "none")  # nothing is there yet
    assert not (tmp_path / "none").exists()


def test_programs_that_were_looked_at_are_not_read_again(tmp_path, monkeypatch):
    (tmp_path / "jit_a-cache").write_bytes(zstd())
    os.utime(tmp_path / "jit_a-cache", (1e9, 1e9))
    look_after(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", lambda *_: pytest.fail("read"))
    look_after(tmp_path)


def test_of_compiled_programs_the_hundred_that_were_used_last_stay(tmp_path):
    week = time.time() - 7 * 86_400
    for number in range(120):
        program = tmp_path / f"{number:03d}-cache"
        program.write_bytes(zlib.compress(b"program"))
        os.utime(program, (week + number, week))
    fresh = tmp_path / "old-name-cache"
    fresh.write_bytes(zlib.compress(b"program"))
    look_after(tmp_path)
    left = sorted(path.name for path in tmp_path.glob("*-cache"))
    assert left == [*(f"{number:03d}-cache" for number in range(21, 120)), fresh.name]
