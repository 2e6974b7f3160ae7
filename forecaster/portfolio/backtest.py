"""Score value at risk and expected shortfall of the past against the losses that came."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, chdtrc, xlogy

from forecaster.errors import UsageError

_YELLOW, _RED = 0.95, 0.9999  # probabilities of fewer breaches, from which on a zone begins


class Backtest(NamedTuple):
    """How past risk compares with the losses that came.

    - ``breaches``: the number of losses above the value at risk; ``expected``: of right ones
    - ``kupiec``: p-value of as many breaches (Kupiec 1995, Journal of Derivatives 3)
    - ``independence``: p-value of breaches that follow breaches as often (Christoffersen 1998,
      International Economic Review 39); ``both``: of as many breaches that are independent
    - ``zone``: of the traffic light of the Basel Committee (1996): ``green``, ``yellow``, ``red``
    - ``shortfall``: Z2 of Acerbi & Szekely (2014, Risk 27): 0 if the expected shortfall is right,
      below 0 if it is too small; below -0.7 is rejected at 5 %, below -1.8 at 0.01 %
    """

    periods: int
    breaches: int
    expected: float
    kupiec: float
    independence: float
    both: float
    zone: str
    shortfall: float


def backtest_risk(losses: ArrayLike, var: ArrayLike, es: ArrayLike, level: float) -> Backtest:
    """Return how value at risk and expected shortfall compare with the losses that came.

    - ``losses``: of periods in order of time that do not overlap; profits are negative
    - ``var``, ``es``: what was said before each period, such as the columns of :func:`risk`
    - ``level``: of both, in percent

    Raises UsageError for lengths that differ, and for numbers that are not finite.
    """
    came, said, mean = (np.atleast_1d(np.asarray(part, float)) for part in (losses, var, es))
    finite = all(np.isfinite(part).all() for part in (came, said, mean))
    if not (came.shape == said.shape == mean.shape and finite and 0 < level < 100):
        raise UsageError(
            "losses, var, es: expected finite numbers, as many of each, and a level between 0 and "
            f"100; got {came.shape[0]:,}, {said.shape[0]:,} and {mean.shape[0]:,}, and {level}"
        )
    share, breach = 1 - level / 100, came > said
    count, total = int(breach.sum()), len(came)
    coverage = _ratio(breach, share)
    after, first = breach[1:], breach[:-1]
    pooled = after.mean() if total > 1 else 0.0
    independence = _ratio(after[first], pooled) + _ratio(after[~first], pooled)
    fewer = bdtr(count, total, share) if count > total * share else 0.0  # too few are no danger
    return Backtest(
        total, count, total * share, float(chdtrc(1, coverage)), float(chdtrc(1, independence)),
        float(chdtrc(2, coverage + independence)),
        "red" if fewer >= _RED else "yellow" if fewer >= _YELLOW else "green",
        float(1 - (came * breach / mean).sum() / (total * share)),
    )  # fmt: skip


def _ratio(breach: np.ndarray, share: float) -> float:
    """Return the likelihood ratio of breaches with the observed share and with a given one."""
    count, hits = len(breach), int(breach.sum())
    if not count:
        return 0.0
    own = hits / count
    each = xlogy(hits, own) + xlogy(count - hits, 1 - own)
    ratio = 2 * (each - xlogy(hits, share) - xlogy(count - hits, 1 - share))
    return max(0.0, float(ratio))  # rounding may leave less
