"""Nothing is lost when a command hangs, is interrupted, or runs twice at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forecaster.files import Home
from forecaster.ingest import Store
from tests.ingest.standin import Company, slowly, standing_in
from tests.slow import rest_slow

ROOT = Path(__file__).parents[2]


def command(server, *arguments, today="2024-06-28 23:00", **options) -> subprocess.Popen:
    line = [sys.executable, "-m", "tests.ingest.standin_cli", str(server.port), today]
    return subprocess.Popen(
        [*line, *map(str, arguments)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.fixture
def tickers(tmp_path) -> Path:
    path = tmp_path / "tickers.txt"
    path.write_text("".join(f"T{i}\n" for i in range(12)))
    return path


@pytest.fixture(params=rest_slow(["in front", "behind"]))
def shell_job(request):
    """In front, or behind as after ``nohup ... &``, which children inherit: SIGINT is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if request.param == "behind":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("shell_job")
def test_control_c_against_a_hanging_server_ends_at_once_and_keeps_what_arrived(tmp_path, tickers):
    with standing_in() as server:
        server.companies |= {f"T{i}": Company.invented(f"T{i}") for i in range(12)}
        hanging = {f"T{i}" for i in range(5, 12)}
        server.trouble = lambda server, symbol, count: "hang" if symbol in hanging else None
        home = tmp_path / "home"
        arguments = ("ingest", "--tickers", tickers, "--home", home, "--requests-per-second", "50")
        running = command(server, *arguments)
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
        assert set(Store.open(Home(home), "yahoo").ids) == {f"T{i}" for i in range(5)}

        server.trouble = lambda server, symbol, count: None
        server.forget()
        again = command(server, *arguments)
        out, said = again.communicate(timeout=60)
        assert again.returncode == 0, said
        assert "Stored 12 series" in out
        assert set(server.charts()) == hanging  # the others were there


def test_two_at_once_wait_for_each_other_and_say_so(tmp_path, tickers):
    with standing_in() as server:
        server.companies |= {f"T{i}": Company.invented(f"T{i}") for i in range(12)}
        server.trouble = slowly(0.4)
        arguments = ("ingest", "--tickers", tickers, "--home", tmp_path / "home",
                     "--requests-per-second", "50")  # fmt: skip
        first = command(server, *arguments)
        while not server.requests:
            time.sleep(0.05)
        second = command(server, *arguments)
        for running in (first, second):
            out, said = running.communicate(timeout=60)
            assert running.returncode == 0 and "Stored 12 series" in out, said
        assert "Waiting for another forecaster that updates the store" in said
        assert set(server.charts().values()) == {1}  # the second found all of it done


def test_nothing_outside_of_home_is_written(tmp_path, tickers):
    aside = {name: tmp_path / "aside" / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    for folder in aside.values():
        folder.mkdir(parents=True)
    environment = os.environ | {name: str(path) for name, path in aside.items()}
    with standing_in() as server:
        server.companies |= {f"T{i}": Company.invented(f"T{i}") for i in range(12)}
        arguments = ("ingest", "--tickers", tickers, "--home", tmp_path / "home",
                     "--requests-per-second", "50")  # fmt: skip
        running = command(server, *arguments, env=environment)
        _, said = running.communicate(timeout=60)
        assert running.returncode == 0, said
    assert [path for path in (tmp_path / "aside").rglob("*") if path.is_file()] == []
