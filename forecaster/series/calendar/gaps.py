"""Rows that are missing between regular times, filled so that seasons keep their length."""

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.frequency import infer_frequency, spacing_of
from forecaster.series.calendar.opening import open_numbers

_DAY = 86_400  # seconds
_WEEKDAYS = 0, 1, 2, 3, 4
# Least share of the weekdays with a row. Holidays are 4 to 5 %. Where 10 % of the rows of random
# walks were missing at random, filling them made errors 4 % larger.
_NEARLY_ALL = 0.94
_MOST = 2  # seasons of missing rows that are filled whole
# A series is filled with at most 100 rows for each that it has, and 10,000 more. Where more are
# missing, its rows do not come at regular times.
_MOST_A_ROW, _MOST_BESIDE = 100, 10_000


def regular_rows(times: Shaped[np.ndarray, " row"]) -> tuple[float, tuple[int, ...]]:
    """Return the spacing at which rows are expected, and the slots of the week in which they are.

    The spacing is in seconds, or in whole numbers. It is 0 for the hours of an exchange, and for a
    part of the weekdays, where a longer gap does not mean that rows are missing. There are no slots
    where rows come in all of them, see :class:`Frequency`; else the spacing is theirs. A series
    with rows on nearly all weekdays has these as slots: holidays are missing, of an exchange, too,
    so that each weekday keeps its place.
    """
    if len(times) < 2:
        return 0.0, ()
    frequency = infer_frequency(times)
    slots = frequency.open
    if frequency.alias == "B":
        first, last = open_numbers(times[[0, -1]], _DAY, _WEEKDAYS).tolist()
        slots = _WEEKDAYS if len(times) >= _NEARLY_ALL * (last - first + 1) else ()
    if slots:
        return float(frequency.seconds), slots
    irregular = frequency.alias == "B" or frequency.hours is not None
    return 0.0 if irregular else spacing_of(times), ()


def without_gaps(
    values: Float[np.ndarray, " row"],
    times: Shaped[np.ndarray, " row"],
    spacing: float,
    season: int,
    slots: tuple[int, ...] = (),
) -> tuple[Float[np.ndarray, " step"], Int[np.ndarray, " row"]]:
    """Return the values with missing rows filled, and the steps of the rows that were there.

    A missing row has the value of one season before. A long gap is filled only with the part of a
    season that keeps later rows in season. Later rows never change an earlier step. No gap is
    filled if more than 10,000 rows and 100 times the number of rows are missing.

    - ``values``, ``times``: values and times of a series' rows
    - ``spacing``, ``slots``: from :func:`regular_rows`; no row is missing in other slots
    - ``season``: steps in a season; 1 for none, then nothing is filled
    """
    steps = np.arange(len(values))
    if season <= 1 or not spacing > 0 or len(values) < 2:
        return values, steps
    if slots:
        gaps = np.diff(open_numbers(times, int(spacing), slots)) * spacing
    elif (gaps := np.diff(times)).dtype.kind == "m":
        gaps = gaps.astype("timedelta64[ns]").astype(np.int64) / 1e9
    missing = np.maximum(np.round(gaps / spacing), 1) - 1
    missing = np.where(missing > _MOST * season, missing % season, missing)
    if not 0 < missing.sum() <= _MOST_A_ROW * len(values) + _MOST_BESIDE:
        return values, steps
    steps = np.concatenate([[0], np.cumsum(missing.astype(int) + 1)])
    filled = np.full(steps[-1] + 1, np.nan)
    filled[steps] = values
    fill(filled, season)
    return filled, steps


def fill(values: Float[np.ndarray, " step"], season: int) -> None:
    """Fill values that are NaN with those of one season before, or else with the one before.

    In place; the first value is known.
    """
    edges = np.diff(np.isnan(values), prepend=False, append=False)
    for begin, end in np.flatnonzero(edges).reshape(-1, 2):
        seasonal = min(max(begin, season), end)  # first step with a season before it
        values[begin:seasonal] = values[begin - 1]
        values[seasonal:end] = np.resize(values[seasonal - season : seasonal], end - seasonal)
