"""Convert any accepted table to one layout: ``unique_id, ds`` and number columns.

Accepted layouts, of files and frames alike:

- ``ticker, date, open, high, low, close[, adj_close], volume`` and ``unique_id, ds, y[, more]``, in
  any letter case, with the column names of Yahoo, Stooq, Nasdaq, Alpha Vantage and Investing.com
- the same with any other column names that the caller states
- a column of dates and one column per series
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from forecaster.errors import DataError, warn
from forecaster.ingest.tables.dates import CLOCK, UTC, clock_of, times_in_utc, to_times
from forecaster.ingest.tables.joined_ids import key_columns, with_joined_ids
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.numbers import (
    BLANK,
    Decimal,
    check_finite,
    find_decimal,
    is_number_column,
    plain_cells,
    to_numbers,
)
from forecaster.ingest.tables.roles import (
    PRICES,
    SHARES,
    TARGETS,
    UNITS,
    UNUSED,
    Columns,
    canonical,
    describe_all,
    find_roles,
)
from forecaster.series import show_time

_LONGEST_NAME = 1_000  # characters
_EACH_A_SERIES = (
    ". Each column of this table beside the dates is taken as a series: leave out what is none"
)
_CONTROL = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)


def tidy(
    table: pd.DataFrame,
    where: TableLocation,
    name: str | None = None,
    *,
    plain_points: bool = False,
    columns: Columns | None = None,
) -> pd.DataFrame:
    """Return a table in the layout ``unique_id, ds, channels...``, sorted by ``unique_id, ds``.

    - ``table``: the table; its index counts rows from 0, for error messages
    - ``where``: the file, for error messages
    - ``name``: the series' id, if the table has no column of ids; None: the target column's name
    - ``plain_points``: whether a lone point is the decimal sign, see :func:`find_decimal`
    - ``columns``: the columns with series, times and target, if their names do not show it

    ``attrs["units"]`` holds the stated currency and unit of each series by column.

    Raises DataError with file, line and column if a column is missing, a cell is not a date or not
    a finite number, a series has two currencies, or the table can be read in two ways.
    """
    columns = columns or Columns()
    table = table.set_axis(list(map(str, table.columns)), axis=1)
    table = with_joined_ids(table, columns.id_col, columns.id_parts, where)
    whole = table
    roles = find_roles(table, where, columns)
    where, got = roles.location(where), describe_all(table)
    table = table[list(roles.names)].rename(columns=roles.names)
    times = to_times(table["ds"], where, columns.date_format)
    if CLOCK in table and times.dtype.kind == "M":
        times = times + clock_of(table[CLOCK], where)
    if roles.wide:
        one = pd.Series("the table", table.index, dtype="category")
        unit_columns = _unit_columns(table)
        units = _units(table[unit_columns], one, where).get("the table")
        if columns.date_format != UTC:
            _check_offsets(table["ds"], times, one, where)
        wide = _series_columns(table.drop(columns=unit_columns), name, where, got)
        _refuse_repeated(whole, times, where, got)
        numbers = _numbers(wide, where, columns.decimal, plain_points=plain_points, all_needed=True)
        tidied = _sorted(_stacked(times, numbers, where, columns.target_col or "y"))
        if units is not None:
            tidied.attrs["units"] = dict.fromkeys(tidied["unique_id"].cat.categories, units)
        return tidied
    if "unique_id" not in table:
        if columns.date_format != UTC:
            one = pd.Series("the table", table.index, dtype="category")
            _check_offsets(table["ds"], times, one, where)
        _refuse_repeated(whole, times, where, got)
        target = next(target for target in TARGETS if target in table)
        table = table.assign(unique_id=name or where.column(target))
    ids = _ids(table["unique_id"], where)
    units = _units(table, ids, where)
    if columns.date_format != UTC:
        _check_offsets(table["ds"], times, ids, where)
    _refuse_several_keys(whole, times, ids, where)
    numbers = _numbers(table, where, columns.decimal, plain_points=plain_points)
    keys = {"unique_id": ids, "ds": times}
    tidied = _sorted(pd.DataFrame(keys | numbers))
    tidied.attrs["units"] = units
    return tidied


def each_series(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the rows of each series of a tidy table, with names as text.

    ``attrs["units"]`` of a frame holds the stated currency and unit by column.
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


def _refuse_repeated(table: pd.DataFrame, times: pd.Series, where: TableLocation, got: str) -> None:
    """Raise DataError if a time repeats in a table without a column of series.

    ``table``: with all columns
    """
    repeated = times.duplicated()
    if not repeated.any():
        return
    keys = key_columns(table, times, [where.column("ds")])
    if keys:
        advice = _name_keys(keys)
    else:
        advice = "If a column holds the series' names, name it: "
        advice += "id_col= (on the command line --columns id=NAME)"
    raise DataError(
        f"{where.cell(repeated, 'ds')}: no column 'ticker', and dates repeat: "
        f"{show_time(times[repeated].iloc[0])} comes again; expected a column with the ticker, or "
        f"one file per ticker; got {got}. {advice}"
    )


def _refuse_several_keys(
    table: pd.DataFrame, times: pd.Series, ids: pd.Series, where: TableLocation
) -> None:
    """Raise DataError if all series repeat a time, and further columns of text tell rows apart.

    ``table``: with all columns; ``ids``, ``times``: the series and the time of each row
    """
    rows = pd.DataFrame({"id": ids.cat.codes, "ds": times})
    repeated = rows.duplicated()
    if not repeated.any() or rows["id"][repeated].nunique() < rows["id"].nunique():
        return
    named = where.column("unique_id")
    ordered = table[[named, *(name for name in table if name != named)]].assign(**{named: ids})
    keys = key_columns(ordered, times, [where.column("ds"), where.column(CLOCK)])
    if len(keys) < 2 or named not in keys:
        return
    row = int(repeated.to_numpy().argmax())
    raise DataError(
        f"{where.cell(repeated, 'ds')}: series {str(ids.iloc[row])!r} has more than one row for "
        f"{show_time(times.iloc[row])}, as has every series. {_name_keys(keys)}"
    )


def _name_keys(keys: list[str]) -> str:
    """Say which columns name the series of a table."""
    if len(keys) == 1:
        return (
            f"Rows are unique by {keys[0]!r}: name it, --columns id={keys[0]} (in Python "
            f"id_col={keys[0]!r})"
        )
    return (
        f"Rows are unique by {' and '.join(map(repr, keys))}: name them together, --columns "
        f"id={'+'.join(keys)} (in Python id_col={keys!r})"
    )


def _series_columns(
    table: pd.DataFrame, name: str | None, where: TableLocation, got: str
) -> pd.DataFrame:
    """Return the columns of a wide table that are series; if there is only one, it is ``name``.

    ``table``: without columns of units. Raises DataError if there is no series.
    """
    wide = table.drop(columns=["ds", CLOCK], errors="ignore")
    if not wide.shape[1]:
        raise DataError(
            f"{where}: no column of a series; expected a date and a column of numbers per series; "
            f"got {got}. Add a column of numbers for each series"
        )
    return wide.set_axis([name], axis=1) if name is not None and wide.shape[1] == 1 else wide


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


def _numbers(
    table: pd.DataFrame,
    where: TableLocation,
    decimal: Decimal | None,
    *,
    plain_points: bool,
    all_needed: bool = False,
) -> dict[str, pd.Series]:
    """Return columns that must hold numbers, and others that hold only numbers, as floats.

    All of them have the same decimal sign. ``all_needed``: whether all columns must hold numbers.
    """
    texts, out = {}, {}
    needed = set(map(str, table.columns)) if all_needed else {*TARGETS, *PRICES}
    for column in map(str, table.columns):
        if not all_needed and column in ("unique_id", "ds", CLOCK, "name", *UNUSED):
            continue
        cells = table[column]
        if pd.api.types.is_complex_dtype(cells):
            raise DataError(
                f"{where}: column {where.column(column)!r} holds complex numbers; expected real "
                "ones. Take the part that is meant, or leave the column out"
            )
        yes_or_no = pd.api.types.is_bool_dtype(cells)
        if pd.api.types.is_numeric_dtype(cells) and not (column in needed and yes_or_no):
            out[column] = cells.astype(float)
            if column in needed:
                check_finite(out[column], where, column)
            continue
        cells = plain_cells(cells)
        if column in needed or is_number_column(cells):
            out[column] = texts[column] = cells
    # Changes in percent are not used otherwise, but may show the decimal sign.
    shares = {}
    if not all_needed and SHARES in table:
        shares = {SHARES: table[SHARES].astype(str).str.rstrip("% ")}
    decimal = decimal or find_decimal(texts | shares, where, plain_points=plain_points)
    for column, cells in texts.items():
        out[column] = to_numbers(
            cells,
            where,
            column,
            decimal,
            infinite=column not in needed,
            advice=_EACH_A_SERIES if all_needed else "",
        )
    return {
        column: numbers if column in needed else _without_infinite(numbers, where, column)
        for column, numbers in out.items()
    }


def _holds_numbers(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) or is_number_column(plain_cells(column))


def _without_infinite(numbers: pd.Series, where: TableLocation, name: str) -> pd.Series:
    """Return a column that no model learns from, with NaN for infinite numbers; warn of them."""
    if not (infinite := numbers.abs() == np.inf).any():
        return numbers
    warn(
        f"{where.cell(infinite, name)}: {numbers[infinite].iloc[0]:g} is not a number; "
        f"{infinite.sum()} of {len(numbers)} cells of this column are infinite and count as empty"
    )
    return numbers.mask(infinite)


def _units(table: pd.DataFrame, ids: pd.Series, where: TableLocation) -> dict[str, dict[str, str]]:
    """Return the currency and the unit of each series by column, if the table states them.

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
            raise DataError(
                f"{where.cell(other, name)}: {kinds.at[row, 'unit']!r}, but series "
                f"{str(ids[row])!r} has {first[row]!r} before; expected one for each series. "
                "Convert the numbers, or give each its own series (on the command line --columns "
                "id=NAME, in Python id_col=)"
            )
        each = kinds.drop_duplicates("id")
        for series, unit in zip(ids.cat.categories[each["id"]], each["unit"], strict=True):
            stated_units.setdefault(str(series), {})[name] = unit
    return stated_units


