"""Read numbers as people and spreadsheets write them.

``1,234`` is more than a thousand in one country and little more than one in another. The decimal
sign is decided once for all columns of a table, by cells that can only be read in one way. A table
whose numbers can all be read in two ways is refused.
"""

import functools
import re
from collections.abc import Mapping
from decimal import Decimal as ExactNumber
from typing import Literal, TypeAlias, cast

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError, quoted
from forecaster.ingest.tables.location import TableLocation

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
_UNIT = r"(?:e[+-]?[0-9]+|[kmb])?"
_LARGEST = 10**308
_PLAIN = (str, float, np.integer, np.floating)


def as_decimal(sign: str | None) -> Decimal | None:
    """Return the caller's decimal sign, checked. Raises UsageError unless it is ``.`` or ``,``."""
    if sign is not None and (not isinstance(sign, str) or sign not in _OTHER):
        raise UsageError(f"decimal {sign!r}: expected a point or a comma")
    return cast(Decimal | None, sign)


def is_number_column(column: pd.Series) -> bool:
    """Return whether every cell of a text column is blank or a number with either decimal sign.

    A column of blanks alone is not a column of numbers.
    """
    text = _normalised(column)
    filled = text[~_is_blank(column, text)]
    either = (filled.str.fullmatch(_valid(sign)).all() for sign in _OTHER)
    return bool(len(filled)) and any(either)


def find_decimal(
    columns: Mapping[str, pd.Series], where: TableLocation, *, plain_points: bool
) -> Decimal:
    """Decide which sign is the decimal one in a table.

    - ``columns``: the text columns that hold numbers, by name
    - ``where``: the file, for errors
    - ``plain_points``: whether a lone point is the decimal sign, as in a CSV file whose cells are
      separated by commas

    Raises DataError if a number can be read in two ways and no other number decides: a price such
    as ``1,234`` beside decimal points, unless a number shows that commas separate thousands.
    """
    # Distinct texts, by their first row.
    texts = {name: _normalised(column.drop_duplicates()) for name, column in columns.items()}
    other: str = "," if plain_points else "[.,]"  # what may separate thousands, or not
    shown: Decimal | None = None
    for sign in (".",) if plain_points else _OTHER:
        if shown is None and _any(texts, _decisive(sign)):
            if _any(texts, _grouped(sign)):
                return sign
            shown, other = sign, re.escape(_OTHER[sign])
    for name, text in texts.items():
        either = text.str.fullmatch(rf"-?[1-9][0-9]{{0,2}}{other}[0-9]{{3}}[kmb]?")
        if either.any() and (shown is None or name != "volume"):
            raise DataError(
                f"{where.cell(either, name)}: {text[either].iloc[0]!r} may have a decimal sign or "
                "one between thousands, and no other number shows which. Choose one: --decimal , "
                'or --decimal . (in Python decimal="," or ".")'
            )
    return shown or "."


def _any(texts: Mapping[str, pd.Series], pattern: str) -> bool:
    return any(bool(text.str.fullmatch(pattern).any()) for text in texts.values())


def to_numbers(
    column: pd.Series, where: TableLocation, name: str, decimal: Decimal, advice: str = ""
) -> pd.Series:
    """Return a text column as floats; blank cells become NaN.

    - ``where``, ``name``: the file and the column, for errors
    - ``decimal``: the decimal sign; the other sign, spaces and apostrophes may separate thousands
    - ``advice``: ends the message of a cell that is no number

    Raises DataError if a cell is not a finite number with this decimal sign.
    """
    # Reading 1e999999999 ends the process of pandas 2.
    column = column.mask(column.astype(str).str.contains(r"[eE]\+?\d{5}"), "1e400")
    if decimal == ".":
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        if np.isfinite(numbers).all():
            return numbers
    text = _normalised(column)
    valid = text.str.fullmatch(_valid(decimal))
    plain = text.where(valid).str.replace(_OTHER[decimal], "").str.replace(",", ".")
    plain = plain.str.replace("[kmb]$", lambda unit: _FACTORS[unit[0]], regex=True)
    numbers = plain.astype(float)
    if (bad := numbers.isna() & ~_is_blank(column, text)).any():
        is_other = re.fullmatch(_valid(_OTHER[decimal]), text[bad].iloc[0])
        why = f" with the decimal sign {decimal}, as other numbers or --decimal say"
        raise DataError(
            f"{where.cell(bad, name)}: {quoted(str(column[bad].iloc[0]).strip())} is not a number"
            f"{why if is_other else ''}"
            f"{advice or '; expected one such as 1234.5. Leave the cell empty if it is not known'}"
        )
    check_finite(numbers, where, name)
    return numbers


