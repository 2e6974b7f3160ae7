"""The limits that hold for any file under 1 MB, hostile ones included: memory and seconds."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST_MEMORY, MOST_SECONDS = 1 << 30, 20


@contextlib.contextmanager
def within_limits(what: object = "", seconds: float = MOST_SECONDS) -> Iterator[None]:
    """Fail if the block takes more than 1 GB beyond what the process holds, or too long.

    - ``what``: the case, for the message
    - ``seconds``: of the processor, at most: those of the clock depend on what else is running
    """
    before, begin = fresh_peak(), time.process_time()
    try:
        yield
    finally:  # an error must come as soon
        took, memory = time.process_time() - begin, peak_memory() - before
        assert took < seconds, f"{what}: {took:.0f} s"
        assert memory < MOST_MEMORY, f"{what}: {memory / 1e6:,.0f} MB"


def peak_memory() -> int:
    """Return the most bytes that the process has held so far."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fresh_peak() -> int:
    """Return the peak, begun anew where the system can: else one large case hides the next."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()
