"""Memory that is no longer used goes back to the machine."""

import os
import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to")
def test_memory_that_is_no_longer_used_is_given_back():
    tuning = ("MALLOC_", "GLIBC_", "LD_PRELOAD")  # may give it back at once
    env = {name: value for name, value in os.environ.items() if not name.startswith(tuning)}
    made = subprocess.run(
        [sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, env=env
    )
    assert int(made.stdout) > 50_000_000
