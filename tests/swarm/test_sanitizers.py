"""The compiled kernels under the address and undefined-behaviour sanitizers."""

import subprocess

import pytest

from forecaster.swarm.native.compiling import CompileError, compiler
from forecaster.swarm.native.library import why_no_bfloat16
from tests.conftest import script


@pytest.fixture(scope="module")
def sanitize():
    """Return the script as a module; skip the test without a C++ compiler."""
    try:
        compiler()
    except CompileError as error:
        pytest.skip(str(error))
    return script("kernels/sanitize.py")


@pytest.mark.slow
def test_kernels_read_and_write_nothing_beyond_their_arrays(tmp_path, sanitize):
    program = sanitize.build(tmp_path)
    done = subprocess.run([program, "1000", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain: 1000 runs" in done.stdout
    if sanitize.compiling.bfloat16_sets():
        assert "amx: 100 runs" in done.stdout or "amx: not on this processor" in done.stdout
        if "amx: 100 runs" in done.stdout:
            here = why_no_bfloat16("avx512-bf16") == ""
            said = "100 runs" if here else "not on this processor"
            assert f"avx512_bf16: {said}" in done.stdout


@pytest.mark.slow
def test_the_sanitizer_would_notice(tmp_path, sanitize):
    program = sanitize.build(tmp_path, extra=["-DONE_TOO_FEW"])
    done = subprocess.run([program, "20"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
