"""Run baselines over all series and cutoffs, over all cores, what was made before not again."""

import concurrent.futures
import dataclasses
import hashlib
import importlib
import importlib.util
import multiprocessing
import os
import resource
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster import atomic
from forecaster.config import Config
from forecaster.errors import UsageError
from forecaster.evaluation.cross_validation import Origins
from forecaster.forecasting import check_levels, columns_of_quantiles, quantiles_of
from forecaster.series import Panel, default_season

_VERSION = 2  # of what is kept; raise it when a baseline's numbers change


@dataclasses.dataclass(frozen=True)
class Baseline:
    """``module`` and ``function`` of :mod:`forecaster.evaluation.baselines`; ``column`` in frames; ``library``
    that it needs and the ``extra`` that brings it."""

    column: str
    module: str
    function: str
    library: str = ""
    extra: str = ""

    @property
    def slow(self) -> bool:
        """Whether it is worth other processes, and keeping."""
        return bool(self.library)


BASELINES = {
    "naive": Baseline("Naive", "simple", "naive"),
    "drift": Baseline("Drift", "simple", "drift"),
    "seasonal_naive": Baseline("SeasonalNaive", "simple", "seasonal_naive"),
    "empirical": Baseline("Empirical", "simple", "empirical"),
    "ewma": Baseline("EWMA", "simple", "ewma"),
    "garch": Baseline("GARCH", "garch", "garch", "arch", "garch"),
    "gjr": Baseline("GJR", "garch", "gjr", "arch", "garch"),
    "ets": Baseline("AutoETS", "statistical", "ets", "statsforecast", "statistical"),
    "theta": Baseline("AutoTheta", "statistical", "theta", "statsforecast", "statistical"),
}


def forecast(
    panel: Panel,
    cutoffs: Sequence[Any] | np.ndarray,
    name: str,
    *,
    horizon: int = 5,
    level: Sequence[float] = (80, 95),
    workers: int | None = None,
) -> pd.DataFrame:
    """One baseline's forecasts of all series from these cutoffs (times of the panel).

    Returns a frame as :func:`forecaster.cross_validation` does: ``unique_id, ds, cutoff, y``, the
    median and bounds per level. A series on which the baseline fails has NaN, and a warning says
    why. Raises UsageError for an unknown baseline, or one whose library is not installed.
    """
    places = np.flatnonzero(np.isin(panel.times, np.asarray(cutoffs, panel.times.dtype)))
    origins = Origins.of(panel, places, horizon)
    with Runner([name], horizon, level, panel, workers=workers) as runner:
        made = runner.run(origins)
    runner.warn()
    return pd.concat([origins.keys, made], axis=1)


class Runner:
    """Makes the forecasts of some baselines; keeps processes running and what they made.

    ``cache``: a folder for what slow baselines made, by content. ``failed``: by baseline, the
    series it failed on and why.
    """

    def __init__(
        self,
        names: Sequence[str],
        horizon: int,
        level: Sequence[float],
        panel: Panel,
        *,
        cache: Path | None = None,
        workers: int | None = None,
        on_series: Callable[[str, int], None] | None = None,
    ):
        check_available(names)
        self.baselines = {name: BASELINES[name] for name in dict.fromkeys(names)}
        self.failed: dict[str, dict[str, str]] = {name: {} for name in self.baselines}
        self.seconds: dict[str, float] = dict.fromkeys(self.baselines, 0.0)
        self.memory: dict[int, int] = {}  # largest of each process, by its number, KiB
        self._horizon, self._levels = horizon, check_levels(level)
        self._quantiles = quantiles_of(self._levels)
        self._season = default_season(panel.frequency)
        self._cache, self._on_series = cache, on_series or (lambda name, done: None)
        self._workers = workers or cores()
        self._pool: concurrent.futures.Executor | None = None

    def __enter__(self) -> "Runner":
        if self._workers > 1 and any(baseline.slow for baseline in self.baselines.values()):
            context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
            self._pool = concurrent.futures.ProcessPoolExecutor(self._workers, mp_context=context)
        return self

    def __exit__(self, *error) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, origins: Origins) -> pd.DataFrame:
        """Forecasts of all baselines, a row per entry of ``origins``; NaN where one failed."""
        columns = {}
        for name, baseline in self.baselines.items():
            made = self._series(name, baseline, origins)
            columns |= columns_of_quantiles(baseline.column, made, self._levels)
        return pd.DataFrame(columns)

    def warn(self) -> None:
        """Say in warnings which series which baseline failed on."""
        import warnings

        from forecaster.errors import name_reasons

        for name, failed in self.failed.items():
            if failed:
                warnings.warn(
                    f"{name} failed on {len(failed)} series:\n{name_reasons(failed)}", stacklevel=3
                )

    def _series(self, name: str, baseline: Baseline, origins: Origins) -> np.ndarray:
        """Quantiles of every entry, (entry, quantile)."""
        out = np.full((len(origins.row), len(self._quantiles)), np.nan)
        target = origins.panel.channels.index(origins.panel.target)
        jobs = {}
        for row in np.unique(origins.row):
            entries = np.flatnonzero(origins.row == row)
            first = origins.histories.first[row]
            y = origins.histories.values[row, first:, target]
            steps = np.unique(origins.step[entries]) - first
            jobs[row] = entries, steps, (y, steps, self._horizon, self._quantiles, self._season)
        results = self._made(name, baseline, {row: job[2] for row, job in jobs.items()})
        for done, (row, (entries, steps, _)) in enumerate(jobs.items(), start=1):
            made, reason, seconds = results[row]
            self.seconds[name] += seconds
            if reason:
                self.failed[name][origins.panel.ids[row]] = reason
            else:
                first = origins.histories.first[row]
                place = np.searchsorted(steps, origins.step[entries] - first)
                out[entries] = made[place, origins.ahead[entries]]
            self._on_series(name, done)
        return out

    def _made(self, name: str, baseline: Baseline, jobs: dict[int, tuple]) -> dict[int, tuple]:
        kept = {row: self._keeping(name, job) for row, job in jobs.items()}
        results: dict[int, Any] = {row: _read(path) for row, path in kept.items()}
        missing = [row for row, result in results.items() if result is None]
        call = (baseline.module, baseline.function)
        if self._pool is not None and baseline.slow:
            waiting = {row: self._pool.submit(_make, *call, jobs[row]) for row in missing}
            fresh = {row: future.result() for row, future in waiting.items()}
            for process, used in self._pool.map(memory_used, range(4 * self._workers)):
                self.memory[process] = max(used, self.memory.get(process, 0))
        else:
            fresh = {row: _make(*call, jobs[row]) for row in missing}
        for row, result in fresh.items():
            results[row] = result
            if (path := kept[row]) is not None and not result[1]:
                _keep(path, result)
        return {row: result for row, result in results.items() if result is not None}

    def _keeping(self, name: str, job: tuple) -> Path | None:
        if self._cache is None or not self.baselines[name].slow:
            return None
        library = importlib.import_module(self.baselines[name].library)
        known = hashlib.sha256(
            f"{_VERSION} {name} {library.__version__} {job[2]} {job[4]}".encode()
        )
        for array in (job[0], job[1], job[3]):
            known.update(np.ascontiguousarray(array).tobytes() + b"|")
        return self._cache / name / f"{known.hexdigest()[:32]}.npz"


