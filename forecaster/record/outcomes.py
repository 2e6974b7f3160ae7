"""Join recorded forecasts with the stored prices of their times, and score them, as arrays.

A year of five hundred series has hundreds of thousands of rows. So only the work that needs the
prices of a series is done series by series, on plain arrays; the rest is done on all rows at once.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from forecaster.evaluation import baselines, crps
from forecaster.forecasting import quantile_columns
from forecaster.record.keeping import BEFORE, COLUMN
from forecaster.record.timing import AFTER
from forecaster.series import Panel

KNOWN, OPEN, MISSING, GONE, APART = "known", "open", "missing", "gone", "apart"
SCORES = ("scale", "y", "error", "error_unchanged", "crps", "crps_unchanged")
"""Columns that scoring adds, in addition to ``state`` and ``corrected``."""
# Change of the value at the origin, in usual changes of one step, that is a correction.
_CORRECTED = 0.5
_ROUNDING = 1e-3  # relative difference that rounded prices make between equal ratios
_SHORTEST_DAY, _HALF_A_DAY = np.timedelta64(20, "h"), np.timedelta64(12, "h")
_HALF = np.array([0.1, 0.5, 0.9])  # quantiles of "unchanged" that define the unit of errors


def without_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return forecasts without any stored outcome, with empty columns of scores."""
    state = np.where(frame[AFTER], APART, GONE)
    return frame.assign(state=state, corrected=False, **dict.fromkeys(SCORES, np.nan))


