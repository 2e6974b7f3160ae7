"""The options on how tables are read: what the columns hold, and how times and numbers are written.

They are for tables that do not show it themselves.
"""

import csv
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, TypedDict, cast

from forecaster.errors import UsageError, listed
from forecaster.ingest.tables.cells import Decimal
from forecaster.ingest.tables.times import check_date_format, stated_frequency


class ColumnOptions(TypedDict, total=False):
    """The roles of a table's columns, for tables whose column names do not show them.

    - ``id_col``, ``time_col``, ``target_col``: the columns with the series, the time and the value
      to forecast; other columns that could have these roles are left out. A wide table has no
      column for its target: there ``target_col="close"`` means that its numbers are prices.
      Several columns, ``["store", "item"]`` or ``"store+item"``, name series: ``S01/milk``.
      ``time_col="day+hour"`` are a date and its hour or time of day, ``"year+month"`` a month
    - ``date_format``: how times are written, such as ``%d/%m/%Y``; None: ISO 8601
    - ``missing``: marks that stand for no number, separated by commas: ``"n/a?,-99"``. A row with
      one in place of its time is left out
    - ``wide``: whether each column is a series
    - ``decimal``: the decimal sign in numbers that are text; None: inferred for each table
    - ``frequency``: the step of rows, by a name of pandas' offsets such as ``W-MON``; None: as the
      rows show. Rows that do not fit it are named
    """

    id_col: str | Sequence[str] | None
    time_col: str | None
    target_col: str | None
    date_format: str | None
    missing: str | None
    wide: bool | None
    decimal: str | None
    frequency: str | None


@dataclasses.dataclass(frozen=True)
class Columns:
    """The fields of :class:`ColumnOptions`, checked; several columns of names are joined by ``+``.

    Raises UsageError for one column in two roles, for an invalid date format or decimal sign.
    """

    id_col: str | None = None
    time_col: str | None = None
    target_col: str | None = None
    date_format: str | None = None
    missing: str | None = None
    wide: bool | None = None
    decimal: Decimal | None = None
    frequency: str | None = None

    @staticmethod
    def from_options(options: ColumnOptions) -> "Columns":
        """Return options checked. Raises UsageError as the class does."""
        given = cast(dict[str, Any], options)
        names = given.get("id_col")
        if isinstance(names, list | tuple):
            parts = [str(part) for part in cast(Sequence[object], names)]
            if list(names) != parts or "" in parts or not parts:
                raise UsageError(f"id_col: expected the names of columns; got {names!r:.80}")
            if len(parts) > 1 and "+" in "".join(parts):
                raise UsageError(
                    f"id_col: {listed(parts)}: a + in a name would join columns; rename it"
                )
            given = {**given, "id_col": "+".join(parts)}
        return Columns(**given)

    def __post_init__(self) -> None:
        check_date_format(self.date_format)
        if self.frequency is not None:
            stated_frequency(self.frequency)
        if not isinstance(self.decimal, str | None) or self.decimal not in (None, ".", ","):
            raise UsageError(f"decimal {self.decimal!r:.80}: expected a point or a comma")
        for role in ("id_col", "time_col", "target_col", "missing"):
            if not isinstance(name := getattr(self, role), str | None):
                kind = "marks" if role == "missing" else "the name of a column"
                raise UsageError(f"{role}: expected {kind}; got {name!r:.80}")
        if not isinstance(self.wide, bool | None):
            raise UsageError(f"wide: expected True, False or None; got {self.wide!r:.80}")
        if len(set(named := self.named)) < len(named):
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
    def time_parts(self) -> list[str]:
        """The columns of dates and of their hours, of ``day+hour``; otherwise the one of times."""
        parts = [part.strip() for part in (self.time_col or "").split("+")]
        alone = [self.time_col] if self.time_col else []
        return parts if len(parts) == 2 and all(parts) else alone

    @property
    def marks(self) -> list[str]:
        """The marks that stand for no number; one with a comma is quoted."""
        return next(csv.reader([self.missing or ""], skipinitialspace=True), [])

    @property
    def read_as_text(self) -> list[str]:
        """The named columns that must be read as text: ids, and times with a date format."""
        named = [*self.id_parts, self.id_col, *(self.time_parts if self.date_format else ())]
        return [name for name in named if name is not None]

    @property
    def first_option(self) -> str | None:
        """The first option that is given, in words; None if there is none."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        name = next(iter(given), "")
        if name in ("wide", "id_col", "time_col", "target_col"):
            return f"--columns (in Python {name}=)"
        return f"--{name.replace('_', '-')} {given[name]}" if given else None

    @property
    def named(self) -> list[str]:
        """All columns that the caller names."""
        named = (*self.id_parts, self.id_col, *self.time_parts, self.target_col)
        return [name for name in named if name is not None]


INFERRED = Columns()
"""No option: all is as the table itself shows it."""


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
