"""The combined transform: features are the errors of a combination of simple forecasts."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.calendar.gaps import regular_spacing, without_gaps
from forecaster.series.calendar.seasons import seasons_of
from forecaster.series.causal import shift, squash
from forecaster.series.features.anchors import (
    DOUBT,
    Ahead,
    Shares,
    combine,
    decayed_errors,
    errors_by_doubt,
    log_errors,
    shares_of,
    smoothed,
)
from forecaster.series.features.counts import (
    CountPrior,
    are_counts,
    count_forecasts,
    learn_counts,
)
from forecaster.series.features.experts import (
    NO_EXPERTS,
    Experts,
    basic_season,
    experts_ahead,
    fit_experts,
)
from forecaster.series.panel.panel import Panel

FEATURES = 10
_DOUBTS = (0.0, DOUBT, 1.0, 3.0)
_FEWEST, _MOST = 8, 60  # series from which the doubt is chosen
_MOST_COUNTS = 250  # series from which the properties of counts are learned
_JUDGED = 20  # horizons at the end of a series that its models are judged on, at most
_MEMORY = 100  # rows of the mean error of zero
_MOST_OPTIMISM = 0.25  # logarithm of a ratio of scales, at most
_SURE = 0.8  # of the error of zero, below which a sparse series is forecast by the combination
_FEW_ROWS = 8  # up to which a series says little of what is usual
_USUAL = 2.0  # errors that the usual change counts for
_CLEAR = 20  # cycles in which a series clearly shows a season of its own
_VOTES, _MAJORITY = 0.2, 0.5  # of all series, and of those with a season, for a common one
_TO_DEVIATION = 1.2533  # standard deviation over mean absolute value, of a normal distribution


@dataclasses.dataclass(frozen=True)
class Nature:
    """Properties of one series, found when it was fitted.

    - ``logarithmic``: whether networks see its logarithm
    - ``seasons``: the steps in each season, shortest first; empty where it has none
    - ``spacing``: at which rows are expected, see :func:`regular_spacing`
    - ``experts``: classical models, fitted on its first rows
    - ``nonnegative``: whether it has zeros but nothing below, as counts do; then no forecast lies
      below zero
    - ``sparse``: whether more than half of its values are zero, so that zero is its median
    - ``counts``: whether its values are small whole numbers, and a distribution of counts is
      forecast
    """

    logarithmic: bool = False
    seasons: tuple[int, ...] = ()
    spacing: float = 0.0
    experts: Experts = NO_EXPERTS
    nonnegative: bool = False
    sparse: bool = False
    counts: bool = False

    @staticmethod
    def of(times: np.ndarray, values: np.ndarray, seasons: Sequence[int] | None) -> "Nature":
        """Find the properties of one series; ``seasons``: given by the user, or None to find."""
        counts = are_counts(values)
        logarithmic = bool((values > 0).all()) and not counts
        z = np.log(values) if logarithmic else values
        found = tuple(seasons_of(times, z) if seasons is None else seasons)
        zeros = not logarithmic and bool((values >= 0).all())
        sparse = zeros and bool((values == 0).mean() > 0.5)
        return Nature(
            logarithmic, found, regular_spacing(times),
            nonnegative=zeros, sparse=sparse, counts=counts,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**dataclasses.asdict(self), "experts": self.experts.to_json()}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Nature":
        """Read what :meth:`to_json` returned, also in older versions.

        Raises KeyError, TypeError or ValueError for anything else.
        """
        experts = fields.get("experts")
        return Nature(
            bool(fields["logarithmic"]),
            tuple(map(int, fields["seasons"])),
            float(fields.get("spacing", 0.0)),
            Experts() if experts is None else Experts.from_json(experts),
            bool(fields.get("nonnegative", False)),
            bool(fields.get("sparse", False)),
            bool(fields.get("counts", False)),
        )

    def without_gaps(
        self, values: Float[np.ndarray, " row"], times: np.ndarray
    ) -> tuple[Float[np.ndarray, " step"], Int[np.ndarray, " row"]]:
        """Return the values with missing rows filled, and the steps of the rows there."""
        season = self.seasons[0] if self.seasons else 1
        return without_gaps(values, times, self.spacing, season)

    def as_features(self, forecasts: Ahead) -> Ahead:
        """Return forecasts in the units that networks see; NaN where there is no logarithm."""
        if not self.logarithmic:
            return forecasts
        return np.log(np.where(forecasts > 0, forecasts, np.nan))


def combined(
    z: Float[np.ndarray, " step"],
    seasons: Sequence[int],
    horizon: int,
    doubt: float = DOUBT,
    experts: Sequence[Ahead] = (),
    shares: Shares | None = None,
    *,
    alone: int | None = None,
    sparse: bool = False,
    counts: CountPrior | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return base and scale by horizon, and the features, of one series.

    - ``sparse``: see :class:`Nature`; the base is then zero, unless the errors of the combination
      have been much smaller
    - ``counts``: what the counts of a panel have in common, for a series of counts; base and scale
      are then mean and standard deviation of the counts
    - others as of :func:`forecaster.series.features.anchors.combine`
    """
    basic = seasons[0] if seasons else 1
    base, errors = combine(z, seasons, horizon, doubt, experts, shares, alone)
    deviation: Ahead | None = None
    if counts is not None:
        base, deviation = count_forecasts(z, base, counts)
    elif sparse and alone is None:
        of_zero = decayed_errors(np.zeros(base.shape), z, 1 - 1 / _MEMORY)
        base = np.where(errors < _SURE * of_zero, base, 0.0)
    floor = 1e-12 + 1e-4 * smoothed(np.abs(z - smoothed(z, 0.999)), 0.999)[:, None]
    fast, slow = (
        _TO_DEVIATION * decayed_errors(base, z, 1 - 1 / max(steps, cycles * basic)) + floor
        for steps, cycles in ((16, 2), (66, 7))
    )
    scale = _known_throughout(np.sqrt((fast**2 + slow**2) / 2))
    scale = scale if deviation is None else deviation

    def surprise(column: int) -> np.ndarray:
        """Return the error of the forecast for each step, in units of that forecast's scale."""
        made, unit = (_later(part[:, column], column + 1) for part in (base, scale))
        return (z - made) / unit

    def change(season: int) -> np.ndarray:
        return (z - _later(z, season)) / scale[:, 0]

    level, trend = smoothed(z, 0.95), smoothed(z, 0.7)
    farthest, unit = horizon - 1, scale[:, -1]
    features = [
        squash(surprise(0)),
        np.log(np.abs(surprise(0)) + 0.1),
        squash(np.log(fast[:, 0] / slow[:, 0])),
        squash(surprise(farthest // 2)),
        squash(surprise(farthest)),
        squash((z - level) / unit),
        squash((trend - level) / unit),
        squash(change(basic)),
        squash(change(seasons[-1])) if seasons else np.zeros(len(z)),
        squash((z - base[:, -1]) / unit),
    ]
    return base, scale, np.stack(features, axis=-1)


def _known_throughout(scale: Ahead) -> Ahead:
    """Return the scale, for horizons without an error yet as that of a random walk."""
    for column in range(1, scale.shape[1]):
        unknown = np.isnan(scale[:, column])
        longer = np.sqrt((column + 1) / column)
        scale[unknown, column] = scale[unknown, column - 1] * longer
    return scale


def with_few_errors(
    scale: Ahead, z: Float[np.ndarray, " step"], unit: Float[np.ndarray, "step 1"] | float
) -> Ahead:
    """Return the scale of a series of a few rows, shrunk to what is usual in a panel.

    ``unit``: the usual change from one row to the next
    """
    horizon = int(scale.shape[1])
    errors = np.arange(len(z), dtype=float)[:, None]  # that are known
    ahead = np.arange(1, horizon + 1, dtype=float)
    own = np.square(np.where(errors > 0, scale, 0.0))
    usual = np.square(np.asarray(unit, float)) * ahead
    return np.sqrt((errors * own + _USUAL * usual) / (errors + _USUAL))


def usual_change(
    rows: Sequence[Float[np.ndarray, " step"]], natures: Sequence[Nature]
) -> float | None:
    """Return the median change of series from one row to the next, in units of their level.

    None where no series has rows enough. Arguments as of :func:`learn_weights`.
    """
    changes = [
        float(np.abs(np.diff(np.log(row) if nature.logarithmic else row)).mean())
        / (1.0 if nature.logarithmic else np.abs(row).mean())
        for row, nature in zip(rows, natures, strict=True)
        if len(row) > _FEW_ROWS and np.abs(row).any()
    ]
    return float(np.median(changes)) if changes else None


def learn_weights(
    rows: Sequence[Float[np.ndarray, " step"]], natures: Sequence[Nature], horizon: int
) -> tuple[float, Shares | None]:
    """Return the doubt and the shares with the smallest errors in the past of all series.

    The classical models are fitted on the earlier half of each series, and judged on the later. The
    doubt is the default, unless another is better by more than the standard error of the
    difference. Shares are None where no series has errors of all models.

    - ``rows``: the values of each series, without gaps
    - ``natures``: of each series
    """
    every = max(1, len(rows) // _MOST)
    rows, natures = rows[::every], natures[::every]
    cuts = [max(len(row) // 2, len(row) - _JUDGED * horizon, 1) for row in rows]
    seasons = [basic_season(nature.seasons) for nature in natures]
    fitted = fit_experts([row[:cut] for row, cut in zip(rows, cuts, strict=True)], seasons)
    made = experts_ahead(rows, fitted, horizon)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [
            np.log(row) if one.logarithmic else row for row, one in zip(rows, natures, strict=True)
        ]
    series = [
        (z, nature.seasons, [nature.as_features(one) for one in of], cut)
        for z, nature, of, cut in zip(logs, natures, made, cuts, strict=True)
    ]
    errors = np.array([log_errors(z, its, horizon, of, cut - 1) for z, its, of, cut in series])
    shares = shares_of(errors) if np.isfinite(errors).any() else None
    by_doubt = np.array(
        [errors_by_doubt(z, its, horizon, _DOUBTS, of, shares, cut) for z, its, of, cut in series]
    )
    return choose_doubt(by_doubt), shares


def learn_optimism(
    rows: Sequence[Float[np.ndarray, " step"]],
    natures: Sequence[Nature],
    horizon: int,
    doubt: float,
    shares: Shares | None,
    alone: int | None = None,
) -> float:
    """Return how much larger errors are than those that classical models were fitted to.

    It is the mean ratio, over a panel, of the latest scale by models that were fitted on the
    earlier half of a series to that by models that were fitted on the whole; 1 at least.

    - ``doubt, shares, alone``: of :func:`combined`, which has the other arguments, too
    """
    fitted_on = [row for row, nature in enumerate(natures) if not nature.counts]
    fitted_on = fitted_on[:: max(1, len(fitted_on) // _MOST)]
    rows, natures = [rows[row] for row in fitted_on], [natures[row] for row in fitted_on]
    seasons = [basic_season(nature.seasons, alone=alone is not None) for nature in natures]
    scales: list[list[np.ndarray]] = []
    for known in ([row[: max(len(row) // 2, 1)] for row in rows], rows):
        fitted = fit_experts(known, seasons)
        made = experts_ahead(rows, fitted, horizon)
        scales.append(
            [
                combined(
                    np.log(row) if nature.logarithmic else row, nature.seasons, horizon, doubt,
                    [nature.as_features(one) for one in of] if experts.learned else (), shares,
                    alone=alone, sparse=nature.sparse,
                )[1][-1]
                for row, nature, experts, of in zip(rows, natures, fitted, made, strict=True)
            ]
        )  # fmt: skip
    halves, wholes = (np.array(each).reshape(-1, horizon) for each in scales)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(halves / wholes)
    ratios = np.clip(ratios[np.isfinite(ratios)], 0.0, _MOST_OPTIMISM)
    return float(np.exp(ratios.mean())) if len(ratios) else 1.0


def widened_for(
    experts: Experts, scale: Ahead, optimism: float
) -> Float[np.ndarray, "step horizon"]:
    """Return the scale of errors that classical models were fitted to, as of those that come.

    The more rows follow those that the models were fitted on, the less it is widened: with as many
    again not at all.

    ``optimism``: of :func:`learn_optimism`
    """
    if not experts.learned:
        return scale
    share = experts.learned / np.maximum(np.arange(1, len(scale) + 1), experts.learned)
    return scale * optimism ** np.maximum(2 * share - 1, 0.0)[:, None]


def learn_count_prior(
    rows: Sequence[Float[np.ndarray, " step"]],
    natures: Sequence[Nature],
    horizon: int,
    doubt: float,
    shares: Shares | None,
) -> CountPrior:
    """Return what the counts of a panel have in common, see :func:`learn_counts`.

    ``doubt, shares``: of :func:`learn_weights`, whose other arguments these are
    """
    counted = [row for row, nature in enumerate(natures) if nature.counts]
    counted = counted[:: max(1, len(counted) // _MOST_COUNTS)]
    rows, natures = [rows[row] for row in counted], [natures[row] for row in counted]
    seasons = [basic_season(nature.seasons) for nature in natures]
    fitted = fit_experts([row[: max(len(row) // 2, 1)] for row in rows], seasons)
    made = experts_ahead(rows, fitted, horizon)
    combinations = [
        combine(row, nature.seasons, horizon, doubt, of if one.learned else (), shares).base
        for row, nature, one, of in zip(rows, natures, fitted, made, strict=True)
    ]
    return learn_counts(rows, combinations)


def choose_doubt(errors: Float[np.ndarray, "series doubt"]) -> float:
    """Return the doubt with the smallest mean error over all series.

    It is the default, unless another is better by more than the standard error of the difference.

    ``errors``: of :func:`errors_by_doubt` for each series
    """
    errors = errors[np.isfinite(errors).all(1)]
    if len(errors) < _FEWEST:
        return DOUBT
    best = int(np.argmin(errors.mean(0)))
    better = errors[:, _DOUBTS.index(DOUBT)] - errors[:, best]
    sure = better.mean() > better.std(ddof=1) / np.sqrt(len(better))
    return _DOUBTS[best] if sure else DOUBT


def natures_of(
    panel: Panel, seasons: Sequence[int] | None, common: Sequence[int] = ()
) -> dict[str, Nature]:
    """Return the :class:`Nature` of each series of a panel, by name, without classical models.

    - ``seasons``: given by the user, or None to find
    - ``common``: of :func:`common_seasons`, for series that do not clearly show their own
    """
    values = panel.channel(panel.target)
    natures = {
        name: Nature.of(panel.times[seen], values[row, seen], seasons)
        for row, (name, seen) in enumerate(zip(panel.ids, panel.mask, strict=True))
    }
    rows = dict(zip(panel.ids, map(int, panel.mask.sum(1)), strict=True))
    return {name: with_common(nature, common, rows[name]) for name, nature in natures.items()}


def common_seasons(natures: Mapping[str, Nature]) -> tuple[int, ...]:
    """Return the seasons that most of those series share which have any; empty for none.

    A short series may not show the season that its neighbours have.
    """
    found = Counter(nature.seasons for nature in natures.values() if nature.seasons)
    if not found:
        return ()
    seasons, count = min(found.items(), key=lambda item: (-item[1], item[0]))
    often = count >= _MAJORITY * found.total() and count >= _VOTES * len(natures)
    return seasons if often and len(natures) >= _FEWEST else ()


def with_common(nature: Nature, common: Sequence[int], rows: int) -> Nature:
    """Return the properties of a series with common seasons, unless it clearly shows its own.

    ``rows``: of the series; those found in a few cycles are less sure than those of a panel
    """
    own = set(nature.seasons)
    clear = bool(own) and rows >= _CLEAR * max(own)
    if not common or clear or set(common) <= own:
        return nature
    return dataclasses.replace(nature, seasons=tuple(common))


def _later(values: Float[np.ndarray, " step"], steps: int) -> Float[np.ndarray, " step"]:
    return shift(values[None], steps)[0]
