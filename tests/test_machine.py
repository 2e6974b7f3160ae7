"""Threads, worker processes and free memory."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from forecaster.machine import by_parts

PARENT = """
import multiprocessing, os, sys, time
from forecaster.machine import end_with_parent

def work(connection):
    end_with_parent()
    connection.send(os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    multiprocessing.get_context("spawn").Process(target=work, args=(theirs,)).start()
    print(ours.recv(), flush=True)
    time.sleep(600)
"""
KEPT = """
import resource
from forecaster.machine import release_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

blocks = [bytes(100_000) for _ in range(2_000)]
del blocks[:-1]  # the last one keeps the heap from shrinking
before = resident()
release_memory()
print(before - resident())
"""


@pytest.mark.parametrize("threads", [1, 3, None])
def test_the_results_are_in_the_order_of_the_parts(threads):
    rows = list(range(10))
    assert by_parts(lambda some: rows[some], 10, 4, threads) == [rows[:4], rows[4:8], rows[8:]]
    assert by_parts(lambda some: rows[some], 4, 4, threads) == [rows[:4]]
    assert by_parts(lambda some: rows[some], 0, 4, threads) == []


def test_several_threads_work_at_the_same_time():
    together = threading.Barrier(2, timeout=30)
    by_parts(lambda _: together.wait(), 2, 1, threads=2)  # raises unless both are there


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_part_is_raised(threads):
    def odd(some: slice) -> None:
        if some.start == 3:
            raise ValueError("in the fourth part")

    with pytest.raises(ValueError, match="in the fourth part"):
        by_parts(odd, 8, 1, threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_numpy_treats_errors_as_the_caller_said(threads):
    def log_of_zero(_: slice) -> None:
        np.log(np.zeros(1))

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        by_parts(log_of_zero, 2, 1, threads)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_ends_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()  # the worker holds the other end of it
    until = time.monotonic() + 20
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    if ended := not is_running(worker):
        return
    os.kill(worker, signal.SIGKILL)
    assert ended


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to")
def test_memory_that_is_no_longer_used_is_given_back():
    tuning = ("MALLOC_", "GLIBC_", "LD_PRELOAD")  # may give it back at once
    env = {name: value for name, value in os.environ.items() if not name.startswith(tuning)}
    made = subprocess.run(
        [sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, env=env
    )
    assert int(made.stdout) > 50_000_000
