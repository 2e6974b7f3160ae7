"""Many series side by side: a long frame as stacked arrays with a mask, and back."""

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from forecaster.errors import (
    DataError,
    Kind,
    NoSeries,
    Skipped,
    UsageError,
    check_flag,
    check_names,
    check_type,
    check_whole,
    listed,
    near,
)
from forecaster.series.calendar.frequency import Frequency, in_words
from forecaster.series.calendar.inferring import common_frequency
from forecaster.series.calendar.times import (
    Date,
    Time,
    as_time,
    end_of_day,
    nearest_time,
    show_time,
)
from forecaster.series.panel.covariates import Future, static_table
from forecaster.series.panel.stacking import Layout, as_times, stack
from forecaster.series.showing import (
    as_html,
    as_text,
    as_written,
    axes_of,
    first_of,
    names_in_short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


T = TypeVar("T")

_MOST_DRAWN = 10  # series in a picture
UNCONFIRMED = "unconfirmed"
"""The flag of a latest row that only the next row can confirm; forecasts use such a row."""
TARGETS = ("y", "adj_close", "close")
"""The channels that can be the target, the preferred ones first."""


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """Series on a common time axis. Unequal histories are padded and masked, never filled.

    - ``values``: NaN where nothing was observed
    - ``mask``: True where the target was observed
    - ``ids``: the series' names
    - ``times``: datetime64 or whole numbers, sorted
    - ``channels``: the columns
    - ``target``: the channel that is forecast
    - ``frequency``: the frequency of most series
    - ``skipped``: series that were left out, with the reason
    - ``flags``: rows that look wrong, see :meth:`with_flags`; a fit leaves out the rows that are
      flagged at the panel's end (:meth:`masked`)
    - ``future``, ``static``: covariates, see :meth:`with_future` and :meth:`with_static`
    - ``market``: the declared indices that networks see beside each series, as a panel of their own
    - ``peers``: a sample of all series, as a panel of its own, see :meth:`with_peers`
    """

    values: Float[np.ndarray, "series time channel"]
    mask: Bool[np.ndarray, "series time"]
    ids: tuple[str, ...]
    times: Shaped[np.ndarray, " time"]
    channels: tuple[str, ...]
    target: str
    frequency: Frequency
    skipped: Mapping[str, Skipped] = dataclasses.field(default_factory=dict[str, Skipped])
    flags: pd.DataFrame | None = None
    future: Future | None = None
    static: pd.DataFrame | None = None
    market: "Panel | None" = None
    peers: "Panel | None" = None

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.ids), len(self.times), len(self.channels)):
            raise ValueError(
                f"values have shape {self.values.shape}; expected (series, time, channel) = "
                f"({len(self.ids)}, {len(self.times)}, {len(self.channels)})"
            )
        for array in (self.values, self.mask, self.times):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return as_text(*self._facts())

    def _repr_html_(self) -> str:
        return as_html(*self._facts())

    def _facts(self) -> tuple[str, dict[str, str]]:
        """Return a title, and the lines that describe the panel."""
        rows, wrong = self.mask.sum(1), int(self.flagged().sum())
        times = f"{show_time(self.times[0])} to {show_time(self.times[-1])}"
        others = [name for name in self.channels if name != self.target]
        few, many = int(rows.min()), int(rows.max())
        facts = {
            "times": f"{times}, {in_words(self.frequency)}",
            "rows": f"{many:,}" if few == many else f"{few:,} to {many:,} per series",
            "target": self.target + (f"; inputs beside it: {listed(others)}" if others else ""),
        }
        if wrong:
            facts["flagged"] = f"{wrong:,} rows look wrong, and are not learned from"
        if self.skipped:
            facts["skipped"] = first_of(self.skipped)
        return f"Panel of {len(self.ids):,} series: {names_in_short(self.ids)}", facts

    def plot(
        self,
        unique_ids: str | Sequence[str] | None = None,
        *,
        history: int | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Draw the rows of some series, at most 10, by default the first ones.

        Rows that look wrong have a red ring. Several prices are drawn relative to the first shown.

        - ``history``: how many of the latest rows to draw; None: all
        - ``ax``: where to draw; by default on a new figure, which a notebook shows
        """
        if history is not None:
            check_whole("history", history, 1)
        names = [unique_ids] if isinstance(unique_ids, str) else unique_ids
        if names is None:
            names = self.ids[:_MOST_DRAWN]
        check_names("unique_ids", names, "the name of a series, a list of names, or None")
        names = list(dict.fromkeys(names))
        if not 1 <= len(names) <= _MOST_DRAWN:
            raise UsageError(f"expected 1 to {_MOST_DRAWN} series to draw; got {len(names)}")
        rows = self.positions_of(names, "unique_ids")
        channel = "close" if "close" in self.channels else self.target
        prices = self.target in ("close", "adj_close")
        values, flagged, ax = self.channel(channel), self.flagged(), axes_of(ax)
        for row in rows:
            seen = np.flatnonzero(self.mask[row])[-(history or 0) :]
            times, line, wrong = self.times[seen], values[row, seen], flagged[row, seen]
            line = 100 * line / line[0] if prices and len(names) > 1 else line
            ax.plot(times, line, lw=1.2, label=self.ids[row])
            if wrong.any():
                ax.plot(times[wrong], line[wrong], "o", ms=5, mfc="none", color="#aa3333")
        label = "price" if prices else channel
        if len(names) == 1:
            ax.set_title(names[0], loc="left", fontweight="bold", parse_math=False)
        else:
            as_written(ax.legend(frameon=False, ncols=min(5, len(names)), fontsize=9))
            label += ", the first shown = 100" if prices else ""
        if self.times.dtype.kind == "M":
            from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

            locator = AutoDateLocator(minticks=3, maxticks=8)  # few ticks, with no more of the date
            ax.xaxis.set_major_locator(locator)  # than tells them apart
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        ax.set_ylabel(label, parse_math=False)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    @staticmethod
    def from_frame(frame: pd.DataFrame, skipped: Mapping[str, Skipped] | None = None) -> "Panel":
        """Stack a long frame with columns ``unique_id, ds`` and channels.

        The keys may also be named ``ticker, date``. Columns without numbers are left out, also
        one of currencies: only :func:`forecaster.load_panel` refuses a series with two of them. The
        target is the first column found of ``y``, ``adj_close``, ``close``. A series whose first
        row has no ``adj_close`` gets its ``close`` instead. A series with a repeated time, an
        infinite number or without any value is left out and named in ``skipped``.

        ``skipped``: series that are missing already, with the reason.

        Raises DataError when a needed column is missing or no series is left.
        """
        check_type("frame", frame, pd.DataFrame, "a pandas frame")
        frame = frame.rename(columns={"ticker": "unique_id", "date": "ds"})
        target = next((name for name in TARGETS if name in frame), None)
        missing = [name for name in ("unique_id", "ds") if name not in frame]
        if missing or target is None:
            raise DataError(
                f"the frame lacks {', '.join(missing) or 'a target'}; expected columns "
                "unique_id, ds, y or ticker, date, open, high, low, close[, adj_close], volume; "
                f"got {listed(frame.columns)}"
            )
        channels = tuple(
            str(name)
            for name in frame
            if name not in ("unique_id", "ds") and pd.api.types.is_numeric_dtype(frame[name])
        )
        if target not in channels:
            raise DataError(f"column {target!r} holds text; expected numbers")
        if unreal := [name for name in channels if pd.api.types.is_complex_dtype(frame[name])]:
            raise DataError(f"column {unreal[0]!r} holds complex numbers; expected real ones")
        codes, ids = pd.factorize(frame["unique_id"].astype(str))
        times = as_times(frame["ds"])
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
        skipped: Mapping[str, Skipped] | None = None,
        layout: Layout | None = None,
    ) -> "Panel":
        """Stack series given as times, values and the names of channels.

        As :meth:`from_frame`, but series with whole numbers where most have dates, or the other way
        round, are left out too.

        - ``series``: by name, sorted times (row,), values (row, channel), and the channels
        - ``skipped``: series that are missing already, with the reason
        - ``layout``: layout of the whole panel, if these series are a part of it
        """
        check_type("series", series, Mapping, "times, values and channels by series")
        skipped = dict(skipped or {})
        kinds = [times.dtype.kind for times, _, _ in series.values()]
        most = "M" if 2 * kinds.count("M") >= len(kinds) else "i"
        kind = layout.kind if layout else most
        reason = Skipped(Kind.NOT_DATES if kind == "M" else Kind.NOT_COUNTED)
        skipped |= {n: reason for n, part in series.items() if part[0].dtype.kind != kind}
        series = {name: part for name, part in series.items() if name not in skipped}
        if not series:
            raise NoSeries(skipped)
        channels = tuple(dict.fromkeys(c for _, _, names in series.values() for c in names))
        channels = (layout and layout.channels) or channels
        target = next((name for name in TARGETS if name in channels), None)
        if target is None:
            raise DataError(f"no column {', '.join(TARGETS)}; got {listed(channels)}")
        if kind == "M":  # their units may differ
            series = {n: (t.astype("datetime64[ns]"), v, c) for n, (t, v, c) in series.items()}
        times, values, unusable = stack(series, channels)
        if target == "adj_close" and "close" in channels:
            # The first row decides, so that no later row changes what was known at a cutoff.
            adjusted, close = (values[:, :, channels.index(name)] for name in (target, "close"))
            first = (np.isfinite(adjusted) | np.isfinite(close)).argmax(1)
            without = np.isnan(adjusted[np.arange(len(values)), first])
            adjusted[without] = close[without]
        mask, names = np.isfinite(values[:, :, channels.index(target)]), tuple(series)
        empty = [names[row] for row in np.flatnonzero(~mask.any(1))]
        skipped |= unusable | dict.fromkeys(empty, Skipped(Kind.NO_NUMBER, column=target))
        frequency = common_frequency(times[row] for row in mask if row.any())
        panel = Panel(values, mask, names, times, channels, target, frequency, skipped)
        return panel if not skipped else panel.only([n for n in panel.ids if n not in skipped])

    def to_frame(self) -> pd.DataFrame:
        """Return the observed rows as a long frame ``unique_id, ds, channels...``."""
        rows, positions = np.nonzero(self.mask)
        frame = pd.DataFrame(self.values[rows, positions], columns=list(self.channels))
        frame.insert(0, "unique_id", np.array(self.ids, dtype=object)[rows])
        frame.insert(1, "ds", self.times[positions])
        return frame

    def only(self, ids: Sequence[str], skipped: Mapping[str, Skipped] | None = None) -> "Panel":
        """Return the panel of these series alone, in this order.

        ``skipped``: the reasons for the others. Raises DataError when no series is left, and
        UsageError for anything but names of the panel's series.
        """
        check_names("ids", ids)
        skipped = {**self.skipped, **(skipped or {})}
        if not len(ids):
            raise NoSeries(skipped)
        rows = self.positions_of(ids, "ids")
        same = tuple(ids) == self.ids  # a copy of all series would take as much memory again
        return dataclasses.replace(
            self,
            values=self.values if same else self.values[rows],
            mask=self.mask if same else self.mask[rows],
            ids=tuple(ids),
            skipped=skipped,
            flags=None if self.flags is None else self.flags[self.flags["unique_id"].isin(ids)],
        )

    def positions_of(self, names: Iterable[str], what: str) -> list[int]:
        """Return the positions of series in the panel.

        ``what``: the argument that a UsageError names where there is no series of a name
        """
        row_of = {name: row for row, name in enumerate(self.ids)}
        for name in names:
            if name not in row_of:
                why = f" ({self.skipped[name]})" if name in self.skipped else ""
                raise UsageError(
                    f"{what}: {name!r} is none of the panel's series{why}; there are "
                    f"{listed(near(self.ids, name) or self.ids)}"
                )
        return [row_of[name] for name in names]

    def without(
        self, rows: Int[np.ndarray, " entry"], positions: Int[np.ndarray, " entry"]
    ) -> "Panel":
        """Return the panel without some observations.

        ``rows`` and ``positions``: for each observation, the indices of its series and of its time.

        Series without any observation left are named in ``skipped``.
        """
        if not len(rows):
            return self
        values, mask = self.values.copy(), self.mask.copy()
        values[rows, positions], mask[rows, positions] = np.nan, False
        panel = dataclasses.replace(self, values=values, mask=mask)
        empty = [name for name, row in zip(self.ids, mask, strict=True) if not row.any()]
        if not empty:
            return panel
        kept = [name for name in self.ids if name not in empty]
        return panel.only(kept, dict.fromkeys(empty, Skipped(Kind.MASKED)))

    def with_flags(self, flags: pd.DataFrame) -> "Panel":
        """Return the panel with the flags of its series that are known by its end.

        ``flags``: a row for each flagged row, ``unique_id, ds``: ``flag``, the time since which it
        is ``known``, and that ``until`` which it holds, NaT where it stays
        """
        panel = beside(self, lambda other: other.with_flags(flags))
        flags = flags[flags["unique_id"].isin(self.ids)]
        known = _flags_within(flags, self.times[0], self.times[-1])
        return dataclasses.replace(panel, flags=known)

    def with_future(self, frame: pd.DataFrame) -> "Panel":
        """Return the panel with covariates that are known in advance.

        ``frame``: long, ``unique_id, ds`` and columns of numbers, or without ``unique_id`` where
        the numbers hold for all series. To forecast, it must reach a horizon beyond the series'
        ends. Without columns of numbers it lists events, such as earnings: 1 at the given times, 0
        at all others. Raises DataError for any other frame, and where a series has no row.
        """
        future = Future.from_frame(frame, self.ids, dated=self.times.dtype.kind == "M")
        return dataclasses.replace(self, future=future)

    def constant(self) -> Bool[np.ndarray, " series"]:
        """Return which series have the same value in all of their rows."""
        values = self.channel(self.target)
        highest = np.max(values, axis=1, where=self.mask, initial=-np.inf)
        return highest == np.min(values, axis=1, where=self.mask, initial=np.inf)

    def with_static(self, frame: pd.DataFrame) -> "Panel":
        """Return the panel with constant properties of each series.

        They tell series apart for the network that is trained on all of them, so they need ``start
        = "pooled"``.

        ``frame``: ``unique_id`` and columns of numbers, or of text with at most 50 categories.
        Raises DataError for any other frame.
        """
        return dataclasses.replace(self, static=static_table(frame))

    def with_market(self, names: str | Sequence[str], *, forecast: bool = True) -> "Panel":
        """Return the panel with one or several series declared as the market, such as an index.

        ``forecast``: whether they also stay among the series. Raises UsageError when there is no
        series of one of these names.
        """
        check_flag("forecast", forecast)
        if not isinstance(names, str):
            check_names("names", names, "the name of an index, or a list of names")
        names = (names,) if isinstance(names, str) else tuple(names)
        return self.with_indices(names, forecast=names if forecast else ())

    def with_indices(self, names: Sequence[str], *, forecast: Container[str]) -> "Panel":
        """Return the panel with some series declared as the market; ``forecast``: those that stay.

        Raises UsageError when there is no series of one of these names.
        """
        if self.market is not None and set(names) <= set(self.market.ids):
            same = self.market.ids == tuple(names)
            return self if same else dataclasses.replace(self, market=self.market.only(names))
        self.positions_of(names, "market")
        market = alone(self, names)
        gone = {name for name in names if name not in forecast}
        if not gone:
            return dataclasses.replace(self, market=market)
        others = self.only([other for other in self.ids if other not in gone])
        own_times = np.asarray(others.mask.any(0))  # without times at which only the index has rows
        others = others._at_times(own_times)
        return dataclasses.replace(others, market=market)

    def with_peers(self, names: Sequence[str]) -> "Panel":
        """Return the panel with some of its series as its peers; selections of series keep them.

        The state of the market is made from them: how volatile prices are on each day.

        ``names``: their names; those that the panel lacks are passed over
        """
        check_names("names", names)
        own = set(self.ids)
        there = [name for name in names if name in own]
        return dataclasses.replace(self, peers=alone(self, there) if there else None)

    def flagged(
        self, cutoff: Time | Shaped[np.ndarray, ""] | None = None, *, forecasting: bool = False
    ) -> Bool[np.ndarray, "series time"]:
        """Return which rows were known at a cutoff, by default the end, to look wrong.

        ``forecasting``: without a jump at the cutoff, which may be true and is forecast from.
        """
        flagged = np.zeros(self.mask.shape, bool)
        if self.flags is None:
            return flagged
        at = self.times[-1] if cutoff is None else as_time(cutoff, self.times.dtype.kind)
        flags = _flags_at(self.flags, at[()], forecasting=forecasting)
        rows = np.array(self.positions_of(flags["unique_id"], "flags"), int)
        times = flags["ds"].to_numpy(self.times.dtype)
        positions = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        there = self.times[positions] == times
        flagged[rows[there], positions[there]] = True
        return flagged & self.mask

    def masked(
        self, cutoff: Time | Shaped[np.ndarray, ""] | None = None, *, forecasting: bool = False
    ) -> "Panel":
        """Return the panel without the rows that were known at a cutoff to look wrong.

        All rows after the cutoff stay. Arguments as of :meth:`flagged`.
        """
        at = self.times[-1] if cutoff is None else cutoff
        panel = beside(self, lambda other: other.masked(at, forecasting=forecasting))
        if self.flags is None:
            return panel
        return panel.without(*np.nonzero(self.flagged(cutoff, forecasting=forecasting)))

    def between(self, start: Date | None = None, end: Date | None = None) -> "Panel":
        """Return the panel with the rows from ``start`` to ``end``, both included; by default all.

        Dates before 1677 and after 2262 are allowed. Series without a row in that span are named in
        ``skipped``. Raises UsageError when times are whole numbers, or ``start`` or ``end`` is no
        date; DataError when no series is left.
        """
        if start is None and end is None:
            return self
        if self.times.dtype.kind != "M":
            raise UsageError("start and end are dates, but these series count in whole numbers")
        first = pd.Timestamp(self.times[0]) if start is None else nearest_time(start)
        late = pd.Timestamp(self.times[-1]) if end is None else end_of_day(end)
        keep = (self.times >= first.to_datetime64()) & (self.times <= late.to_datetime64())
        mask = self.mask[:, keep]
        ids = [name for name, row in zip(self.ids, mask, strict=True) if row.any()]
        gone = set(self.ids).difference(ids)
        if ids:
            last = show_time(self.times[-1] if end is None else end)
            reason = Skipped(Kind.NO_ROWS, first=show_time(first), last=last)
        else:
            begin, last = show_time(self.times[0]), show_time(self.times[-1])
            reason = Skipped(Kind.OUTSIDE, first=begin, last=last)
        kept = self.only(ids, dict.fromkeys(gone, reason))
        kept = kept._at_times(kept.mask.any(0) & keep)
        made = beside(kept, lambda other: other.between(start, end))
        before, after = kept.market, made.market
        if before is not None and after is not None and len(after.ids) < len(before.ids):
            raise NoSeries({name: after.skipped[name] for name in set(before.ids) - set(after.ids)})
        return made

    def until(self, cutoff: Time | Shaped[np.ndarray, ""]) -> "Panel":
        """Return the panel as it was known at a cutoff: the times up to it, the cutoff included.

        Raises DataError when nothing had been observed yet, and UsageError for anything but a time.
        """
        keep = self.times <= (at := as_time(cutoff, self.times.dtype.kind))
        if not keep.any():
            raise DataError(
                f"nothing was observed up to {show_time(at[()])}; the panel starts at "
                f"{show_time(self.times[0])}"
            )
        known = self._at_times(keep)

        def until_end(other: Panel) -> Panel:  # maybe without any row
            return dataclasses.replace(other, mask=other.mask & (other.times <= known.times[-1]))

        return beside(known, until_end)

    def _at_times(self, keep: Bool[np.ndarray, " time"]) -> "Panel":
        """Return the same series at some of the times."""
        times, mask = self.times[keep], self.mask[:, keep]
        return dataclasses.replace(
            self,
            values=self.values[:, keep],
            mask=mask,
            times=times,
            frequency=self.frequency
            if self.frequency.stated
            else common_frequency(times[row] for row in mask if row.any()),
            flags=None if self.flags is None else _flags_within(self.flags, times[0], times[-1]),
        )

    def of_times(self, function: Callable[[np.ndarray], T]) -> list[T]:
        """Return what a function makes of each series' times, once for series with equal rows."""
        made: dict[bytes, T] = {}
        for seen in self.mask:
            if (rows := seen.tobytes()) not in made:
                made[rows] = function(self.times[seen])
        return [made[seen.tobytes()] for seen in self.mask]

    def rows(self) -> list[tuple[Float[np.ndarray, " row"], Shaped[np.ndarray, " row"]]]:
        """Return the target and the times of each series' rows."""
        values = self.channel(self.target)
        return [(own[seen], self.times[seen]) for own, seen in zip(values, self.mask, strict=True)]

    def times_of_rows(self) -> dict[str, Shaped[np.ndarray, " row"]]:
        """Return the times at which each series was observed."""
        return {n: self.times[seen] for n, seen in zip(self.ids, self.mask, strict=True)}

    def channel(self, name: str) -> Float[np.ndarray, "series time"]:
        """Return the values of one channel. Raises UsageError when there is none of this name."""
        check_type("channel", name, str, f"one of {listed(self.channels)}")
        if name not in self.channels:
            raise UsageError(f"channel {name!r}: expected one of {listed(self.channels)}")
        return self.values[:, :, self.channels.index(name)]


def beside(panel: Panel, change: Callable[[Panel], Panel]) -> Panel:
    """Return a panel with its market and its peers changed; ``change``: makes the new ones."""
    market = None if panel.market is None else change(panel.market)
    peers = panel.peers
    if peers is not None:
        try:
            peers = change(peers)
        except NoSeries:  # none of them has a row left
            peers = None
    if market is panel.market and peers is panel.peers:
        return panel
    return dataclasses.replace(panel, market=market, peers=peers)


def alone(panel: Panel, names: Sequence[str]) -> Panel:
    """Return some series of a panel without covariates, a market or peers."""
    some = panel.only(names)
    return dataclasses.replace(some, market=None, peers=None, future=None, static=None)


def _flags_within(flags: pd.DataFrame, first: Any, last: Any) -> pd.DataFrame | None:
    """Return the flags of rows since a time as they were known at another; None for none."""
    if flags.empty:  # its times may be dates while those of the panel are whole numbers
        return None
    times, known = flags["ds"].to_numpy(), flags["known"].to_numpy()
    inside: Bool[np.ndarray, " flag"] = (times >= first) & (known <= last)
    some = flags[inside]
    return some.assign(until=some["until"].where(some["until"].to_numpy() <= last))


def _flags_at(flags: pd.DataFrame, cutoff: Any, *, forecasting: bool) -> pd.DataFrame:
    """Return the flags that hold at a cutoff; without unconfirmed ones when ``forecasting``."""
    known, until = flags["known"].to_numpy(), flags["until"].to_numpy()
    standing: Bool[np.ndarray, " flag"] = (known <= cutoff) & ~(until <= cutoff)
    if forecasting:
        standing &= flags["flag"].to_numpy() != UNCONFIRMED
    return flags[standing]
