"""Covariates: numbers that are known in advance, and constant properties of each series.

``Future`` holds numbers that are known in advance, such as promotions, holidays or a weather
forecast; ``Static`` holds properties such as the sector. ``Scaling`` is how a fit scales both; it
is stored with the model, so that later data do not change the features.
"""

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped
from msgspec import Meta

from forecaster.errors import DataError, ForecasterWarning, listed, printable
from forecaster.series.calendar.times import dates_of_numbers, show_time
from forecaster.series.causal import squash
from forecaster.series.panel.stacking import as_times

_EVENT = "event"  # the column that names kinds of events
_EVERY = ""  # the name of rows that hold for all series
_MOST_CATEGORIES = 50
_WIDEST = 1e6  # deviations of a constant number from its mean, or float32 would overflow
_LARGEST = 1e150  # largest number; its square does not overflow

MeanAndDeviation: TypeAlias = tuple[float, Annotated[float, Meta(gt=0)]]
Pairs: TypeAlias = tuple[MeanAndDeviation, ...]
Words: TypeAlias = tuple[str, ...]
Rows = tuple[Shaped[np.ndarray, " row"], Float[np.ndarray, "row column"]]


@dataclasses.dataclass(frozen=True)
class Future:
    """Numbers that are known in advance, by series and time.

    - ``columns``: their names
    - ``rows``: for each series the sorted times, and the numbers at them, NaN where unknown
    - ``otherwise``: the numbers at other times; NaN: unknown, 0 in a list of events
    """

    columns: tuple[str, ...]
    rows: Mapping[str, Rows]
    otherwise: float = float("nan")

    @staticmethod
    def from_frame(frame: pd.DataFrame, ids: Sequence[str], *, dated: bool) -> "Future":
        """Read a long frame ``unique_id, ds`` and columns of numbers.

        Without ``unique_id`` the rows hold for every series. A frame without columns of numbers
        lists events: 1 at its times and 0 at all others, in a column ``event``, or in one for each
        kind that its column ``event`` names. Raises DataError when ``ds`` is missing or holds other
        times, a column holds no numbers or one that is infinite or beyond 1e150, a row names no
        series, a time is repeated, there are no rows, or one of the series has none. A list of
        events raises only if none of them has a row; else a warning names those without.

        - ``ids``: the series
        - ``dated``: whether their times are dates rather than whole numbers
        """
        frame = _table(frame, {"ticker": "unique_id", "date": "ds"}, "future covariates")
        columns = [str(name) for name in frame if name not in ("unique_id", "ds")]
        if "ds" not in frame:
            raise DataError(
                "future covariates: expected columns ds, unique_id (unless the numbers hold for "
                "all series) and some of numbers, or none for a list of events; got "
                f"{listed(frame)}"
            )
        kinds = columns == [_EVENT] and not pd.api.types.is_numeric_dtype(frame[_EVENT])
        if events := kinds or not columns:
            frame = _with_kinds(frame)
            columns = [str(name) for name in frame if name not in ("unique_id", "ds")]
        for name in columns:
            if not pd.api.types.is_numeric_dtype(frame[name]):
                raise DataError(
                    f"future covariates: column {name!r} holds text; expected numbers. Give each "
                    "kind a column of 0 and 1; a list of events has no column beside 'event'"
                )
        _check_real(frame, columns, "future covariates")
        named = frame["unique_id"].astype(str) if "unique_id" in frame else _EVERY
        frame = frame.assign(unique_id=named, ds=_times(frame["ds"], dated=dated)).sort_values("ds")
        if events:  # several kinds may fall on one day, and one may be listed twice
            frame = frame.groupby(["unique_id", "ds"], as_index=False)[columns].max()
        if (again := frame.duplicated(["unique_id", "ds"])).any():
            row = frame[again].iloc[0]
            of = f" of {row['unique_id']}" if row["unique_id"] else ""
            raise DataError(f"future covariates: two rows{of} for {show_time(row['ds'])}")
        rows = {
            str(name): (part["ds"].to_numpy(), part[columns].to_numpy(float, na_value=np.nan))
            for name, part in frame.groupby("unique_id", sort=False)
        }
        missing = [] if _EVERY in rows else [name for name in ids if name not in rows]
        if missing and (not events or len(missing) == len(ids)):
            raise DataError(
                f"future covariates: no row for {listed(missing)}; there are rows for "
                f"{listed(list(rows))}. Name each series as in the data, or leave out unique_id "
                "where the numbers hold for all"
            )
        if missing:
            message = f"future covariates: no event is listed for {listed(missing)}"
            warnings.warn(message, ForecasterWarning, stacklevel=3)
        return Future(tuple(columns), rows, 0.0 if events else float("nan"))

    def of_kinds(self, columns: Sequence[str]) -> "Future":
        """Return a list of events with these kinds alone; unchanged where it has none of them.

        A kind that the list does not have has no events. Covariates that are no list stay as they
        are.
        """
        if self.otherwise != 0 or self.columns == tuple(columns):
            return self
        if columns and not set(columns) & set(self.columns):
            return self
        of = [self.columns.index(name) if name in self.columns else -1 for name in columns]
        rows = {
            name: (times, np.pad(values, ((0, 0), (0, 1)))[:, of])  # the last column is of zeros
            for name, (times, values) in self.rows.items()
        }
        return dataclasses.replace(self, columns=tuple(columns), rows=rows)

    def known_at(self, times: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        """Return the columns that a fit can learn from: of a list, the kinds that have happened.

        A kind whose events all lie ahead must not change what a network is made of.

        ``times``: the times of each series' rows
        """
        if self.otherwise != 0:
            return self.columns
        seen = np.zeros(len(self.columns), bool)
        for name, own in times.items():
            seen |= self.at(name, own).any(0)
        return tuple(name for name, one in zip(self.columns, seen, strict=True) if one)

    def warn_of_unknown_kinds(
        self, columns: Sequence[str], ahead: Mapping[str, np.ndarray]
    ) -> None:
        """Warn of events to come of a kind that a model does not know.

        - ``columns``: the kinds that it was fitted with
        - ``ahead``: the times that each series is forecast for
        """
        if self.otherwise != 0:
            return
        if unknown := [name for name in self.known_at(ahead) if name not in columns]:
            warnings.warn(
                f"future covariates: the model does not know the events {listed(unknown)}, which "
                "had not happened or were not listed when it was fitted. They do not change the "
                "forecast. Fit again once some have happened",
                ForecasterWarning,
                stacklevel=4,
            )

    def shifted(self, shifts: Mapping[str, int], times: Shaped[np.ndarray, " time"]) -> "Future":
        """Return the covariates with the rows of each series later on a time axis.

        ``shifts``: the number of positions of ``times``, by series.
        """
        rows: dict[str, Rows] = {}
        for name, by in shifts.items():
            to = times[by:]
            rows[name] = (to, self.at(name, times[: len(to)]))
        return dataclasses.replace(self, rows=rows)

    def rows_of(self, name: str) -> Rows:
        """Return the sorted times and the numbers of one series; none where it has none."""
        none = np.empty(0, "datetime64[ns]"), np.zeros((0, len(self.columns)))
        return self.rows.get(name) or self.rows.get(_EVERY) or none

    def at(self, name: str, times: Shaped[np.ndarray, " time"]) -> Float[np.ndarray, "time column"]:
        """Return the numbers of one series at some times; ``otherwise`` where none is known."""
        known, values = self.rows_of(name)
        out = np.full((len(times), len(self.columns)), self.otherwise)
        if not len(known) or known.dtype.kind != times.dtype.kind:
            return out
        times = times.astype(known.dtype)
        rows = np.minimum(np.searchsorted(known, times), len(known) - 1)
        there = known[rows] == times
        out[there] = values[rows[there]]
        return out


def static_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return constant properties, a row per series by its name, from a frame with ``unique_id``.

    Raises DataError when a series has two rows, a row names none, there are no rows or no other
    column, or a number is infinite, complex or beyond 1e150.
    """
    frame = _table(frame, {"ticker": "unique_id"}, "static covariates")
    if "unique_id" not in frame or frame.shape[1] < 2:
        raise DataError(
            "static covariates: expected columns unique_id and one or more others; got "
            f"{listed(frame)}"
        )
    frame = frame.assign(unique_id=frame["unique_id"].astype(str))
    if (again := frame["unique_id"].duplicated()).any():
        name = frame["unique_id"][again].iloc[0]
        raise DataError(f"static covariates: two rows for {name}; expected one per series")
    frame = frame.set_index("unique_id")
    _check_real(frame, list(map(str, frame)), "static covariates")
    return frame


def _check_static(static: pd.DataFrame, ids: Sequence[str]) -> None:
    """Raise DataError unless each of these series has a row."""
    known = set(static.index)
    if missing := [name for name in ids if name not in known]:
        raise DataError(f"static covariates: no row for {listed(missing)}; expected one per series")


@dataclasses.dataclass(frozen=True)
class Scaling:
    """How covariates become features, as decided when a model was fitted.

    - ``future``: the columns that are known in advance
    - ``scales``: by series, the mean and the standard deviation of each of these up to the fit
    - ``numbers``: static columns of numbers, with mean and standard deviation over the series of
      the fit
    - ``words``: static columns of text, with their categories at the fit
    """

    future: tuple[str, ...] = ()
    scales: Mapping[str, Pairs] = dataclasses.field(default_factory=dict[str, Pairs])
    numbers: Mapping[str, MeanAndDeviation] = dataclasses.field(
        default_factory=dict[str, MeanAndDeviation]
    )
    words: Mapping[str, Words] = dataclasses.field(default_factory=dict[str, Words])

    def count(self, horizon: int) -> int:
        """Return the number of features: a future column gives one now and one per step ahead."""
        kinds = sum(len(kinds) for kinds in self.words.values())
        return len(self.future) * (horizon + 1) + len(self.numbers) + kinds

    def with_scales(self, future: Future, times: Mapping[str, np.ndarray]) -> "Scaling":
        """Add the scales of further series; ``times``: those of each series' rows."""
        future = future.of_kinds(self.future)
        scales = {name: _scales(future.at(name, own)) for name, own in times.items()}
        return dataclasses.replace(self, scales={**self.scales, **scales})

    def renamed(self, names: Mapping[str, str]) -> "Scaling":
        """Return the scaling with series under new names, by the old ones."""
        scales = {names.get(name, name): pairs for name, pairs in self.scales.items()}
        return dataclasses.replace(self, scales=scales)

    def with_static(self, static: pd.DataFrame, ids: Sequence[str]) -> "Scaling":
        """Add the scales and the categories of constant properties.

        ``ids``: the series that are fitted on. Other series, which may have come later, must not
        decide. Raises DataError for one of ``ids`` without a row.
        """
        _check_static(static, ids)
        table = static.loc[list(ids)].infer_objects()
        numbers: dict[str, tuple[float, float]] = {}
        words: dict[str, tuple[str, ...]] = {}
        for name in table:
            column = table[name]
            if pd.api.types.is_numeric_dtype(column):
                known = column.to_numpy(float, na_value=np.nan)
                numbers[str(name)] = _scales(known[:, None])[0]
            else:
                kinds = tuple(sorted({_word(value) for value in column.dropna()}))
                if len(kinds) > _MOST_CATEGORIES:
                    raise DataError(
                        f"static covariates: column {str(name)!r} has {len(kinds)} kinds; expected "
                        f"{_MOST_CATEGORIES} at most. Leave out the column, or group its kinds"
                    )
                words[str(name)] = kinds
        return dataclasses.replace(self, numbers=numbers, words=words)

    def check(self, future: Future | None, static: pd.DataFrame | None, ids: Sequence[str]) -> None:
        """Raise DataError unless a panel has the covariates that a model was fitted with."""
        if self.future and (future is None or future.columns != self.future):
            got = "none" if future is None else listed(future.columns)
            raise DataError(
                f"the model was fitted with the future covariates {listed(self.future)}; this "
                f"panel has {got}. Add them by panel.with_future(frame), or --future FILE"
            )
        wanted = [*self.numbers, *self.words]
        there = [] if static is None else list(map(str, static))
        if missing := [name for name in wanted if name not in there]:
            raise DataError(
                f"the model was fitted with the static covariates {listed(wanted)}; this panel "
                f"lacks {listed(missing)}. Add them by panel.with_static(frame), or --static FILE"
            )
        if wanted and static is not None:
            _check_static(static, ids)

    def check_scales(self, ids: Iterable[str]) -> None:
        """Raise ValueError unless each series has the scales of the future covariates."""
        missing = [name for name in ids if name not in self.scales] if self.future else []
        if missing:
            raise ValueError(f"transform: covariates: scales: none for {listed(missing)}")

    def future_features(
        self,
        future: Future,
        name: str,
        times: Shaped[np.ndarray, " step"],
        ahead: Shaped[np.ndarray, "step horizon"],
    ) -> Float[np.ndarray, "step feature"]:
        """Return the features of one series: each column now and at each step ahead.

        An unknown number counts as average.

        - ``times``: the times of its rows
        - ``ahead``: the times after each row, taken from the calendar, since later rows are not
          known yet
        """
        centre, scale = np.array(self.scales[name], float).reshape(-1, 2).T
        every = np.concatenate([times[:, None], ahead], axis=1)
        values = (future.at(name, every.ravel()) - centre) / scale
        values = np.nan_to_num(squash(values), nan=0.0).reshape(*every.shape, -1)
        return values.swapaxes(1, 2).reshape(len(times), -1)

    def static_features(self, static: pd.DataFrame, name: str) -> Float[np.ndarray, " feature"]:
        """Return the features of one series; a category unknown to the fit is 0 for all of them.

        Raises DataError for anything but a number in a column of numbers.
        """
        out: list[float] = []
        for column, (centre, scale) in self.numbers.items():
            value: Any = static.at[name, column]
            try:
                number = float("nan") if pd.isna(value) else float(value)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"static covariates: column {column!r} of {name}: expected a number, as when "
                    f"the model was fitted; got {value!r:.80}"
                ) from error
            scaled = (number - centre) / scale
            out.append(float(np.nan_to_num(np.clip(scaled, -_WIDEST, _WIDEST))))
        for column, kinds in self.words.items():
            word = _word(static.at[name, column])
            out += [float(word == kind) for kind in kinds]
        return np.array(out)

    def fits(self) -> bool:
        """Return whether each series has a scale of each column, as it may not in a file."""
        return all(len(pairs) == len(self.future) for pairs in self.scales.values())


