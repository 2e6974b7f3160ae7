"""Compiled programs on disk: which are found, which are replaced, and who may have written them."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax._src import monitoring

from forecaster import swarm
from forecaster.swarm.devices import programs
from forecaster.swarm.devices.lanes import map_members, over_lanes
from forecaster.swarm.execution import schedule
from tests.messages import warns
from tests.slow import rest_slow
from tests.swarm.test_swarm import X, Y, same

SETTINGS = (programs._DIR, programs._SECONDS, programs._BYTES, programs._STRICT)


@pytest.fixture
def unset(monkeypatch):
    """JAX has no folder of programs; afterwards all is as before."""
    before = {name: programs._setting(name) for name in SETTINGS}
    programs._choose(dict(zip(SETTINGS, (None, 1.0, 0, False), strict=True)))
    monkeypatch.setattr(programs, "_chosen", None)
    monkeypatch.delenv("FORECASTER_CACHE", raising=False)
    programs.default_folder.cache_clear()
    yield
    programs._choose(before)
    programs.default_folder.cache_clear()
    forget()


@pytest.fixture
def folder(unset, tmp_path, monkeypatch):
    """Return the folder of our programs, which is new and keeps all of them."""
    monkeypatch.setenv("FORECASTER_CACHE", str(tmp_path / "ours"))
    monkeypatch.setattr(programs, "_WORTH_OF_OURS", 0.0)
    forget()
    return tmp_path / "ours" / "swarm"


def forget():
    """Forget what this process has cached, as a new one has not."""
    over_lanes.cache_clear()
    schedule.compiled.cache_clear()
    jax.clear_caches()


@pytest.fixture
def events():
    """Return what JAX's cache on disk does: hits and misses."""
    wanted, seen = "/jax/compilation_cache/cache_", list[str]()

    def listen(event, **_):
        if event.startswith(wanted):
            seen.append(event.removeprefix(wanted))

    jax.monitoring.register_event_listener(listen)
    yield seen
    monitoring.unregister_event_listener(listen)


def build(rngs):
    return nnx.Sequential(nnx.Linear(3, 5, rngs=rngs), nnx.relu, nnx.Linear(5, 1, rngs=rngs))


def results(*, fitted: bool):
    """What a step and a prediction return in a new process, and a fit and its losses."""
    forget()
    made = swarm.Swarm(build, 3, loss=optax.squared_error, optimizer=optax.adam)
    made, losses = made.step(X[:3], Y[:3])
    found = made.params, losses, made.predict(X[:3])
    if fitted:
        made = made.fit(X[:3], Y[:3], epochs=2, batch_size=16)
        found += made.params, made.evaluate(X[:3], Y[:3])
    return found


def test_what_another_process_has_compiled_is_found_and_has_the_same_bits(folder, events):
    first = results(fitted=True)
    assert "hits" not in events and len(list(folder.glob("jit_swarm_*"))) >= 5
    events.clear()
    assert same(results(fitted=True), first)
    assert events and set(events) == {"hits"}
    assert programs._setting(programs._DIR) is None


@pytest.mark.parametrize("chosen", ["our folder", "keep_compiled"])
@pytest.mark.parametrize(
    "damaged", rest_slow([lambda raw: raw[:-9], lambda raw: b"", lambda raw: raw[::-1]])
)
def test_a_damaged_program_is_compiled_again_and_replaced(
    folder, events, tmp_path, chosen, damaged
):
    if chosen == "keep_compiled":
        folder = tmp_path / "home"
        programs.keep_compiled(folder)
    first = results(fitted=False)
    paths = list(folder.glob("jit_swarm_*"))
    whole = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.write_bytes(damaged(whole[path]))
    assert same(results(fitted=False), first)
    assert all(path.read_bytes() != damaged(whole[path]) for path in paths)
    assert not programs._setting(programs._STRICT)
    events.clear()
    assert same(results(fitted=False), first)
    assert set(events) == {"hits"}


def test_nothing_is_kept_where_that_is_turned_off(folder, tmp_path, monkeypatch, events):
    for off in ("off", "0"):
        monkeypatch.setenv("FORECASTER_CACHE", off)
        programs.default_folder.cache_clear()
        programs.keep_compiled(tmp_path / "home")
        assert programs.default_folder() is None
        assert programs._setting(programs._DIR) is None
    map_members(jnp.tanh, np.ones((4, 2), np.float32), members=4)
    assert not events and not list(tmp_path.iterdir())


as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files to others"
)
OTHER = 65_534


@pytest.fixture
def chosen(unset, tmp_path, monkeypatch):
    """Return a folder, and a function that begins to use it and returns the one in use."""
    monkeypatch.setenv("FORECASTER_CACHE", str(tmp_path / "forecaster"))

    def use() -> str | None:
        programs.default_folder.cache_clear()
        return programs._own_folder()

    return tmp_path / "forecaster" / "swarm", use


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_nothing_is_read_from_a_folder_that_others_may_write_and_it_is_said_once(
    chosen, mode, recwarn
):
    folder, use = chosen
    folder.mkdir(parents=True)
    (folder / "jit_a-cache").write_bytes(b"theirs")
    folder.chmod(mode)
    assert use() is None and programs._own_folder() is None
    (said,) = [one for one in recwarn if one.category is swarm.SwarmWarning]
    assert f"may write the folder {folder}, which is not used" in str(said.message)
    assert folder.stat().st_mode & 0o7777 == mode and (folder / "jit_a-cache").exists()


@as_root
def test_a_folder_of_another_user_is_not_used(chosen):
    folder, use = chosen
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, OTHER, OTHER)
    with warns(swarm.SwarmWarning):
        assert use() is None


@as_root
def test_programs_of_another_user_in_a_private_folder_are_removed(chosen):
    folder, use = chosen
    folder.mkdir(parents=True, mode=0o700)
    for name, user in {"jit_a-cache": OTHER, "jit_b-cache": 0}.items():
        (folder / name).write_bytes(b"")
        os.chown(folder / name, user, user)
    assert use() == str(folder)
    assert [path.name for path in folder.iterdir()] == ["jit_b-cache"]


def test_a_folder_is_bounded_and_files_that_were_used_last_stay(unset, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_BYTES", 1000)
    week = time.time() - 7 * 86_400
    tmp_path.chmod(0o700)
    for number in range(12):
        path = tmp_path / f"jit_{number:02d}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (week + number, week))
    programs.keep_compiled(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f"jit_{number:02d}-cache" for number in range(2, 12)]
