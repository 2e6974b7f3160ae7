"""Convert any accepted table to one layout: ``unique_id, ds`` and number columns.

Accepted layouts, of files and frames alike:

- ``ticker, date, open, high, low, close[, adj_close], volume`` and ``unique_id, ds, y[, more]``, in
  any letter case, with the column names of Yahoo, Stooq, Nasdaq, Alpha Vantage and Investing.com
- the same with any other column names that the caller states
- a column of dates and one column per series, if the caller says so
"""

import calendar
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pandas as pd

from forecaster.errors import DataError, listed, quoted, warn
from forecaster.ingest.tables.cells import (
    BLANK,
    Decimal,
    TableLocation,
    is_marked,
    number_columns,
)
from forecaster.ingest.tables.options import INFERRED, Columns
from forecaster.ingest.tables.roles import (
    CLOCK,
    PRICES,
    TARGETS,
    UNITS,
    UNUSED,
    canonical,
    columns_option,
    describe,
    find_roles,
    kind_of,
    options_that_name,
)
from forecaster.ingest.tables.times import tell_odd_rows, to_times
from forecaster.series import show_time

SEPARATOR = "/"
"""Stands between the names of a joined series: ``S01/milk``."""
_EACH_A_SERIES = ", since each column beside the dates is taken as a series"
_UNFIT = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]|.{1000}."
)


def tidy(
    table: pd.DataFrame,
    where: TableLocation,
    name: str | None = None,
    *,
    decimal: Decimal | None = None,
    columns: Columns = INFERRED,
) -> pd.DataFrame:
    """Return a table in the layout ``unique_id, ds, channels...``, sorted by ``unique_id, ds``.

    - ``table``: the table; its index counts rows from 0, for error messages
    - ``where``: the file, for error messages
    - ``name``: the series' id, if the table has no column of ids; None: the target column's name
    - ``decimal``: the decimal sign in numbers that are text, if it is known and none is stated
    - ``columns``: the columns with series, times and target, if their names do not show it

    ``attrs["units"]`` holds the stated ``currency`` and ``unit`` of each series.

    Raises DataError with file, line and column if a column is missing, a cell is not a date or not
    a finite number, a series has two currencies, or the table can be read in two ways.
    """
    table = table.set_axis(list(map(str, table.columns)), axis=1)
    whole = with_joined_ids(table, columns.id_col, columns.id_parts, where)
    table, where = _with_roles(whole, where, columns)
    times, offsets = to_times(table["ds"], where, columns.date_format)
    decimal = columns.decimal or decimal
    has_ids = "unique_id" in table and not columns.wide
    if has_ids:
        ids = _ids(table["unique_id"], where)
    else:
        target = next((target for target in TARGETS if target in table), "ds")
        ids = pd.Series(name or where.column(target), table.index, dtype="category")
    if columns.frequency is not None:
        tell_odd_rows(times, ids, columns.frequency, where)
    if offsets is not None and offsets.nunique() > 1:
        _check_offsets(table["ds"], times, times - offsets, ids, where)
    if not has_ids:
        _refuse_repeated(times, where, whole, columns)
    units = _units(table, ids, where, columns)
    if columns.wide:
        series = table.drop(columns=["ds", *_unit_columns(table)])
        if series.empty:
            raise DataError(
                f"{where}: no column of a series; expected a date and a column of numbers per "
                f"series; got {describe(whole)}. Add a column of numbers for each series"
            )
        if name is not None and series.shape[1] == 1:
            series = series.set_axis([name], axis=1)
        numbers = number_columns(series, where, decimal, [*map(str, series)], _EACH_A_SERIES)
        tidied = _stacked(times, numbers, where, columns.target_col or "y")
        units = dict.fromkeys(tidied["unique_id"].cat.categories, next(iter(units.values()), {}))
    else:
        others = table[[n for n in table if n not in ("unique_id", "ds", "name", *UNUSED)]]
        numbers = number_columns(others, where, decimal, (*TARGETS, *PRICES))
        tidied = pd.DataFrame({"unique_id": ids, "ds": times} | numbers)
    tidied = _sorted(tidied)
    tidied.attrs["units"] = {of: stated for of, stated in units.items() if stated}
    return tidied


