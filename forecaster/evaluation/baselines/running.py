"""Run baselines over all series and cutoffs, on all cores; forecasts of slow ones are cached."""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import importlib
import multiprocessing
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ForecasterWarning, UsageError, listed, name_reasons
from forecaster.evaluation.baselines.simple import logarithmic
from forecaster.evaluation.origins.rolling_origin import Origins
from forecaster.evaluation.scores.realized import COLUMNS, session_variance
from forecaster.extras import require
from forecaster.files import atomic
from forecaster.forecasting import (
    change_of,
    check_levels,
    columns_of_quantiles,
    premium_of,
    quantiles_of,
)
from forecaster.processes import cores, end_with_parent, memory_used
from forecaster.series import Panel, default_season, find_seasons

_VERSION = 3  # version of cached forecasts; raise it when a baseline's numbers change


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A baseline, by name, so that it is imported only when it is used.

    - ``column``: its name in frames
    - ``module``, ``function``: where it is defined in :mod:`forecaster.evaluation.baselines`
    - ``library``: the library it needs; ``extra``: the extra of this package that installs it
    - ``together``: whether its function takes all series at once, as those of ``statistical`` do
    - ``premium``: whether prices get the drift of our networks' forecasts instead of their past
      drift; for baselines that forecast how far prices move, but not in which direction
    - ``ranges``: whether it sees the range of each session, too
    """

    column: str
    module: str
    function: str
    library: str = ""
    extra: str = ""
    together: bool = False
    premium: bool = False
    ranges: bool = False

    @property
    def slow(self) -> bool:
        """Whether it runs in processes of its own and its forecasts are cached."""
        return bool(self.library)


class Job(NamedTuple):
    """One series to forecast; arguments as of :mod:`forecaster.evaluation.baselines.simple`.

    - ``drift``: expected change of its logarithm from one step to the next; None: a baseline's own
    - ``variance`` (step,): of each session, for a baseline that sees ranges
    """

    y: np.ndarray
    origins: np.ndarray
    horizon: int
    quantiles: np.ndarray
    season: int
    drift: float | None = None
    variance: np.ndarray | None = None


class Result(NamedTuple):
    """Forecasts (origin, horizon, quantile) of a series, or None where the baseline failed.

    - ``reason``: why forecasts are missing; if only some are, those are NaN
    - ``by_last_value``: the number of origins from which the last value stands in
    """

    forecasts: np.ndarray | None
    reason: str
    seconds: float
    by_last_value: int = 0


BASELINES = {
    "naive": Baseline("Naive", "simple", "naive"),
    "drift": Baseline("Drift", "simple", "drift"),
    "seasonal_naive": Baseline("SeasonalNaive", "simple", "seasonal_naive"),
    "empirical": Baseline("Empirical", "simple", "empirical", premium=True),
    "ewma": Baseline("EWMA", "simple", "ewma", premium=True),
    "har": Baseline("HAR", "har", "har", premium=True),
    "garch": Baseline("GARCH", "garch", "garch", "arch", "garch", premium=True),
    "gjr": Baseline("GJR", "garch", "gjr", "arch", "garch", premium=True),
    "log_har": Baseline("LogHAR", "ranges", "log_har", premium=True, ranges=True),
    "range_garch": Baseline("RangeGARCH", "ranges", "range_garch", premium=True, ranges=True),
    "ets": Baseline("ETS", "statistical", "ets", together=True),
    "theta": Baseline("Theta", "statistical", "theta", together=True),
    "ces": Baseline("CES", "statistical", "ces", together=True),
    "croston": Baseline("Croston", "intermittent", "croston"),
    "sba": Baseline("SBA", "intermittent", "sba"),
    "tsb": Baseline("TSB", "intermittent", "tsb"),
    "adida": Baseline("ADIDA", "intermittent", "adida"),
}


def forecast(
    panel: Panel,
    cutoffs: ArrayLike,
    name: str,
    *,
    horizon: int = 5,
    level: Sequence[float] = (80, 95),
    season: int | Sequence[int] | None = None,
    workers: int | None = None,
    premium: float | None = None,
) -> pd.DataFrame:
    """Forecast all series by one baseline.

    - ``cutoffs``: times of the panel
    - ``name``: one of :data:`BASELINES`
    - ``horizon``: number of steps ahead; ``level``: levels of the bands, in percent
    - ``season``: steps in a season, or in several; by default by the frequency, or, where times are
      whole numbers, detected in each series
    - ``workers``: number of processes, by default one per core
    - ``premium``: the premium of prices, as in :class:`forecaster.Config`; it replaces the drift of
      baselines that forecast a volatility (:class:`Baseline`). None: each has its own drift

    Rows that were flagged at the first cutoff are left out, as in training networks.

    Returns a frame like that of :func:`forecaster.cross_validation`: ``unique_id, ds, cutoff, y``,
    the median and bounds per level. Where too few rows are known for a baseline, the last value
    stands in, as ``naive`` forecasts it; a series on which the baseline fails has NaN. A warning
    says so, and why.

    Raises UsageError for an unknown baseline, or one whose library is not installed.
    """
    positions = np.flatnonzero(np.isin(panel.times, np.asarray(cutoffs, panel.times.dtype)))
    known = panel
    if len(positions):  # leave out the rows that networks do not learn from
        first = panel.times[positions[0]]
        panel, known = panel.masked(first, forecasting=True), panel.until(first)
    origins = Origins.of(panel, positions, horizon)
    premium = premium_of(Config(premium=premium), known)
    with Runner(
        [name], horizon, level, known, season=season, workers=workers, premium=premium
    ) as runner:
        forecasts = runner.run(origins)
    runner.warn()
    return pd.concat([origins.keys, forecasts], axis=1)


def _start_process() -> None:
    """Prepare a worker: it ends with its parent, and hides the warnings of its libraries."""
    end_with_parent()
    warnings.simplefilter("ignore")


class Runner:
    """Makes the forecasts of some baselines, in processes that keep running.

    - ``names``: names of :data:`BASELINES`
    - ``horizon``, ``level``: horizon of the forecasts, and levels of their bands in percent
    - ``panel``: its frequency decides the length of a season; where times are whole numbers, the
      shortest season of each series counts
    - ``season``: steps in a season, in place of the panel's; of several, the shortest is used
    - ``cache``: a folder for the forecasts of slow baselines
    - ``workers``: number of processes, by default one per core
    - ``executor``: where slow baselines run, if not in this process
    - ``premium``: growth of a price in a year, see :func:`forecaster.forecasting.premium_of`, which
      stands for the drift of some baselines (:class:`Baseline`); None: each has its own
    - ``on_series(name, done)``: called after each series of a baseline

    While it runs, ``failed`` collects the series that each baseline failed on, with the reason,
    ``by_last_value`` those where the last value stands in for it, with the number of cutoffs,
    ``seconds`` the time of each baseline, and ``memory`` the peak of each process in KiB.
    """

    def __init__(
        self,
        names: Sequence[str],
        horizon: int,
        level: Sequence[float],
        panel: Panel,
        *,
        season: int | Sequence[int] | None = None,
        cache: Path | None = None,
        workers: int | None = None,
        executor: swarm.Executor | None = None,
        premium: float | None = None,
        on_series: Callable[[str, int], None] | None = None,
    ):
        check_available(names)
        check_columns(names, panel.channels)
        self.baselines = {name: BASELINES[name] for name in dict.fromkeys(names)}
        self.failed: dict[str, dict[str, str]] = {name: {} for name in self.baselines}
        self.by_last_value: dict[str, dict[str, int]] = {name: {} for name in self.baselines}
        self.seconds: dict[str, float] = dict.fromkeys(self.baselines, 0.0)
        self.memory: dict[int, int] = {}
        self._horizon, self._levels = horizon, check_levels(level)
        self._quantiles = quantiles_of(self._levels)
        frequency = panel.frequency
        sought = season is None and frequency.alias == "step"
        given = min(np.atleast_1d(season)) if season is not None else default_season(frequency)
        self._season = None if sought else int(given)
        self._premium = premium
        self._cache, self._on_series = cache, on_series or (lambda name, done: None)
        self._workers = workers or cores()
        self._pool: concurrent.futures.Executor | None = None
        self._executor = None if executor is None or executor.is_local else executor

    def __enter__(self) -> "Runner":
        if self._executor is not None:
            return self
        if self._workers > 1 and any(baseline.slow for baseline in self.baselines.values()):
            context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._workers, mp_context=context, initializer=_start_process
            )
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, origins: Origins) -> pd.DataFrame:
        """Forecast by all baselines, a row per entry of ``origins``; NaN where one failed."""
        columns = {}
        for name, baseline in self.baselines.items():
            quantiles = self._forecasts(name, baseline, origins)
            columns |= columns_of_quantiles(baseline.column, quantiles, self._levels)
        return pd.DataFrame(columns)

    def warn(self) -> None:
        """Warn of the series that each baseline failed on, and where the last value stands in."""
        for name, short in self.by_last_value.items():
            if short:
                warnings.warn(
                    f"{name}: too few rows at some cutoffs of {len(short)} series, where the last "
                    f"value stands in: {listed(short)}",
                    ForecasterWarning,
                    stacklevel=3,
                )
        for name, failed in self.failed.items():
            if failed:
                warnings.warn(
                    f"{name} failed on {len(failed)} series:\n{name_reasons(failed)}",
                    ForecasterWarning,
                    stacklevel=3,
                )

    def _forecasts(self, name: str, baseline: Baseline, origins: Origins) -> np.ndarray:
        """Return the quantiles of every entry, (entry, quantile)."""
        out = np.full((len(origins.row), len(self._quantiles)), np.nan)
        jobs = {int(row): self._job(baseline, origins, row) for row in np.unique(origins.row)}
        results = self._results(name, baseline, jobs)
        for done, (row, job) in enumerate(jobs.items(), start=1):
            forecasts, reason, seconds, by_last_value = results[row]
            self.seconds[name] += seconds
            if reason:
                self.failed[name][origins.panel.ids[row]] = reason
            if by_last_value:
                self.by_last_value[name][origins.panel.ids[row]] = by_last_value
            if forecasts is not None:
                entries = np.flatnonzero(origins.row == row)
                steps = origins.step[entries] - origins.histories.first[row]
                positions = np.searchsorted(job.origins, steps)
                out[entries] = forecasts[positions, origins.ahead[entries]]
            self._on_series(name, done)
        return out

    def _job(self, baseline: Baseline, origins: Origins, row: int) -> Job:
        """Return a series' history from its first observation, and the steps to forecast from."""
        target = origins.panel.channels.index(origins.panel.target)
        first = origins.histories.first[row]
        y = origins.histories.values[row, first:, target]
        steps = np.unique(origins.step[origins.row == row]) - first
        season = self._season
        if season is None:  # detected in the data known at the first origin
            season = min(find_seasons(y[: steps[0] + 1]), default=1)
        known, drift = y[: steps[0] + 1], None
        if self._premium is not None and logarithmic(known):
            positions = origins.histories.positions[row, first : first + len(known)]
            drift = change_of(known, origins.panel.times[positions], self._premium).expected
        variance = None
        if baseline.ranges:
            columns = [origins.panel.channels.index(name) for name in COLUMNS]
            variance = session_variance(y, origins.histories.values[row, first:, columns])
        return Job(y, steps, self._horizon, self._quantiles, season, drift, variance)

    def _results(self, name: str, baseline: Baseline, jobs: dict[int, Job]) -> dict[int, Result]:
        """Return the result of every job, cached or new."""
        if not baseline.slow:
            return self._throughout(baseline, jobs)
        paths = {row: self._path(name, job) for row, job in jobs.items()}
        kept = {row: result for row, path in paths.items() if (result := _read(path)) is not None}
        made = self._made(baseline, {row: job for row, job in jobs.items() if row not in kept})
        for row, result in made.items():
            if (path := paths[row]) is not None and result.forecasts is not None:
                _keep(path, result)
        return _drifting(baseline, kept | made, jobs)

    def _throughout(self, baseline: Baseline, jobs: dict[int, Job]) -> dict[int, Result]:
        """Forecast from every origin, by the last value where a baseline needs more rows."""
        results = _drifting(baseline, self._made(baseline, jobs), jobs)
        fallen = {row: rest for row, job in jobs.items() if (rest := _after_fall(job)) is not None}
        for row, result in self._made(baseline, fallen).items():
            results[row] = _joined(results[row], result)
        naive = BASELINES["naive"]  # ``naive`` sees no ranges
        gaps = {
            row: jobs[row]._replace(variance=None)
            for row, result in results.items()
            if _has_gaps(result)
        }
        if gaps and baseline is not naive:
            for row, result in self._throughout(naive, gaps).items():
                results[row] = _filled(results[row], result)
        return results

    def _made(self, baseline: Baseline, jobs: dict[int, Job]) -> dict[int, Result]:
        call = (baseline.module, baseline.function)
        if baseline.together:
            return _made_together(call, jobs)
        if self._executor is not None and baseline.slow:
            return _made_elsewhere(self._executor, call, jobs)
        if self._pool is None or not baseline.slow:
            return {row: _make(*call, job) for row, job in jobs.items()}
        waiting = {row: self._pool.submit(_make, *call, job) for row, job in jobs.items()}
        results = {row: future.result() for row, future in waiting.items()}
        for process, used in self._pool.map(memory_used, range(4 * self._workers)):
            self.memory[process] = max(used, self.memory.get(process, 0))
        return results

    def _path(self, name: str, job: Job) -> Path | None:
        """Return the cache file of a slow baseline's forecasts, named by a hash of their inputs."""
        if self._cache is None or not self.baselines[name].slow:
            return None
        library = importlib.import_module(self.baselines[name].library)
        digest = hashlib.sha256(
            f"{_VERSION} {name} {library.__version__} {job.horizon} {job.season}".encode()
        )
        for array in (job.y, job.origins, job.quantiles):
            digest.update(np.ascontiguousarray(array).tobytes() + b"|")
        return self._cache / name / f"{digest.hexdigest()[:32]}.npz"


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


