"""Find the role of each column of a table: series, time, target, or another number.

A table is long, with a row per series and time, or wide, with a column per series. A table that can
be read in both ways is refused, with the option that decides.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import pandas as pd

from forecaster.errors import DataError, UsageError, listed
from forecaster.ingest.tables.dates import CLOCK, are_dates, check_date_format, is_clock
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.numbers import Decimal, as_decimal
from forecaster.ingest.tickers.universe import looks_like_a_date

_SPELLINGS = {
    "ticker": "unique_id", "symbol": "unique_id", "date": "ds", "datetime": "ds",
    "adjclose": "adj_close", "adjusted_close": "adj_close", "adj._close": "adj_close",
    "close/last": "close", "vol": "volume", "vol.": "volume", "stock_splits": "splits",
    "otwarcie": "open", "najwyzszy": "high", "najnizszy": "low", "zamkniecie": "close",
    "wolumen": "volume",  # Stooq's
}  # fmt: skip
# These count only if no other column has the role. The last two are an index without a name.
_FALLBACK_SPELLINGS = {
    "name": "unique_id", "timestamp": "ds", "time": "ds", "year": "ds", "price": "close",
    "unnamed:_0": "ds", "__index_level_0__": "ds",
}  # fmt: skip
ACTIONS = ("dividends", "splits")  # adj_close accounts for them
PRICES = ("open", "high", "low", "volume", *ACTIONS)
SHARES = "change_%"
UNUSED = ("per", "openint", SHARES, "capital_gains", "unnamed:_0", "__index_level_0__")
_COUNTERS = ("id", "index", "row", "no", "nr", "#")
UNITS = ("currency", "ccy", "currency_code", "unit", "units", "uom")
"""Columns of text that must have the same value in all rows of a series."""
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
    for column, name in names.items():
        if name == "price" and not set(PRICES) & set(names.values()):
            continue  # of power, say, which is no stock
        if name in _FALLBACK_SPELLINGS and _FALLBACK_SPELLINGS[name] not in names.values():
            names[column] = _FALLBACK_SPELLINGS[name]
    return names


def is_needed(name: str) -> bool:
    """Return whether a column with this canonical name is used even if it holds text."""
    used = ("unique_id", "ds", "time", *TARGETS, *PRICES, *UNITS)
    return name in used or name in _FALLBACK_SPELLINGS


def may_be_wide(names: list[str], columns: "Columns") -> bool:
    """Return whether all columns but the times are series, as far as their names tell.

    ``names``: of all columns, as written
    """
    if columns.wide is not None:
        return columns.wide
    roles = {new for old, new in canonical_names(names).items() if old != columns.time_col}
    return (
        columns.id_col is None
        and columns.target_col is None
        and not roles & {"unique_id", *TARGETS, *PRICES}
    )


_WORDS = {"unique_id": "the series", "ds": "the time", "y": "the target"}
_NAME_THEM = (
    "Name the columns: --columns id=NAME,time=NAME,target=NAME (in Python id_col=, time_col=, "
    "target_col=), or, if each column is a series, the time alone: --columns wide,time=NAME "
    "(wide=True, time_col=)"
)
_NUMBER = re.compile(r"[-+($€£]*\d[\d.,' ]*(?:[eE][-+]?\d+)?[)%]?")
_PERIOD = re.compile(r"\d{4}[- ]?(?:Q[1-4]|M\d\d|W\d\d)", re.IGNORECASE)
_MOST_NAMED = 12


class ColumnOptions(TypedDict, total=False):
    """The roles of a table's columns, for tables whose column names do not show them.

    - ``id_col``, ``time_col``, ``target_col``: the columns with the series, the time and the value
      to forecast; other columns that could have these roles are left out. A wide table has no
      column for its target: there ``target_col="close"`` means that its numbers are prices.
      Several columns, ``["store", "item"]`` or ``"store+item"``, name series together: ``S01/milk``
    - ``date_format``: how times are written, such as ``%d/%m/%Y``; None: inferred
    - ``wide``: whether each column is a series; None: inferred
    """

    id_col: str | Sequence[str] | None
    time_col: str | None
    target_col: str | None
    date_format: str | None
    wide: bool | None


@dataclasses.dataclass(frozen=True)
class Columns:
    """The fields of :class:`ColumnOptions`, checked; several columns of names are joined by ``+``.

    ``decimal``: the decimal sign in numbers that are text; None: inferred for each table

    Raises UsageError for one column in two roles, for an invalid date format or decimal sign.
    """

    id_col: str | None = None
    time_col: str | None = None
    target_col: str | None = None
    date_format: str | None = None
    wide: bool | None = None
    decimal: Decimal | None = None

    @staticmethod
    def of(options: ColumnOptions, decimal: str | None = None) -> "Columns":
        """Return options checked. Raises UsageError as the class does, TypeError for unknown."""
        given = cast(dict[str, Any], options)
        known = list(ColumnOptions.__annotations__)
        if unknown := [name for name in given if name not in known]:
            raise TypeError(
                f"unexpected keyword argument {unknown[0]!r}; beside its own arguments this takes "
                f"those for reading a table: {', '.join(known)}"
            )
        names = given.get("id_col")
        if isinstance(names, list | tuple):
            parts = list(cast(Sequence[object], names))
            if not parts or not all(isinstance(part, str) and part for part in parts):
                raise UsageError(f"id_col: expected the names of columns; got {names!r:.80}")
            if len(parts) > 1 and (odd := [part for part in parts if "+" in str(part)]):
                raise UsageError(
                    f"id_col: column {odd[0]!r} has a + in its name, which joins columns; rename it"
                )
            given = {**given, "id_col": "+".join(map(str, parts))}
        return Columns(**given, decimal=as_decimal(decimal))

    def __post_init__(self) -> None:
        check_date_format(self.date_format)
        as_decimal(self.decimal)
        for role in ("id_col", "time_col", "target_col"):
            if not isinstance(name := getattr(self, role), str | None):
                raise UsageError(f"{role}: expected the name of a column; got {name!r:.80}")
        if not isinstance(self.wide, bool | None):
            raise UsageError(f"wide: expected True, False or None; got {self.wide!r:.80}")
        named = [*self.id_parts, self.id_col, self.time_col, self.target_col]
        named = [name for name in named if name is not None]
        if len(set(named)) < len(named):
            raise UsageError(f"columns {listed(named)}: expected a different one for each role")
        if self.wide and self.id_col is not None:
            raise UsageError(
                f"id_col {self.id_col!r}: in a wide table each column is a series; leave it out"
            )

    @property
    def id_parts(self) -> list[str]:
        """The columns that name series together, of ``store+item`` two; empty for a single one."""
        parts = [part.strip() for part in (self.id_col or "").split("+")]
        return parts if len(parts) > 1 and all(parts) else []

    @property
    def read_as_text(self) -> list[str]:
        """The named columns that must be read as text: ids, and times with a date format."""
        named = [*self.id_parts, self.id_col, self.time_col if self.date_format else None]
        return [name for name in named if name is not None]

    @property
    def first_option(self) -> str | None:
        """The name of the first of :class:`ColumnOptions` that is given; None if there is none."""
        given = (name for name in ColumnOptions.__annotations__ if getattr(self, name) is not None)
        return next(given, None)

    @property
    def named(self) -> list[str]:
        """All columns that the caller names."""
        named = (*self.id_parts, self.id_col, self.time_col, self.target_col)
        return [name for name in named if name is not None]


def parse_columns(texts: tuple[str, ...]) -> ColumnOptions:
    """Parse ``--columns``: ``id=NAME,time=NAME,target=NAME`` or ``wide``, in any order.

    A name may hold a comma; ``id=store+item`` are two columns. Raises UsageError for anything else.
    """
    options: ColumnOptions = {}
    parts = [p for text in texts for p in re.split(r",(?=\s*(?:\w+\s*=|wide\s*$|wide\s*,))", text)]
    for part in parts:
        key, sign, name = part.strip().partition("=")
        role = f"{key.strip()}_col"
        if not sign and key == "wide" and "wide" not in options:
            options["wide"] = True
        elif name.strip() and role in ColumnOptions.__annotations__ and role not in options:
            options[role] = name.strip()
        else:
            raise UsageError(
                f"--columns {part.strip()!r}: expected id=NAME, time=NAME, target=NAME, each once, "
                "or wide"
            )
    return options


@dataclasses.dataclass(frozen=True)
class Roles:
    """The roles of a table's columns.

    - ``names``: the canonical name of each column; unused columns are left out
    - ``wide``: whether each column except the time is a series
    """

    names: dict[str, str]
    wide: bool = False

    def location(self, where: TableLocation) -> TableLocation:
        """Return ``where`` with the table's own names of its columns."""
        written = {new: old for old, new in self.names.items()}
        return dataclasses.replace(where, written_names=written)


