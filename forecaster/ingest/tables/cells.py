"""Name the cells of a user's table in messages, and read their numbers as people write them.

``1,234`` is more than a thousand in one country and little more than one in another. A table is
read with either decimal sign, and the one that more of its cells fit is that of all its columns. A
table that fits both, with other numbers, is refused.
"""

import dataclasses
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import DataError, quoted

Decimal: TypeAlias = Literal[".", ","]
_OTHER: Mapping[Decimal, Decimal] = {".": ",", ",": "."}
BLANK = ("", "null", "none", "nan", "-", "n/a", "na", "#n/a", ".", "..", ":")
"""Texts, in lower case, that count as empty cells: also those of FRED, World Bank, Eurostat."""
_FACTORS = {"k": "e3", "m": "e6", "b": "e9"}
# Typographic signs: no-break and thin spaces, apostrophes, the minus sign.
_TYPOGRAPHY = str.maketrans(
    {"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2019": "'", "\u02bc": "'", "\u2212": "-"}
)
_GROUPS = r"^[+-]?[1-9][0-9]{0,2}(?:[ '][0-9]{3})+(?![0-9])"
_LARGEST = 10**308
_MOST_MARKS, _LONGEST = 12, 200  # marks, and characters, of an option that an error names


@dataclasses.dataclass(frozen=True)
class TableLocation:
    """A table and its cells, in the form of error messages.

    - ``name``: the file, or "the frame"
    - ``counts_rows``: whether cells are named by row; otherwise by line, where line 1 is the header
    - ``written_names``: the table's own name of each column, by canonical name
    """

    name: str
    counts_rows: bool = False
    written_names: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def __str__(self) -> str:
        return self.name

    def column(self, name: str) -> str:
        """Return the table's own name of a column, given the canonical name."""
        return self.written_names.get(name, name)

    def cell(self, bad: pd.Series, name: str) -> str:
        """Return file, row or line, and column of the first bad cell.

        The index of ``bad`` counts rows from 0.
        """
        return f"{self.name}, {self.row(bad)}, column {self.column(name)!r}"

    def row(self, bad: pd.Series) -> str:
        """Return row or line of the first bad cell."""
        row = int(bad.index[int(bad.to_numpy().argmax())])
        return f"row {row + 1}" if self.counts_rows else f"line {row + 2}"


def is_number_column(column: pd.Series) -> bool:
    """Return whether every cell of a text column is blank or a number with the same decimal sign.

    A column of blanks alone is not a column of numbers.
    """
    text = _normalised(column.drop_duplicates()).dropna()
    return len(text) > 0 and any(_read(text, sign).notna().all() for sign in _OTHER)


def find_decimal(columns: Mapping[str, pd.Series], where: TableLocation) -> Decimal:
    """Decide which sign is the decimal one in a table: the one that more of its cells fit.

    - ``columns``: the text columns that hold numbers, by name
    - ``where``: the file, for errors

    Raises DataError if a cell would be another number with the other sign, and no other cell
    decides; and for a price such as ``1,234`` beside decimal points, unless a number shows that
    commas separate thousands.
    """
    if not columns:
        return "."
    # Distinct texts, by column and first row.
    text = pd.concat({n: _normalised(column.drop_duplicates()) for n, column in columns.items()})
    read = {sign: _read(text, sign) for sign in _OTHER}
    fit = {sign: numbers.notna() for sign, numbers in read.items()}
    sign: Decimal = "." if fit["."].sum() >= fit[","].sum() else ","
    either = (read["."] - read[","]).abs() > 0
    if fit["."].sum() != fit[","].sum():
        holds_other = text.str.contains(_OTHER[sign], regex=False, na=False)
        if (holds_other & fit[sign] & ~fit[_OTHER[sign]]).any():  # such as 1,234.50
            return sign
        either &= holds_other & (text.index.get_level_values(0) != "volume")
    if either.any():
        name = str(either[either].index.get_level_values(0)[0])
        raise DataError(
            f"{where.cell(either.xs(name), name)}: {text[either].iloc[0]!r} may have a decimal "
            "sign or one between thousands, and no other number shows which. Choose one: "
            '--decimal , or --decimal . (in Python decimal="," or ".")'
        )
    return sign


def number_columns(
    table: pd.DataFrame,
    where: TableLocation,
    decimal: Decimal | None,
    needed: Collection[str] = (),
    advice: str = "",
) -> dict[str, pd.Series]:
    """Return the columns that hold only numbers, as floats; their texts have one decimal sign.

    - ``decimal``: the sign, if it is known
    - ``needed``: columns that must hold numbers; ``advice``: ends the message if they do not

    Raises DataError as :func:`find_decimal` and :func:`to_numbers` do.
    """
    texts, out = dict[str, pd.Series](), dict[str, pd.Series]()
    for name in map(str, table):
        cells = table[name]
        is_real = pd.api.types.is_numeric_dtype(cells) and cells.dtype.kind != "c"
        if is_real and not (name in needed and pd.api.types.is_bool_dtype(cells)):
            out[name] = cells.astype(float)
            check_finite(out[name], where, name)
            continue
        cells = plain_cells(cells)
        if name in needed or is_number_column(cells):
            out[name] = texts[name] = cells
    decimal = decimal or find_decimal(texts, where)
    return out | {n: to_numbers(cells, where, n, decimal, advice) for n, cells in texts.items()}