def plain_cells(column: pd.Series) -> pd.Series:
    """Return a column with what is neither text nor a number as text, so that it is no number.

    Yes and no, complex numbers, times, durations and bytes would otherwise become numbers. Whole
    numbers beyond those of floats become text such as 1e400.
    """
    kind = column.dtype
    if pd.api.types.is_string_dtype(kind) and not pd.api.types.is_object_dtype(kind):
        return column
    if pd.api.types.is_numeric_dtype(kind) and kind.kind not in "bc":
        return column
    return column.astype(object).map(_plain_cell)


def _plain_cell(cell: object) -> object:
    if isinstance(cell, int) and not isinstance(cell, bool):
        return cell if abs(cell) < _LARGEST else "1e400"
    if isinstance(cell, _PLAIN) and not isinstance(cell, np.timedelta64):  # which is an integer
        return cell
    if isinstance(cell, ExactNumber) and not cell.is_snan():  # pandas fails at a signalling NaN
        return cell
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return None  # a column of NaT alone would become times, and these whole numbers
    return str(cell)


def check_finite(numbers: pd.Series, where: TableLocation, name: str) -> None:
    """Raise DataError for an infinite number. ``where``, ``name``: the file and the column."""
    if (infinite := numbers.abs() == np.inf).any():
        raise DataError(
            f"{where.cell(infinite, name)}: {numbers[infinite].iloc[0]:g} is not a number; it is "
            "written so or too large, such as 1e400. Leave the cell empty if its number is not "
            "known"
        )


def _normalised(column: pd.Series) -> pd.Series:
    """Return cells in lower case, with plain ASCII signs, and with minus instead of brackets.

    Signs of currencies, and spaces and apostrophes between thousands, are left out.
    """
    text = column.astype(str).str.strip().str.lower().str.translate(_TYPOGRAPHY)
    text = text.str.replace(r"^\(([$€£]?[0-9].*)\)$", r"-\1", regex=True)
    text = text.str.replace(r"^([+-]?)[$€£]([+-]?)", r"\1\2", regex=True)
    return text.str.replace(_GROUPS, lambda of: re.sub("[ ']", "", of[0]), regex=True)


def _is_blank(column: pd.Series, text: pd.Series) -> pd.Series:
    return column.isna() | text.isin(BLANK)


@functools.cache
def _grouped(decimal: Decimal) -> str:
    """Return the pattern of numbers in which the other sign can only separate thousands."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    start = rf"[+-]?[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}})"
    return rf"(?:{start}+{sign}[0-9]+|{start}{{2,}}){_UNIT}"


def _decisive(decimal: Decimal) -> str:
    """Return the pattern of numbers that can only have this decimal sign."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    numbers = (
        rf"(?:0[0-9]*|[0-9]{{4,}})?{sign}[0-9]+",  # no group of thousands begins like this
        rf"[0-9]+{sign}(?:[0-9]{{1,2}}|[0-9]{{4,}})",  # nor ends like this
        rf"[0-9]+{sign}[0-9]+(?=e)",
        rf"[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}})+{sign}[0-9]+",
        rf"[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}}){{2,}}",
    )
    return rf"[+-]?(?:{'|'.join(numbers)}){_UNIT}"


@functools.cache
def _valid(decimal: Decimal) -> str:
    """Return the pattern of all numbers with this decimal sign."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    grouped = rf"[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}})+(?:{sign}[0-9]+)?"
    return rf"[+-]?(?:[0-9]*{sign}[0-9]+|[0-9]+\.?|{grouped}){_UNIT}"