def find_roles(table: pd.DataFrame, where: TableLocation, columns: Columns) -> Roles:
    """Find the role of each column of a table; the names of its columns must be text.

    Raises DataError if a column is missing, two have the same role, or the table may be long or
    wide.
    """
    if not columns.named:
        _refuse_no_header(table, where)
    names = _with_options(table, where, columns)
    _take_sole_times(table, names, columns.date_format)
    if columns.time_col is None:  # else that column holds the time of day, too
        _take_clock(table, names)
    _refuse_doubled(names, where)
    if columns.wide or (columns.wide is None and _looks_wide(names, columns)):
        if "ds" not in names.values():
            raise _unclear(table, names, where, ["date"])
        kept = {old: new for old, new in names.items() if not _is_index(table, old, new)}
        return Roles({o: n if n in ("ds", CLOCK) else o for o, n in kept.items()}, wide=True)
    if not set(TARGETS) & set(names.values()):
        _take_sole_number(table, names)
    missing = [] if "ds" in names.values() else ["date"]
    if not set(TARGETS) & set(names.values()):
        missing.append("close")
    if missing:
        raise _unclear(table, names, where, missing)
    return Roles(names)


def _refuse_no_header(table: pd.DataFrame, where: TableLocation) -> None:
    """Raise DataError if the names of the columns are a row: a date and a number, none known."""
    names = list(table.columns)
    dates = [name for name in names if looks_like_a_date(name.strip())]
    numbers = [name for name in names if name not in dates and _NUMBER.fullmatch(name.strip())]
    dates += [name for name in names if _PERIOD.fullmatch(name.strip())]
    roles = set(canonical_names(names).values())
    if dates and numbers and not roles & {"unique_id", "ds", *TARGETS}:
        raise DataError(
            f"{where}: the names of the columns are {listed(map(repr, names))}, which seem to be "
            "the first row; write the names above it, such as date,close"
        )


