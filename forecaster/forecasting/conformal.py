"""Conformal bands per series and horizon, calibrated on the validation span and kept honest since.

Split-conformal prediction (Vovk, Gammerman & Shafer 2005, Algorithmic Learning in a Random World)
on the chance that was forecast of a lower value (distributional conformal prediction: Chernozhukov,
Wuethrich & Zhu 2021, PNAS 118(48)), here as a normal score: 0 is the forecast median, -1.28 its
10 % quantile. Each side of a band is calibrated by itself, from the scores of past outcomes, so a
skew that the network does not know of is seen. The few outermost of them are noisy; the quantile of
the scores is drawn towards that of the forecast distribution itself.

Scores of values that came in after the fit are truly out of sample: they replace the oldest ones,
and each side's level is adapted to the misses seen, as in adaptive conformal inference (Gibbs &
Candes 2021, arXiv 2106.00170).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

RATE = 0.01  # how far one miss moves a level; Gibbs & Candes suggest 0.005 to 0.05
SHRINKAGE = 100.0  # scores that the forecast distribution itself counts for


def band_scores(
    scores: Float[np.ndarray, "series origin horizon"],
    first_new: Int[np.ndarray, " series"],
    levels: Sequence[float],
    memory: int,
    count: int = 1,
    rate: float = RATE,
    shrinkage: float = SHRINKAGE,
) -> Float[np.ndarray, "level 2 series count horizon"]:
    """Normal scores of the lower and the upper bounds of bands, for the latest origins.

    - ``scores``: normal scores of past outcomes, in order of time, NaN where unknown; the last
      origin is "now"
    - ``first_new``: the first origin after the fit; before it the levels stay as they are
    - ``levels``: of the bands, in percent
    - ``memory``: how many of the latest scores a bound is drawn from
    - ``count``: of how many origins the bounds are returned
    - ``rate``: how far one miss moves a side's level
    - ``shrinkage``: scores that the forecast distribution itself counts for

    The bounds of origin p for horizon h use scores of origins up to p - h only, whose outcome is
    known at p. The forecast's median lies within every band, and wider bands hold narrower ones:
    where levels that adapted each by itself would cross, their bounds are put in order
    (rearrangement: Chernozhukov, Fernandez-Val & Galichon 2010, Econometrica 78(3)).
    """
    # Both sides are lower ones: the upper is that of the scores turned around.
    sides = np.stack([scores, -scores])  # (side, series, origin, horizon)
    _, series, origins, horizon = sides.shape
    nominal = (1 - np.asarray(levels, float)[:, None, None, None] / 100) / 2
    miss = np.tile(nominal, (1, 2, series, horizon))
    begin = min(origins - count, int(first_new.min()))
    bounds = np.full((len(levels), 2, series, origins - begin, horizon), np.nan)
    for now in range(begin, origins):
        for h in range(horizon):
            known = now - h - 1  # the origin whose outcome for this horizon is now known
            if known < begin:
                continue
            latest = sides[:, :, known, h]
            missed = latest < bounds[:, :, :, known - begin, h]
            adapts = (known >= first_new) & np.isfinite(latest)
            miss[..., h] += np.where(adapts, rate * (nominal[..., 0] - missed), 0.0)
        known_scores = _known(sides, now, memory)
        bounds[:, :, :, now - begin] = _lower_bounds(known_scores, miss, shrinkage)
    latest_bounds = bounds[:, :, :, bounds.shape[3] - count :]
    by_width = np.argsort(levels, kind="stable")
    latest_bounds[by_width] = -np.sort(-latest_bounds, axis=0)
    latest_bounds[:, 1] *= -1
    return latest_bounds


def _known(
    sides: Float[np.ndarray, "side series origin horizon"], now: int, memory: int
) -> Float[np.ndarray, "side series horizon memory"]:
    """The scores whose outcome is known at an origin, sorted, NaN last."""
    horizon = sides.shape[3]
    known = np.full((*sides.shape[:2], horizon, memory), np.nan)
    for h in range(horizon):
        part = sides[:, :, max(0, now - memory) : max(0, now - h), h]
        known[:, :, h, : part.shape[2]] = part
    known.sort(axis=-1)
    return known


def _lower_bounds(
    known: Float[np.ndarray, "side series horizon memory"],
    miss: Float[np.ndarray, "level side series horizon"],
    shrinkage: float,
) -> Float[np.ndarray, "level side series horizon"]:
    """Scores below which a share ``miss`` of outcomes lies, drawn towards the normal quantile."""
    count = np.isfinite(known).sum(-1)
    last = np.maximum(count - 1, 0)
    # Between neighbours: the share below the k-th smallest of n is k / (n + 1) on average.
    rank = np.clip(miss * (count + 1) - 1, 0, last)
    lower = np.floor(rank).astype(int)
    upper = np.minimum(lower + 1, last)
    smallest = np.take_along_axis(known[None], lower[..., None], axis=-1)[..., 0]
    next_one = np.take_along_axis(known[None], upper[..., None], axis=-1)[..., 0]
    empirical = smallest + (rank - lower) * (next_one - smallest)
    own = ndtri(np.clip(miss, 1e-4, 0.5))
    weight = count / (count + shrinkage)
    drawn = np.where(count > 0, weight * np.nan_to_num(empirical) + (1 - weight) * own, own)
    return np.minimum(drawn, 0.0)  # 0 is the forecast's median