def check_available(names: Sequence[str]) -> None:
    """Raise UsageError for a baseline that is unknown or whose library is not installed."""
    for name in names:
        if name not in BASELINES:
            raise UsageError(f"no baseline {name!r}; there are {', '.join(BASELINES)} and torch")
        if BASELINES[name].library:
            require(BASELINES[name].library, BASELINES[name].extra, f"baseline {name}")


def check_torch(config: Config, *, refit: bool | int = False) -> None:
    """Raise UsageError where the PyTorch baseline cannot be trained."""
    require("torch", "torch", "baseline torch")
    if refit is not False:
        raise UsageError("baseline torch trains once, so not beside --refit; leave one of them out")
    if config.model != "lstm":
        raise UsageError(f"baseline torch is an LSTM; got model {config.model}. Leave it out")


def require(library: str, extra: str, what: str) -> None:
    """Raise UsageError, with the pip command, where a library is not installed."""
    if not has(library):
        raise UsageError(
            f"{what} needs {library}, which is not installed; pip install 'forecaster[{extra}]'"
        )


def _make(module: str, function: str, job: tuple) -> tuple[np.ndarray | None, str, float]:
    """One series by one baseline: its forecasts, or why there are none, and the seconds."""
    import time

    began = time.perf_counter()
    try:
        run = getattr(
            importlib.import_module(f"forecaster.evaluation.baselines.{module}"), function
        )
        return _known_alone(run, *job), "", time.perf_counter() - began
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return None, reason, time.perf_counter() - began


def _known_alone(run, y, origins, horizon, quantiles, season) -> np.ndarray:
    """A series above zero is taken in logarithms. Whether it is, is decided by what was known at
    the first origin; from the step on where it no longer is, there are no forecasts."""
    bad = np.flatnonzero(y <= 0)
    if not len(bad) or bad[0] <= origins[0]:
        return np.asarray(run(y, origins, horizon, quantiles, season), np.float64)
    made = np.full((len(origins), horizon, len(quantiles)), np.nan)
    before = origins < bad[0]
    made[before] = run(y[: bad[0]], origins[before], horizon, quantiles, season)
    return made


def _read(path: Path | None) -> tuple[np.ndarray, str, float] | None:
    try:
        if path is None:
            return None
        with np.load(path) as kept:
            return kept["made"], "", float(kept["seconds"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # made anew


def _keep(path: Path, result: tuple) -> None:
    def write(to) -> None:
        with open(to, "wb") as file:
            np.savez(file, made=result[0], seconds=result[2])

    atomic.write_file(path, write)


def memory_used(_: int = 0) -> tuple[int, int]:
    """This process's number, and the largest memory it has had, KiB."""
    try:
        # What getrusage says of a new process includes the one it was started from.
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return os.getpid(), int(peak)
    except (OSError, StopIteration, ValueError):
        return os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def has(library: str) -> bool:
    """Whether a library is installed."""
    return importlib.util.find_spec(library) is not None


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
