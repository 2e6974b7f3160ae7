"""Steps of making a panel: times of one kind on a common axis, and values stacked on it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from forecaster.errors import DataError, Kind, Skipped, check_names, check_type, wrong_argument
from forecaster.machine import free_memory
from forecaster.series.calendar.times import means_now, repeated_at, show_time, split_offset


class Layout(NamedTuple):
    """What all series of a panel have in common, for panels of some of its series.

    - ``kind``: the kind of their times, "M" for dates or "i" for whole numbers
    - ``channels``: the channels of all of them, in order; None: not known yet
    """

    kind: str
    channels: tuple[str, ...] | None = None


def check_arrays(series: Mapping[str, object]) -> None:
    """Raise an error unless each series has sorted times (row,), numbers (row, channel) and names.

    Raises UsageError for what is of another type, DataError for rows that do not fit together.
    """
    expected = "times (row,), values (row, channel) and the names of the channels, by series"
    for name, parts in series.items():
        check_type("series", name, str, "names of series")
        try:
            times, values, channels = cast(tuple[Any, Any, Any], parts)
        except (TypeError, ValueError) as error:
            raise wrong_argument("series", {name: parts}, expected) from error
        check_names(f"series {name!r}: channels", channels, "the names of the channels")
        if not _is_array_of(times, "iuM") or times.ndim != 1:
            raise wrong_argument(f"series {name!r}: times", times, "an array of dates or counters")
        if not _is_array_of(values, "biuf"):
            raise wrong_argument(f"series {name!r}: values", values, "an array of real numbers")
        if values.shape != (rows := len(times), len(channels)):
            raise DataError(
                f"series {name!r}: values of shape {values.shape}; expected {(rows, len(channels))}"
                f", as it has {rows} times and {len(channels)} channels"
            )
        if (times[1:] < times[:-1]).any():
            raise DataError(f"series {name!r}: its times are not sorted; sort its rows by time")


def _is_array_of(value: object, kinds: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in kinds


def stack(
    series: Mapping[str, tuple[np.ndarray, np.ndarray, tuple[str, ...]]],
    times: Shaped[np.ndarray, " time"],
    channels: tuple[str, ...],
) -> Float[np.ndarray, "series time channel"]:
    """Return the values of all series on a common time axis, NaN where there is no number.

    Infinite numbers become NaN; :func:`unusable` names their series.

    Raises DataError if they do not fit into memory, as where all series have times of their own.
    """
    need, free = 8 * len(series) * len(times) * len(channels), free_memory()
    if need > free:
        raise DataError(
            f"{len(series):,} series with {len(times):,} different times need about "
            f"{need / 1e9:,.1f} GB; {free / 1e9:,.1f} GB are free. Round the times, so that series "
            "share them, or choose fewer series"
        )
    values = np.full((len(series), len(times), len(channels)), np.nan)
    for row, (series_times, part, names) in enumerate(series.values()):
        whole = len(series_times) == len(times)  # as of most, whose rows are copied at once
        positions = slice(None) if whole else np.searchsorted(times, series_times)
        if names == channels:
            values[row, positions] = part
        else:
            for column, channel in enumerate(names):
                values[row, positions, channels.index(channel)] = part[:, column]
    values[~np.isfinite(values)] = np.nan
    return values


def unusable(
    series: Mapping[str, tuple[np.ndarray, np.ndarray, tuple[str, ...]]],
) -> dict[str, Skipped]:
    """Return the series with a repeated time or an infinite number, each with its first one."""
    found: dict[str, Skipped] = {}
    for name, (times, values, channels) in series.items():
        if (again := times[1:] == times[:-1]).any():
            found[name] = repeated_at(times[again.argmax()])
        if (infinite := np.isinf(values)).any():
            row, column = (int(index) for index in np.argwhere(infinite)[0])
            found[name] = Skipped(
                Kind.INFINITE,
                column=channels[column],
                value=float(values[row, column]),
                first=show_time(times[row]),
            )
    return found


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


def fall_back_on_close(values: np.ndarray, channels: tuple[str, ...]) -> None:
    """Fill the adjusted close with the close for each series whose first row has no adjusted close.

    In place. The first row decides, so that no later row changes what was known at a cutoff.
    """
    adjusted, close = channels.index("adj_close"), channels.index("close")
    first = np.isfinite(values[:, :, [adjusted, close]]).any(2).argmax(1)
    without = np.isnan(values[np.arange(len(values)), first, adjusted])
    values[without, :, adjusted] = values[without, :, close]
