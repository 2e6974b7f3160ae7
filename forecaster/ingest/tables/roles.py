"""What each column of a table is taken for: the series, the time, the target, or a number more.

A table is long, with a row per series and time, or wide, with a column per series. What could be
read in two ways is refused, in the words of the table, and with what to say instead.
"""

import dataclasses
import re
from typing import TypedDict

import pandas as pd

from forecaster.errors import DataError, UsageError, listed
from forecaster.ingest.tables.dates import check_date_format
from forecaster.ingest.tables.where import Place

SPELLINGS = {
    "ticker": "unique_id", "symbol": "unique_id", "date": "ds", "datetime": "ds",
    "adjclose": "adj_close", "adjusted_close": "adj_close", "adj._close": "adj_close",
    "close/last": "close", "vol": "volume", "vol.": "volume", "stock_splits": "splits",
    "otwarcie": "open", "najwyzszy": "high", "najnizszy": "low", "zamkniecie": "close",
    "wolumen": "volume",
}  # fmt: skip
# These count only where no other column has the meaning. The last two are an index without a name.
WEAK = {
    "name": "unique_id", "timestamp": "ds", "time": "ds", "data": "ds", "price": "close",
    "unnamed:_0": "ds", "__index_level_0__": "ds",
}  # fmt: skip
ACTIONS = ("dividends", "splits")  # which are in adj_close already
PRICES = ("open", "high", "low", "volume", *ACTIONS)
SHARES = "change_%"
UNUSED = ("per", "openint", SHARES, "capital_gains", "unnamed:_0", "__index_level_0__")
TARGETS = ("y", "close", "adj_close")


def canonical(column: str) -> str:
    """A column's name as it is used here, whatever its spelling."""
    name = column.strip().lower().lstrip("\ufeff").strip("<>*'\" ").replace(" ", "_")
    return SPELLINGS.get(name, name)


def canonical_names(columns: list[str]) -> dict[str, str]:
    """The names used here by those of a table; some spellings count only where no other does."""
    names = {column: canonical(column) for column in columns}
    for column, name in names.items():
        if name in WEAK and WEAK[name] not in names.values():
            names[column] = WEAK[name]
    return names


def is_needed(name: str) -> bool:
    """Whether a column of that canonical name is used although it holds no numbers."""
    return name in ("unique_id", "ds", "time", *TARGETS, *PRICES) or name in WEAK


_WORDS = {"unique_id": "the series", "ds": "the time", "y": "the target"}
_SAY = (
    "Say which is which: --columns id=NAME,time=NAME,target=NAME (in Python id_col=, time_col=, "
    "target_col=)"
)
_LIKE_TICKERS = re.compile(r"[A-Z0-9^][A-Z0-9.=^-]*")
_MOST_NAMED = 12


class ColumnOptions(TypedDict, total=False):
    """What a table's columns are, where their names do not say so.

    - ``id_col``, ``time_col``, ``target_col``: the columns with the series, the time, and what is
      forecast; others with such a meaning are left out. The target of a wide table has no column:
      ``target_col="close"`` says that it holds prices
    - ``date_format``: how times are written, such as ``%d/%m/%Y``; None: as the table shows
    - ``wide``: whether each column is a series; None: as the table shows
    """

    id_col: str | None
    time_col: str | None
    target_col: str | None
    date_format: str | None
    wide: bool | None


