"""Value at risk and expected shortfall from simulated profits, and what each position carries.

Both are weighted sums of sorted losses: the weights of Harrell & Davis (1982, Biometrika 69) are
around the quantile, those of the expected shortfall spread evenly beyond it (Acerbi & Tasche 2002,
Journal of Banking & Finance 26). A position's contribution is the same weighted sum of its own
losses on the same paths (Euler allocation: Tasche 1999, Risk contributions and performance
measurement; McNeil, Frey & Embrechts 2015, Quantitative Risk Management, section 8.5), so
contributions add up to the whole.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betainc


class Measures(NamedTuple):
    """The risk of a book over one horizon at one level, in money; losses are positive.

    - ``var, es``: value at risk and expected shortfall of the book
    - ``var_error``: the standard error of the value at risk
    - ``var_parts, es_parts``: what each position carries of them; negative for a hedge
    - ``var_alone, es_alone``: those of each position by itself
    """

    var: float
    es: float
    var_error: float
    var_parts: Float[np.ndarray, " position"]
    es_parts: Float[np.ndarray, " position"]
    var_alone: Float[np.ndarray, " position"]
    es_alone: Float[np.ndarray, " position"]


def measures_of(
    profits: Float[np.ndarray, "position path"], level: float, periods: float
) -> Measures:
    """Return the risk of a book from simulated profits of its positions.

    - ``level``: the probability that the loss stays below the value at risk, in percent
    - ``periods``: the number of independent past periods that the paths rest on
    """
    losses, share = -profits, level / 100
    both = np.stack(
        [quantile_weights(losses.shape[1], share), tail_weights(losses.shape[1], share)]
    )
    total = losses.sum(axis=0)
    order = total.argsort()
    parts, alone = both @ losses[:, order].T, both @ np.sort(losses, axis=1).T
    var, es = parts.sum(axis=1).tolist()
    error = standard_error(total[order], var, share, periods)
    return Measures(var, es, error, *parts, *alone)


def quantile_weights(count: int, share: float) -> Float[np.ndarray, " path"]:
    """Return the weight of each of the values in order in their quantile of a probability."""
    bounds = betainc((count + 1) * share, (count + 1) * (1 - share), np.arange(count + 1) / count)
    return np.diff(bounds)


def tail_weights(count: int, share: float) -> Float[np.ndarray, " path"]:
    """Return the weight of each of the values in order in the mean of the highest ones.

    ``share``: of the values below them; the value at the border counts in part
    """
    beyond = count * (1 - share)
    return np.clip(beyond - np.arange(count)[::-1], 0.0, 1.0) / beyond


def standard_error(
    losses: Float[np.ndarray, " path"], var: float, share: float, periods: float
) -> float:
    """Return the standard error of a value at risk.

    That of the draws is half the distance between the order statistics one binomial deviation
    around the quantile. The paths also are only as wide as past errors were, whose mean size over
    the periods has the relative error sqrt((mean square / squared mean size - 1) / periods).

    - ``losses``: of the book, in order
    - ``share``: of the losses below the value at risk
    """
    deviation = np.sqrt(share * (1 - share) / len(losses))
    low, high = np.quantile(losses, np.clip([share - deviation, share + deviation], 0, 1))
    sizes = np.abs(losses - losses.mean())
    if not sizes.any():
        return 0.0
    of_width = np.sqrt((np.square(sizes).mean() / sizes.mean() ** 2 - 1) / periods)
    return float(np.hypot((high - low) / 2, (var - losses.mean()) * of_width))