def _with_roles(
    table: pd.DataFrame, where: TableLocation, columns: Columns
) -> tuple[pd.DataFrame, TableLocation]:
    """Return a table under the canonical names of its columns, and a location that knows both.

    Marks of missing numbers are left out, and rows with one in place of their time.
    """
    missing = table.apply(is_marked, marks=columns.marks) if columns.marks else None
    names = find_roles(table if missing is None else table.mask(missing), where, columns)
    where = dataclasses.replace(where, written_names={new: old for old, new in names.items()})
    found = table[list(names)]
    if missing is not None:
        times = found[where.column("ds")]
        found = found.mask(missing).assign(**{where.column("ds"): times})
        found = found[~missing[where.column("ds")]]
    if found.empty:
        raise DataError(f"{where}: no rows in it")
    found = found.rename(columns=names)
    if CLOCK in found:
        found["ds"] = with_clock(found["ds"], found.pop(CLOCK), where)
    return found, where


def with_joined_ids(
    table: pd.DataFrame, id_col: str | None, parts: Sequence[str], where: TableLocation
) -> pd.DataFrame:
    """Return a table with the columns ``parts`` joined into one, of the name ``id_col``.

    A table that has a column of that name, or none of the parts, is returned unchanged. Raises
    DataError if it lacks some of them, and for an empty name in one.
    """
    found = [part for part in parts if part in table]
    if not found or id_col is None or id_col in table:
        return table
    if missing := [part for part in parts if part not in table]:
        raise DataError(
            f"{where}: no column {listed(list(map(repr, missing)))}, which should name the series "
            f"together with {listed(list(map(repr, found)))}; it has {listed(list(table.columns))}"
        )
    keys = pd.DataFrame({part: _ids(table[part], where, part) for part in parts})
    groups = keys.groupby(list(parts), sort=False, observed=True).ngroup()
    first = keys.loc[~groups.duplicated()]
    names = pd.Series([SEPARATOR.join(row) for row in first.itertuples(index=False)], dtype=object)
    if (same := names.duplicated()).any():
        raise DataError(
            f"{where}: two series would have the name {names[same].iloc[0]!r}, joined by "
            f"{SEPARATOR!r} from {listed(list(map(repr, parts)))}; replace {SEPARATOR!r} in these "
            "columns"
        )
    ids = names.take(groups.to_numpy()).set_axis(table.index).astype("category")
    table = table.drop(columns=list(parts))
    table.insert(0, id_col, ids)
    return table


_PARTS_OF_YEARS = {
    "q": "Q", "qtr": "Q", "quarter": "Q", "m": "M", "mon": "M", "month": "M", "w": "W", "wk": "W",
    "week": "W",
}  # fmt: skip
_MONTHS = {name.upper(): str(number) for number, name in enumerate(calendar.month_abbr)}
_NO_HOURS = {"min", "mins", "minute", "minutes", "s", "sec", "second", "seconds", "day", "year"}


def with_clock(dates: pd.Series, clock: pd.Series, where: TableLocation) -> pd.Series:
    """Return dates as text with their times of day, or hours, which Stooq writes as 093000.

    Years get their quarter, month or week, as the name of that column says: 1, Q1 or Jan. Raises
    DataError for a cell that is no time of day.
    """
    text, days = (part.astype(str).str.strip() for part in (clock, dates))
    name = canonical(where.written_names.get(CLOCK, str(clock.name)))
    kind = _PARTS_OF_YEARS.get(name)
    if kind and days.str.fullmatch(r"\d{4}(?:\.0)?").all():
        number = text.str.removesuffix(".0").str.upper()
        number = number.str.replace(rf"^{kind}(?=\d)", "", regex=True)
        return days.str[:4] + kind + number.str[:3].replace(_MONTHS).str.zfill(2)
    whole = text.str.fullmatch(r"\d+(?:\.0)?")
    if (kind or name in _NO_HOURS) and whole.any():
        raise DataError(
            f"{where.cell(whole, CLOCK)}: {text[whole].iloc[0]!r} beside dates, in a column called "
            f"{name!r}; expected hours, or times of day such as 13:30"
        )
    text = text.str.replace(r"^(\d\d)(\d\d)(\d\d)$", r"\1:\2:\3", regex=True)
    text = text.str.replace(r"^(\d\d?)(?:\.0)?$", r"\1:00", regex=True)
    text = text.str.replace(r"^(?=\d:)", "0", regex=True)
    if (bad := ~text.str.contains(r"\d", regex=True)).any():
        got = "empty" if clock.isna()[bad].iloc[0] else f"{text[bad].iloc[0]!r} is no time of day"
        raise DataError(f"{where.cell(bad, CLOCK)}: {got}; expected one such as 13:30")
    return days + " " + text


