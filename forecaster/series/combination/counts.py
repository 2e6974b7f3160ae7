"""Forecast counts, such as pieces sold or patients: the mean of what comes, and its deviation.

Most components aim at the median, which is zero for a series that is zero more often than not. The
distribution of a count (:mod:`forecaster.forecasting.bands`) needs its mean. It is an
exponentially weighted mean, as Teunter, Syntetos & Babai (2011, European Journal of Operational
Research 214) update the demand of every period, or the blend of components, or half of each. A
series of a few rows is shrunk to the mean of its panel, and its ratio of variance to mean to the
ratio that is usual there. The weight of the panel's mean is that of the conjugate (gamma) prior of
a Poisson rate, estimated by moments; the weight of the usual ratio follows from how much the ratios
of the series differ (empirical Bayes). So a series that was always zero is not expected to be so
for ever.

Zeros before the first sale of a good that then sells often mean that it was not on sale yet, not
that there was no demand. Such rows count by the probability that the good was on sale already,
given its sales so far.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from msgspec import Meta

from forecaster.classical import linear_filter
from forecaster.series.causal import Ahead, Steps, by_target_step, decayed_mean

_LARGEST_MEAN = 100.0  # of counts; beyond it whole numbers are as good as any
_LEAST_DISPERSION = 0.5  # ratio of variance to mean; Poisson's is 1
_DECAYS = (0.05, 0.1, 0.2)
_SHARES = (0.0, 0.5, 1.0)
_LEAST_OF_LEVEL = 0.25  # minimum of the combination, as a share of the running mean
_MOST_WEIGHT = 5.0  # largest weight of the panel's mean, in rows
_FEWEST_ROWS, _MOST_ROWS = 1.0, 50.0  # weight of the usual ratio of variance to mean, in rows
_MOST = 1e6  # mean of all series, and ratio of variance to mean
_HALF = 1.0  # mean from which a row tells half as much of that ratio as one of a large mean
_LAUNCHED = 0.01  # share of goods that are new, where nothing is known
_OFTEN = 4.0  # the share of rows in which a new good is sold has the distribution Beta(_OFTEN, 1)
_SURE = 2.0  # standard errors by which counting all rows must be better than counting the latest
_FEWEST = 8  # series and rows from which a panel's properties are learned


class CountPrior(NamedTuple):
    """What the counts of a panel have in common.

    - ``decay``: weight of the latest count in the running mean
    - ``share``: weight of the blend of components in the forecast mean
    - ``mean``: the mean of all series
    - ``weight``: the number of rows that it counts for beside a series whose ratio of variance to
      mean is 1; in proportion to this ratio for others
    - ``dispersion``: the usual ratio of variance to mean, which counts for ``rows`` rows
    - ``all_rows``: 1 if all rows of a series count as evidence beside the mean of all series, 0 if
      only as many as its running mean rests on
    """

    decay: Annotated[float, Meta(ge=_DECAYS[0], le=_DECAYS[-1])] = 0.1
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    mean: Annotated[float, Meta(ge=0, le=_MOST)] = 0.0
    weight: Annotated[float, Meta(ge=0, le=_MOST_WEIGHT)] = 0.0
    dispersion: Annotated[float, Meta(ge=1, le=_MOST)] = 1.5
    rows: Annotated[float, Meta(ge=_FEWEST_ROWS, le=_MOST_ROWS)] = 10.0
    all_rows: Annotated[float, Meta(ge=0, le=1)] = 0.0


NO_PRIOR = CountPrior()


def are_counts(values: Steps) -> bool:
    """Return whether values are counts: whole numbers, zero among them, none below it."""
    return may_be_counts(values) and bool(values.min() == 0)


def may_be_counts(values: Steps) -> bool:
    """Return whether values are small whole numbers, none below zero."""
    if not len(values) or values.min() < 0 or values.mean() > _LARGEST_MEAN:
        return False
    return bool((values == np.rint(values)).all())


def vary_as_counts(values: Steps) -> bool:
    """Return whether values change from step to step at least half as much as Poisson counts do.

    A distribution of counts is never narrower than Poisson's, so it does not fit a level or a price
    in whole numbers that hardly moves.
    """
    changes = np.diff(values)
    return bool(np.square(changes).sum() >= _LEAST_DISPERSION * values.mean() * 2 * len(changes))


def count_forecasts(z: Steps, combination: Ahead, prior: CountPrior) -> tuple[Ahead, Ahead]:
    """Return mean and standard deviation of each count ahead, as forecast at every step.

    - ``z``: the counts, of one series or of several
    - ``combination``: forecasts made at every step; those far below the running mean are raised
    """
    own = _own_mean(z, combination, prior.decay, prior.share)
    mean = _shrunk(z, own, prior)
    # By the rule of succession: after n zeros, the next is zero with probability (n + 1) / (n + 2).
    steps = int(z.shape[-1])
    rare = 1 / (np.arange(steps) + 3)[:, None] / _effective(steps, prior.decay)
    mean = np.maximum(mean, rare)
    squares = np.square(by_target_step(mean) - z[..., None])
    errors, variance = _variance_of_errors(z, squares, prior.decay)
    usual = prior.rows * prior.dispersion * mean
    variance = (1 - prior.share) * (errors * variance + usual) / (errors + prior.rows)
    if prior.share:  # as far as the mean follows a season, so does the variance
        variance = variance + prior.share * _ratio(z, mean, prior) * mean
    return mean, np.sqrt(variance)


def learn_counts(rows: Sequence[Steps], combinations: Sequence[Ahead]) -> CountPrior:
    """Return the settings whose forecasts had the smallest squared errors in a panel's past.

    - ``rows``: the counts of each series
    - ``combinations``: forecasts made at every step of each series
    """
    long = [(z, c) for z, c in zip(rows, combinations, strict=True) if len(z) >= _FEWEST]
    if not long:
        return NO_PRIOR
    best = min(
        ((decay, share) for decay in _DECAYS for share in _SHARES),
        key=lambda one: float(np.mean([_error(z, c, *one) for z, c in long])),
    )
    prior = CountPrior(*best)
    if len(long) < _FEWEST:
        return prior
    found = [_own_ratio(z, c, prior) for z, c in long]
    ratios, evidence = np.array([one[0] for one in found]), np.array([one[1] for one in found])
    dispersion = max(float(np.average(ratios, weights=evidence)), 1.0)
    usual = _rows_of_usual(ratios, evidence)
    shrunk = (evidence * ratios + usual * dispersion) / (evidence + usual)
    series = [z for z, _ in long]
    latest = np.array([decayed_mean(z, 1 - prior.decay)[-1] for z in series])
    prior = prior._replace(
        mean=min(float(latest.mean()), _MOST),
        weight=_weight_of_mean(series, shrunk),
        dispersion=min(dispersion, _MOST),
        rows=usual,
    )
    few, every = (
        np.array([_deviance(z, c, prior._replace(all_rows=share)) for z, c in long]) / shrunk
        for share in (0.0, 1.0)
    )
    better = few - every
    sure = bool(better.mean() > _SURE * better.std(ddof=1) / np.sqrt(len(better)))
    return prior._replace(all_rows=float(sure))


def _weight_of_mean(series: Sequence[Steps], ratios: Float[np.ndarray, " series"]) -> float:
    """Return the number of rows that the mean of all series counts for, at a ratio of 1.

    ``ratios``: of variance to mean, of each series
    """
    means, lengths = np.array([z.mean() for z in series]), np.array([len(z) for z in series])
    between = float(means.var(ddof=1)) - float((ratios * means / lengths).mean())
    return min(float(means.mean()) / max(between, 1e-12), _MOST_WEIGHT)


def _shrunk(z: Steps, own: Ahead, prior: CountPrior) -> Ahead:
    """Return the means of series, shrunk to the mean of their panel.

    The larger the ratio of variance to mean, the less a row tells of the mean. Where rates keep
    changing, old rows tell nothing of the latest: then only the rows of the running mean count.

    ``own``: the means that each series has by itself
    """
    steps = int(own.shape[-2])
    effective = _effective(steps, prior.decay)
    known = effective + prior.all_rows * (np.arange(1, steps + 1)[:, None] - effective)
    weight = np.minimum(prior.weight * _ratio(z, own[..., :1], prior), _MOST_WEIGHT)
    return (known * own + weight * prior.mean) / (known + weight)


def _ratio(z: Steps, means: Ahead, prior: CountPrior) -> Ahead:
    """Return the ratio of variance to mean at each step, shrunk to what is usual.

    A row of a small mean tells less of it: of a night without calls, that there were none tells
    nothing. Errors further ahead that are missing count as those one step nearer.

    ``means``: forecast at each step
    """
    squares, weights = _sums(z, means, prior.decay)
    for column in range(1, int(means.shape[-1])):
        near = weights[..., column - 1]
        missing = np.maximum(near - weights[..., column], 0.0)
        own = squares[..., column - 1] / np.where(near > 0, near, 1.0)
        squares[..., column] += missing * own
        weights[..., column] += missing
    return (squares + prior.rows * prior.dispersion) / (weights + prior.rows)


def _sums(z: Steps, means: Ahead, decay: float) -> tuple[Ahead, Ahead]:
    """Return the exponentially weighted sums, up to each step, of :func:`_weighted`.

    Forecasts made before the first sale of a good count less, the likelier that was its launch.
    """
    ahead = np.arange(int(means.shape[-1]))
    squares, weights = (_filtered(z, part, ahead, 1 - decay) for part in _weighted(z, means))
    return squares, weights


def _level(z: Steps, decay: float) -> Ahead:
    """Return the running mean at each step; zeros before a launch count less, see :func:`_sums`."""
    known, keep = np.isfinite(z)[..., None], 1 - decay
    total, weight = (
        _filtered(z, part, np.array([-1]), keep, 1 - keep)
        for part in (np.where(known, z[..., None], 0.0), known * 1.0)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weight > 0, total / weight, np.nan)


def _filtered(
    z: Steps, part: Ahead, ahead: Int[np.ndarray, " column"], keep: float, weight: float = 1.0
) -> Ahead:
    """Return exponentially weighted sums of parts, of which those before a first sale count less.

    ``ahead``: by column, the number of steps after the first sale that still count as before it
    """
    first = (np.cumsum(z > 0, -1) == 0).sum(-1, keepdims=True)[..., None]
    before = np.arange(int(z.shape[-1]))[:, None] - ahead <= first
    early, later = (
        linear_filter([weight], [1.0, -keep], np.where(of, part, 0.0), axis=-2)
        for of in (before, ~before)
    )
    return _share_before_first(z) * early + later


def _share_before_first(z: Steps) -> Ahead:
    """Return the weight of rows before the first sale, by what is known at each step.

    It is the probability that the good was on sale from the first row on. A part that is sold once
    a year may begin with a year of zeros; a new product was not sold yet, and sells often since.
    """
    # Here, so that SciPy is loaded only where there are counts.
    from scipy.special import betaln, expit, logit

    sales = np.cumsum(z > 0, -1)
    first = (sales == 0).sum(-1, keepdims=True)
    rows = np.arange(1, int(z.shape[-1]) + 1)
    others, since = np.maximum(sales - 1, 0), np.maximum(rows - first - 1, 0)
    always = betaln(sales + 1, rows - sales + 1)
    launched = betaln(others + _OFTEN, since - others + 1) + np.log(_OFTEN / rows)
    share = expit(logit(1 - _LAUNCHED) + always - launched)
    return np.where(sales > 0, share, 1.0)[..., None]


def _weighted(z: Steps, means: Ahead) -> tuple[Ahead, Ahead]:
    """Return the squared error over the mean of each step, times its weight, and the weight.

    Zero where no forecast was made, or none came.
    """
    made = np.maximum(by_target_step(means), 1e-9)
    squares = np.square(z[..., None] - made) / (made + _HALF)
    known = np.isfinite(squares)
    return np.where(known, squares, 0.0), np.where(known, made / (made + _HALF), 0.0)


def _own_ratio(z: Steps, combination: Ahead, prior: CountPrior) -> tuple[float, float]:
    """Return a series' own ratio of variance to mean, and the number of rows that it rests on.

    It is that of forecasts one step ahead, made in the later half, see :func:`_error`.
    """
    own = _own_mean(z, combination, prior.decay, prior.share)[:, :1]
    own[: len(z) // 2 - 1] = np.nan
    squares, weights = (float(part[-1, 0]) for part in _sums(z, own, 0.0))
    return squares / max(weights, 1e-300), weights


def _rows_of_usual(
    ratios: Float[np.ndarray, " series"], evidence: Float[np.ndarray, " series"]
) -> float:
    """Return the number of rows that the usual ratio of variance to mean counts for.

    The logarithm of a ratio that rests on n rows has a variance of about 2/n. What the logarithms
    vary beyond that is how much series differ.

    ``ratios, evidence``: from :func:`_own_ratio`, of each series
    """
    some = evidence > 1
    if not some.any():
        return CountPrior().rows
    logs, weights = np.log(np.maximum(ratios[some], 0.05)), evidence[some]
    spread = np.average(np.square(logs - np.average(logs, weights=weights)), weights=weights)
    between = float(spread) - 2 * len(weights) / float(weights.sum())
    return float(np.clip(2 / max(between, 1e-9), _FEWEST_ROWS, _MOST_ROWS))


def _deviance(z: Steps, combination: Ahead, prior: CountPrior) -> float:
    """Return the mean Poisson deviance of the means in the later half, less a constant."""
    made = _shrunk(z, _own_mean(z, combination, prior.decay, prior.share), prior)
    made[: len(z) // 2 - 1] = np.nan
    made = np.maximum(by_target_step(made), 1e-3)
    return float(np.nanmean(made - z[:, None] * np.log(made)))


def _own_mean(z: Steps, combination: Ahead, decay: float, share: float) -> Ahead:
    level = _level(z, decay)
    # A trend that leads below zero says little about the next counts.
    combination = np.maximum(combination, _LEAST_OF_LEVEL * level)
    return (1 - share) * level + share * combination


def _error(z: Steps, combination: Ahead, decay: float, share: float) -> float:
    """Return the mean squared error of forecasts made in the later half, over the variance.

    The classical models know the earlier half. Forecasts made there would favour models that were
    fitted to these rows, and would rest on running means of one or two counts.
    """
    forecasts = _own_mean(z, combination, decay, share)
    forecasts[: len(z) // 2 - 1] = np.nan
    squares = np.square(by_target_step(forecasts) - z[:, None])
    return float(np.nanmean(squares)) / (z.var() + 0.1)


def _variance_of_errors(z: Steps, squares: Ahead, decay: float) -> tuple[Ahead, Ahead]:
    """Return the number of known errors one step ahead, at each step, and the mean squared errors.

    Errors of forecasts made before a launch count less, see :func:`_sums`. Of errors further ahead
    fewer are known. Those that are missing count as on average those one step nearer, so that bands
    do not get narrower because a horizon has no error yet.

    ``squares``: squared errors, known at each step
    """
    horizon, known = int(squares.shape[-1]), np.isfinite(squares)
    total, errors = (
        _filtered(z, part, np.arange(horizon), 1 - decay)
        for part in (np.where(known, squares, 0.0), known * 1.0)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.nan_to_num(total / errors)
    for column in range(1, horizon):
        share = errors[..., column] / np.maximum(errors[..., 0], 1.0)
        near = variance[..., column - 1]
        variance[..., column] = share * variance[..., column] + (1 - share) * near
    return errors[..., :1], variance


def _effective(steps: int, decay: float) -> Float[np.ndarray, "step 1"]:
    """Return the number of rows that a running mean rests on, at each step."""
    return ((1 - (1 - decay) ** np.arange(1, steps + 1)) / decay)[:, None]