def _made_elsewhere(
    executor: swarm.Executor, call: tuple[str, str], jobs: dict[int, Job]
) -> dict[int, Result]:
    """Run the jobs by an executor; a series that no worker could finish gets a reason instead."""
    results: dict[int, Result] = {}
    with contextlib.closing(executor.run(_make_one, call, jobs.items(), per_core=True)) as made:
        for (row, _), result in made:
            lost = isinstance(result, swarm.Failed)
            results[row] = Result(None, result.reason, 0.0) if lost else result
    return results


def _make_one(call: tuple[str, str], numbered: tuple[int, Job]) -> Result:
    return _make(*call, numbered[1])


def _made_together(call: tuple[str, str], jobs: dict[int, Job]) -> dict[int, Result]:
    """Forecast all series at once; each took an equal share of the time."""
    import time

    from forecaster.evaluation.baselines.statistical import Series

    if not jobs:
        return {}
    module, function = call
    run = getattr(importlib.import_module(f"forecaster.evaluation.baselines.{module}"), function)
    began = time.perf_counter()
    cut = {row: _until_not_positive(job) for row, job in jobs.items()}
    series = [Series(job.y, job.origins, job.season) for job in cut.values()]
    one = next(iter(jobs.values()))
    with np.errstate(over="ignore"):
        made = dict(zip(jobs, run(series, one.horizon, one.quantiles), strict=True))
    seconds = (time.perf_counter() - began) / len(jobs)
    results = {}
    for row, job in jobs.items():
        forecasts = _for_all_origins(made[row], job)
        if np.isinf(forecasts).any():
            results[row] = Result(None, "ValueError: its forecasts are infinite", seconds)
        else:
            results[row] = Result(forecasts, _missing(forecasts), seconds)
    return results


