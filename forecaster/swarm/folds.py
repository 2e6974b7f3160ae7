"""K-fold cross-validation in one swarm: which examples each fold learns from, as weights."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from forecaster.swarm.checks import SwarmError


class Folds(NamedTuple):
    """Weights of examples by fold: 1.0 for those that count, 0.0 for the others."""

    train: Float32[np.ndarray, "fold example"]
    held_out: Float32[np.ndarray, "fold example"]


def kfold_weights(examples: int, folds: int, *, seed: int) -> Folds:
    """Weights for K-fold cross-validation, so that all folds are members of one swarm.

    Examples are shuffled by the seed and dealt into folds whose sizes differ by one at most; each
    is held out of one fold and learned from in all others. The data themselves go in once, as
    :class:`Shared`. Raises SwarmError unless there are from 2 to ``examples`` folds.
    """
    if not 2 <= folds <= examples:
        raise SwarmError(f"folds: expected 2 to {examples}, one per example at most; got {folds}")
    dealt = np.empty(examples, int)
    dealt[np.random.default_rng(seed).permutation(examples)] = np.arange(examples) % folds
    held_out = (dealt == np.arange(folds)[:, None]).astype(np.float32)
    return Folds(1 - held_out, held_out)