@dataclasses.dataclass(frozen=True)
class Columns:
    """The fields of :class:`ColumnOptions`, checked.

    Raises UsageError for one column in two roles, or what is no format of dates.
    """

    id_col: str | None = None
    time_col: str | None = None
    target_col: str | None = None
    date_format: str | None = None
    wide: bool | None = None

    def __post_init__(self) -> None:
        check_date_format(self.date_format)
        named = [name for name in (self.id_col, self.time_col, self.target_col) if name is not None]
        if len(set(named)) < len(named):
            raise UsageError(f"columns {listed(named)}: expected different ones")
        if self.wide and self.id_col is not None:
            raise UsageError(
                f"id_col {self.id_col!r}: the series of a wide table are its columns; leave it out"
            )

    @property
    def names(self) -> list[str]:
        """The columns that hold names of series or times, where it is said."""
        named = [self.id_col, self.time_col if self.date_format else None]
        return [name for name in named if name is not None]

    @property
    def said(self) -> str | None:
        """What a caller has said first, if anything."""
        given = (f.name for f in dataclasses.fields(self) if getattr(self, f.name) is not None)
        return next(given, None)

    @property
    def all_named(self) -> list[str]:
        """Every column that is said."""
        named = (self.id_col, self.time_col, self.target_col)
        return [name for name in named if name is not None]


