"""Steps of making a panel: times of one kind on a common axis, and values stacked on it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from forecaster.errors import DataError, Kind, Skipped
from forecaster.machine import free_memory
from forecaster.series.calendar.times import means_now, repeated_at, show_time, split_offset


class Layout(NamedTuple):
    """What all series of a panel have in common, for panels of some of its series.

    - ``kind``: the kind of their times, "M" for dates or "i" for whole numbers
    - ``channels``: the channels of all of them, in order; None: not known yet
    """

    kind: str
    channels: tuple[str, ...] | None = None


def stack(
    series: Mapping[str, tuple[np.ndarray, np.ndarray, tuple[str, ...]]],
    channels: tuple[str, ...],
) -> tuple[
    Shaped[np.ndarray, " time"], Float[np.ndarray, "series time channel"], dict[str, Skipped]
]:
    """Return the common times of all series, their values, and the series that cannot be used.

    Values are NaN where there is no number. A series with a repeated time or an infinite number
    cannot be used; its reason names the first one.

    Raises DataError for times that are not sorted or do not fit the values, and if the values of
    all do not fit into memory, as where all series have times of their own.
    """
    times = union_of(part[0] for part in series.values())
    need, free = 8 * len(series) * len(times) * len(channels), free_memory()
    if need > free:
        raise DataError(
            f"{len(series):,} series with {len(times):,} different times need about "
            f"{need / 1e9:,.1f} GB; {free / 1e9:,.1f} GB are free. Round the times, so that series "
            "share them, or choose fewer series"
        )
    values = np.full((len(series), len(times), len(channels)), np.nan)
    unusable: dict[str, Skipped] = {}
    for row, (name, (own, part, names)) in enumerate(series.items()):
        if part.shape != (len(own), len(names)) or (own[1:] < own[:-1]).any():
            raise DataError(
                f"series {name!r}: expected sorted times (row,) and values (row, channel); got "
                f"{len(own)} times, values of shape {part.shape} and {len(names)} channels"
            )
        columns = [channels.index(channel) for channel in names]
        values[row, np.searchsorted(times, own)[:, None], columns] = part
        if (infinite := np.isinf(part)).any():
            first, column = (int(index) for index in np.argwhere(infinite)[0])
            value, when = float(part[first, column]), show_time(own[first])
            unusable[name] = Skipped(Kind.INFINITE, column=names[column], value=value, first=when)
        elif (again := own[1:] == own[:-1]).any():
            unusable[name] = repeated_at(own[again.argmax()])
    values[~np.isfinite(values)] = np.nan
    return times, values, unusable


def union_of(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return all times of all series, sorted."""
    different = {times.tobytes(): times for times in parts}  # most series have the same times
    return np.unique(np.concatenate([*different.values()]))


def as_times(column: pd.Series) -> np.ndarray:
    """Return a column of dates or whole numbers as times. Raises DataError for anything else."""
    if pd.api.types.is_integer_dtype(column):
        return column.to_numpy(np.int64)
    try:
        if len(column) and isinstance(column.iloc[0], str):
            text = column.astype("string")
            if (now := means_now(text)).any():
                raise DataError(f"column 'ds' holds {text[now].iloc[0]!r}, which is not a date")
            times = pd.to_datetime(split_offset(text)[0], format="ISO8601")
        else:
            times = pd.to_datetime(column)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].partition(". You might")[0]  # without pandas' advice
        raise DataError(f"column 'ds' holds something that is not a date: {reason}") from error
    if times.isna().any():
        raise DataError(f"column 'ds' has {int(times.isna().sum())} rows without a date")
    if times.dt.tz is not None:
        times = times.dt.tz_localize(None)
    try:
        return times.astype("datetime64[ns]").to_numpy()
    except (ValueError, OverflowError) as error:
        raise DataError(f"column 'ds' holds a date out of range: {error}") from error