def _make(module: str, function: str, job: Job) -> Result:
    """Forecast one series by one baseline."""
    import time

    began = time.perf_counter()
    try:
        run = getattr(
            importlib.import_module(f"forecaster.evaluation.baselines.{module}"), function
        )
        cut = _until_not_positive(job)
        given = [cut.y, cut.origins, cut.horizon, cut.quantiles, cut.season]
        if cut.variance is not None:
            given.append(cut.variance)
        with np.errstate(over="ignore"):
            made = np.asarray(run(*given), np.float64)
        forecasts = _for_all_origins(made, job)
        if np.isinf(forecasts).any():
            raise ValueError("its forecasts are infinite")
        return Result(forecasts, _missing(forecasts), time.perf_counter() - began)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return Result(None, reason, time.perf_counter() - began)


def _drifting(
    baseline: Baseline, results: dict[int, Result], jobs: dict[int, Job]
) -> dict[int, Result]:
    """Return the results; a baseline with ``premium`` gets the drift of the jobs."""
    if not baseline.premium:
        return results
    return {row: _moved(result, jobs[row]) for row, result in results.items()}


def _moved(result: Result, job: Job) -> Result:
    """Return forecasts in logarithms moved as a whole, so that the median drifts as expected."""
    if result.forecasts is None or job.drift is None:
        return result
    middle = int(np.abs(job.quantiles - 0.5).argmin())
    ahead = np.arange(1, job.horizon + 1)
    wanted = job.y[job.origins][:, None] * np.exp(job.drift * ahead)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = wanted / result.forecasts[..., middle]
        return result._replace(forecasts=result.forecasts * factor[..., None])


