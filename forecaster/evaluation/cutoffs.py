"""Cutoffs: the times from which an evaluation forecasts the past."""

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Int, Shaped

from forecaster.errors import DataError, Kind, NoSeries, Skipped, check_whole, wrong_argument
from forecaster.forecasting import (
    Config,
    rows_for_networks,
    settled_by_rows,
    takes_any,
    without_networks,
)
from forecaster.series import ROWS_TO_BLEND, Time, show_time

_MOST = 250  # a year of sessions
_FEWEST_ROWS = 10  # rows that make a forecast worth evaluating, unless the horizon is longer
_SHORTER = 0.25  # share of the series that may be shorter than the number of cutoffs is chosen for
_WITHOUT = 0.01  # share of the series that may begin only after the first cutoff


def cutoffs_in(
    times: Shaped[np.ndarray, " time"], horizon: int, n_windows: int, step_size: int
) -> np.ndarray:
    """Return the positions of the latest cutoffs on a time axis, in order.

    - ``n_windows``: number of cutoffs; ``step_size``: times between two of them

    Raises UsageError for a number below one, and DataError when there are too few times.
    """
    for name, number in (("n_windows", n_windows), ("step_size", step_size)):
        check_whole(name, number, 1)
    last = len(times) - 1 - horizon
    first = last - (n_windows - 1) * step_size
    if first < 1:
        most = (last - 1) // step_size + 1 if last > 0 else 0
        advice = f"--windows {most} (in Python n_windows=)" if most else "a shorter horizon"
        raise DataError(
            f"{n_windows} cutoffs with a step of {step_size} and a horizon of {horizon} need at "
            f"least {(n_windows - 1) * step_size + horizon + 2} times; the panel has {len(times)}, "
            f"up to {show_time(times[-1])}. Ask for {advice}"
        )
    return first + np.arange(n_windows) * min(step_size, len(times))


def usual_windows(
    rows: Int[np.ndarray, " series"], times: int, target: str, config: Config, step_size: int
) -> int:
    """Return the default number of cutoffs of a panel: 250, or fewer where it is short.

    - ``rows``: number of rows of each series; ``times``: number of times of the panel
    - ``target``: the channel that is forecast
    """
    config = without_networks(config, target, int(rows.max(initial=0)))
    if takes_any(config, target):
        return _windows_by_rows(rows, config, step_size)
    # For series that all need rows for networks, the times that the first fit and the last forecast
    # need are set aside; the cutoffs lie in the later half of the rest.
    spare = times - config.horizon - config.rows_to_fit
    return int(np.clip(spare // 2 // step_size + 1, 1, _MOST))


def _windows_by_rows(rows: Int[np.ndarray, " series"], config: Config, step_size: int) -> int:
    """Return the number of cutoffs for series that may be short.

    Two spans are set aside: the rows that the last forecast needs, and the rows that make the first
    forecast worth evaluating. The cutoffs lie in the later half of the rest.

    A series that is long enough for networks of its own at the last cutoff is long enough at the
    first one, too. Otherwise the evaluated forecasts would not be of the kind that is made later.
    Nearly all series that can be evaluated at all have rows at the first cutoff: a series without
    rows there cannot be forecast from any cutoff.
    """
    known, networks = rows - config.horizon, rows_for_networks(config)
    worth = max(_FEWEST_ROWS, config.horizon)
    spare = known - np.where(known >= networks, networks, worth)
    if not (spare >= 0).any():
        return 1
    typical = int(np.quantile(spare[spare >= 0], _SHORTER, method="lower"))
    shortest = int(np.quantile(known[known >= ROWS_TO_BLEND], _WITHOUT, method="lower"))
    reach = min(typical // 2, shortest - ROWS_TO_BLEND)
    return min(reach // step_size + 1, _MOST)


def settled_by_known(config: Config, target: str, known: int, n_windows: int) -> Config:
    """Return settings, changed if no price series is long enough at the first cutoff.

    All series are then forecast by the last value from all cutoffs, without a market, and a warning
    says so. Later rows do not decide, or they would change forecasts made before them.

    ``known``: rows up to the first cutoff of the longest series that changes
    """
    when = " up to the first cutoff" + (f" of {n_windows}" if n_windows > 1 else "")
    return settled_by_rows(config, target, known, when)


@contextlib.contextmanager
def advised_of_windows(n_windows: int) -> Iterator[None]:
    """Add to a NoSeries error of the block that fewer cutoffs leave more rows."""
    try:
        yield
    except NoSeries as error:
        if n_windows == 1:
            raise
        advice = (
            f"only rows up to the first of the {n_windows} cutoffs count; ask for fewer: --windows "
            "N (in Python n_windows=)"
        )
        raise NoSeries(error.skipped, advice, error.lost) from error


def as_of_cutoff(
    skipped: Mapping[str, Skipped], cutoff: Time | Shaped[np.ndarray, ""]
) -> dict[str, Skipped]:
    """Return why a fit at a cutoff skipped series; those without any row yet begin later."""
    later = Skipped(Kind.BEGINS_LATER, first=show_time(cutoff))
    return {
        name: later if why.kind is Kind.TOO_SHORT and why.rows == 0 else why
        for name, why in skipped.items()
    }


def groups_of(cutoffs: np.ndarray, *, refit: bool | int) -> list[np.ndarray]:
    """Split the cutoffs into groups that share a model."""
    if refit is False:
        return [cutoffs]
    every = 1 if refit is True else refit
    if not isinstance(every, int | np.integer) or every < 1:
        raise wrong_argument("refit", refit, "True, False or a whole number of 1 or more")
    return [cutoffs[start : start + every] for start in range(0, len(cutoffs), every)]
