"""Read numbers as people and spreadsheets write them.

``1,234`` is more than a thousand in one country and little more than one in another. The decimal
sign is decided once for all columns of a table, by cells that can only be read in one way. A table
whose numbers can all be read in two ways is refused.
"""

import functools
import math
import re
from collections.abc import Mapping
from decimal import Decimal as ExactNumber
from typing import Literal, TypeAlias, cast

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError, quoted
from forecaster.ingest.tables.location import TableLocation

Decimal: TypeAlias = Literal[".", ","]
_DECIMALS: tuple[Decimal, ...] = (".", ",")
_OTHER: Mapping[Decimal, Decimal] = {".": ",", ",": "."}
BLANK = ("", "null", "none", "nan", "-", "n/a", "na", "#n/a", ".", "..", ":")
"""Texts, in lower case, that count as empty cells: also those of FRED, World Bank, Eurostat."""
_NAMES: Mapping[Decimal, str] = {".": "point", ",": "comma"}
_FACTORS = {"k": "e3", "m": "e6", "b": "e9"}
# Typographic signs: no-break and thin spaces, apostrophes, the minus sign.
_TYPOGRAPHY = str.maketrans(
    {"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2019": "'", "\u02bc": "'", "\u2212": "-"}
)
_SIGN = r"(?:[+-]?[$€£]?|[$€£][+-])"
_UNIT = r"(?:e[+-]?[0-9]+|[kmb])?"
_IF_UNKNOWN = "Leave the cell empty if its number is not known"
_LARGEST = 10**308
_PLAIN = (str, float, np.integer, np.floating)
_LONG_EXPONENTS_CRASH = pd.__version__.startswith("2.")  # reading 1e999999999 ends the process


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
    return bool(len(filled)) and bool(
        (filled.str.fullmatch(_valid(".")) | filled.str.fullmatch(_valid(","))).all()
    )


def has_separators(column: pd.Series) -> bool:
    """Return whether a cell of a text column holds a comma in a number, or several points."""
    return bool(column.astype(str).str.contains(r"[0-9],[0-9]|\..*\.", regex=True).any())


def find_decimal(
    columns: Mapping[str, pd.Series], where: TableLocation, *, plain_points: bool
) -> Decimal:
    """Decide which sign is the decimal one in a table.

    - ``columns``: the text columns that hold numbers, by name
    - ``where``: the file, for errors
    - ``plain_points``: whether a lone point is the decimal sign, as in a CSV file whose cells are
      separated by commas

    Raises DataError if a number can be read in two ways and no other number decides. Raises it also
    if a column of prices holds a number such as ``1,234`` in a table with decimal points, and no
    number shows that commas separate thousands (likewise with the signs exchanged).
    """
    if not columns:
        return "."
    # Distinct texts, by their first row; those of prices come first.
    text = {name: _normalised(column.drop_duplicates()) for name, column in columns.items()}
    shown: list[Decimal] = [sign for sign in _DECIMALS if _has(text, _decisive(sign))]
    if shown and _has(text, _grouped(shown[0])):
        return shown[0]
    if shown:
        prices = {name: column for name, column in text.items() if name != "volume"}
        _refuse_either(prices, where, _OTHER[shown[0]])
        return shown[0]
    for sign in (",",) if plain_points else _DECIMALS:
        _refuse_either(text, where, sign)
    return "."


def _has(columns: Mapping[str, pd.Series], pattern: str) -> bool:
    return any(bool(text.str.fullmatch(pattern).any()) for text in columns.values())


def _refuse_either(columns: Mapping[str, pd.Series], where: TableLocation, sign: Decimal) -> None:
    """Raise DataError for a number such as ``1,234``, in which ``sign`` may be decimal or not."""
    for name, text in columns.items():
        either = text.str.fullmatch(_either(sign))
        if either.any():
            raise DataError(
                f"{where.cell(either, name)}: {text[either].iloc[0]!r} may have a decimal sign or "
                "one between thousands, and no other number shows which. Choose one: --decimal , "
                'or --decimal . (in Python decimal="," or ".")'
            )


def to_numbers(
    column: pd.Series,
    where: TableLocation,
    name: str,
    decimal: Decimal,
    *,
    infinite: bool = False,
    advice: str = "",
) -> pd.Series:
    """Return a text column as floats; blank cells become NaN.

    - ``where``, ``name``: the file and the column, for errors
    - ``decimal``: the decimal sign; the other sign, spaces and apostrophes may separate thousands
    - ``infinite``: whether numbers that are too large, such as 1e400, become infinite
    - ``advice``: ends the message of a cell that is no number with any decimal sign

    Raises DataError if a cell is not a number with this decimal sign.
    """
    if _LONG_EXPONENTS_CRASH:
        column = column.mask(column.astype(str).str.contains(r"[eE]\+?\d{5}"), "1e400")
    if decimal == ".":
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        if np.isfinite(numbers).all():
            return numbers
    text = _normalised(column)
    blank = _is_blank(column, text)
    plain = text.str.replace(rf"[{_OTHER[decimal]} '$€£]", "", regex=True)
    plain = plain.str.replace(",", ".", regex=False)
    plain = plain.str.replace("[kmb]$", lambda unit: _FACTORS[unit[0]], regex=True)
    valid = text.str.fullmatch(_valid(decimal))
    numbers = pd.to_numeric(plain.where(valid), errors="coerce").astype(float)
    too_large = numbers.isna() & valid.eq(True)  # pandas 2 gives up on 1e400
    numbers[too_large] = plain[too_large].astype(float)
    bad = numbers.isna() & ~blank
    if not infinite:
        bad |= numbers.abs() == np.inf
    if bad.any():
        raise DataError(_bad_cell(column, text, bad, where, name, decimal, advice))
    return numbers


