"""From which times of a panel the past is forecast."""

import contextlib
from collections.abc import Iterator

import numpy as np

from forecaster.config import Config
from forecaster.errors import DataError, NoSeries
from forecaster.series import Panel, show_time

_MOST = 250  # a year of sessions


def cutoffs_of(panel: Panel, horizon: int, n_windows: int, step_size: int) -> np.ndarray:
    """Positions of the cutoffs on the panel's time axis, in order.

    Raises DataError when the panel is too short.
    """
    if n_windows < 1 or step_size < 1:
        raise DataError(
            f"n_windows and step_size must be 1 or more; got {n_windows} and {step_size}"
        )
    last = len(panel.times) - 1 - horizon
    first = last - (n_windows - 1) * step_size
    if first < 1:
        raise DataError(
            f"{n_windows} cutoffs {step_size} apart need more than "
            f"{(n_windows - 1) * step_size + horizon + 1} times; the panel has {len(panel.times)}, "
            f"up to {show_time(panel.times[-1])}. Ask for fewer: --windows N (in Python n_windows=)"
        )
    return np.arange(first, last + 1, step_size)


def usual_windows(panel: Panel, config: Config, step_size: int) -> int:
    """How many cutoffs to forecast from where nobody says: 250, or fewer of a short panel.

    Those lie in the later half of what is there beyond the rows that a fit needs.
    """
    spare = len(panel.times) - config.horizon - config.rows_to_fit
    return int(np.clip(spare // 2 // step_size + 1, 1, _MOST))


@contextlib.contextmanager
def advised_of_windows(
    panel: Panel, config: Config, n_windows: int, step_size: int
) -> Iterator[None]:
    """Where no series can be fitted at the first of these cutoffs, say how many would leave some.

    Raises NoSeries as the block does, with that.
    """
    try:
        yield
    except NoSeries as error:
        rows = int(panel.mask.sum(1).max()) - config.horizon
        fewer = (rows - config.rows_to_fit) // step_size + 1
        if not 1 <= fewer < n_windows:
            raise
        advice = (
            f"these are the rows up to the first of {n_windows} cutoffs; --windows {fewer} (in "
            f"Python n_windows={fewer}) or fewer leave enough"
        )
        raise NoSeries(error.skipped, advice) from error