def with_outcomes(frame: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    """Return forecasts with their states, outcomes and scores; see :class:`Scorecard`.

    Scores are in units of the usual change: half the width of the 80 % band of "unchanged".

    - ``frame``: the forecasts of one source
    - ``panel``: the stored prices of that source, without wrong rows
    """
    frame = frame.reset_index(drop=True)
    after, ds = frame[AFTER].to_numpy(bool), frame["ds"].to_numpy()
    steps, forecast = frame["step"].to_numpy(int), frame[COLUMN].to_numpy(float)
    # Of the origin and of the rows before it.
    times = [frame[name].to_numpy() for name in ("origin", *(f"time_{n}" for n in BEFORE))]
    values = [frame[n].to_numpy(float) for n in ("value", *(f"value_{n}" for n in BEFORE))]
    quantiles = quantile_columns(frame, COLUMN)
    wanted = np.unique(np.concatenate([list(quantiles) or [0.5], _HALF]))
    state = np.where(after, APART, GONE).astype(object)
    y, scale, now = (np.full(len(frame), np.nan) for _ in range(3))
    unchanged = np.full((len(frame), len(wanted)), np.nan)
    row_of = {name: row for row, name in enumerate(panel.ids)}
    groups = frame.groupby(["unique_id", "target"], sort=False, observed=True).indices
    for (name, target), rows in groups.items():  # pyright: ignore[reportGeneralTypeIssues]
        if str(name) not in row_of or target not in panel.channels:
            continue
        row = row_of[str(name)]
        seen = panel.mask[row]
        own, prices = panel.times[seen], panel.channel(str(target))[row, seen]
        stored = np.stack([_at(own, prices, each[rows]) for each in times])
        then = np.stack([each[rows] for each in values])
        scale[rows] = by = _scale(stored, then, adjusted=panel.target != "y")
        outcome = _at(own, prices, ds[rows], session=True) * by
        its = np.where(np.isfinite(outcome), KNOWN, np.where(ds[rows] > own[-1], OPEN, MISSING))
        state[rows] = np.where(after[rows], APART, np.where(np.isfinite(by), its, GONE))
        known = state[rows] == KNOWN
        y[rows], now[rows] = np.where(known, outcome, np.nan), stored[0] * by
        at = np.searchsorted(own, times[0][rows], side="right") - 1
        usable = known & (at >= 2)
        if usable.any():
            origins, which = np.unique(at[usable], return_inverse=True)
            ahead = steps[rows[usable]]
            job = baselines.Job(prices, origins, int(ahead.max()), wanted, 1)
            paths = baselines.naive(job)
            unchanged[rows[usable]] = paths[which, ahead - 1] * by[usable, None]
    low, middle, high = (unchanged[:, np.searchsorted(wanted, q)] for q in _HALF)
    # Start from the recorded value, since the stored one may have been corrected.
    unchanged = unchanged + (values[0] - middle)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = np.where(high > low, (high - low) / 2, np.nan)
        moved = np.abs(values[0] - now) > _CORRECTED * unit / np.sqrt(steps)
        ours, theirs = _crps(frame, quantiles, y, unchanged, wanted)
        scores = {
            "error": np.abs(y - forecast) / unit, "error_unchanged": np.abs(y - values[0]) / unit,
            "crps": ours / unit, "crps_unchanged": theirs / unit,
        }  # fmt: skip
    return frame.assign(state=state, corrected=moved, scale=scale, y=y, **scores)


def _crps(
    frame: pd.DataFrame, names: Mapping[float, str], y: np.ndarray, unchanged: np.ndarray,
    wanted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the CRPS of each forecast and of "unchanged", over the forecast's quantiles.

    - ``names``: the columns of quantiles
    - ``unchanged`` (row, quantile): the quantiles of "unchanged" at the levels ``wanted``
    """
    scored = np.asarray(np.isfinite(unchanged).all(axis=1))
    ours, theirs = np.full(len(y), np.nan), np.full(len(y), np.nan)
    forecast = frame[list(names.values())].to_numpy(float)
    has = np.isfinite(forecast)
    for kind in np.unique(has[scored], axis=0):  # predictions may have different levels
        rows, quantiles = scored & (has == kind).all(1), np.array(list(names))[kind]
        if len(quantiles) < 3:
            continue
        same = unchanged[np.ix_(rows, np.searchsorted(wanted, quantiles))]
        ours[rows] = crps(y[rows], forecast[np.ix_(rows, kind)], quantiles)
        theirs[rows] = crps(y[rows], same, quantiles)
    return ours, theirs


def _at(
    times: np.ndarray, y: np.ndarray, wanted: np.ndarray, *, session: bool = False
) -> np.ndarray:
    """Return the values at some times; NaN for a time without a value.

    ``session``: where rows are a day or more apart, one within half a day of the time is of its
    session: clocks change, and an exchange closes early
    """
    after = np.minimum(np.searchsorted(times, wanted), len(times) - 1)
    before = np.maximum(after - 1, 0)
    at = np.where(wanted - times[before] < times[after] - wanted, before, after)
    near = times[at] == wanted
    dated = session and times.dtype.kind == "M" and len(times) > 1
    if dated and np.median(np.diff(times)) >= _SHORTEST_DAY:
        near = np.abs(times[at] - wanted) < _HALF_A_DAY
    return np.where(near, y[at], np.nan)


def _scale(now: np.ndarray, then: np.ndarray, *, adjusted: bool) -> np.ndarray:
    """Return the factor from stored prices to the units of the forecast; NaN if unknown.

    Of two ratios of recorded to stored values, at the origin and in the median over these rows, it
    is the one nearer to the ratio of later rows. If that is the ratio at the origin, rows before
    were still to be adjusted; otherwise the value at the origin was wrong.

    ``now``, ``then``: stored and recorded values at the origin and earlier rows, (place, row)
    """
    if not adjusted:
        return np.where(np.isfinite(now).any(0), 1.0, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = then / now
    ratio[~(np.isfinite(ratio) & (ratio > 0))] = np.nan
    middle = np.full(now.shape[1], np.nan)
    known = np.isfinite(ratio).any(0)
    middle[known] = np.nanmedian(ratio[:, known], axis=0)
    of_origin, of_median = np.abs(np.log(np.stack([ratio[0], middle]) / _later_units(ratio)))
    return np.where(of_origin < of_median, ratio[0], middle)


def _later_units(ratio: np.ndarray) -> np.ndarray:
    """Return the units of later rows: the ratio of the next forecast on whose rows all agree.

    Of forecasts without such a next one it is 1, as of what is stored. ``ratio``: (place, row), in
    the order in which the forecasts were made
    """
    count = ratio.shape[1]
    agree = np.isclose(ratio.min(0), ratio.max(0), rtol=_ROUNDING, atol=0)  # not with a NaN
    following = np.where(agree, np.arange(count), count)
    following = np.minimum.accumulate(following[::-1])[::-1]
    return np.append(ratio[0], 1.0)[following]