def _with_options(table: pd.DataFrame, where: TableLocation, columns: Columns) -> dict[str, str]:
    """Return the canonical name of each column; the caller's options take precedence."""
    own = list(table.columns)
    if twice := [column for column, count in Counter(own).items() if count > 1]:
        raise DataError(f"{where}: column {twice[0]!r} appears twice; keep one")
    names = canonical_names(own)
    stated = {columns.id_col: "unique_id", columns.time_col: "ds"}
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
                f"{_WORDS.get(role, 'the target')}; it has {describe(table, own)}"
            )
        names = {old: new for old, new in names.items() if new != role and old != column}
        names[column] = role
    return {old: names[old] for old in own if old in names}


def _take_sole_times(table: pd.DataFrame, names: dict[str, str], date_format: str | None) -> None:
    """Use the only column of dates as the times, whatever its name; else the only one of text."""
    if "ds" in names.values():
        return
    known = ("unique_id", *TARGETS, *PRICES, *UNITS, *UNUSED)
    dated = [old for old in names if _kind(table, old) == "dates"] or [
        old
        for old, new in names.items()
        if new not in known and old in table and are_dates(table[old], date_format)
    ]
    if len(dated) == 1:
        names[dated[0]] = "ds"


def _take_clock(table: pd.DataFrame, names: dict[str, str]) -> None:
    """Use a column called ``time`` as the times of day of the dates, if it holds some."""
    clocks = [old for old, new in names.items() if new == "time" and old in table]
    if len(clocks) == 1 and "ds" in names.values() and is_clock(clocks[0], table[clocks[0]]):
        names[clocks[0]] = CLOCK


