"""A direct linear model of seasonal lags: a regression for each step ahead, of all series at once.

Forecasts are counted from the mean of the latest season. The features are the latest values, means
over longer windows and, for each season, the recent values at the phase that is forecast. The
least-squares weights of a series are shrunk towards the panel's, as by further rows (a conjugate
prior: Lindley & Smith 1972, Journal of the Royal Statistical Society B 34). Large errors count less
(Huber 1964, Annals of Mathematical Statistics 35). Direct models: Marcellino, Stock & Watson 2006,
Journal of Econometrics 135; global ones: Montero-Manso & Hyndman 2021, International Journal of
Forecasting 37.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from msgspec import Meta

from forecaster.classical.rows import batches, shift

Row: TypeAlias = Float[np.ndarray, " time"]
Values: TypeAlias = Float[np.ndarray, "series time"]

_OWN_ROWS = 20.0  # rows of the panel beside a series' own
_RIDGE = 0.003  # relative to the variance of each feature
_HUBER = 2.0  # errors count fully up to this multiple of their median
_ROUNDS = 3  # of weighting
_MOST_ROWS = 2000  # latest rows that are learned from
_MOST_CELLS = 2**22  # cells of the features of some series for one step ahead
_YEAR = 364  # days: as many weeks
_YEARS = 3  # before, that count
_MONTH, _WEEK = 28, 7


class Pool(NamedTuple):
    """What the regressions of a panel's series share, by step ahead.

    - ``gram``: mean products of features
    - ``weights``: the regression of all series
    - ``rows``: of the middle one of them
    """

    gram: Float[np.ndarray, "horizon feature feature"]
    weights: Float[np.ndarray, "horizon feature"]
    rows: float


class Linear(NamedTuple):
    """The regressions of one series.

    - ``size``: the mean absolute change from one value to the next
    - ``weights``: of the features, in units of the size
    """

    size: Annotated[float, Meta(gt=0)]
    weights: Float[np.ndarray, "horizon feature"]


def count_of_features(seasons: Sequence[int], *, yearly: bool) -> int:
    """Return the number of features of series with such seasons."""
    return len(_common_features(np.zeros((1, 2)), seasons)[1]) + 2 * len(seasons) + 2 * yearly


def learn_pool(rows: Sequence[Row], seasons: Sequence[int], horizon: int, *, yearly: bool) -> Pool:
    """Return what the regressions of series share; ``seasons``: of all of them, shortest first.

    A step ahead of which fewer than a season of outcomes are known has the regression of the step
    one season nearer: the other steps would show too few phases of the season.
    """
    parts = [_Part(batch.values, batch.lengths, seasons, yearly) for batch in batches(rows)]
    season = _YEAR if yearly else max(seasons, default=0)
    grams: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for k in range(1, horizon + 1):
        examples = [part.examples(k) for part in parts]
        usual = float(np.median(np.concatenate([one.count for one in examples])))
        if k > season > usual:  # examples of the middle series
            grams.append(grams[-season])
            weights.append(weights[-season])
            continue
        gram, common = _pooled(examples)
        for _ in range(_ROUNDS - 1):
            for one in examples:
                one.weigh(one.solve(gram, common))
            gram, common = _pooled(examples)
        grams.append(gram)
        weights.append(common)
    middle = float(np.median([len(row) for row in rows]))
    return Pool(np.array(grams, np.float32), np.array(weights, np.float32), middle)


def fit_linear(
    rows: Sequence[Row], seasons: Sequence[int], pool: Pool, *, yearly: bool
) -> list[Linear]:
    """Return the regression of each series, shrunk towards the regression of the panel."""
    fitted: list[Linear] = [Linear(np.nan, pool.weights)] * len(rows)
    for batch in batches(rows, _at_once(rows)):
        part = _Part(batch.values, batch.lengths, seasons, yearly)
        made = []
        shared = (part.astype(float) for part in pool[:2])
        for k, (gram, common) in enumerate(zip(*shared, strict=True), start=1):
            one = part.examples(k)
            weights = one.solve(gram, common)
            for _ in range(_ROUNDS - 1):
                one.weigh(weights)
                weights = one.solve(gram, common)
            made.append(weights)
        of_series = np.stack(made, axis=1).astype(np.float32)
        for row, where in enumerate(batch.where):
            fitted[where] = Linear(float(part.size[row, 0]), of_series[row])
    return fitted


def linear_ahead(
    rows: Sequence[Row],
    models: Sequence[Linear],
    seasons: Sequence[int],
    horizon: int,
    since: Sequence[int],
    *,
    yearly: bool,
) -> list[Float[np.ndarray, "time horizon"]]:
    """Return the forecasts made at each value of each series since a position; NaN before."""
    out = [np.full((len(row), horizon), np.nan) for row in rows]
    for batch in batches(rows, _at_once(rows)):
        size = np.array([models[where].size for where in batch.where])
        weights = np.array([models[where].weights for where in batch.where], float)
        part = _Part(batch.values, batch.lengths, seasons, yearly, size)
        first = min(since[where] for where in batch.where)
        some = slice(first, None)
        for k in range(1, horizon + 1):
            x = np.nan_to_num(part.features(k, some))
            made = np.einsum("ntf,nf->nt", x, weights[:, k - 1]) * part.size + part.level[:, some]
            for row, where in enumerate(batch.where):
                begin, end = since[where], len(rows[where])
                out[where][begin:, k - 1] = made[row, begin - first : end - first]
    return out


class _Examples:
    """Features and outcomes of series for one step ahead, and the weight of each."""

    def __init__(self, x: np.ndarray, z: np.ndarray, known: np.ndarray):
        self.x, self.z, self.known = x, z, known
        self.weight = known.astype(float)
        self.count = known.sum(1)

    def solve(self, gram: np.ndarray, common: np.ndarray) -> Float[np.ndarray, "series feature"]:
        """Return the regression of each series, shrunk towards the common one."""
        own, along = self.products()
        right = along + _OWN_ROWS * (gram @ common)
        return np.linalg.solve(own + _OWN_ROWS * gram, right[..., None])[..., 0]

    def products(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the products of features, and of features and outcomes, of each series."""
        weighted = (self.x * self.weight[..., None]).swapaxes(1, 2)
        return weighted @ self.x, (weighted @ self.z[..., None])[..., 0]

    def weigh(self, weights: Float[np.ndarray, "series feature"]) -> None:
        """Let large errors of a regression count less."""
        rest = np.abs(self.z - np.einsum("ntf,nf->nt", self.x, weights))
        usual = np.full((len(rest), 1), np.nan)
        some = self.known.any(1)
        usual[some] = np.nanmedian(np.where(self.known[some], rest[some], np.nan), 1, keepdims=True)
        limit = _HUBER * np.where(np.isfinite(usual), usual, 1.0) + 1e-12
        self.weight = self.known / np.maximum(rest / limit, 1.0)