def to_numbers(
    column: pd.Series, where: TableLocation, name: str, decimal: Decimal, advice: str = ""
) -> pd.Series:
    """Return a text column as floats; blank cells become NaN.

    - ``where``, ``name``: the file and the column, for errors
    - ``decimal``: the decimal sign; the other sign, spaces and apostrophes may separate thousands
    - ``advice``: ends the message of a cell that is no number

    Raises DataError if a cell is not a finite number with this decimal sign.
    """
    if decimal == ".":
        numbers = pd.to_numeric(column.mask(_is_huge(column)), errors="coerce").astype(float)
        if np.isfinite(numbers).all():
            return numbers
    text = _normalised(column)
    numbers = _read(text, decimal)
    if (bad := numbers.isna() & text.notna()).any():
        fits_other = not _read(text[bad].iloc[:1], _OTHER[decimal]).isna().any()
        why = f" where {decimal!r} is the decimal sign, as --decimal or other numbers show"
        marks = missing_option(column[bad])
        raise DataError(
            f"{where.cell(bad, name)}: {quoted(str(column[bad].iloc[0]).strip())} is not a number"
            f"{why if fits_other else ''}; expected one such as 1234{decimal}5{advice}. Correct it "
            f"or, if no number is known, leave the cell empty{f' or say {marks}' if marks else ''}"
        )
    check_finite(numbers, where, name)
    return numbers


def missing_option(cells: pd.Series) -> str:
    """Return the option that takes these cells for missing ones; "" for more than a few."""
    marks = list(dict.fromkeys(_stripped(cells)))[: _MOST_MARKS + 1]
    said = ",".join(f'"{mark}"' if "," in mark or not mark else mark for mark in marks)
    said = shlex.quote(said)
    if len(marks) > _MOST_MARKS or len(said) > _LONGEST or '"' in "".join(marks) or "\n" in said:
        return ""
    return f"--missing {said} (in Python missing=)"


def is_marked(cells: pd.Series, marks: Sequence[str]) -> pd.Series:
    """Return which cells hold one of these marks, as text or as a number."""
    numbers = pd.to_numeric(pd.Series(marks, dtype=object), errors="coerce").dropna()
    return _stripped(cells).isin(marks) | cells.isin(numbers)


def _stripped(cells: pd.Series) -> pd.Series:
    return cells.astype(str).str.strip().fillna("")


def plain_cells(column: pd.Series) -> pd.Series:
    """Return a column of objects as text and floats; columns of text or of numbers stay.

    Yes and no, complex numbers, times, durations and bytes would otherwise become numbers. Whole
    numbers that are too large for a float become the text 1e400.
    """
    kind = column.dtype
    is_text = pd.api.types.is_string_dtype(kind) and not pd.api.types.is_object_dtype(kind)
    if is_text or (pd.api.types.is_numeric_dtype(kind) and kind.kind not in "bc"):
        return column
    return column.astype(object).map(_plain_cell)


def _plain_cell(cell: object) -> object:
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return None  # a column of NaT alone would become times, and these whole numbers
    if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) >= _LARGEST:
        return "1e400"
    return cell if isinstance(cell, str | float) else str(cell)


def check_finite(numbers: pd.Series, where: TableLocation, name: str) -> None:
    """Raise DataError for an infinite number. ``where``, ``name``: the file and the column."""
    if (infinite := numbers.abs() == np.inf).any():
        raise DataError(
            f"{where.cell(infinite, name)}: {numbers[infinite].iloc[0]:g} is not finite: it is "
            "written so, or too large for a number, such as 1e400. Leave the cell empty if its "
            "number is not known"
        )


def _normalised(column: pd.Series) -> pd.Series:
    """Return cells in lower case, with plain ASCII signs, and with minus instead of brackets.

    Signs of currencies, and spaces and apostrophes between thousands, are left out. Blank cells
    are NaN.
    """
    text = column.astype(str).str.strip().str.lower().str.translate(_TYPOGRAPHY)
    text = text.mask(column.isna() | text.isin(BLANK)).mask(_is_huge(text), "1e400")
    text = text.str.replace(r"^\(([$€£]?[0-9].*)\)$", r"-\1", regex=True)
    text = text.str.replace(r"^([+-]?)[$€£]([+-]?)", r"\1\2", regex=True)
    return text.str.replace(_GROUPS, lambda of: re.sub("[ ']", "", of[0]), regex=True)


def _is_huge(column: pd.Series) -> pd.Series:
    """Return which cells are numbers such as 1e999999999, which end the process of pandas 2."""
    return column.astype(str).str.contains(r"[eE]\+?\d{5}")


def _read(text: pd.Series, decimal: Decimal) -> pd.Series:
    """Return normalised cells as numbers; NaN where one is none with this decimal sign."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    grouped = rf"[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}})+(?:{sign}[0-9]+)?"
    number = rf"[+-]?(?:[0-9]*{sign}[0-9]+|[0-9]+\.?|{grouped})(?:e[+-]?[0-9]+|[kmb])?"
    plain = text.where(text.str.fullmatch(number, na=False))
    plain = plain.str.replace(_OTHER[decimal], "").str.replace(",", ".")
    plain = plain.str.replace("[kmb]$", lambda unit: _FACTORS[unit[0]], regex=True)
    return plain.astype(float)