def plain_cells(column: pd.Series) -> pd.Series:
    """Return a column with what is neither text nor a number as text, so that it is no number.

    Yes and no, complex numbers, times, durations and bytes would otherwise become numbers. Whole
    numbers beyond those of floats become text such as 1e400.
    """
    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        column = column.astype(object)
    elif not pd.api.types.is_object_dtype(kind):
        plain = pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)
        return column if plain or pd.api.types.is_string_dtype(kind) else column.astype(str)
    kinds = set(map(type, column))
    if np.timedelta64 not in kinds and all(issubclass(kind, _PLAIN) for kind in kinds):
        return column
    return column.map(_plain_cell)


def _plain_cell(cell: object) -> object:
    if isinstance(cell, int) and not isinstance(cell, bool):
        if abs(cell) < _LARGEST:
            return cell
        return f"{'-' if cell < 0 else ''}1e{int(math.log10(abs(cell)))}"
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
            f"written so or too large, such as 1e400. {_IF_UNKNOWN}"
        )


def _bad_cell(
    column: pd.Series,
    text: pd.Series,
    bad: pd.Series,
    where: TableLocation,
    name: str,
    decimal: Decimal,
    advice: str,
) -> str:
    """Return the error message for the first bad cell."""
    shown = quoted(str(column[bad].iloc[0]).strip())
    message = f"{where.cell(bad, name)}: {shown} is not a number"
    if re.fullmatch(_valid(decimal), text[bad].iloc[0]):
        return f"{message}; it is too large. {_IF_UNKNOWN}"
    other = _OTHER[decimal]
    if not re.fullmatch(_valid(other), text[bad].iloc[0]):
        return message + (advice or f"; expected one such as 1234.5. {_IF_UNKNOWN}")
    return (
        f"{message} with a decimal {_NAMES[decimal]}, as other numbers or --decimal say; write all "
        "numbers of a file alike"
    )


def _normalised(column: pd.Series) -> pd.Series:
    """Return cells in lower case, with plain ASCII signs, and with minus instead of brackets."""
    text = column.astype(str).str.strip().str.lower().str.translate(_TYPOGRAPHY)
    return text.str.replace(r"^\(([$€£]?[0-9].*)\)$", r"-\1", regex=True)


def _is_blank(column: pd.Series, text: pd.Series) -> pd.Series:
    return column.isna() | text.isin(BLANK)


@functools.cache
def _decisive(decimal: Decimal) -> str:
    """Return the pattern of numbers that can only have this decimal sign."""
    sign = re.escape(decimal)
    mantissas = (
        rf"(?:0[0-9]*|[0-9]{{4,}})?{sign}[0-9]+",  # no group of thousands begins like this
        rf"[0-9]+{sign}(?:[0-9]{{1,2}}|[0-9]{{4,}})",  # nor ends like this
        rf"[1-9][0-9]{{0,2}}(?: [0-9]{{3}})+{sign}[0-9]+",
        rf"[1-9][0-9]{{0,2}}(?:'[0-9]{{3}})+{sign}[0-9]+",
        rf"[0-9]+{sign}[0-9]+(?=e)",
    )
    return rf"{_SIGN}(?:{'|'.join(mantissas)}){_UNIT}|{_grouped(decimal)}"


@functools.cache
def _grouped(decimal: Decimal) -> str:
    """Return the pattern of numbers in which the other sign can only separate thousands."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    start = rf"[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}})"
    return rf"{_SIGN}(?:{start}+{sign}[0-9]+|{start}{{2,}}){_UNIT}"


@functools.cache
def _either(sign: Decimal) -> str:
    """Return the pattern of numbers in which this sign may be decimal or separate thousands."""
    return rf"{_SIGN}[1-9][0-9]{{0,2}}{re.escape(sign)}[0-9]{{3}}[kmb]?"


@functools.cache
def _valid(decimal: Decimal) -> str:
    """Return the pattern of all numbers with this decimal sign."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    groups = "|".join(
        rf"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{sign}[0-9]+)?" for mark in (other, " ", "'")
    )
    whole_with_point = "" if decimal == "," else rf"|[0-9]+{sign}"
    return rf"{_SIGN}(?:[0-9]*{sign}[0-9]+|[0-9]+{whole_with_point}|{groups}){_UNIT}"
