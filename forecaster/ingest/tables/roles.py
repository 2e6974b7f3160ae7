"""Find the role of each column of a table: series, time, target, or another number.

A table is long, with a row per series and time, or wide, with a column per series. A table that can
be read in both ways is refused, with the option that decides.
"""

import shlex
from collections import Counter
from collections.abc import Mapping

import pandas as pd

from forecaster.errors import DataError, listed
from forecaster.ingest.tables.cells import TableLocation, is_number_column, plain_cells
from forecaster.ingest.tables.options import Columns
from forecaster.ingest.tables.times import may_be_dates

_SPELLINGS = {
    "ticker": "unique_id", "symbol": "unique_id", "date": "ds", "datetime": "ds",
    "adjclose": "adj_close", "adjusted_close": "adj_close", "adj._close": "adj_close",
    "close/last": "close", "vol": "volume", "vol.": "volume", "stock_splits": "splits",
}  # fmt: skip
# These count only if no other column has the role, in this order. The last two are an index
# without a name.
_FALLBACK_SPELLINGS = {
    "name": "unique_id", "timestamp": "ds", "time": "ds", "year": "ds", "price": "close",
    "unnamed:_0": "ds", "__index_level_0__": "ds",
}  # fmt: skip
PRICES = ("open", "high", "low", "volume", "dividends", "splits")
UNUSED = ("per", "openint", "change_%", "capital_gains")
UNITS = {
    "currency": "currency", "ccy": "currency", "currency_code": "currency",
    "unit": "unit", "units": "unit", "uom": "unit",
}  # fmt: skip
"""Columns of text that must have the same value in all rows of a series, and what they state."""
TARGETS = ("y", "close", "adj_close")


def canonical(column: str) -> str:
    """Return the canonical name of a column, such as ``adj_close`` for ``Adj Close``."""
    name = column.strip().lower().lstrip("\ufeff").strip("<>*'\" ").replace(" ", "_")
    if name == "y" and "Y" in column:  # a ticker
        return "Y"
    return _SPELLINGS.get(name, name)


def canonical_names(columns: list[str]) -> dict[str, str]:
    """Return the canonical name of each column of a table.

    Some spellings count only if no other column has the role: ``price`` is the close beside an open
    or a volume.
    """
    names = {column: canonical(column) for column in columns}
    own = {name: column for column, name in reversed(names.items())}
    if not own.keys() & set(PRICES):
        own.pop("price", None)  # of power, say, which is no stock
    for name, meaning in _FALLBACK_SPELLINGS.items():
        if name in own and meaning not in names.values():
            names[own[name]] = meaning
    return names


def is_needed(name: str) -> bool:
    """Return whether a column with this canonical name is used even if it holds text."""
    used = ("unique_id", "ds", "time", *TARGETS, *PRICES, *UNITS)
    return name in used or name in _FALLBACK_SPELLINGS


CLOCK = "time of day"
"""The role of a column with the times of day of the dates in another one."""
_WORDS = {"unique_id": "the series", "ds": "the time", "y": "the target", CLOCK: "the time of day"}
_NAME_THEM = (
    "Name the columns: --columns id=NAME,time=NAME,target=NAME (in Python id_col=, time_col=, "
    "target_col=), or, if each column is a series, the time alone: --columns wide,time=NAME "
    "(wide=True, time_col=)"
)
_SAID = {"unique_id": "id", "ds": "time", **dict.fromkeys(TARGETS, "target")}
"""The word of ``--columns`` for a role."""
_INDEX = ("unnamed:_0", "__index_level_0__")
_COUNTERS = (*_INDEX, "id", "index", "row", "no", "nr", "#", "obs")
_MOST_NAMED = 12
_FEW_TWICE = 0.2  # largest share of rows that may repeat a time of their series
_MONTHS = 12  # numbers up to it may be months


def find_roles(table: pd.DataFrame, where: TableLocation, columns: Columns) -> dict[str, str]:
    """Return the canonical name of each column of a table; that of a wide one keeps its name.

    The columns' names must be text. A column that counts the rows is left out.

    Raises DataError if a column is missing, or two have the same role.
    """
    names = _with_options(table, where, columns)
    free = [old for old in names if old not in columns.named]
    numbers = [old for old in free if _holds_a_number(table[old])]
    dated = [old for old in names if _holds_dates(table[old])]
    for old in free:
        if numbers == [old] and dated:
            continue  # nothing else is the target
        if _is_index(table[old], names[old]):
            del names[old]
    dated = [old for old in dated if old in names]
    if "ds" not in names.values() and len(dated) == 1:
        names[dated[0]] = "ds"
    if "ds" not in names.values():
        raise _unclear(table, names, where, columns, "date")
    if columns.time_col is None:  # else that column holds the time of day, too
        clocks = [old for old, new in names.items() if new == "time" and _is_clock(table[old])]
        names |= dict.fromkeys(clocks, CLOCK)
    if columns.wide:
        return {old: new if new in ("ds", CLOCK) else old for old, new in names.items()}
    counts = Counter(names.values())
    if doubled := [old for old, new in names.items() if counts[new] > 1]:
        role = _SAID.get(names[doubled[0]])
        advice = f"say {columns_option(columns, **{role: doubled[0]})}" if role else "keep one"
        raise DataError(f"{where}: columns {', '.join(map(repr, doubled))} mean the same; {advice}")
    if not set(TARGETS) & set(names.values()):
        known = ("unique_id", "ds", CLOCK, *PRICES, *UNUSED)
        left = [old for old, new in names.items() if new not in known]
        numbers = [old for old in left if kind_of(table[old]) == "numbers"]
        numbers = numbers or [old for old in left if _holds_a_number(table[old])]
        numbers = numbers or [old for old, new in names.items() if new in PRICES]  # as of a river
        if len(numbers) != 1:
            raise _unclear(table, names, where, columns, "close")
        names[numbers[0]] = "y"
    return names