def missing_ahead(
    future: Future, names: Sequence[str], ahead: Mapping[str, np.ndarray]
) -> str | None:
    """Say which number a forecast needs is missing; None where none is.

    ``ahead``: the times that each series is forecast for.
    """
    for name in names:
        unknown = ~np.isfinite(future.at(name, ahead[name]))
        if unknown.any():
            row, column = (int(i) for i in np.argwhere(unknown)[0])
            return (
                f"future covariate {future.columns[column]!r} of {name} is not known for "
                f"{show_time(ahead[name][row])}; a forecast needs it up to "
                f"{show_time(ahead[name][-1])}"
            )
    return None


def _with_kinds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a list of events with a column of 0 and 1 for each kind, in alphabetical order.

    Without kinds the column is called ``event``. Raises DataError for a row without a kind where
    others have one, and for a kind of the name of another column.
    """
    if _EVENT not in frame:
        return frame.assign(**{_EVENT: 1.0})
    kinds = frame[_EVENT].astype(object).where(frame[_EVENT].notna(), "").astype(str).str.strip()
    if (blank := (kinds == "").to_numpy(bool)).any():
        raise DataError(
            f"future covariates: row {int(blank.argmax()) + 1}, column {_EVENT!r}: names no kind "
            "of event; expected one in every row. Leave out the column where there is only one"
        )
    if taken := sorted({"unique_id", "ds"} & set(kinds)):
        raise DataError(f"future covariates: {taken[0]!r} is no name for a kind of event")
    flags = {kind: (kinds == kind).astype(float) for kind in sorted(kinds.unique())}
    return frame.drop(columns=_EVENT).assign(**flags)


def _table(frame: object, names: dict[str, str], what: str) -> pd.DataFrame:
    """Return a frame with the usual names of columns.

    Raises DataError for anything else, without rows, and with a row of no series.
    """
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"{what}: expected a pandas frame; got {printable(type(frame).__name__)}. Of a series "
            "make one by .reset_index(), of another frame by .to_pandas()"
        )
    frame = frame.rename(columns=names)
    if frame.empty and frame.shape[1]:
        raise DataError(f"{what}: no rows; expected a header and one row or more")
    ids = frame.get("unique_id", pd.Series("all", frame.index))
    if (blank := (ids.isna() | (ids.astype(str).str.strip() == "")).to_numpy(bool)).any():
        raise DataError(
            f"{what}: row {int(blank.argmax()) + 1}, column 'unique_id': names no series; "
            "expected a name in every row. Leave out the row, or the whole column where the "
            "numbers hold for all series"
        )
    return frame


def _check_real(frame: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Raise DataError for a column with complex or infinite numbers, or some beyond 1e150."""
    for name in columns:
        column = frame[name]
        if pd.api.types.is_complex_dtype(column):
            raise DataError(f"{what}: column {name!r} holds complex numbers; expected real ones")
        if not pd.api.types.is_float_dtype(column):
            continue
        numbers = column.to_numpy(float, na_value=np.nan)
        if (wide := np.abs(numbers) > _LARGEST).any():
            row = int(wide.argmax())
            raise DataError(
                f"{what}: row {row + 1}, column {name!r}: {numbers[row]:g} is too large to be "
                f"scaled; expected {_LARGEST:g} at most. Leave the cell empty if its number is not "
                "known, or write the column in a larger unit"
            )


