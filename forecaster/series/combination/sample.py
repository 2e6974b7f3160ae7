"""Learn what all series of a panel share, from the past of a sample of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from forecaster.series.combination.anchors import (
    DOUBT,
    Ahead,
    Shares,
    by_target_step,
    combine,
    errors_by_doubt,
    known_errors,
    log_errors,
    shares_of,
)
from forecaster.series.combination.combined import Combination, combined, usual_growth
from forecaster.series.combination.counts import CountPrior, learn_counts
from forecaster.series.combination.experts import (
    EXPERTS,
    Experts,
    Row,
    basic_season,
    experts_ahead,
    fit_experts,
)
from forecaster.series.combination.nature import Nature

_DOUBTS = (0.0, DOUBT, 1.0, 3.0)
_LARGEST_ERROR = 1.25  # over that of the last value, of a series in the choice of a doubt
_FEWEST, _MOST = 8, 60  # series from which weights are learned
_MOST_COUNTS = 250  # series from which the properties of counts are learned
_JUDGED = 20  # horizons at the end of a series that its models are judged on, at most
_MOST_OPTIMISM = 0.25  # logarithm of a ratio of scales, at most
_LEAST_RATIO = 0.4  # of the deviation of errors to their scale; at most its inverse
_TO_DEVIATION = 1.2533  # standard deviation over mean absolute value, of a normal distribution
_FEW_ROWS = 8  # a series of at most 8 rows says little about what is usual


class Learned(NamedTuple):
    """What the series of a panel share in their combination of forecasts.

    The fields are those of :class:`~forecaster.series.Transform`.
    """

    doubt: float
    shares: tuple[tuple[float, ...], ...]
    counts: CountPrior
    unit: float
    optimism: float
    growth: tuple[float, ...]
    error_ratio: tuple[float, ...]


class Sample:
    """Series that stand for all of a panel; their classical models are fitted once.

    - ``rows``: the values of each series, without gaps
    - ``natures``: the nature of each series
    - ``alone``: the classical model that forecasts alone; None: all are combined
    """

    def __init__(
        self, rows: Sequence[Row], natures: Sequence[Nature], alone: str | None = None
    ) -> None:
        self._rows = rows
        self._natures = natures
        self._alone = alone
        self._fitted: dict[tuple[int, int], Experts] = {}

    def learned(self, horizon: int, usual: float) -> Learned:
        """Return what the series share in the combination.

        ``usual``: the usual change where no series has rows enough to tell it
        """
        shares, counts = None, CountPrior(share=1.0)
        doubt = DOUBT
        if self._alone is None:  # otherwise there is nothing to weigh
            doubt, shares = self.weights(horizon)
            counts = self.count_prior(horizon, doubt, shares)
        halves, wholes = (self._combinations(horizon, doubt, shares, share) for share in (2, 1))
        scales = _latest_scales(wholes, horizon)
        rows = np.array([len(self._rows[number]) for number in self._measured()], int)
        return Learned(
            doubt,
            () if shares is None else tuple(tuple(map(float, one)) for one in shares),
            counts,
            self.usual_change() or usual,
            _optimism(_latest_scales(halves, horizon), scales),
            usual_growth(scales, rows),
            () if self._alone else self._error_ratio(halves, horizon),
        )

    def usual_change(self) -> float | None:
        """Return the median change from one row to the next, in units of a series' level.

        None where no series has rows enough. Counts have a distribution of their own, and do not
        say how others change.
        """
        changes = [
            float(np.abs(np.diff(np.log(row) if nature.logarithmic else row)).mean())
            / (1.0 if nature.logarithmic else np.abs(row).mean())
            for row, nature in zip(self._rows, self._natures, strict=True)
            if len(row) > _FEW_ROWS and np.abs(row).any() and not nature.counts
        ]
        return float(np.median(changes)) if changes else None

    def weights(self, horizon: int) -> tuple[float, Shares | None]:
        """Return the doubt and the shares with the smallest errors in the past of all series.

        The classical models are fitted on the earlier half of each series, and judged on the later.
        The doubt is the default, unless another is better by more than the standard error of the
        difference. Series that no longer moved say nothing about it, and counts only where few
        series are none. Shares are None where no series has errors of all models.
        """
        every = max(1, len(self._rows) // _MOST)
        some = range(0, len(self._rows), every)
        ends = [len(self._rows[number]) for number in some]
        cuts = [max(end // 2, end - _JUDGED * horizon, 1) for end in ends]
        series = [
            (self._z(number), self._natures[number].own_seasons, of, cut)
            for number, of, cut in zip(some, self._ahead(some, cuts, horizon), cuts, strict=True)
        ]
        counts = [self._natures[number].counts for number in some]
        errors = np.array(
            [
                log_errors(z, its, horizon, of, cut - 1, counts=counted)
                for (z, its, of, cut), counted in zip(series, counts, strict=True)
            ]
        )
        shares = shares_of(errors) if np.isfinite(errors).any() else None
        by_doubt = [
            errors_by_doubt(z, its, horizon, _DOUBTS, of, shares, cut, counts=counted)
            for (z, its, of, cut), counted in zip(series, counts, strict=True)
        ]
        moved = np.array(
            [
                np.ptp(self._rows[number][max((cut + end) // 2 - 1, 0) :]) > 0
                for number, cut, end in zip(some, cuts, ends, strict=True)
            ]
        )
        known = moved & np.isfinite(by_doubt).all(1)
        of_one_kind = _of_one_kind(np.array(counts)[known])
        return choose_doubt(np.array(by_doubt)[known][of_one_kind]), shares

    def _error_ratio(self, halves: Sequence[Combination], horizon: int) -> tuple[float, ...]:
        """Return the deviation of errors over their scale, by horizon; empty where none is known.

        The errors are those in the later half of the series.

        ``halves``: the combinations, by models fitted on the earlier half of each series
        """
        ratios: list[Float[np.ndarray, " horizon"]] = []
        for number, one in zip(self._measured(), halves, strict=True):
            z = self._z(number)
            with np.errstate(divide="ignore", invalid="ignore"):
                errors = known_errors(one.base, z) / by_target_step(one.scale * one.relative)
            errors = errors[len(z) // 2 + horizon - 1 :]
            if len(errors) >= horizon and np.isfinite(errors).all():
                ratios.append(_TO_DEVIATION * errors.mean(0))
        if len(ratios) < _FEWEST:
            return ()
        return tuple(np.clip(np.mean(ratios, 0), _LEAST_RATIO, 1 / _LEAST_RATIO).tolist())

    def _measured(self) -> list[int]:
        """Return the series whose scales count; those of counts rest on no fit.

        Those of constant series are not errors.
        """
        some = [
            number
            for number, (row, nature) in enumerate(zip(self._rows, self._natures, strict=True))
            if not nature.counts and len(row) and np.ptp(row) > 0
        ]
        return some[:: max(1, len(some) // _MOST)]

    def _combinations(
        self, horizon: int, doubt: float, shares: Shares | None, share: int
    ) -> list[Combination]:
        """Return the combination of forecasts of each series that counts.

        ``share``: classical models are fitted on the first 1/share of the rows
        """
        some = self._measured()
        cuts = [max(len(self._rows[number]) // share, 1) for number in some]
        made = self._ahead_if_learned(some, cuts, horizon)
        alone = None if self._alone is None else EXPERTS.index(self._alone)
        return [
            combined(
                self._z(number), self._natures[number].own_seasons, horizon, doubt, of, shares,
                alone=alone, sparse=self._natures[number].sparse,
                nonnegative=self._natures[number].nonnegative,
            )
            for number, of in zip(some, made, strict=True)
        ]  # fmt: skip

    def count_prior(self, horizon: int, doubt: float, shares: Shares | None) -> CountPrior:
        """Return what the series of counts have in common, see :func:`learn_counts`.

        ``doubt, shares``: as returned by :meth:`weights`
        """
        some = [number for number, nature in enumerate(self._natures) if nature.counts]
        some = some[:: max(1, len(some) // _MOST_COUNTS)]
        rows = [self._rows[number] for number in some]
        made = self._ahead_if_learned(some, [max(len(row) // 2, 1) for row in rows], horizon)
        combinations = [
            combine(
                row, self._natures[number].own_seasons, horizon, doubt, of, shares, counts=True
            ).base
            for number, row, of in zip(some, rows, made, strict=True)
        ]
        return learn_counts(rows, combinations)

    def _z(self, number: int) -> Row:
        """Return the values of a series, or their logarithms."""
        row = self._rows[number]
        return np.log(row) if self._natures[number].logarithmic else row

    def _ahead(self, some: Sequence[int], cuts: Sequence[int], horizon: int) -> list[list[Ahead]]:
        """Return forecasts by classical models fitted on the rows of series before their cuts.

        NaN for a series without models.
        """
        new = [pair for pair in zip(some, cuts, strict=True) if pair not in self._fitted]
        seasons = [
            basic_season(self._natures[number].own_seasons, alone=self._alone is not None)
            for number, _ in new
        ]
        models = fit_experts([self._rows[number][:cut] for number, cut in new], seasons)
        self._fitted.update(zip(new, models, strict=True))
        fitted = [self._fitted[pair] for pair in zip(some, cuts, strict=True)]
        made = experts_ahead([self._rows[number] for number in some], fitted, horizon)
        return [
            [self._natures[number].as_features(one) for one in of]
            for number, of in zip(some, made, strict=True)
        ]

    def _ahead_if_learned(
        self, some: Sequence[int], cuts: Sequence[int], horizon: int
    ) -> list[list[Ahead]]:
        """Return the forecasts of :meth:`_ahead`, empty for a series without models."""
        made = self._ahead(some, cuts, horizon)
        learned = (self._fitted[pair].learned for pair in zip(some, cuts, strict=True))
        return [of if rows else [] for of, rows in zip(made, learned, strict=True)]


def _latest_scales(
    made: Sequence[Combination], horizon: int
) -> Float[np.ndarray, "series horizon"]:
    return np.array([one.scale[-1] for one in made]).reshape(-1, horizon)


def _optimism(
    halves: Float[np.ndarray, "series horizon"], wholes: Float[np.ndarray, "series horizon"]
) -> float:
    """Return how much larger new errors are than the errors classical models were fitted to.

    It is the mean ratio of the latest scales, at least 1: of those by models fitted on the earlier
    half of a series, over those by models fitted on the whole series.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(halves / wholes)
    ratios = np.clip(ratios[np.isfinite(ratios)], 0.0, _MOST_OPTIMISM)
    return float(np.exp(ratios.mean())) if len(ratios) else 1.0


