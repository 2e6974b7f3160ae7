"""Nothing is lost when a command hangs, is interrupted, or runs twice at once."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forecaster.files import Home
from forecaster.ingest import Store
from tests.ingest.standin import Company, StandIn, slowly, standing_in
from tests.slow import rest_slow

ROOT = Path(__file__).parents[2]
NAMES = [f"T{i}" for i in range(12)]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with standing_in() as server:
        server.companies |= {name: Company.invented(name) for name in NAMES}
        yield server


@pytest.fixture
def ingesting(server, tmp_path) -> Callable[..., subprocess.Popen]:
    """Return what starts a command that ingests the twelve tickers."""
    (tmp_path / "tickers.txt").write_text("\n".join(NAMES))
    line = [sys.executable, "-m", "tests.ingest.standin_cli", str(server.port), "2024-06-28 23:00"]
    line += ["ingest", "--tickers", str(tmp_path / "tickers.txt")]
    line += ["--home", str(tmp_path / "home"), "--requests-per-second", "50"]
    return functools.partial(
        subprocess.Popen, line, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.fixture(params=rest_slow(["in front", "behind"]))
def shell_job(request):
    """In front, or behind as after ``nohup ... &``, which children inherit: SIGINT is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if request.param == "behind":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("shell_job")
def test_control_c_against_a_hanging_server_ends_at_once_and_keeps_what_arrived(
    tmp_path, server, ingesting
):
    hanging = set(NAMES[5:])
    server.trouble = lambda server, symbol, count: "hang" if symbol in hanging else None
    running = ingesting()
    deadline = time.monotonic() + 60
    while len(set(server.charts()) & hanging) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)  # what arrived is committed within a second
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    took = time.monotonic() - began
    assert running.returncode == 130, said
    assert took < 2.0, f"{took:.1f} s"
    assert set(Store.open(Home(tmp_path / "home"), "yahoo").ids) == set(NAMES[:5])

    server.trouble = lambda server, symbol, count: None
    server.forget()
    again = ingesting()
    out, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert "Stored 12 series" in out
    assert set(server.charts()) == hanging  # the others were there


def test_two_at_once_wait_for_each_other_and_say_so(server, ingesting):
    server.trouble = slowly(0.4)
    first = ingesting()
    while not server.requests:
        time.sleep(0.05)
    second = ingesting()
    for running in (first, second):
        out, said = running.communicate(timeout=60)
        assert running.returncode == 0 and "Stored 12 series" in out, said
    assert "Waiting for another forecaster that updates the store" in said
    assert set(server.charts().values()) == {1}  # the second found all of it done


def test_nothing_outside_of_home_is_written(tmp_path, ingesting):
    aside = {name: tmp_path / "aside" / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    for folder in aside.values():
        folder.mkdir(parents=True)
    running = ingesting(env=os.environ | {name: str(path) for name, path in aside.items()})
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert [path for path in (tmp_path / "aside").rglob("*") if path.is_file()] == []
