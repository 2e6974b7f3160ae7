"""Which series stand for all of them in what all share, where there are very many.

What is learned from all series together would take as long as there are series, and need all of
them in memory. So beyond :data:`MOST_SERIES` it is learned from a sample: those whose names have
the smallest hashes. No seed, no order and no other series decides who is in it, but for how many
there are.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from forecaster.paths import as_bytes

MOST_SERIES = 1_000
MOST_ROWS = 10_000_000  # of all series in a sample, as long as these are enough
_ENOUGH = 30  # series


def sample_of(ids: Sequence[str], steps: int) -> Int[np.ndarray, " sampled"]:
    """The positions of the sampled series among these, in order; all where they are few.

    ``steps``: of the longest history.
    """
    most = most_sampled(steps)
    if len(ids) <= most:
        return np.arange(len(ids))
    hashes = [hashlib.blake2b(as_bytes(name), digest_size=8).digest() for name in ids]
    return np.sort(np.argsort(np.array(hashes, "S8"), kind="stable")[:most])


def most_sampled(steps: int) -> int:
    """How many series stand for all, where histories have so many steps at most."""
    return min(MOST_SERIES, max(_ENOUGH, MOST_ROWS // max(1, steps)))