def _is_index(cells: pd.Series, role: str) -> bool:
    """Return whether a column is an index of the rows: without a name, or one that counts."""
    name = canonical(str(cells.name))
    if name in _INDEX and role != "ds":
        return True
    counts = name in _COUNTERS and pd.api.types.is_integer_dtype(cells) and len(cells) > 1
    return counts and bool(cells.iloc[0] in (0, 1) and (cells.diff().iloc[1:] == 1).all())


def _holds_a_number(cells: pd.Series) -> bool:
    if _holds_dates(cells):
        return False
    return bool(pd.to_numeric(plain_cells(cells), errors="coerce").notna().any())


def _is_clock(cells: pd.Series) -> bool:
    """Return whether a column called ``time`` holds times of day: with colons, or Stooq's."""
    is_stooqs = str(cells.name).strip().startswith("<")
    return is_stooqs or bool(cells.iloc[:100].astype(str).str.contains(":", regex=False).any())


def _with_options(table: pd.DataFrame, where: TableLocation, columns: Columns) -> dict[str, str]:
    """Return the canonical name of each column; the caller's options take precedence."""
    own = list(table.columns)
    if twice := [column for column, count in Counter(own).items() if count > 1]:
        raise DataError(f"{where}: column {twice[0]!r} appears twice; keep one")
    names = canonical_names(own)
    stated: dict[str | None, str] = {columns.id_col: "unique_id"}
    times = [columns.time_col] if columns.time_col in own else columns.time_parts
    stated |= dict(zip(times, ("ds", CLOCK), strict=False))
    if not columns.wide:
        target = columns.target_col
        meaning = names.get(target, "") if target is not None else ""
        stated[target] = meaning if meaning in TARGETS else "y"
        if meaning == "close":  # otherwise adj_close would be forecast
            names = {old: new for old, new in names.items() if new != "adj_close"}
    for column, role in stated.items():
        if column is None:
            continue
        if column not in own:
            raise DataError(
                f"{where}: no column {column!r}, which should hold "
                f"{_WORDS.get(role, 'the target')}; it has {describe(table)}. Name another"
            )
        names = {old: new for old, new in names.items() if new != role and old != column}
        names[column] = role
    return {old: names[old] for old in own if old in names}


def _unclear(
    table: pd.DataFrame,
    names: Mapping[str, str],
    where: TableLocation,
    columns: Columns,
    missing: str,
) -> DataError:
    """Return an error that names the missing role and the role found for each column."""
    roles = (*_WORDS, *TARGETS, *PRICES)
    taken = [
        f"{old!r} for {_WORDS.get(new, repr(new))}" for old, new in names.items() if new in roles
    ]
    left = [old for old, new in names.items() if new not in roles]
    parts = [f"taken: {listed(taken)}"] if taken else []
    parts += [f"not understood: {describe(table[left])}"] if left else []
    dated = [old for old in left if missing == "date" and _reads_as_dates(table[old])]
    if dated and _reads_as_dates(pd.Series([dated[0]])):
        return DataError(
            f"{where}: the first line, {listed(list(map(repr, table.columns)))}, looks like data; "
            "expected the names of the columns. Add a line above it, such as ds,y or, for several "
            "series, unique_id,ds,y"
        )
    unnamed = [old for old in map(str, table) if canonical(old) in _INDEX]
    times = (dated or unnamed) if missing == "date" else []
    options = options_that_name(table, {**names, **dict.fromkeys(times[:1], "ds")}, columns)
    said = "Say which: " + " or ".join(options) if options else _NAME_THEM
    return DataError(
        f"{where}: no column {missing!r}; expected ticker, date, open, high, low, close[, "
        "adj_close], volume or unique_id, ds, y, or a date and one column of numbers; "
        f"{'; '.join(parts) or 'got no columns'}. "
        f"{_other_layout(table, left, where) or said}"
    )