class _Part:
    """The features of some series at every value; ``size``: by default of the values given."""

    def __init__(
        self,
        values: Values,
        lengths: Int[np.ndarray, " series"],
        seasons: Sequence[int],
        yearly: bool,  # noqa: FBT001
        size: Float[np.ndarray, " series"] | None = None,
    ):
        self.steps = np.arange(values.shape[1])
        self.y = np.where(self.steps < lengths[:, None], values, np.nan)
        self.lengths, self.seasons, self.yearly = lengths[:, None], seasons, yearly
        if size is None:
            changes = np.abs(np.diff(self.y))
            size = np.nansum(changes, 1) / np.maximum(np.isfinite(changes).sum(1), 1)
        assert size is not None
        self.size = np.where(size > 0, size, 1.0)[:, None]
        self.level, self.fixed = _common_features(self.y, seasons)
        if yearly:
            self.month = _window_mean(self.y, _MONTH)

    def features(self, k: int, some: slice) -> Float[np.ndarray, "series time feature"]:
        """Return what is known at some steps of ``k`` steps ahead; NaN where it is not."""

        def before(values: Values, back: int) -> Values:
            return shift(values, back)[:, some]

        found = [one[:, some] for one in self.fixed]
        for season in self.seasons:
            back = season * -(-k // season) - k
            found.append(before(self.y, back))
            found.append(_mean([before(self.y, back + season * i) for i in range(4)]))
        made = [one - self.level[:, some] for one in found]
        if self.yearly:  # how the level went on before, and how the day differed from its week
            first = 1 + (k + 2) // _YEAR  # only what is known
            days = [_YEAR * i for i in range(first, first + _YEARS)]
            month, y, level = self.month, self.y, self.level
            made.append(_mean([before(month, n - k) - before(month, n) for n in days]))
            made.append(_mean([before(y, n - k) - before(level, n - k - 3) for n in days]))
        return np.stack(made, axis=-1) / self.size[..., None]

    def examples(self, k: int) -> _Examples:
        """Return the latest examples whose outcome is known."""
        last = int(self.lengths.max()) - k
        some = slice(max(last - _MOST_ROWS, 0), max(last, 0))
        x = self.features(k, some)
        z = (self.y[:, k:][:, some] - self.level[:, some]) / self.size
        x = x[:, : z.shape[1]]
        known = np.isfinite(x).all(-1) & np.isfinite(z)
        return _Examples(np.where(known[..., None], x, 0.0), np.where(known, z, 0.0), known)


def _common_features(y: Values, seasons: Sequence[int]) -> tuple[Values, list[Values]]:
    """Return the level, and the features that are the same for each step ahead."""
    first, longest = (seasons[0], seasons[-1]) if seasons else (1, 1)
    widths = sorted({first, 4 * first, 8 * first, longest})
    means = [_window_mean(y, width) for width in widths]
    fixed = [y, shift(y, 1), *means[1:]] if first > 1 else [shift(y, 1), *means[1:]]
    fixed += [shift(y, season) for season in seasons]
    if not seasons:
        fixed += [shift(y, 2), shift(y, 3)]
    return means[0], fixed


def _mean(values: Sequence[Values]) -> Values:
    """Return the mean of the finite values; NaN where there is none."""
    known = np.isfinite(values)
    count = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _window_mean(y: Values, width: int) -> Values:
    """Return the mean of the latest values at each step, as many as there are."""
    known = np.isfinite(y)
    total, count = (np.cumsum(part, 1, dtype=float) for part in (np.where(known, y, 0.0), known))
    if width < y.shape[1]:
        total, count = (
            part - np.pad(part, ((0, 0), (width, 0)))[:, :-width] for part in (total, count)
        )
    return np.where(known, total / np.maximum(count, 1), np.nan)


def _pooled(examples: Sequence[_Examples]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean products of features and the regression of all series.

    Long series count for more, but not in proportion to their length.
    """
    total, grams, alongs = 0.0, 0.0, 0.0
    for one in examples:
        share = 1 / np.sqrt(np.maximum(one.count, 1))
        own, along = one.products()
        total += (share * one.count).sum()
        grams += np.einsum("n,nij->ij", share, own)
        alongs += share @ along
    gram = grams / max(total, 1.0)
    diagonal = np.diag(gram)
    gram = gram + np.diag(_RIDGE * diagonal + 1e-6 * diagonal.mean() + 1e-12)
    return gram, np.linalg.solve(gram, alongs / max(total, 1.0))


def _at_once(rows: Sequence[Row]) -> int:
    longest = max(map(len, rows), default=1)
    return max(1, _MOST_CELLS // (16 * longest))
