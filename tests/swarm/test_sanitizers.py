"""The compiled kernels under the address and undefined-behaviour sanitizers."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "kernels"


@pytest.fixture(scope="module")
def sanitize():
    """The script as a module, skipped aloud where there is no compiler with sanitizers."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import sanitize
    finally:
        sys.path.remove(str(SCRIPTS))
    return sanitize


@pytest.mark.slow
def test_kernels_read_and_write_nothing_beyond_their_arrays(tmp_path, sanitize):
    program = sanitize.build(tmp_path)
    done = subprocess.run([program, "1000", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain: 1000 runs" in done.stdout


@pytest.mark.slow
def test_the_sanitizer_would_notice(tmp_path, sanitize):
    program = sanitize.build(tmp_path, extra=["-DONE_TOO_FEW"])
    done = subprocess.run([program, "20"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
