"""Join recorded forecasts with the stored prices of their times, and score them, as arrays.

A year of five hundred series has hundreds of thousands of rows. So only the work that needs the
prices of a series is done series by series, on plain arrays; the rest is done on all rows at once.
"""

import dataclasses

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

    - ``frame``: the forecasts of one source
    - ``panel``: the stored prices of that source, without wrong rows
    """
    frame = frame.reset_index(drop=True)
    joined = _Joined.of(frame)
    row_of = {name: row for row, name in enumerate(panel.ids)}
    groups = frame.groupby(["unique_id", "target"], sort=False, observed=True).indices
    for (name, target), at in groups.items():  # pyright: ignore[reportGeneralTypeIssues]
        if str(name) in row_of and target in panel.channels:
            joined.look_up(np.asarray(at), panel, row_of[str(name)], str(target))
    return frame.assign(**joined.columns())


@dataclasses.dataclass
class _Joined:
    """The rows of a frame, and their results from the stored prices, each array (row, ...).

    - ``frame``: the forecasts
    - ``times``, ``values``: times and recorded values of the origin and of the rows before it
    - ``unchanged``: the quantiles of "unchanged"; ``wanted``: the levels of these quantiles
    - ``state``, ``y``, ``scale``: see :class:`Scorecard`
    - ``now``: the value that is stored for the origin, in the units of the forecast
    """

    frame: pd.DataFrame
    ds: np.ndarray
    steps: np.ndarray
    after: np.ndarray
    times: list[np.ndarray]
    values: list[np.ndarray]
    quantiles: dict[float, str]
    wanted: np.ndarray
    unchanged: np.ndarray
    state: np.ndarray
    y: np.ndarray
    scale: np.ndarray
    now: np.ndarray

    @staticmethod
    def of(frame: pd.DataFrame) -> "_Joined":
        """Return the columns of a frame as arrays, before anything is looked up."""
        count = len(frame)
        quantiles = quantile_columns(frame, COLUMN)
        wanted = np.unique(np.concatenate([list(quantiles) or [0.5], _HALF]))
        times = ["origin", *(f"time_{n}" for n in BEFORE)]
        values = ["value", *(f"value_{n}" for n in BEFORE)]
        after = frame[AFTER].to_numpy(bool)
        return _Joined(
            frame, frame["ds"].to_numpy(), frame["step"].to_numpy(int), after,
            [frame[name].to_numpy() for name in times],
            [frame[name].to_numpy(float) for name in values],
            quantiles, wanted, np.full((count, len(wanted)), np.nan),
            np.where(after, APART, GONE).astype(object),
            *(np.full(count, np.nan) for _ in range(3)),
        )  # fmt: skip

    def look_up(self, rows: np.ndarray, panel: Panel, row: int, target: str) -> None:
        """Fill in states and outcomes of some rows from the prices of their series."""
        seen = panel.mask[row]
        times, y = panel.times[seen], panel.channel(target)[row, seen]
        stored = np.stack([_at(times, y, each[rows]) for each in self.times])
        then = np.stack([each[rows] for each in self.values])
        scale = _scale(stored, then, adjusted=panel.target != "y")
        outcome = _at(times, y, self.ds[rows], session=True) * scale
        ahead = self.ds[rows] > times[-1]
        state = np.where(np.isfinite(outcome), KNOWN, np.where(ahead, OPEN, MISSING))
        state = np.where(np.isfinite(scale), state, GONE)
        self.state[rows] = np.where(self.after[rows], APART, state)
        self.scale[rows] = scale
        known = self.state[rows] == KNOWN
        self.y[rows] = np.where(known, outcome, np.nan)
        self.now[rows] = stored[0] * scale
        at = np.searchsorted(times, self.times[0][rows], side="right") - 1
        usable = known & (at >= 2)
        if usable.any():
            self.unchanged[rows[usable]] = self._unchanged(
                y, at[usable], self.steps[rows[usable]], scale[usable]
            )

    def _unchanged(
        self, y: np.ndarray, at: np.ndarray, steps: np.ndarray, scale: np.ndarray
    ) -> np.ndarray:
        """Return the quantiles of "unchanged" from rows ``at`` of a series, ``steps`` ahead."""
        origins, which = np.unique(at, return_inverse=True)
        paths = baselines.naive(y, origins, int(steps.max()), self.wanted, 1)
        return paths[which, steps - 1] * scale[:, None]

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns of states, outcomes and scores.

        Scores are in units of the usual change: half the width of the 80 % band of "unchanged".
        """
        low, middle, high = (self.unchanged[:, np.searchsorted(self.wanted, q)] for q in _HALF)
        value, forecast = self.values[0], self.frame[COLUMN].to_numpy(float)
        # Start from the recorded value, since the stored one may have been corrected.
        unchanged = self.unchanged + (value - middle)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = np.where(high > low, (high - low) / 2, np.nan)
            moved = np.abs(value - self.now) > _CORRECTED * unit / np.sqrt(self.steps)
            scores = {
                "error": np.abs(self.y - forecast) / unit,
                "error_unchanged": np.abs(self.y - value) / unit,
                **{name: each / unit for name, each in self._crps(unchanged).items()},
            }
        return {"state": self.state, "corrected": moved, "scale": self.scale, "y": self.y, **scores}

    def _crps(self, unchanged: np.ndarray) -> dict[str, np.ndarray]:
        """Return the CRPS of each forecast and of "unchanged", over the forecast's quantiles."""
        scored = np.asarray(np.isfinite(unchanged).all(axis=1))
        out = {name: np.full(len(scored), np.nan) for name in ("crps", "crps_unchanged")}
        if not self.quantiles:
            return out
        forecast = self.frame[list(self.quantiles.values())].to_numpy(float)
        has = np.isfinite(forecast)
        for kind in np.unique(has[scored], axis=0):  # predictions may have different levels
            rows, quantiles = scored & (has == kind).all(1), np.array(list(self.quantiles))[kind]
            if len(quantiles) < 3:
                continue
            same = unchanged[np.ix_(rows, np.searchsorted(self.wanted, quantiles))]
            out["crps"][rows] = crps(self.y[rows], forecast[np.ix_(rows, kind)], quantiles)
            out["crps_unchanged"][rows] = crps(self.y[rows], same, quantiles)
        return out


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

    It is the ratio of the recorded to the stored value at the origin, or the median of the ratios,
    whichever is nearer to that of later rows. If it is the first, rows before the origin were still
    to be adjusted; if it is the second, the value at the origin was wrong.

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
