"""Numbers as people and spreadsheets write them.

The same signs mean opposite things: ``1,234`` is a thousand and more in one country, and one and a
bit in the next. Which sign is the decimal one is decided once for a table, from cells that can only
be read in one way, and holds for all of its columns. A table without such a cell is refused.
"""

import functools
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError
from forecaster.ingest.tables.where import Place

Decimal: TypeAlias = Literal[".", ","]
_OTHER: Mapping[Decimal, Decimal] = {".": ",", ",": "."}
_NAMES: Mapping[Decimal, str] = {".": "point", ",": "comma"}
_BLANK = ("", "null", "none", "nan", "-", "n/a")
_FACTORS = {"k": "e3", "m": "e6", "b": "e9"}
# As typographers set them: no-break and thin spaces, apostrophes, the minus sign.
_TYPOGRAPHY = str.maketrans(
    {"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2019": "'", "\u02bc": "'", "\u2212": "-"}
)
_SIGN = r"(?:[+-]?\$?|\$[+-])"
_UNIT = r"(?:e[+-]?[0-9]+|[kmb])?"
_HEAD = 1000  # cells that are looked at first; they nearly always decide


def as_decimal(sign: str | None) -> Decimal | None:
    """A decimal sign as a caller may say it. Raises UsageError for what is none."""
    if sign is not None and sign not in _OTHER:
        raise UsageError(f"decimal {sign!r}: expected a point or a comma")
    return cast(Decimal | None, sign)


class Evidence(NamedTuple):
    """A cell that shows which sign is the decimal one."""

    decimal: Decimal
    cell: str
    text: str


def is_number_column(column: pd.Series) -> bool:
    """Whether every cell of a column of text that is not blank can be a number in some reading."""
    text = _normalised(column)
    filled = text[~_is_blank(column, text)]
    return bool(len(filled)) and bool(
        (filled.str.fullmatch(_valid(".")) | filled.str.fullmatch(_valid(","))).all()
    )


def has_separators(column: pd.Series) -> bool:
    """Whether a cell of a column of text holds more than the one point that any program writes."""
    return bool(column.astype(str).str.contains(r"[0-9],[0-9]|\..*\.", regex=True).any())


def find_decimal(
    columns: Mapping[str, pd.Series], where: Place, *, plain_points: bool
) -> Evidence | None:
    """Which sign is the decimal one in a table; None where no number has either.

    - ``columns``: the columns of text that hold numbers, by name
    - ``where``: the file, for errors
    - ``plain_points``: the table comes from where a number with a comma would have shown, so that
      a lone point is the decimal one

    Raises DataError when nothing tells, or when a column of prices has only the other sign, and no
    number shows that it parts thousands.
    """
    evidence = next(
        (
            evidence
            for name, column in columns.items()
            for part in (column.iloc[:_HEAD], column.iloc[_HEAD:])
            if (evidence := _find_evidence(part, where, name))
        ),
        None,
    )
    if evidence:
        prices = {name: column for name, column in columns.items() if name != "volume"}
        doubtful = _find_either(prices, where, _OTHER[evidence.decimal])
        if doubtful and not _parts_thousands(columns, evidence.decimal):
            raise DataError(_ambiguous(*doubtful))
        return evidence
    for sign in (",",) if plain_points else (",", "."):
        if doubtful := _find_either(columns, where, sign):
            raise DataError(_ambiguous(*doubtful))
    return None


def to_numbers(
    column: pd.Series, where: Place, name: str, decimal: Decimal, evidence: Evidence | None = None
) -> pd.Series:
    """A column of text as floats; blank cells are NaN.

    - ``where``, ``name``: the file and the column, for errors
    - ``decimal``: the sign before a fraction; the other one, spaces and apostrophes may part
      thousands
    - ``evidence``: what ``decimal`` was decided by; None: the user has said so

    Raises DataError when a cell is no number, or one of the other convention.
    """
    if decimal == ".":
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        if np.isfinite(numbers).all():
            return numbers
    text = _normalised(column)
    blank = _is_blank(column, text)
    plain = text.str.replace(rf"[{_OTHER[decimal]} '$]", "", regex=True)
    plain = plain.str.replace(",", ".", regex=False)
    plain = plain.str.replace("[kmb]$", lambda unit: _FACTORS[unit[0]], regex=True)
    valid = text.str.fullmatch(_valid(decimal))
    numbers = pd.to_numeric(plain.where(valid), errors="coerce").astype(float)
    bad = (numbers.isna() | np.isinf(numbers)) & ~blank
    if bad.any():
        raise DataError(_bad_cell(column, text, bad, where, name, decimal, evidence))
    return numbers


