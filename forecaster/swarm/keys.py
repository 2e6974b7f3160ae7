"""Random keys that belong to a member's name, not to its position in the swarm."""

import hashlib
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import UInt32

from forecaster.swarm.lanes import use_all_cores
from forecaster.swarm.task import AnyArray


def member_keys(seed: int, ids: Sequence[str]) -> UInt32[np.ndarray, "member 2"]:
    """One raw random key per id, for ``jax.random.wrap_key_data``.

    Only the seed and the name decide a key: adding, removing or reordering ids changes no other
    member's. Two names of any swarm share a key with a chance of about members^2 / 2^65.
    """
    use_all_cores()  # before anything starts JAX
    words = np.array([_words(name) for name in ids], np.uint32).reshape(-1, 2)
    root = jax.random.key(seed)

    def fold(pair: UInt32[AnyArray, "2"]) -> UInt32[jax.Array, "2"]:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(root, pair[0]), pair[1]))

    return np.asarray(jax.vmap(fold)(words))


def _words(name: str) -> tuple[int, int]:
    """Two 32-bit words from a name, the same on every machine (Python's own hash is not)."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
