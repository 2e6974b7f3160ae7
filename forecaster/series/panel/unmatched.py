"""Say which covariates known ahead have no number at the past rows of their series."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from forecaster.errors import DataError, ForecasterWarning, listed
from forecaster.series.calendar.times import show_time
from forecaster.series.panel.covariates import Future
from forecaster.series.panel.panel import Panel

_FEW = 0.05  # share of a series' rows that may lack a number without a word


class Unmatched(NamedTuple):
    """The past rows of one series at which one covariate has no number.

    - ``name``, ``column``: the series and the covariate
    - ``rows``: its rows between the first and the last known number of the covariate
    - ``lacking``: how many of them have no number
    - ``matched``: how many of all its rows have one
    - ``example``: the first time without a number; of a series without any, its first time
    - ``known``: the covariate's time next to the example
    """

    name: str
    column: str
    rows: int
    lacking: int
    matched: int
    example: str
    known: str


def unmatched_rows(panel: Panel) -> list[Unmatched]:
    """Return what is missing, by series and column; nothing for lists of events.

    Rows before the first or after the last number of a covariate are not counted as missing.
    """
    future = panel.future
    if future is None or future.otherwise == 0:
        return []
    shared = None  # where all series have the same covariates, they are looked up once
    if not any(name in future.rows for name in panel.ids):
        shared = np.isfinite(future.at(panel.ids[0], panel.times))
    found: list[Unmatched] = []
    for name, seen in zip(panel.ids, panel.mask, strict=True):
        own = panel.times[seen]
        known = np.isfinite(future.at(name, own)) if shared is None else shared[seen]
        if known.all():
            found += [Unmatched(name, c, len(own), 0, len(own), "", "") for c in future.columns]
            continue
        for place, column in enumerate(future.columns):
            found.append(_of_column(future, name, (place, column), own, known[:, place]))
    return found


def _of_column(
    future: Future, name: str, column: tuple[int, str], own: np.ndarray, known: np.ndarray
) -> Unmatched:
    """Return what one series lacks of a covariate; ``column``: its position and its name."""
    place, title = column
    times, values = future.rows_of(name)
    times = times[np.isfinite(values[:, place])]
    if not len(times) or times.dtype.kind != own.dtype.kind:
        return Unmatched(name, title, 0, 0, 0, show_time(own[0]), "none")
    inside = (own >= times[0]) & (own <= times[-1])
    lacking = inside & ~known
    example = own[lacking.argmax() if lacking.any() else 0]
    later = int(np.count_nonzero(times < example))
    nearby = times[max(0, later - 1) : later + 1]
    nearest = nearby[np.argmin(np.abs(nearby - example))]
    return Unmatched(
        name, title, int(np.count_nonzero(inside)), int(np.count_nonzero(lacking)),
        int(np.count_nonzero(known)),
        show_time(example), show_time(nearest),
    )  # fmt: skip


def warn_of_unmatched_rows(found: Iterable[Unmatched]) -> None:
    """Warn once of covariates that lack a number at more than 5 % of the rows of a series.

    ``found``: from :func:`unmatched_rows`, of all series. Raises DataError where no row of any
    series has a number of any covariate.
    """
    found = list(found)
    if not found:
        return
    if not any(one.matched for one in found):
        one = max(found, key=lambda one: one.lacking)
        raise DataError(
            f"future covariates: no row of the series has a number of {one.column!r}: {one.name} "
            f"has a row at {one.example}, and the nearest time of the covariate is {one.known}. "
            "A network learns from past rows: give the covariate at them too, at exactly the same "
            "times, to the second (in pandas, round both columns: ds.dt.round('h'))"
        )
    columns = dict.fromkeys(one.column for one in found)
    lacking = [one for one in found if one.lacking > _FEW * one.rows]
    by_column = ([one for one in lacking if one.column == column] for column in columns)
    said = [_in_words(ones, len(found) // len(columns)) for ones in by_column if ones]
    if said:
        warnings.warn(
            f"future covariates: {listed(said)}. There they count as average, so that little of "
            "their effect is learned. Give a number at every row: fill or interpolate the file (in "
            "pandas, frame.set_index('ds').resample('h').interpolate() for hours). The times must "
            "be equal to those of the series, to the second",
            ForecasterWarning,
            stacklevel=3,
        )


def _in_words(ones: list[Unmatched], count: int) -> str:
    """Say what a covariate lacks in some of ``count`` series."""
    share = sum(one.lacking for one in ones) / sum(one.rows for one in ones)
    return (
        f"{ones[0].column!r} has no number at {share:.0%} of the past rows of {len(ones)} of "
        f"{count} series (such as {ones[0].name} {ones[0].example}; the nearest number is of "
        f"{ones[0].known})"
    )
