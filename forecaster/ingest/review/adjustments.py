"""Recognise splits and changes of currency that a source has not carried into earlier rows.

Both look like a jump, and widen bands for as long as it is remembered. What is found is only a
proposal: :mod:`forecaster.ingest.store.adjusting` applies it on request.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.series import Panel, show_time

LATEST = 60
"""Sessions in which adjustments are looked for; later they no longer show in bands."""
_SHARES = (1.5, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 40, 50, 100)
_LEAST_SPLIT = np.log(1.3)
_NEAR = 2.0  # usual moves by which the open may differ from the exact ratio
_LEAST_NEAR, _MOST_NEAR = 0.01, 0.05
_TOGETHER = 10  # least number of series that move together
_LEAST_MOVE = 0.05  # least move of all together
_APART = 5.0  # least size of that move, in spreads of the series around it


class Proposal(NamedTuple):
    """An adjustment of the rows of a series before a session.

    - ``time``: the first session with the new prices, as text
    - ``factor``: what earlier prices are to be multiplied by
    - ``why``: what it looks like
    - ``split``: whether volumes are to be divided by the factor
    """

    time: str
    factor: float
    why: str
    split: bool


def proposals(panel: Panel) -> dict[str, Proposal]:
    """Return by series the adjustment that its latest sessions call for, if any.

    A split shows as a move of the open from the close before, by an exact ratio such as 1/4 or 10.
    All series together move by another amount only where the unit has changed, as on the day on
    which a source changes its currency: in a crash they also move apart.

    ``panel``: of prices by date, which have been adjusted for what the source knows of
    """
    if panel.target == "y" or panel.times.dtype.kind != "M":
        return {}
    moves = {name: _moves(panel, row) for row, name in enumerate(panel.ids)}
    moves = {name: own for name, own in moves.items() if own is not None}
    common = _moved_together(moves)
    found: dict[str, Proposal] = {}
    for name, own in moves.items():
        if len(days := own.index.intersection(list(common))):
            day = days[-1]
            factor = float(np.exp(common[day]))
            why = f"prices of nearly all series were {factor:.3g} times those of the session before"
            found[name] = Proposal(show_time(day), factor, why, split=False)
        elif (split := _split(own)) is not None:
            found[name] = split
    return found


def _moves(panel: Panel, row: int) -> pd.DataFrame | None:
    """Return a series' latest moves: to the close, to the open, and the usual size of both."""
    seen = np.flatnonzero(panel.mask[row])[-2 * LATEST - 1 :]
    if len(seen) < 2:
        return None
    close = panel.channel(panel.target)[row, seen]
    opened = close
    if {"open", "close"} <= set(panel.channels):
        opened = panel.channel("open")[row, seen] * close / panel.channel("close")[row, seen]
    with np.errstate(invalid="ignore", divide="ignore"):
        to_close, to_open = (np.log(later[1:] / close[:-1]) for later in (close, opened))
    usual = 1.4826 * np.nanmedian(np.abs(to_close))
    frame = pd.DataFrame(
        {"close": to_close, "open": to_open, "usual": usual}, index=panel.times[seen[1:]]
    )
    return frame.iloc[-LATEST:]


def _split(own: pd.DataFrame) -> Proposal | None:
    """Return the latest move by an exact ratio, unless it was taken back, or took one back."""
    left: list[Proposal] = []
    for when, move in own[own["close"].abs() > _LEAST_SPLIT].iterrows():
        one = _exact(when, move)
        if one is None:
            continue
        if left and np.isclose(left[-1].factor * one.factor, 1):
            left.pop()  # prices were wrong for some sessions
        else:
            left.append(one)
    return left[-1] if left else None


def _exact(when: object, move: pd.Series) -> Proposal | None:
    """Return a move as a split if the open has moved by its ratio; None where by none."""
    near = float(np.clip(_NEAR * move["usual"], _LEAST_NEAR, _MOST_NEAR))
    for share in _SHARES:
        for factor, terms in ((1 / share, f"{share:g} for 1"), (share, f"1 for {share:g}")):
            if abs(move["open"] - np.log(factor)) <= near:
                why = f"its open was {np.exp(move['open']):.4g} times the close before, as in a "
                return Proposal(show_time(when), factor, f"{why}split {terms}", split=True)
    return None


def _moved_together(moves: Mapping[str, pd.DataFrame]) -> dict[object, float]:
    """Return the times at which nearly all series moved by the same amount, with that move."""
    if len(moves) < _TOGETHER:
        return {}
    table = pd.DataFrame({name: own["close"] for name, own in moves.items()})
    middle = table.median(axis=1)
    spread = 1.4826 * table.sub(middle, axis=0).abs().median(axis=1)
    there = table.notna().sum(axis=1) >= max(_TOGETHER, len(moves) / 2)
    same = there & (middle.abs() >= _LEAST_MOVE) & (middle.abs() > _APART * spread)
    return dict(middle[same].items())
