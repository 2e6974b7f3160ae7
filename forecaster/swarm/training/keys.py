"""Random keys that belong to a member's name, not to its position in the swarm."""

import hashlib
import operator
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key, UInt32

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.task import AnyArray

_KIND = "threefry2x32"  # set explicitly, since JAX's default may be another


def typed_key(words: UInt32[AnyArray, "2"]) -> Key[jax.Array, ""]:
    """Return a raw random key as a typed key, which JAX's functions take."""
    return cast(jax.Array, jax.random.wrap_key_data(cast(jax.Array, words), impl=_KIND))


def checked_seed(seed: object) -> int:
    """Return a seed as an int. Raises SwarmError unless it is a whole number of 32 bits."""
    try:
        number = operator.index(cast(int, seed))
    except TypeError as error:
        raise SwarmError(f"seed: expected a whole number; got {seed!r:.50}") from error
    if isinstance(seed, bool) or not -(2**31) <= number < 2**32:
        raise SwarmError(
            f"seed: expected a whole number from -2**31 to 2**32 - 1, since a random key is made "
            f"of 32 bits of it; got {seed!r:.50}"
        )
    return number


def member_keys(seed: int, ids: Sequence[str]) -> UInt32[np.ndarray, "member 2"]:
    """Return one raw random key per id, for ``jax.random.wrap_key_data``.

    A key depends only on the seed and the member's name, so adding, removing or reordering ids does
    not change the keys of the others. The probability that any two of n members have the same key
    is about n^2 / 2^65.

    Raises SwarmError unless the seed is a whole number of 32 bits.
    """
    seed = checked_seed(seed)
    use_all_cores()  # before anything starts JAX
    words = np.array([_words(name) for name in ids], np.uint32).reshape(-1, 2)
    if 0 <= seed < 2**31:
        root = np.array([0, seed], np.uint32)
    else:
        root = np.asarray(jax.random.key_data(jax.random.key(seed, impl=_KIND)))
    key = np.broadcast_to(root, words.shape)
    for column in words.T:
        key = _fold_in(key, column)
    return np.ascontiguousarray(key)


def key_words(key: int | jax.Array) -> UInt32[np.ndarray, "2"]:
    """Return the two words of a random key, or of the key of a seed.

    Raises SwarmError for anything else.
    """
    use_all_cores()  # before anything starts JAX
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        key = jax.random.key(int(key), impl=_KIND)
    words = np.asarray(jax.random.key_data(cast(jax.Array, key)) if is_key(key) else key)
    if words.shape != (2,) or words.dtype != np.uint32:
        raise SwarmError(
            f"key: expected a seed, or one random key such as jax.random.key(0); got {key!r:.100}"
        )
    return words


def is_key(key: object) -> bool:
    """Return whether an array holds typed random keys, as of ``jax.random.key``."""
    return isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def _fold_in(
    keys: UInt32[np.ndarray, "member 2"], words: UInt32[np.ndarray, " member"]
) -> UInt32[np.ndarray, "member 2"]:
    """Do what ``jax.random.fold_in`` does, without compiling anything."""
    return np.stack(_hashed(keys[:, 0], keys[:, 1], np.zeros_like(words), words), axis=1)


_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def _hashed(one: Any, two: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Hash two words of a counter with two words of a key, numpy arrays of uint32.

    20 rounds, Salmon et al. (2011), doi:10.1145/2063384.2063405.
    """
    number = left.dtype.type
    schedule = one, two, one ^ two ^ number(0x1BD11BDA)
    left, right = left + one, right + two
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            left = left + right
            right = (right << number(rotation)) | (right >> number(32 - rotation))
            right = right ^ left
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + number(group + 1)
    return left, right


def _words(name: str) -> tuple[int, int]:
    """Return two 32-bit words of a name, the same on every machine (unlike Python's own hash)."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
