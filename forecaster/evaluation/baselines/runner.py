"""Run baselines over all series and cutoffs."""

import contextlib
import dataclasses
import importlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from forecaster import swarm
from forecaster.errors import ForecasterWarning, UsageError, name_reasons, require
from forecaster.evaluation.baselines.simple import Job, logarithmic
from forecaster.evaluation.rolling_origin import Origins, RollingOrigin
from forecaster.evaluation.scores.returns import COLUMNS, session_variance
from forecaster.forecasting import (
    FORECAST_BY,
    Config,
    check_levels,
    columns_of_quantiles,
    growth_per_row,
    premium_of,
    quantiles_of,
    renamed_columns,
)
from forecaster.series import Panel, default_season, find_seasons

TORCH = "PyTorch"
"""The column of the networks that PyTorch trained."""


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A baseline, by name, so that it is imported only when it is used.

    - ``column``: its name in frames
    - ``module``: where the function of its name is, in :mod:`forecaster.evaluation.baselines`
    - ``library``: the library it needs; ``extra``: the extra of this package that installs it
    - ``together``: whether its function takes all series at once, as ``ets`` does
    - ``premium``: whether the mean of prices grows as in our forecasts instead of as in their
      past; for baselines that forecast how far prices move, but not in which direction
    - ``ranges``: whether it sees the range of each session, too
    - ``slow``: whether it runs on the workers of an executor, if there is one
    """

    name: str
    column: str
    module: str
    library: str = ""
    extra: str = ""
    together: bool = False
    premium: bool = False
    ranges: bool = False
    slow: bool = False

    def load(self) -> Callable[..., Any]:
        """Return its function."""
        module = importlib.import_module(f"forecaster.evaluation.baselines.{self.module}")
        return getattr(module, self.name)


class Result(NamedTuple):
    """Forecasts (origin, horizon, quantile) of a series, NaN where the baseline failed.

    - ``reason``: why forecasts are missing, all or some
    """

    forecasts: np.ndarray
    reason: str = ""
    seconds: float = 0.0


_EVERY = (
    Baseline("naive", "Naive", "simple"),
    Baseline("drift", "Drift", "simple"),
    Baseline("seasonal_naive", "SeasonalNaive", "simple"),
    Baseline("empirical", "Empirical", "simple", premium=True),
    Baseline("ewma", "EWMA", "simple", premium=True),
    Baseline("har", "HAR", "volatility", premium=True),
    Baseline("garch", "GARCH", "volatility", "arch", "garch", premium=True, slow=True),
    Baseline("gjr", "GJR", "volatility", "arch", "garch", premium=True, slow=True),
    Baseline("log_har", "LogHAR", "volatility", premium=True, ranges=True),
    Baseline("range_garch", "RangeGARCH", "volatility", premium=True, ranges=True, slow=True),
    Baseline("ets", "ETS", "simple", together=True),
    Baseline("theta", "Theta", "simple", together=True),
    Baseline("ces", "CES", "simple", together=True),
    Baseline("croston", "Croston", "simple"),
    Baseline("sba", "SBA", "simple"),
    Baseline("tsb", "TSB", "simple"),
    Baseline("adida", "ADIDA", "simple"),
)
BASELINES = {baseline.name: baseline for baseline in _EVERY}


def forecast(
    panel: Panel,
    cutoffs: ArrayLike,
    name: str,
    *,
    horizon: int = 5,
    level: Sequence[float] = (80, 95),
    season: int | Sequence[int] | None = None,
    premium: float | None = None,
) -> pd.DataFrame:
    """Forecast all series by one baseline.

    - ``cutoffs``: times of the panel
    - ``name``: one of :data:`BASELINES`
    - ``horizon``: number of steps ahead; ``level``: levels of the bands, in percent
    - ``season``: steps in a season, or in several; by default by the frequency, or, where times are
      whole numbers, detected in each series
    - ``premium``: the growth of the mean of prices, as in :class:`forecaster.Config`, for baselines
      that forecast a volatility (:class:`Baseline`). None: each has its own drift

    Rows that were flagged at the first cutoff are left out, as in training networks.

    Returns a frame like that of :func:`forecaster.cross_validation`: ``unique_id, ds, cutoff, y``,
    the median and bounds per level, NaN where too few rows are known for the baseline or it fails
    on a series. A warning says so, and why.

    Raises UsageError for an unknown baseline, or one whose library is not installed.
    """
    check_available([name])
    check_columns([name], panel.channels)
    positions = np.flatnonzero(np.isin(panel.times, np.asarray(cutoffs, panel.times.dtype)))
    known = panel
    if len(positions):  # leave out the rows that networks do not learn from
        first = panel.times[positions[0]]
        panel, known = panel.masked(first, forecasting=True), panel.until(first)
    origins = Origins.from_panel(panel, positions, horizon)
    config = Config(horizon=horizon, season=season, premium=premium)  # pyright: ignore
    runner = Runner([name], config, known, level)
    forecasts = runner.run(origins)
    if failed := runner.failed[name]:
        warnings.warn(
            f"{name} failed on {len(failed)} series:\n{name_reasons(failed)}",
            ForecasterWarning,
            stacklevel=2,
        )
    return pd.concat([origins.keys, forecasts], axis=1)


class Runner:
    """Makes the forecasts of some baselines.

    - ``names``: names of :data:`BASELINES`, each once, that are available here
    - ``config``: its horizon, season and premium. Of several seasons the shortest is used; the
      premium is the growth of some baselines (:class:`Baseline`), None: each has its own
    - ``known``: series up to the first cutoff, whose frequency decides on the season where the
      settings have none; where times are whole numbers, the shortest season of each series counts
    - ``level``: levels of the bands in percent
    - ``executor``: where slow baselines run, one series on each core; None: in this process
    - ``torch``: the networks that PyTorch trained for some series, None if there are none, and the
      series that it could not train, with the reason

    While it runs, ``failed`` collects the series that each baseline failed on, with the reason, and
    ``seconds`` the time of each baseline.
    """

    def __init__(
        self,
        names: Sequence[str],
        config: Config,
        known: Panel,
        level: Sequence[float],
        executor: swarm.Executor | None = None,
        torch: tuple[RollingOrigin | None, Mapping[str, str]] = (None, {}),
    ):
        self.baselines = [BASELINES[name] for name in names]
        self.failed: dict[str, dict[str, str]] = {name: {} for name in names}
        self.torch, self.failed["torch"] = torch[0], dict(torch[1])
        self.seconds: dict[str, float] = dict.fromkeys(names, 0.0)
        self._horizon, self._levels = config.horizon, check_levels(level)
        self._quantiles = quantiles_of(self._levels)
        self._season = None if config.season is None else int(np.min(config.season))
        if config.season is None and known.frequency.alias != "step":
            self._season = default_season(known.frequency)
        self._premium, self._executor = premium_of(config, known), executor

    def run(self, origins: Origins) -> pd.DataFrame:
        """Forecast by all baselines, a row per entry of ``origins``; NaN where one failed."""
        columns = {}
        for baseline in self.baselines:
            quantiles = self._forecasts(baseline, origins)
            columns |= columns_of_quantiles(baseline.column, quantiles, self._levels)
        if self.torch is None:
            return pd.DataFrame(columns)
        theirs = self.torch.forecasts(origins).drop(columns=FORECAST_BY, errors="ignore")
        names = renamed_columns(theirs, self.torch.config.column, TORCH)
        return pd.DataFrame(columns).join(theirs.rename(columns=names))

    def _forecasts(self, baseline: Baseline, origins: Origins) -> np.ndarray:
        """Return the quantiles of every entry, (entry, quantile)."""
        out = np.full((len(origins.row), len(self._quantiles)), np.nan)
        rows = np.unique(origins.row).tolist()
        jobs = [self._job(baseline, origins, row) for row in rows]
        results = throughout(baseline, jobs, self._executor)
        for row, job, result in zip(rows, jobs, results, strict=True):
            self.seconds[baseline.name] += result.seconds
            if result.reason:
                self.failed[baseline.name][origins.panel.ids[row]] = result.reason
            entries = np.flatnonzero(origins.row == row)
            steps = origins.step[entries] - origins.histories.first[row]
            positions = np.searchsorted(job.origins, steps)
            out[entries] = result.forecasts[positions, origins.ahead[entries]]
        return out

    def _job(self, baseline: Baseline, origins: Origins, row: int) -> Job:
        """Return a series' history from its first observation, and the steps to forecast from."""
        target = origins.panel.channels.index(origins.panel.target)
        first = origins.histories.first[row]
        y = origins.histories.values[row, first:, target]
        steps = np.unique(origins.step[origins.row == row]) - first
        known, season, growth, variance = y[: steps[0] + 1], self._season, math.nan, None
        if season is None:
            season = min(find_seasons(known), default=1)
        if self._premium is not None and logarithmic(known):
            positions = origins.histories.positions[row, first : first + len(known)]
            growth = growth_per_row(self._premium, origins.panel.times[positions])
        if baseline.ranges:
            columns = [origins.panel.channels.index(name) for name in COLUMNS]
            variance = session_variance(y, origins.histories.values[row, first:, columns])
        return Job(y, steps, self._horizon, self._quantiles, season, growth, variance)


