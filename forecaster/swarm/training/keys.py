"""Random keys that belong to a member's name, not to its position in the swarm."""

import functools
import hashlib
import operator
from collections.abc import Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key, UInt32

from forecaster.swarm.checks import SwarmError
from forecaster.swarm.devices.lanes import use_all_cores
from forecaster.swarm.devices.programs import first_call
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
    # Of few lengths, since each is compiled.
    words = np.zeros((1 << max(4, (len(ids) - 1).bit_length()), 2), np.uint32)
    words[: len(ids)] = np.array([_words(name) for name in ids], np.uint32).reshape(-1, 2)
    folded = cast(jax.Array, first_call(swarm_keys, np.uint32(seed % 2**32), words))
    return np.array(folded)[: len(ids)]


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def swarm_keys(seed: jax.Array, words: jax.Array) -> jax.Array:
    """Return the raw keys of members from a seed and two words of each name."""
    key = jax.random.key(seed, impl=_KIND)
    for word in (words[0], words[1]):
        key = jax.random.fold_in(key, word)
    return jax.random.key_data(key)


def key_words(key: int | jax.Array) -> UInt32[np.ndarray, "2"]:
    """Return the two words of a random key, or of the key of a seed.

    Raises SwarmError for anything else.
    """
    use_all_cores()  # before anything starts JAX
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        key = jax.random.key(int(key), impl=_KIND)
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    words = np.asarray(key)
    if words.shape != (2,) or words.dtype != np.uint32:
        raise SwarmError(
            f"key: expected a seed, or one random key such as jax.random.key(0); got {key!r:.100}"
        )
    return words


def _words(name: str) -> tuple[int, int]:
    """Return two 32-bit words of a name, the same on every machine (unlike Python's own hash)."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