def check_error_ratio(ratio: Sequence[float], horizon: int) -> None:
    """Raise ValueError unless it is empty, or an ``error_ratio`` that a sample may give."""
    sound = all(_LEAST_RATIO <= one <= 1 / _LEAST_RATIO for one in ratio)
    if ratio and not (sound and len(ratio) == horizon):
        raise ValueError(f"transform: error_ratio: expected {horizon} ratios; got {ratio!r:.100}")


def _of_one_kind(counts: Bool[np.ndarray, " series"]) -> Bool[np.ndarray, " series"]:
    """Return which series choose the doubt: those that are not counts, unless they are few.

    Counts rest on a running mean, and on the combination only in part.
    """
    return ~counts if (~counts).sum() >= _FEWEST else np.full(counts.shape, True)


def choose_doubt(errors: Float[np.ndarray, "series doubt"]) -> float:
    """Return the doubt with the smallest mean error over all series, unless the default is close.

    A product that is sold no more is forecast perfectly by its last value, so that any other error
    is a multiple of it. Such errors count as little more than that of the last value.

    ``errors``: from :func:`errors_by_doubt` for each series
    """
    errors = np.minimum(errors[np.isfinite(errors).all(1)], _LARGEST_ERROR)
    if len(errors) < _FEWEST:
        return DOUBT
    best = int(np.argmin(errors.mean(0)))
    better = errors[:, _DOUBTS.index(DOUBT)] - errors[:, best]
    sure = better.mean() > better.std(ddof=1) / np.sqrt(len(better))
    return _DOUBTS[best] if sure else DOUBT
