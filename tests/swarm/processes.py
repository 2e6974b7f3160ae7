"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_python(code: str, *arguments: Any, devices: int | None = None, **environment: str) -> str:
    """Run code, which has to end well, and return what it printed.

    ``devices``: the number of JAX's CPU devices there
    """
    if devices:
        count = f" --xla_force_host_platform_device_count={devices}"
        environment["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + count
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
