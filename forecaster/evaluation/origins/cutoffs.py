"""Cutoffs: the times from which an evaluation forecasts the past."""

import contextlib
from collections.abc import Iterator

import numpy as np
from jaxtyping import Shaped

from forecaster.config import Config
from forecaster.errors import DataError, NoSeries, UsageError
from forecaster.series import Panel, show_time

_MOST = 250  # a year of sessions


def cutoffs_of(panel: Panel, horizon: int, n_windows: int, step_size: int) -> np.ndarray:
    """Return the positions of the latest cutoffs on the panel's time axis, in order.

    - ``n_windows``: number of cutoffs; ``step_size``: times between two of them

    Raises DataError when the panel is too short.
    """
    return cutoffs_in(panel.times, horizon, n_windows, step_size)


def cutoffs_in(
    times: Shaped[np.ndarray, " time"], horizon: int, n_windows: int, step_size: int
) -> np.ndarray:
    """Return the positions of the latest cutoffs on a time axis; see :func:`cutoffs_of`."""
    for name, number in (("n_windows", n_windows), ("step_size", step_size)):
        if not isinstance(number, int | np.integer):
            raise UsageError(f"{name}: expected a whole number; got {number!r}")
    if n_windows < 1 or step_size < 1:
        raise DataError(
            f"n_windows and step_size must be 1 or more; got {n_windows} and {step_size}"
        )
    last = len(times) - 1 - horizon
    first = last - (n_windows - 1) * step_size
    if first < 1:
        raise DataError(
            f"{n_windows} cutoffs with a step of {step_size} and a horizon of {horizon} need at "
            f"least {(n_windows - 1) * step_size + horizon + 2} times; the panel has {len(times)}, "
            f"up to {show_time(times[-1])}. Ask for fewer: --windows N (in Python n_windows=)"
        )
    return np.arange(first, last + 1, step_size)


def usual_windows(times: int, config: Config, step_size: int) -> int:
    """Return the default number of cutoffs: 250, or fewer for a short panel.

    ``times``: number of times of the panel. Those that the first fit and the last forecast need are
    set aside; the cutoffs lie in the later half of the rest.
    """
    spare = times - config.horizon - config.rows_to_fit
    return int(np.clip(spare // 2 // step_size + 1, 1, _MOST))


@contextlib.contextmanager
def advised_of_windows(most: int, config: Config, n_windows: int, step_size: int) -> Iterator[None]:
    """Add advice to a NoSeries error of the block: a number of cutoffs that leaves enough rows.

    ``most``: rows of the longest series.
    """
    try:
        yield
    except NoSeries as error:
        rows = most - config.horizon
        fewer = (rows - config.rows_to_fit) // step_size + 1
        if not 1 <= fewer < n_windows:
            raise
        advice = (
            f"only rows up to the first of the {n_windows} cutoffs count; with --windows {fewer} "
            f"(in Python n_windows={fewer}) or fewer there are enough"
        )
        raise NoSeries(error.skipped, advice) from error


def groups_of(cutoffs: np.ndarray, *, refit: bool | int) -> list[np.ndarray]:
    """Split the cutoffs into groups that share a model."""
    if refit is False:
        return [cutoffs]
    every = 1 if refit is True else refit
    if every < 1:
        raise UsageError(f"refit: expected True, False or a whole number of 1 or more; got {refit}")
    return [cutoffs[start : start + every] for start in range(0, len(cutoffs), every)]