def parse_columns(texts: tuple[str, ...]) -> ColumnOptions:
    """What ``--columns`` says: ``id=NAME,time=NAME,target=NAME`` or ``wide``, in any order.

    A name may hold a comma. Raises UsageError for anything else.
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
    """What the columns of a table are taken for.

    - ``names``: the names used here, by column; columns that have none are left out
    - ``wide``: whether each column but the time is a series
    """

    names: dict[str, str]
    wide: bool = False

    def place(self, where: Place) -> Place:
        """The same place, which knows how the table spells its columns."""
        return dataclasses.replace(where, spelled={new: old for old, new in self.names.items()})


def find_roles(table: pd.DataFrame, where: Place, columns: Columns) -> Roles:
    """What each column of a table is taken for; their names are text.

    Raises DataError when a column is missing, two have one meaning, or the table may be long or
    wide.
    """
    names = _with_said(table, where, columns)
    _take_sole_times(table, names)
    _refuse_doubled(names, where)
    if columns.wide or (columns.wide is None and _looks_wide(table, names, where, columns)):
        if "ds" not in names.values():
            raise _unclear(table, names, where, ["date"])
        kept = {old: new for old, new in names.items() if not _is_index(new)}
        return Roles({o: n if n in ("ds", "time") else o for o, n in kept.items()}, wide=True)
    if not set(TARGETS) & set(names.values()):
        _take_sole_number(table, names)
    missing = [] if "ds" in names.values() else ["date"]
    if not set(TARGETS) & set(names.values()):
        missing.append("close")
    if missing:
        raise _unclear(table, names, where, missing)
    return Roles(names)


def _with_said(table: pd.DataFrame, where: Place, columns: Columns) -> dict[str, str]:
    """The names used here by those of the table; what the caller says goes first."""
    own = list(table.columns)
    if twice := [column for column in own if own.count(column) > 1]:
        raise DataError(f"{where}: column {twice[0]!r} is there twice; keep one")
    names = canonical_names(own)
    said = {columns.id_col: "unique_id", columns.time_col: "ds"}
    if not columns.wide:
        target = columns.target_col
        meaning = names.get(target, "") if target is not None else ""
        said[target] = meaning if meaning in TARGETS else "y"
        if meaning == "close":  # else the adjusted one would be forecast
            names = {old: new for old, new in names.items() if new != "adj_close"}
    for column, role in said.items():
        if column is None:
            continue
        if column not in own:
            raise DataError(
                f"{where}: no column {column!r}, which was to be {_WORDS.get(role, 'the target')}; "
                f"it has {described(table, own)}"
            )
        names = {old: new for old, new in names.items() if new != role and old != column}
        names[column] = role
    if columns.time_col is not None:  # which has its own clock
        names = {old: new for old, new in names.items() if new != "time"}
    return {old: names[old] for old in own if old in names}


def _take_sole_times(table: pd.DataFrame, names: dict[str, str]) -> None:
    """The only column of dates holds the times, whatever it is called."""
    if "ds" in names.values():
        return
    dated = [old for old in names if _kind(table, old) == "dates"]
    if len(dated) == 1:
        names[dated[0]] = "ds"


def _take_sole_number(table: pd.DataFrame, names: dict[str, str]) -> None:
    """The only number beside a series and a time is the target, whatever it is called."""
    if not {"unique_id", "ds"} <= set(names.values()):
        return
    known = ("unique_id", "ds", "time", *PRICES, *UNUSED)
    left = [old for old, new in names.items() if new not in known]
    numbers = [old for old in left if _kind(table, old) == "numbers"]
    if len(numbers) == 1:
        names[numbers[0]] = "y"


def _looks_wide(table: pd.DataFrame, names: dict[str, str], where: Place, columns: Columns) -> bool:
    """Whether a table without names of series has a column for each instead."""
    found = set(names.values())
    if "unique_id" in found or columns.target_col is not None or "ds" not in found:
        return False
    known = [old for old, new in names.items() if new in (*TARGETS, *PRICES)]
    others = [
        o for o, new in names.items() if o not in known and new not in ("ds", "time", *UNUSED)
    ]
    if not others:
        return False
    nixtla = any(new == "ds" and old.strip().lower() == "ds" for old, new in names.items())
    if known and not (found & {"close", "adj_close"}) and not nixtla:
        like_tickers = all(_LIKE_TICKERS.fullmatch(old) for old in (*known, *others))
        if like_tickers:
            raise DataError(
                f"{where}: column {known[0]!r} may be a ticker or mean "
                f"{'the target' if names[known[0]] == 'y' else repr(names[known[0]])}, beside "
                f"{described(table, others)}. Say that each column is a series: --columns wide "
                "(in Python wide=True), or which are the series and the target: --columns "
                "id=NAME,target=NAME (id_col=, target_col=)"
            )
    return not known


def _is_index(name: str) -> bool:
    """Whether a column is the index of a frame that was written with it."""
    return name in ("unnamed:_0", "__index_level_0__")


def _refuse_doubled(names: dict[str, str], where: Place) -> None:
    """Raise DataError when two columns would have one name."""
    taken = list(names.values())
    doubled = [old for old, new in names.items() if taken.count(new) > 1]
    if doubled:
        raise DataError(f"{where}: columns {', '.join(map(repr, doubled))} mean the same; keep one")


def _unclear(
    table: pd.DataFrame, names: dict[str, str], where: Place, missing: list[str]
) -> DataError:
    """What is missing, and what each column was taken for."""
    taken = [
        f"{old!r} for {_WORDS.get(new, repr(new))}"
        for old, new in names.items()
        if new in (*_WORDS, *TARGETS, *PRICES)
    ]
    left = [old for old, new in names.items() if new not in (*_WORDS, *TARGETS, *PRICES)]
    unread = table.attrs.get("unread", [])
    parts = [f"taken: {listed(taken)}"] if taken else []
    parts += [f"not understood: {described(table, [*left, *unread])}"] if left or unread else []
    return DataError(
        f"{where}: no column {', '.join(map(repr, missing))}; expected ticker, date, open, high, "
        "low, close[, adj_close], volume or unique_id, ds, y, or a date and a column per series; "
        f"{'; '.join(parts) or 'got no columns'}. {_SAY}"
    )


def described_all(table: pd.DataFrame) -> str:
    """All columns of a table with what they hold, those that were not read included."""
    return described(table, [*table.columns, *table.attrs.get("unread", [])])


def described(table: pd.DataFrame, columns: list[str]) -> str:
    """Columns with what they hold."""
    shown = [f"{old!r} ({_kind(table, old)})" for old in columns[:_MOST_NAMED]]
    more = len(columns) - len(shown)
    return listed(shown) + (f" and {more} more" if more > 0 else "")


def _kind(table: pd.DataFrame, column: str) -> str:
    """What a column holds: numbers, dates or text."""
    if column not in table:  # only texts are left unread
        return "text"
    kind = table[column].dtype
    if pd.api.types.is_numeric_dtype(kind):
        return "numbers"
    dates = pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype)
    return "dates" if dates else "text"
