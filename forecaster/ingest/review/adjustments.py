"""Recognise splits and changes of currency that a source has not applied to earlier rows.

Both look like a jump, and make bands wider as long as the jump is remembered. The result is only a
proposal: :mod:`forecaster.ingest.review.correcting` applies it on request.
"""

import contextlib
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.errors import NoSeries
from forecaster.ingest.review.review import in_parts
from forecaster.ingest.store.store import Store
from forecaster.series import Panel, show_time

DISMISSED = 1.0
"""The factor that is kept for a jump that is not to be adjusted."""
LATEST = 60
"""Number of latest sessions in which adjustments are looked for; bands forget earlier ones."""
_ROWS_SEEN = 2 * LATEST  # the latest rows that are looked at; earlier ones show usual moves
_SHARES = (1.5, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 40, 50, 100)
_LEAST_SPLIT = np.log(1.3)
_NEAR = 2.0  # how far the open may be from the exact ratio, in usual moves
_LEAST_NEAR, _MOST_NEAR = 0.01, 0.05
_TOGETHER = 10  # number of series from which on a move of all together stands out
_LEAST_MOVE = 0.05  # smallest common move of _TOGETHER or more series
_FEW_TOGETHER = 3  # smallest number of series that can move together
_LEAST_OF_FEW = 0.2  # smallest common move of fewer series
_APART = 5.0  # smallest ratio of the common move to the spread of the series around it


class Proposal(NamedTuple):
    """An adjustment of the rows of a series before a session.

    - ``time``: the first session with the new prices, as text
    - ``factor``: the factor that earlier prices are to be multiplied by
    - ``why``: what the adjustment looks like
    - ``split``: whether volumes are to be divided by the factor
    """

    time: str
    factor: float
    why: str
    split: bool


def proposed(store: Store) -> dict[str, Proposal]:
    """Return the adjustment that the stored prices of each series call for, if any, by series."""
    found: dict[str, Proposal] = {}
    for names in in_parts(store.ids):  # all rows of all series may not fit into memory
        series, _ = store.read_arrays(names)
        priced = {
            name: each
            for name, each in series.items()
            if each.times.dtype.kind == "M" and "y" not in each.channels
        }
        if priced:
            with contextlib.suppress(NoSeries):
                found |= proposed_of(store, Panel.from_arrays(priced))
    return found


def proposed_of(store: Store, panel: Panel) -> dict[str, Proposal]:
    """Return the proposals for some of a store's series, without those that were dismissed."""

    def is_dismissed(name: str, time: str) -> bool:
        kept = store.corrections_of(name).adjustments
        return any((one.time, one.factor) == (time, DISMISSED) for one in kept)

    found = proposals(panel).items()
    return {name: one for name, one in found if not is_dismissed(name, one.time)}


def proposals(panel: Panel) -> dict[str, Proposal]:
    """Return the adjustment that the latest sessions of each series call for, if any, by series.

    A split is recognised by the move from the close before to the open, which has an exact ratio
    such as 1/4 or 10. All series together move by another amount only if the unit has changed, as
    on the day on which a source changes its currency: in a crash they also move apart.

    ``panel``: prices by date, which the source has adjusted for the events that it knows
    """
    if panel.target == "y" or panel.times.dtype.kind != "M":
        return {}
    times, to_close, to_open, usual = _latest_moves(panel)
    together = _moved_together(to_close)
    found: dict[str, Proposal] = {}
    for row, name in enumerate(panel.ids):
        days = np.flatnonzero(together & np.isfinite(to_close[:, row]))
        if len(days):
            factor = float(np.exp(np.nanmedian(to_close[days[-1]])))
            why = f"prices of nearly all series were {factor:.3g} times those of the session before"
            found[name] = Proposal(show_time(times[days[-1]]), factor, why, split=False)
            continue
        split = _split(times, to_close[:, row], to_open[:, row], float(usual[row]))
        if split is not None:
            found[name] = split
    return found


def _latest_moves(panel: Panel) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the log moves of all series at the latest times, from the close before; NaN in gaps.

    Of these are the times (time,), the moves to the close and to the open, both (time, series), and
    the usual size of a move to the close (series,).
    """
    low = max(0, len(panel.times) - _ROWS_SEEN)
    close = np.where(panel.mask, panel.channel(panel.target), np.nan)[:, low:].T
    opened = close
    if {"open", "close"} <= set(panel.channels):
        within = panel.channel("open")[:, low:] / panel.channel("close")[:, low:]
        opened = close * within.T
    before = pd.DataFrame(close).ffill().shift(1).to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from series without a row
        to_close, to_open = np.log(close / before), np.log(opened / before)
        usual = 1.4826 * np.nanmedian(np.abs(to_close), axis=0)
    return panel.times[low:][-LATEST:], to_close[-LATEST:], to_open[-LATEST:], usual


def _moved_together(moves: np.ndarray) -> np.ndarray:
    """Return the times at which nearly all series moved by the same amount, (time,).

    ``moves`` (time, series)
    """
    there = np.isfinite(moves).sum(1)
    known = moves[np.isfinite(moves).all(1)]
    # Whether series usually move by the same amount, as prices of one asset do.
    alike = not len(known) or bool(
        np.median(np.ptp(known, axis=1)) < np.median(np.abs(np.median(known, axis=1)))
    )
    same = np.zeros(len(moves), bool)
    for time in np.flatnonzero(there >= max(_FEW_TOGETHER, moves.shape[1] / 2)):
        known = moves[time][np.isfinite(moves[time])]
        middle = np.median(known)
        if len(known) < _TOGETHER:  # of so few, none may lie apart
            if alike:
                continue
            least, spread = _LEAST_OF_FEW, np.ptp(known)
        else:
            least, spread = _LEAST_MOVE, 1.4826 * np.median(np.abs(known - middle))
        same[time] = abs(middle) >= least and abs(middle) > _APART * spread
    return same


def _split(
    times: np.ndarray, to_close: np.ndarray, to_open: np.ndarray, usual: float
) -> Proposal | None:
    """Return the latest move by an exact ratio, without pairs of moves that cancel each other.

    - ``times``, ``to_close``, ``to_open``, ``usual``: of a series, see :func:`_latest_moves`
    """
    left: list[Proposal] = []
    for time in np.flatnonzero(np.abs(to_close) > _LEAST_SPLIT):
        one = _exact(times[time], float(to_open[time]), usual)
        if one is None:
            continue
        if left and np.isclose(left[-1].factor * one.factor, 1):
            left.pop()  # prices were wrong for some sessions
        else:
            left.append(one)
    return left[-1] if left else None


def _exact(when: np.datetime64, move: float, usual: float) -> Proposal | None:
    """Return a move of the open as a split if its ratio is that of a split, otherwise None."""
    near = float(np.clip(_NEAR * usual, _LEAST_NEAR, _MOST_NEAR))
    for share in _SHARES:
        for factor, terms in ((1 / share, f"{share:g} for 1"), (share, f"1 for {share:g}")):
            if abs(move - np.log(factor)) <= near:
                why = f"its open was {np.exp(move):.4g} times the close before, as in a "
                return Proposal(show_time(when), factor, f"{why}split {terms}", split=True)
    return None
