"""Find sessions whose prices are repeated later; decide which are copies, and since when."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from forecaster.ingest.review.missing import closed_days
from forecaster.series import Panel

BAR = ("open", "high", "low", "close")

_COPIED_WITHIN = 70  # maximum number of sessions between a copy and its original
# Minimum number of series with copies on the same day; such copies confirm each other.
_COPIED_TOGETHER = 5
_COPIED_SHARE = 0.01  # minimum share of all series with copies on the same day
_NEVER = np.iinfo(np.int32).max


def repeated_later(
    values: Mapping[str, np.ndarray], positions: np.ndarray
) -> Iterator[tuple[int, int, int]]:
    """Yield the rows of a series that repeat in one of the next sessions.

    Yields three positions in time: of the row, of the first later row with the same prices, and of
    the first later row with the same volume as well (``_NEVER`` if there is none). Repetitions too
    far away, in a series with long gaps, are left out.

    - ``values``: the channels, each (row,)
    - ``positions`` (row,): of the rows in time
    """
    bars = np.stack([values[name] for name in BAR], axis=-1)
    moving = np.isfinite(bars).all(-1) & (values["high"] > values["low"])
    keys = (bars * np.sqrt([2, 3, 5, 7])).sum(-1)  # equal where bars are, and hardly elsewhere
    order = np.argsort(keys, kind="stable")
    earlier, later = order[:-1], order[1:]
    same = (keys[later] == keys[earlier]) & (later - earlier <= _COPIED_WITHIN) & moving[earlier]
    volume = values.get("volume")
    for row in np.sort(earlier[same]):
        end = np.searchsorted(positions, positions[row] + 2 * _COPIED_WITHIN, side="right")
        alike = row + 1 + np.flatnonzero((bars[row + 1 : end] == bars[row]).all(-1))
        if len(alike):
            too = alike[:0] if volume is None else alike[volume[alike] == volume[row]]
            same_volume = positions[too[0]] if len(too) else _NEVER
            yield int(positions[row]), int(positions[alike[0]]), int(same_volume)


class Copies(NamedTuple):
    """Rows whose prices are repeated later, each array (copy,).

    - ``series``, ``positions``: the rows
    - ``originals``: the position of the first later row with these prices
    - ``same_volumes``: the position of the first later row with the same volume, too; never if none
    """

    series: np.ndarray
    positions: np.ndarray
    originals: np.ndarray
    same_volumes: np.ndarray


def when_known(copies: Copies, listed: np.ndarray) -> np.ndarray:
    """Return the position at which each copy is known as one, (copy,); never if it is no copy.

    Repeated prices are a copy if the volume is repeated too, or if many series have one on the
    same day: thin or cheap stocks sometimes have two equal sessions by chance.

    - ``copies``: the candidates of all series
    - ``listed`` (time,): number of series with a row
    """
    return np.minimum(copies.same_volumes, _known_together(copies, listed))


def confirm_copies(
    copied: np.ndarray, panel: Panel, copies: Copies, known: np.ndarray
) -> np.ndarray:
    """Mark confirmed copies in ``copied``; return the positions at which they are known.

    If copy and original are consecutive, the original is marked, too, since either may be wrong.
    But if only the later one is on a day without trading, the later one alone was carried forward.

    - ``copied`` (series, time): changed in place
    - ``copies``, ``known`` (copy,): the candidates, and the result of :func:`when_known`

    Returns an array (series, time), with never where there is no copy.
    """
    copied[:] = False
    known_at = np.full(copied.shape, _NEVER, np.int32)
    confirmed = known < _NEVER
    series, positions, originals, _ = (part[confirmed] for part in copies)
    known = known[confirmed]
    copied[series, positions] = True
    known_at[series, positions] = known
    adjacent = next_rows(panel, series, positions) == originals
    series, positions, originals, known = (
        part[adjacent] for part in (series, positions, originals, known)
    )
    closed = {row: closed_days(panel, row) for row in np.unique(series)}
    carried = np.array(
        [closed[row][later] and not closed[row][at] for row, at, later in
         zip(series, positions, originals, strict=True)], bool,
    )  # fmt: skip
    copied[series[carried], positions[carried]] = False
    known_at[series[carried], positions[carried]] = _NEVER
    copied[series, originals] = True
    # The original may itself be a copy, known at another time.
    known_at[series, originals] = np.minimum(known_at[series, originals], known)
    return known_at


def _known_together(copies: Copies, listed: np.ndarray) -> np.ndarray:
    """Return the position at which a copy is one of many on its day, (copy,); otherwise never.

    ``listed`` (time,): number of series with a row
    """
    known = np.full(len(copies.positions), _NEVER)
    order = np.argsort(copies.positions, kind="stable")
    days = np.flatnonzero(np.diff(copies.positions[order])) + 1
    for together in np.split(order, days) if len(order) else []:
        day = copies.positions[together[0]]
        needed = max(_COPIED_TOGETHER, int(np.ceil(_COPIED_SHARE * listed[day])))
        if len(together) >= needed:
            originals = copies.originals[together]
            known[together] = np.maximum(originals, np.sort(originals)[needed - 1])
    return known


def next_rows(panel: Panel, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the position of the next row of the same series for each row; it must exist."""
    observed = np.flatnonzero(panel.mask)
    keys = rows * panel.mask.shape[1] + positions
    return observed[np.searchsorted(observed, keys, side="right")] % panel.mask.shape[1]