def _until_not_positive(job: Job) -> Job:
    """Return a job up to the first value that has no logarithm, where the series began above zero.

    The values up to the first origin decide whether the series counts as above zero.
    """
    bad = np.flatnonzero(job.y <= 0)
    if not len(bad) or bad[0] <= job.origins[0]:
        return job
    cut = job._replace(y=job.y[: bad[0]], origins=job.origins[job.origins < bad[0]])
    return cut if job.variance is None else cut._replace(variance=job.variance[: bad[0]])


def _after_fall(job: Job) -> Job | None:
    """Return the part of a job that :func:`_until_not_positive` leaves out, without logarithms.

    None if nothing is left out. The values up to the part's own first origin decide that no
    logarithms are taken.
    """
    before = len(_until_not_positive(job).origins)
    if before == len(job.origins):
        return None
    return job._replace(origins=job.origins[before:], drift=None)


def _joined(first: Result, rest: Result) -> Result:
    """Return the result of a job, and of the part after a fall, together."""
    if first.forecasts is None or rest.forecasts is None:
        return first
    forecasts = first.forecasts.copy()
    forecasts[-len(rest.forecasts) :] = rest.forecasts
    return Result(forecasts, _missing(forecasts), first.seconds + rest.seconds)


def _has_gaps(result: Result) -> bool:
    return result.forecasts is not None and bool(np.isnan(result.forecasts).any())