def _other_layout(table: pd.DataFrame, left: list[str], where: TableLocation) -> str:
    """Return what to do about lines above the header, or about times in it; "" for neither."""
    full = table.notna().all(axis=1)
    if 2 * sum(name.startswith("Unnamed: ") for name in left) >= len(left) > 0 and full.any():
        return (
            f"The names of the columns seem to stand in {where.row(full)}: delete the lines above "
            "it"
        )
    timed = [name for name in left if name[-1:].isdigit()]
    words = [name for name in left if kind_of(table[name]) == "text"]
    are_dates = pd.to_datetime(pd.Series(timed), format="ISO8601", errors="coerce").notna().all()
    alike = are_dates or len({name.rstrip("0123456789") for name in timed}) == 1
    if len(timed) < 3 or 2 * len(timed) < len(left) or not words or not alike:
        return ""
    return (
        f"The columns {timed[0]!r} to {timed[-1]!r} seem to be times: turn the table, in pandas "
        f"`table.set_index({words[0]!r}).filter(regex=r'\\d$').T"
        f"{'' if are_dates else '.reset_index(drop=True)'}.rename_axis('ds').reset_index()`, and "
        "say --columns wide (in Python wide=True)"
    )


def options_that_name(table: pd.DataFrame, names: Mapping[str, str], columns: Columns) -> list[str]:
    """Return options that name the columns without a role by what they hold; [] if none would.

    - ``names``: the canonical names of columns, among them the time
    - ``columns``: the columns that are stated already
    """
    of = {new: old for old, new in names.items()}
    kinds = {old: kind_of(table[old]) for old, new in names.items() if new not in _SAID}
    has_target = not of.keys().isdisjoint(TARGETS)
    clock = [of[CLOCK]] if CLOCK in of else []
    hours = clock or [old for old in kinds if _may_be_hours(table[old])]
    words = [old for old in kinds if kinds[old] == "text" and _may_name_series(table[old])]
    words = [old for old in words if old not in hours]
    known, times = [of[role] for role in ("unique_id",) if role in of], [of.get("ds", "")]
    if "ds" in of and (clock or table.duplicated([*known, *times, *words]).any()):
        times += hours[:1]  # another column holds the hour
    numbers = [old for old in kinds if kinds[old] == "numbers" and old not in times]
    if "ds" not in of or not (has_target or numbers):
        return []
    ids, twice = list(known), table.duplicated([*known, *times])
    for word in words:
        if (fewer := table.duplicated([*ids, *times, word])).sum() < twice.sum():
            ids, twice = [*ids, word], fewer
    if twice.any() and (ids == known or twice.mean() > _FEW_TWICE):
        return []  # no column tells its rows apart
    said = {"id": "+".join(ids)} if ids != known else {}
    said |= {"time": "+".join(times)} | ({} if has_target else {"target": numbers[0]})
    options = [columns_option(columns, **said)]
    if len(numbers) > 1 and not (has_target or known or "text" in kinds.values()):
        wide = shlex.quote(f"wide,time={'+'.join(times)}")
        options.append(f"--columns {wide} (in Python wide=True, time_col=)")
    return options


def columns_option(columns: Columns, **found: str) -> str:
    """Return the option that states columns: those that are stated already, and those found."""
    stated = {role: getattr(columns, f"{role}_col") for role in ("id", "time", "target")} | found
    said = ",".join(f"{role}={name}" for role, name in stated.items() if name is not None)
    names = ", ".join(f"{role}_col=" for role, name in stated.items() if name is not None)
    return f"--columns {shlex.quote(said)} (in Python {names})"


def _may_be_hours(cells: pd.Series) -> bool:
    """Return whether a column holds times of day, whole hours of a day, or is a part of a year."""
    if _is_clock(cells) or canonical(str(cells.name)) in ("quarter", "month", "week"):
        return True
    whole = pd.api.types.is_integer_dtype(cells) and bool(cells.between(0, 24).all())
    return whole and cells.max() > _MONTHS


def _may_name_series(cells: pd.Series) -> bool:
    """Return whether the words of a column repeat, and none is a number."""
    return 2 * cells.nunique() <= len(cells) and not _holds_a_number(cells)


def _reads_as_dates(column: pd.Series) -> bool:
    return kind_of(column) == "text" and may_be_dates(column.iloc[:_MOST_NAMED])


def describe(table: pd.DataFrame) -> str:
    """Return the names and kinds of the columns in one line, the first twelve."""
    shown = [f"{name!r} ({kind_of(table[name])})" for name in table.columns[:_MOST_NAMED]]
    more = table.shape[1] - len(shown)
    return listed(shown) + (f" and {more} more" if more > 0 else "")


def _holds_dates(column: pd.Series) -> bool:
    dtype = column.dtype
    return isinstance(dtype, pd.PeriodDtype) or pd.api.types.is_datetime64_any_dtype(dtype)


def kind_of(column: pd.Series) -> str:
    """Return whether a column holds numbers, dates or text."""
    if _holds_dates(column):
        return "dates"
    is_number = pd.api.types.is_numeric_dtype(column) or is_number_column(plain_cells(column))
    return "numbers" if is_number else "text"
