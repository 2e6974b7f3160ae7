"""Find numbers that stand for a missing one, such as -999."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from forecaster.errors import ForecasterWarning, listed
from forecaster.series.panel.panel import Panel

_CODES = (-99.0, -999.0, -9999.0, -99999.0, -999999.0)


class Placeholder(NamedTuple):
    """A number of a series that seems to stand for a missing one.

    - ``name``: the series
    - ``value``: the number; ``rows``: how many rows have it
    """

    name: str
    value: float
    rows: int


def placeholders_in(panel: Panel) -> list[Placeholder]:
    """Return the series that hold -99, -999 or the like, and no other number below zero."""
    values = panel.channel(panel.target)
    seen = panel.mask & np.isfinite(values)
    least = np.where(seen, values, np.inf).min(1, initial=np.inf)
    found: list[Placeholder] = []
    for row in np.flatnonzero(np.isin(least, _CODES)):
        own = values[row][seen[row]]
        has_it = own == least[row]
        if (own[~has_it] >= 0).all() and not has_it.all():
            found.append(Placeholder(panel.ids[row], float(least[row]), int(has_it.sum())))
    return found


def warn_of_placeholders(found: Iterable[Placeholder]) -> None:
    """Warn of numbers that seem to stand for missing ones; from :func:`placeholders_in`."""
    found = list(found)
    if found:
        rows = sum(one.rows for one in found)
        names = listed(f"{one.name} ({one.value:g}: {one.rows})" for one in found)
        warnings.warn(
            f"{rows} rows of {len(found)} series hold a number that may stand for a missing one, "
            f"as no other is below zero: {names}. It is learned from as it is; leave these cells "
            "empty if the numbers are not known",
            ForecasterWarning,
            stacklevel=3,
        )