def _filled(result: Result, naive: Result) -> Result:
    """Return a result with naive forecasts at origins where any of its own forecasts is missing."""
    if result.forecasts is None or naive.forecasts is None:
        return result
    missing = np.isnan(result.forecasts).any((1, 2), keepdims=True)
    forecasts = np.where(missing, naive.forecasts, result.forecasts)
    return Result(forecasts, _missing(forecasts), result.seconds, int(missing.sum()))


def _for_all_origins(forecasts: np.ndarray, job: Job) -> np.ndarray:
    """Return forecasts (origin, horizon, quantile) from all of a job's origins, NaN at the end."""
    missing = len(job.origins) - len(forecasts)
    return np.pad(forecasts, ((0, missing), (0, 0), (0, 0)), constant_values=np.nan)


def _missing(forecasts: np.ndarray) -> str:
    """Return from how many origins forecasts (origin, horizon, quantile) are missing, in words."""
    count = int(np.isnan(forecasts).any((1, 2)).sum())
    return f"no forecasts from {count} of {len(forecasts)} cutoffs" if count else ""


def _read(path: Path | None) -> Result | None:
    try:
        if path is None:
            return None
        with np.load(path) as kept:
            return Result(kept["made"], _missing(kept["made"]), float(kept["seconds"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # computed again


def _keep(path: Path, result: Result) -> None:
    assert result.forecasts is not None
    arrays = {"made": result.forecasts, "seconds": np.float64(result.seconds)}

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]

    atomic.write_file(path, write)