def _find_evidence(column: pd.Series, where: Place, name: str) -> Evidence | None:
    text = _normalised(column)
    for decimal in (".", ","):
        only = text.str.fullmatch(_decisive(decimal))
        if only.any():
            return Evidence(decimal, where.cell(only, name), str(column[only].iloc[0]).strip())
    return None


def _find_either(
    columns: Mapping[str, pd.Series], where: Place, sign: Decimal
) -> tuple[str, str] | None:
    """The first number in which a sign may be decimal or not, where it is and how it is written."""
    for name, column in columns.items():
        if not column.astype(str).str.contains(sign, regex=False).any():
            continue  # which is soon known, even of many million cells
        either = _normalised(column).str.fullmatch(_either(sign))
        if either.any():
            return where.cell(either, name), str(column[either].iloc[0]).strip()
    return None


def _parts_thousands(columns: Mapping[str, pd.Series], decimal: Decimal) -> bool:
    """Whether some number shows that the sign that is not the decimal one parts thousands."""
    return any(
        bool(_normalised(column).str.fullmatch(_grouped(decimal)).any())
        for column in columns.values()
    )


def _bad_cell(
    column: pd.Series,
    text: pd.Series,
    bad: pd.Series,
    where: Place,
    name: str,
    decimal: Decimal,
    evidence: Evidence | None,
) -> str:
    """What is wrong with the first bad cell."""
    shown = str(column[bad].iloc[0]).strip()
    message = f"{where.cell(bad, name)}: {shown!r} is not a number"
    other = _OTHER[decimal]
    if not re.fullmatch(_valid(other), text[bad].iloc[0]):
        return message
    if evidence is None:
        return f"{message} with a decimal {_NAMES[decimal]}, as --decimal {decimal} says"
    return (
        f"{message} with a decimal {_NAMES[decimal]}, but {evidence.text!r} is "
        f"({evidence.cell.removeprefix(f'{where}, ')}); write all numbers of a file alike"
    )


def _ambiguous(where: str, text: str) -> str:
    return (
        f"{where}: {text!r} may have a decimal sign or one between thousands, and no number in the "
        'file tells which. Say it: --decimal , or --decimal . (in Python decimal="," or ".")'
    )


def _normalised(column: pd.Series) -> pd.Series:
    """As one typographer would write them all: plain signs, lower case, no brackets for minus."""
    text = column.astype(str).str.strip().str.lower().str.translate(_TYPOGRAPHY)
    return text.str.replace(r"^\((\$?[0-9].*)\)$", r"-\1", regex=True)


def _is_blank(column: pd.Series, text: pd.Series) -> pd.Series:
    return column.isna() | text.isin(_BLANK)


@functools.cache
def _decisive(decimal: Decimal) -> str:
    """Numbers that can only have this decimal sign."""
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
    """Numbers that have this decimal sign because the other one can only part thousands."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    start = rf"[1-9][0-9]{{0,2}}(?:{other}[0-9]{{3}})"
    return rf"{_SIGN}(?:{start}+{sign}[0-9]+|{start}{{2,}}){_UNIT}"


@functools.cache
def _either(sign: Decimal) -> str:
    """Numbers in which this sign may be the decimal one, or part thousands."""
    return rf"{_SIGN}[1-9][0-9]{{0,2}}{re.escape(sign)}[0-9]{{3}}[kmb]?"


@functools.cache
def _valid(decimal: Decimal) -> str:
    """Numbers with this decimal sign."""
    sign, other = re.escape(decimal), re.escape(_OTHER[decimal])
    groups = "|".join(
        rf"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{sign}[0-9]+)?" for mark in (other, " ", "'")
    )
    whole_with_point = "" if decimal == "," else rf"|[0-9]+{sign}"
    return rf"{_SIGN}(?:[0-9]*{sign}[0-9]+|[0-9]+{whole_with_point}|{groups}){_UNIT}"