def check_available(names: Sequence[str], model: str | None = None) -> None:
    """Raise UsageError for a baseline that is unknown or whose library is not installed.

    ``model``: the model compared with the baselines; none of them may have its name
    """
    for name in names:
        if name not in BASELINES:
            raise UsageError(f"no baseline {name!r}; there are {', '.join(BASELINES)} and torch")
        if name == model:
            raise UsageError(f"baseline {name} is the model itself: leave one of them out")
        if BASELINES[name].library:
            require(BASELINES[name].library, BASELINES[name].extra, f"baseline {name}")


def check_columns(names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise UsageError for a baseline that sees the ranges of sessions where there are none."""
    missing = [column for column in COLUMNS if column not in columns]
    for name in names:
        if BASELINES[name].ranges and missing:
            raise UsageError(
                f"baseline {name} sees the range of each session, from the columns "
                f"{', '.join(COLUMNS)}; these data lack {', '.join(missing)}. Leave it out"
            )


def check_torch(config: Config, *, refit: bool | int = False) -> None:
    """Raise UsageError where the PyTorch baseline cannot be trained."""
    require("torch", "torch", "baseline torch")
    if refit is not False:
        raise UsageError(
            "baseline torch trains only once and cannot be used with --refit; leave one of them out"
        )
    if config.is_classical or config.network != "lstm":
        raise UsageError(f"baseline torch is an LSTM; got model {config.model}. Leave it out")


def throughout(
    baseline: Baseline, jobs: Sequence[Job], executor: swarm.Executor | None = None
) -> list[Result]:
    """Forecast each series from every origin; NaN where a baseline needs more rows."""
    pieces = [_pieces(job) for job in jobs]
    every = list(itertools.chain(*pieces))
    parts = [every] if baseline.together else [[piece] for piece in every]
    workers = executor if executor is not None and baseline.slow else swarm.Local()
    results: list[list[Result]] = [[] for _ in parts]
    done = workers.run(_forecast, baseline, list(enumerate(parts)), per_core=True)
    with contextlib.closing(done):
        for (number, part), made in done:
            if isinstance(made, swarm.Failed):
                made = [_failed(job, made.reason) for job in part]
            results[number] = made
    in_order = itertools.chain(*results)
    return [_joined(list(itertools.islice(in_order, len(some)))) for some in pieces]


def _pieces(job: Job) -> list[Job]:
    """Return a job in two where its series, above zero at first, falls to zero or below.

    It has logarithms up to there; from later origins it is forecast without. The values up to the
    first origin decide whether the series counts as above zero.
    """
    bad = np.flatnonzero(job.y <= 0)
    if not len(bad) or bad[0] <= job.origins[0]:
        return [job]
    before = job.origins < bad[0]
    variance = None if job.variance is None else job.variance[: bad[0]]
    first = job._replace(y=job.y[: bad[0]], origins=job.origins[before], variance=variance)
    rest = job._replace(origins=job.origins[~before], growth=math.nan)
    return [first] if before.all() else [first, rest]


def _joined(pieces: Sequence[Result]) -> Result:
    """Return the result of a job from the results of its pieces."""
    forecasts = np.concatenate([piece.forecasts for piece in pieces])
    lost = int(np.isnan(forecasts).any((1, 2)).sum())
    some = f"no forecasts from {lost} of {len(forecasts)} cutoffs" if lost else ""
    return Result(forecasts, pieces[0].reason or some, sum(piece.seconds for piece in pieces))


def _forecast(baseline: Baseline, numbered: tuple[int, list[Job]]) -> list[Result]:
    """Forecast some series; the results of a baseline that fails say why."""
    jobs, began = numbered[1], time.perf_counter()
    try:
        with np.errstate(over="ignore"):
            function = baseline.load()
            made = function(jobs) if baseline.together else [function(jobs[0])]
        results = [_result(baseline, *one) for one in zip(made, jobs, strict=True)]
    except Exception as error:
        results = [_failed(job, reason_of(error)) for job in jobs]
    seconds = (time.perf_counter() - began) / max(1, len(jobs))
    return [result._replace(seconds=seconds) for result in results]


def _failed(job: Job, reason: str) -> Result:
    """Return the result of a job without any forecast."""
    return Result(np.full((len(job.origins), job.horizon, len(job.quantiles)), np.nan), reason)


def reason_of(error: Exception) -> str:
    """Return the kind of an error, and the first line of its message."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _result(baseline: Baseline, forecasts: np.ndarray, job: Job) -> Result:
    """Return forecasts (origin, horizon, quantile) with the growth; infinite ones are a failure.

    They are moved in logarithms as a whole: the median grows by half the variance less than the
    mean. The variance is that of a normal distribution with the widest band.
    """
    if np.isinf(forecasts).any():
        return _failed(job, "ValueError: its forecasts are infinite")
    if not baseline.premium or math.isnan(job.growth):
        return Result(forecasts)
    low, middle, high = 0, len(job.quantiles) // 2, -1  # they are ascending
    ahead, scores = np.arange(1, job.horizon + 1), ndtri(job.quantiles[[low, high]])
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.log(forecasts[..., high] / forecasts[..., low])
        variance = (width / max(np.diff(scores)[0], 1.0)) ** 2
        wanted = job.y[job.origins][:, None] * np.exp(job.growth * ahead - variance / 2)
        return Result(forecasts * (wanted / forecasts[..., middle])[..., None])