def _unit_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that state a currency or a unit, by their names."""
    # A column named so that holds numbers may be the number of units sold, or a ticker's prices.
    return [n for n in map(str, table) if canonical(n) in UNITS and not _holds_numbers(table[n])]


def _check_offsets(
    written: pd.Series, times: pd.Series, ids: pd.Series, where: TableLocation
) -> None:
    """Raise DataError if local times, without their offsets, are not in the order of those in UTC.

    As where summer time ends, and an hour comes twice.

    - ``written``: the cells that ``times`` were read from; only text and timestamps have offsets
    - ``ids``: the series of each row
    """
    in_utc = times_in_utc(written, times)
    if in_utc is None or (times - in_utc).nunique() < 2:
        return
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


def _ids(column: pd.Series, where: TableLocation) -> pd.Series:
    """Return the names of series as categories, each checked once.

    Raises DataError for a name that is empty, too long, or has control characters.
    """
    kinds = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    names = pd.Series(kinds.cat.categories.astype(str)).str.strip()
    codes = kinds.cat.codes.to_numpy()
    if (names.str.len() > _LONGEST_NAME).any():
        raise DataError(
            f"{where}: column {where.column('unique_id')!r}: a text of more than "
            f"{_LONGEST_NAME:,} characters; expected names"
        )
    blank = np.append((names == "").to_numpy(), True)  # the last entry stands for code -1, no name
    missing = pd.Series(blank[codes], index=column.index)
    if missing.any():
        raise DataError(f"{where.cell(missing, 'unique_id')}: empty; expected a name")
    if (bad := names.str.contains(_CONTROL, regex=True)).any():
        odd = pd.Series(bad.to_numpy()[codes], index=column.index)
        raise DataError(
            f"{where.cell(odd, 'unique_id')}: {names[bad].iloc[0]!r} holds a control character"
        )
    composed = names.str.normalize("NFC")
    if (composed.duplicated(keep=False) & (composed != names)).any():
        warn(
            f"{where}: names such as {names[composed != names].iloc[0]!r} are written in two forms "
            "of Unicode, which are different series; in pandas .str.normalize('NFC') joins them"
        )
    merged, unique = pd.factorize(names)
    if len(unique) < len(names):
        alike = names[names.duplicated()].iloc[0]
        warn(
            f"{where}: {alike!r} is written with and without spaces around it; rows of both are "
            "taken for one series"
        )
    return pd.Series(
        pd.Categorical.from_codes(merged[codes], categories=pd.Index(unique, dtype=object)),
        index=column.index,
    )
