"""Warn of series without rows on most of their dates, such as sales on days with sales alone."""

import contextlib
import warnings
from collections.abc import Generator, Mapping

from forecaster.errors import ForecasterWarning
from forecaster.series.calendar.irregular import MissingDates, missing_dates
from forecaster.series.panel.panel import Panel

_RECIPE = {"day": "D", "week": "7D", "month": "MS"}  # how pandas names them
_FIRST = "most"  # word of the warning


def series_missing_dates(panel: Panel) -> dict[str, MissingDates]:
    """Return the series of a panel of values that lack most of their dates; prices are left out."""
    if panel.target != "y" or panel.times.dtype.kind != "M":
        return {}
    found = panel.of_times(missing_dates)
    return {name: its for name, its in zip(panel.ids, found, strict=True) if its is not None}


def warn_of_missing_dates(missing: Mapping[str, MissingDates], count: int) -> None:
    """Warn once of all series that lack most of their dates.

    - ``missing``: from :func:`series_missing_dates`
    - ``count``: the number of all series
    """
    if not missing:
        return
    name, its = next(iter(missing.items()))
    warnings.warn(
        f"{_FIRST} {its.unit}s between the rows of {len(missing)} of {count} series are missing "
        f"({name} has {its.rows:,} rows in {its.span:,} {its.unit}s), so each step ahead is a row "
        f"and not a {its.unit}, and the dates of forecasts are guesses. If no row means zero, fill "
        "them first, in pandas: wide = frame.pivot_table(index='ds', columns='unique_id', "
        f"values='y', aggfunc='sum').resample('{_RECIPE[its.unit]}').sum(min_count=1); "
        "filled = wide.fillna(0).where(wide.ffill().notna())",
        ForecasterWarning,
        stacklevel=1,  # from here, so that a fit and the forecasts after it say it once
    )


@contextlib.contextmanager
def missing_dates_said() -> Generator[None]:
    """Give no warning of missing dates in the block, as it was given for all series before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", rf"{_FIRST} \w+ between the rows of", ForecasterWarning)
        yield