def _times(column: pd.Series, *, dated: bool) -> np.ndarray:
    numbers = pd.api.types.is_integer_dtype(column)
    if not dated:
        if not numbers:
            raise DataError("future covariates: column 'ds' holds no whole numbers like the series")
        return column.to_numpy(np.int64)
    try:
        dates = dates_of_numbers(column.to_numpy(np.int64)) if numbers else column
        if dates is None:
            raise DataError(
                f"column 'ds' holds numbers such as {column.iloc[0]}, which are no dates"
            )
        return as_times(dates)
    except DataError as error:
        raise DataError(
            f"future covariates: {error}; expected dates such as 2024-01-31 (dates, or text with "
            "the year first)"
        ) from error


def _scales(values: Float[np.ndarray, "row column"]) -> tuple[tuple[float, float], ...]:
    """Return mean and standard deviation of each column.

    The mean is 0 where no number is known, the deviation 1 where the column is constant.
    """
    pairs: list[tuple[float, float]] = []
    for column in values.T:
        known = column[np.isfinite(column)]
        deviation = float(known.std()) if len(known) else 0.0
        mean = float(known.mean()) if len(known) else 0.0
        pairs.append((mean, deviation if deviation > 1e-12 * abs(mean) else 1.0))
    return tuple(pairs)


def _word(value: object) -> str:
    """Return a category as text: a number in one file may be text or a float in another."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()