def each_series(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the rows of each series of a tidy table, with names as text.

    ``attrs["units"]`` of a frame holds the stated ``currency`` and ``unit``.
    """
    ids, units = table["unique_id"].cat, table.attrs.get("units", {})
    codes = ids.codes.to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1), len(codes)]
    table = table.assign(unique_id=ids.categories.take(codes))  # at once: costly for each series
    table.attrs = {}  # pandas would copy all units for each series
    for low, high in itertools.pairwise(bounds):
        name = str(ids.categories[codes[low]])
        part = table.iloc[low:high].reset_index(drop=True)
        if name in units:
            part.attrs["units"] = units[name]
        yield name, part


def _refuse_repeated(
    times: pd.Series, where: TableLocation, table: pd.DataFrame, columns: Columns
) -> None:
    """Raise DataError if a time repeats in a table without a column of series."""
    if (repeated := times.duplicated()).any():
        time = times[repeated].iloc[0]
        rows = table.loc[times.index].assign(**{where.column("ds"): times})
        names = {old: new for new, old in where.written_names.items()}
        options = options_that_name(rows, names, columns)
        raise DataError(
            f"{where.cell(repeated, 'ds')}: {show_time(time)} is in {where.row(times == time)}, "
            "too, and no column names the series; expected one row for a time, or a column "
            f"'ticker'. {'Say ' + ' or '.join(options) if options else 'Keep one of the rows'}; "
            f"the columns are {describe(table)}"
        )


def _stacked(
    times: pd.Series, numbers: dict[str, pd.Series], where: TableLocation, target: str
) -> pd.DataFrame:
    """Return a wide table as a long one, without the cells that hold no number."""
    values = np.stack([column.to_numpy() for column in numbers.values()], axis=1)
    kept = np.isfinite(values)
    # A series without a number keeps a row, so that it is skipped by name.
    kept[0, ~kept.any(0)] = True
    series, rows = np.nonzero(kept.T)
    ids = _ids(pd.Series(list(numbers)), where).cat
    codes = ids.codes.to_numpy()[series]
    return pd.DataFrame(
        {
            "unique_id": pd.Categorical.from_codes(codes, categories=ids.categories),
            "ds": times.to_numpy()[rows],
            target: values[rows, series],
        }
    )


def _units(
    table: pd.DataFrame, ids: pd.Series, where: TableLocation, columns: Columns
) -> dict[str, dict[str, str]]:
    """Return the ``currency`` and the ``unit`` of each series, if the table states them.

    Raises DataError if a series has two currencies or units.
    """
    stated_units: dict[str, dict[str, str]] = {}
    for name in _unit_columns(table):
        units = table[name].astype(str).str.strip().where(table[name].notna(), "")
        stated = ~units.str.lower().isin(BLANK)
        kinds = pd.DataFrame({"id": ids.cat.codes[stated], "unit": units[stated]})
        first = kinds.groupby("id")["unit"].transform("first")
        other = kinds["unit"] != first
        if other.any():
            row = other.index[int(other.to_numpy().argmax())]
            names = filter(None, (where.written_names.get("unique_id"), where.column(name)))
            apart = f", or give each its own series: {columns_option(columns, id='+'.join(names))}"
            is_wide = set(TARGETS).isdisjoint(where.written_names)
            raise DataError(
                f"{where.cell(other, name)}: {kinds.at[row, 'unit']!r}, but series "
                f"{str(ids[row])!r} has {first[row]!r} before; expected one for each series. "
                f"Convert the numbers{'' if is_wide else apart}"
            )
        each, kind = kinds.drop_duplicates("id"), UNITS[canonical(name)]
        for series, unit in zip(ids.cat.categories[each["id"]], each["unit"], strict=True):
            stated_units.setdefault(str(series), {})[kind] = unit
    return stated_units


def _unit_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that state a currency or a unit, by their names."""
    # A column named so that holds numbers may be the number of units sold, or a ticker's prices.
    return [n for n in map(str, table) if canonical(n) in UNITS and kind_of(table[n]) == "text"]


def _check_offsets(
    written: pd.Series, times: pd.Series, in_utc: pd.Series, ids: pd.Series, where: TableLocation
) -> None:
    """Raise DataError if local times, without their offsets, are not in the order of those in UTC.

    As where summer time ends, and an hour comes twice.

    - ``written``: the cells that the local ``times`` were read from
    - ``ids``: the series of each row
    """
    rows = pd.DataFrame({"id": ids.cat.codes, "utc": in_utc, "local": times})
    later = rows.sort_values(["id", "utc"], kind="stable").diff()
    none = pd.Timedelta(0)
    back = (later["id"] == 0) & (later["utc"] > none) & (later["local"] <= none)
    if back.any():
        row = back.index[int(back.to_numpy().argmax())]
        raise DataError(
            f"{where.cell(back, 'ds')}: {str(written[row]).strip()!r}: the local time "
            f"{show_time(times[row])} comes again or is earlier than the one before, as offsets "
            "from UTC differ. To read all times in UTC, say --date-format utc (in Python "
            'date_format="utc"), or convert the column: in pandas '
            '.dt.tz_convert("UTC").dt.tz_localize(None)'
        )


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by id and time, unless the table is sorted already, as most large files are."""
    ids = table["unique_id"].cat
    if not ids.categories.is_monotonic_increasing:
        table["unique_id"] = ids.reorder_categories(sorted(ids.categories))
    codes, times = table["unique_id"].cat.codes.to_numpy(), table["ds"].to_numpy()
    later = (np.diff(codes) > 0) | ((np.diff(codes) == 0) & (times[1:] >= times[:-1]))
    if not later.all():
        table = table.iloc[np.lexsort((times, codes))]
    return table.reset_index(drop=True)


def _ids(column: pd.Series, where: TableLocation, role: str = "unique_id") -> pd.Series:
    """Return the names of series as categories, each checked once, in one form of Unicode.

    Raises DataError for a name that is empty, too long, or has control characters.
    """
    kinds = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    written = pd.Series(kinds.cat.categories.astype(str))
    names = written.str.strip().str.normalize("NFC")
    # The last entry stands for code -1, no name.
    codes, blank = kinds.cat.codes.to_numpy(), np.append((names == "").to_numpy(), True)
    if (missing := pd.Series(blank[codes], index=column.index)).any():
        raise DataError(f"{where.cell(missing, role)}: empty; expected a name")
    if (bad := names.str.contains(_UNFIT, regex=True)).any():
        odd = pd.Series(bad.to_numpy()[codes], index=column.index)
        raise DataError(
            f"{where.cell(odd, role)}: {quoted(names[bad].iloc[0])} holds a control character or "
            "more than 1,000 characters; expected a name"
        )
    merged, unique = pd.factorize(names)
    if len(unique) < len(names):
        warn(
            f"{where}: {names[names.duplicated()].iloc[0]!r} is written in two ways, such as with "
            "and without spaces around it; rows of both are taken for one series"
        )
    categories = pd.Index(unique, dtype=object)
    return pd.Series(pd.Categorical.from_codes(merged[codes], categories), column.index)


def as_one_level(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return a frame with two levels of columns, fields and tickers, as a long frame.

    A frame with one level is returned unchanged. Raises DataError for more levels, or without a
    column or index of dates.
    """
    if not isinstance(frame.columns, pd.MultiIndex):
        return frame
    if frame.columns.nlevels != 2:
        raise DataError(f"{where}: columns of {frame.columns.nlevels} levels; expected one or two")
    alone = [label for label in frame.columns if "" in label]  # columns from the index
    if not alone:
        raise DataError(f"{where}: no column with dates, nor an index of them")
    keys = frame[alone].set_axis([str(label[0] or label[1]) for label in alone], axis=1)
    fields = frame.drop(columns=alone)
    level = _level_of_tickers(cast(pd.MultiIndex, fields.columns), where)
    parts = []
    for name in fields.columns.get_level_values(level).unique():
        part = pd.DataFrame(fields.xs(name, axis=1, level=level))
        seen = np.any(part.notna().to_numpy(), axis=1)
        # A series without a number keeps a row, so that it is skipped by name.
        seen[:1] |= not seen.any()
        part = pd.concat([keys, part], axis=1)[seen]
        part.insert(0, "ticker", str(name))
        parts.append(part)
    return pd.concat(parts).rename_axis(columns=None)


def _level_of_tickers(columns: pd.MultiIndex, where: str) -> int:
    """Return which of two levels holds tickers: by its name, or because the other holds prices.

    Raises DataError if neither decides.
    """
    by_name = [n for n in (0, 1) if canonical(str(columns.names[n])) == "unique_id"]
    words = [{canonical(str(value)) for value in columns.get_level_values(n)} for n in (0, 1)]
    fields = [n for n in (0, 1) if words[n] & set(TARGETS)]
    found = by_name or [1 - n for n in fields]
    if len(found) == 1:
        return found[0]
    shown = (listed(columns.get_level_values(n).unique()[:10].map(str)) for n in (0, 1))
    raise DataError(
        f"{where}: columns of two levels, but {'both' if found else 'none'} may hold prices; "
        f"expected one with Close, the other with tickers; got {' and '.join(shown)}. Name the "
        "level of tickers: frame.columns.names = ['Price', 'Ticker']"
    )
