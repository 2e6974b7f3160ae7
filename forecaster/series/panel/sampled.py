"""A fixed sample of series, which does not depend on their order or on a seed."""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def sampled_names(ids: Sequence[str], most: int) -> Int[np.ndarray, " sampled"]:
    """Return the positions of the series with the smallest hashes of names, in order.

    ``most``: the size of the sample; all positions if there are not more series
    """
    if len(ids) <= most:
        return np.arange(len(ids))
    encoded = [name.encode("utf-8", "surrogateescape") for name in ids]
    hashes = [hashlib.blake2b(name, digest_size=8).digest() for name in encoded]
    return np.sort(np.argsort(np.array(hashes, "S8"), kind="stable")[:most])