def _take_sole_number(table: pd.DataFrame, names: dict[str, str]) -> None:
    """Use the only column of numbers besides series and time as the target, whatever its name."""
    if not {"unique_id", "ds"} <= set(names.values()):
        return
    known = ("unique_id", "ds", CLOCK, *PRICES, *UNUSED)
    left = [old for old, new in names.items() if new not in known]
    numbers = [old for old in left if _kind(table, old) == "numbers"]
    if len(numbers) == 1:
        names[numbers[0]] = "y"


def _looks_wide(names: dict[str, str], columns: Columns) -> bool:
    """Return whether a table without a column of series has a column per series instead."""
    found = set(names.values())
    if "unique_id" in found or columns.target_col is not None or "ds" not in found:
        return False
    known = [old for old, new in names.items() if new in (*TARGETS, *PRICES)]
    others = [o for o, new in names.items() if o not in known and new not in ("ds", CLOCK, *UNUSED)]
    if not others:
        return False
    return not known


def _is_index(table: pd.DataFrame, old: str, new: str) -> bool:
    """Return whether a column is an index of the rows: without a name, or with one that counts."""
    if new in ("unnamed:_0", "__index_level_0__"):
        return True
    counts = new in _COUNTERS and pd.api.types.is_integer_dtype(table[old]) and len(table) > 1
    return counts and bool(table[old].iloc[0] in (0, 1) and (table[old].diff().iloc[1:] == 1).all())


def _refuse_doubled(names: dict[str, str], where: TableLocation) -> None:
    """Raise DataError if two columns have the same role."""
    counts = Counter(names.values())
    doubled = [old for old, new in names.items() if counts[new] > 1]
    if doubled:
        raise DataError(f"{where}: columns {', '.join(map(repr, doubled))} mean the same; keep one")


def _unclear(
    table: pd.DataFrame, names: dict[str, str], where: TableLocation, missing: list[str]
) -> DataError:
    """Return an error that names the missing roles and the role found for each column."""
    taken = [
        f"{old!r} for {_WORDS.get(new, repr(new))}"
        for old, new in names.items()
        if new in (*_WORDS, *TARGETS, *PRICES)
    ]
    left = [old for old, new in names.items() if new not in (*_WORDS, *TARGETS, *PRICES)]
    parts = [f"taken: {listed(taken)}"] if taken else []
    parts += [f"not understood: {describe(table, left)}"] if left else []
    words = [old for old in left if _kind(table, old) == "text"]
    turn = ""
    if "date" in missing and len(words) == 1 < len(left):
        turn = (
            ". If each row is a series and each column a time, turn the table, in pandas: "
            f"table.set_index({words[0]!r}).T.rename_axis('ds').reset_index()"
        )
    return DataError(
        f"{where}: no column {', '.join(map(repr, missing))}; expected ticker, date, open, high, "
        "low, close[, adj_close], volume or unique_id, ds, y, or a date and a column per series; "
        f"{'; '.join(parts) or 'got no columns'}. {_NAME_THEM}{turn}"
    )


def describe_all(table: pd.DataFrame) -> str:
    """Return the names and kinds of all columns of a table."""
    return describe(table, [*table.columns])


def describe(table: pd.DataFrame, columns: list[str]) -> str:
    """Return the names and kinds of columns in one line, the first twelve."""
    shown = [f"{old!r} ({_kind(table, old)})" for old in columns[:_MOST_NAMED]]
    more = len(columns) - len(shown)
    return listed(shown) + (f" and {more} more" if more > 0 else "")


def _kind(table: pd.DataFrame, column: str) -> str:
    """Return whether a column holds numbers, dates or text."""
    kind = table[column].dtype
    if pd.api.types.is_numeric_dtype(kind):
        return "numbers"
    dates = pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype)
    return "dates" if dates else "text"
