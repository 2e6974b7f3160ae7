"""Many series side by side: a long frame as stacked arrays with a mask, and back."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError, name_reasons
from forecaster.series.frequency import Frequency, common_frequency

_TARGETS = ("y", "adj_close", "close")


@dataclasses.dataclass(frozen=True)
class Panel:
    """Series on a common time axis. Unequal histories are padded and masked, never filled.

    ``values`` (series, time, channel), NaN where nothing was observed; ``mask`` (series, time),
    True where the target was observed; ``ids`` (series,); ``times`` (time,) datetime64 or whole
    numbers, sorted; ``target``: the channel that is forecast. ``skipped``: series that were left
    out, with the reason.
    """

    values: np.ndarray
    mask: np.ndarray
    ids: tuple[str, ...]
    times: np.ndarray
    channels: tuple[str, ...]
    target: str
    frequency: Frequency
    skipped: Mapping[str, str] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self):
        if self.values.shape != (len(self.ids), len(self.times), len(self.channels)):
            raise ValueError(
                f"values have shape {self.values.shape}; expected (series, time, channel) = "
                f"({len(self.ids)}, {len(self.times)}, {len(self.channels)})"
            )
        for array in (self.values, self.mask, self.times):
            array.setflags(write=False)

    @staticmethod
    def from_frame(frame: pd.DataFrame, skipped: Mapping[str, str] | None = None) -> "Panel":
        """Stack a long frame with columns ``unique_id, ds`` and channels (or ``ticker, date`` and
        prices).

        The target is the first there is of ``y``, ``adj_close``, ``close``. A series with a
        repeated time or without any value is left out and named in ``skipped``.

        Raises DataError when a needed column is missing or no series is left.
        """
        frame = frame.rename(columns={"ticker": "unique_id", "date": "ds"})
        target = next((name for name in _TARGETS if name in frame), None)
        missing = [name for name in ("unique_id", "ds") if name not in frame]
        if missing or target is None:
            raise DataError(
                f"the frame lacks {', '.join(missing) or 'a target'}; expected columns "
                "unique_id, ds, y or ticker, date, open, high, low, close[, adj_close], volume; "
                f"got {', '.join(map(str, frame.columns))}"
            )
        channels = tuple(
            str(name)
            for name in frame
            if name not in ("unique_id", "ds") and pd.api.types.is_numeric_dtype(frame[name])
        )
        if target not in channels:
            raise DataError(f"column {target!r} holds text; expected numbers")
        codes, ids = pd.factorize(frame["unique_id"].astype(str))
        times = _as_times(frame["ds"])
        values = frame[list(channels)].to_numpy(float, na_value=np.nan)
        order = np.lexsort((times, codes))
        ends = np.cumsum(np.bincount(codes, minlength=len(ids)))
        parts = {
            str(name): (times[rows], values[rows], channels)
            for name, rows in zip(ids, np.split(order, ends[:-1]), strict=True)
        }
        return Panel.from_arrays(parts, skipped)

    @staticmethod
    def from_arrays(
        series: Mapping[str, tuple[np.ndarray, np.ndarray, tuple[str, ...]]],
        skipped: Mapping[str, str] | None = None,
    ) -> "Panel":
        """Stack series that each are ``times`` (row,), sorted, ``values`` (row, channel) and the
        channels' names; otherwise as :meth:`from_frame`.
        """
        skipped = dict(skipped or {})
        if not series:
            raise DataError("no series can be used:\n" + name_reasons(skipped))
        dated = sum(times.dtype.kind == "M" for times, _, _ in series.values())
        kind = "M" if 2 * dated >= len(series) else "i"
        other = [name for name, part in series.items() if part[0].dtype.kind != kind]
        if other:
            words = ("whole numbers", "dates") if kind == "M" else ("dates", "whole numbers")
            reason = f"its times are {words[0]}; those of most are {words[1]}"
            skipped |= dict.fromkeys(other, reason)
            series = {name: part for name, part in series.items() if name not in skipped}
        channels = tuple(dict.fromkeys(c for _, _, own in series.values() for c in own))
        target = next((name for name in _TARGETS if name in channels), None)
        if target is None:
            raise DataError(f"no column {', '.join(_TARGETS)}; got {', '.join(channels)}")
        if kind == "M":  # in one unit, whatever those of the series are
            series = {n: (t.astype("datetime64[ns]"), v, c) for n, (t, v, c) in series.items()}
        times = _union(part[0] for part in series.values())
        values = np.full((len(series), len(times), len(channels)), np.nan)
        for row, (name, (own, part, names)) in enumerate(series.items()):
            if len(twice := np.flatnonzero(own[1:] == own[:-1])):
                skipped[name] = f"more than one row for {show_time(own[twice[0]])}"
            at = slice(None) if len(own) == len(times) else np.searchsorted(times, own)
            if names == channels:
                values[row, at] = part
            else:
                for place, channel in enumerate(names):
                    values[row, at, channels.index(channel)] = part[:, place]
        values[~np.isfinite(values)] = np.nan
        if target == "adj_close" and "close" in channels:
            _fall_back_on_close(values, channels)
        mask = np.isfinite(values[:, :, channels.index(target)])
        names = tuple(series)
        for row in np.flatnonzero(~mask.any(1)):
            skipped[names[row]] = f"column {target!r} holds no number"
        frequency = common_frequency(times[row] for row in mask if row.any())
        panel = Panel(values, mask, names, times, channels, target, frequency, skipped)
        return panel if not skipped else panel.only([n for n in panel.ids if n not in skipped])

    def to_frame(self) -> pd.DataFrame:
        """The observed rows as a long frame ``unique_id, ds, channels...``."""
        rows, at = np.nonzero(self.mask)
        frame = pd.DataFrame(self.values[rows, at], columns=list(self.channels))
        frame.insert(0, "unique_id", np.array(self.ids, dtype=object)[rows])
        frame.insert(1, "ds", self.times[at])
        return frame

    def only(self, ids: Sequence[str], skipped: Mapping[str, str] | None = None) -> "Panel":
        """The same panel with these series, in this order."""
        skipped = {**self.skipped, **(skipped or {})}
        if not ids:
            raise DataError("no series can be used:\n" + name_reasons(skipped))
        place = {name: row for row, name in enumerate(self.ids)}
        rows = [place[name] for name in ids]
        return dataclasses.replace(
            self,
            values=self.values[rows],
            mask=self.mask[rows],
            ids=tuple(ids),
            skipped=MappingProxyType(skipped),
        )

    def without(self, rows: np.ndarray, at: np.ndarray) -> "Panel":
        """The same panel with single rows left out, by places on the series and time axes.

        Series that have none left are named in ``skipped``.
        """
        if not len(rows):
            return self
        values, mask = self.values.copy(), self.mask.copy()
        values[rows, at], mask[rows, at] = np.nan, False
        panel = dataclasses.replace(self, values=values, mask=mask)
        empty = [name for name, own in zip(self.ids, mask, strict=True) if not own.any()]
        if not empty:
            return panel
        kept = [name for name in self.ids if name not in empty]
        return panel.only(kept, dict.fromkeys(empty, "all of its rows were left out"))

    def between(self, start=None, end=None) -> "Panel":
        """The rows from a date to another, both included; by default all.

        Series without any in that span are named in ``skipped``. Raises UsageError when times
        are whole numbers, DataError when no series is left.
        """
        if start is None and end is None:
            return self
        if self.times.dtype.kind != "M":
            raise UsageError("start and end are dates, but these series count in whole numbers")
        first = self.times[0] if start is None else np.datetime64(pd.Timestamp(start), "ns")
        late = self.times[-1] if end is None else np.datetime64(pd.Timestamp(end), "ns")
        keep = self.times >= first
        if end is not None:  # a date means its whole day
            keep &= self.times < late + np.timedelta64(1, "D")
        mask = self.mask[:, keep]
        there = [bool(own.any()) for own in mask]
        ids = [name for name, some in zip(self.ids, there, strict=True) if some]
        gone = [name for name, some in zip(self.ids, there, strict=True) if not some]
        if ids:
            span = f"no rows between {show_time(first)} and {show_time(late)}"
        else:
            span = f"no rows in that span; there are {show_time(self.times[0])} to "
            span += show_time(self.times[-1])
        kept = self.only(ids, dict.fromkeys(gone, span))
        return kept._at(kept.mask.any(0) & keep)

    def until(self, cutoff) -> "Panel":
        """What was known at a cutoff: all times up to it, it included."""
        keep = self.times <= np.asarray(cutoff, self.times.dtype)
        if not keep.any():
            raise DataError(
                f"nothing was observed up to {show_time(cutoff)}; the panel starts at "
                f"{show_time(self.times[0])}"
            )
        return self._at(keep)

    def _at(self, keep: np.ndarray) -> "Panel":
        """The same series at some of the times, ``keep`` (time,) bool."""
        return dataclasses.replace(
            self,
            values=self.values[:, keep],
            mask=self.mask[:, keep],
            times=self.times[keep],
            frequency=common_frequency(self.times[keep][row[keep]] for row in self.mask),
        )

    def channel(self, name: str) -> np.ndarray:
        """One channel, (series, time)."""
        return self.values[:, :, self.channels.index(name)]


@dataclasses.dataclass(frozen=True)
class Histories:
    """The observed rows of each series without the gaps, aligned at the end.

    ``values`` (series, step, channel); ``first`` (series,), the step of a series' first row: steps
    before it are padding, NaN; ``at`` (series, step), places on the panel's time axis, -1 in the
    padding. So the last step of every series is its latest row, and "the last 252" are the same
    steps for all.
    """

    values: np.ndarray
    first: np.ndarray
    at: np.ndarray

    @staticmethod
    def of(panel: Panel) -> "Histories":
        lengths = panel.mask.sum(1)
        steps = int(lengths.max())
        rows, at = np.nonzero(panel.mask)
        first = steps - lengths
        rank = np.arange(len(at)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        step = rank + first[rows]
        values = np.full((len(panel.ids), steps, len(panel.channels)), np.nan)
        values[rows, step] = panel.values[rows, at]
        places = np.full((len(panel.ids), steps), -1)
        places[rows, step] = at
        return Histories(values, first, places)


def show_time(time) -> str:
    """A time as a person writes it: a date without midnight, or a number."""
    if isinstance(time, (int, np.integer)):
        return str(int(time))
    return str(pd.Timestamp(time)).removesuffix(" 00:00:00")


def _union(parts: Iterable[np.ndarray]) -> np.ndarray:
    """All times of all series, sorted; most series have the same ones, so that is looked at
    first.
    """
    union: np.ndarray | None = None
    for times in parts:
        if union is None or not np.array_equal(times, union):
            union = np.unique(times if union is None else np.concatenate([union, times]))
    assert union is not None
    return union


def _as_times(column: pd.Series) -> np.ndarray:
    if pd.api.types.is_integer_dtype(column):
        return column.to_numpy(np.int64)
    try:
        times = pd.to_datetime(column, format="ISO8601" if _holds_text(column) else None)
    except (ValueError, TypeError) as error:
        raise DataError(f"column 'ds' holds something that is not a date: {error}") from error
    if times.isna().any():
        raise DataError(f"column 'ds' has {int(times.isna().sum())} rows without a date")
    if times.dt.tz is not None:
        times = times.dt.tz_localize(None)
    try:
        return times.astype("datetime64[ns]").to_numpy()
    except (ValueError, OverflowError) as error:
        raise DataError(f"column 'ds' holds a date out of range: {error}") from error


def _fall_back_on_close(values: np.ndarray, channels: tuple[str, ...]) -> None:
    """A series without any adjusted close has its close for one."""
    adjusted, close = channels.index("adj_close"), channels.index("close")
    without = np.isnan(values[:, :, adjusted]).all(1)
    values[without, :, adjusted] = values[without, :, close]


def _holds_text(column: pd.Series) -> bool:
    return bool(len(column)) and isinstance(column.iloc[0], str)
