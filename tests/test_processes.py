"""Tests of worker processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

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
