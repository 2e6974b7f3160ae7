"""Books of positions from a table: shares, values or weights by ticker; cash; short positions."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from forecaster.errors import UsageError, listed, spelled, spelling_key, wrong_argument

CASH = "CASH"
"""The ticker of money, which has no risk."""
ALL = "(all)"
"""The name of a whole book in tables, beside its tickers."""
AMOUNTS = ("shares", "weight", "value")
"""The columns of which a book has one."""
_TICKERS = ("ticker", "symbol", "unique_id")
_WHOLE = 100.0  # value of a book of weights
_NO_SUM = 1e-9  # share of all weights, without signs, below which their sum is nothing
EXPECTED = (
    "expected the columns ticker and one of shares, value and weight, and perhaps book and "
    f"currency. Cash has the ticker {CASH}; what is short is negative"
)


@dataclasses.dataclass(frozen=True)
class Book:
    """The positions of one book.

    - ``kind``: what the amounts are: ``shares``, ``value`` or ``weight``
    - ``amounts``: by ticker; weights sum to 100 together with cash
    - ``cash``: money, or its weight
    """

    name: str
    kind: str
    amounts: Mapping[str, float]
    cash: float = 0.0

    def renamed(self, known: Mapping[str, str]) -> "Book":
        """Return the book with tickers as others spell them; ``known``: from ``spellings``."""
        amounts = {spelled(known, name) or name: its for name, its in self.amounts.items()}
        return dataclasses.replace(self, amounts=amounts)


def books_of(table: Any, name: str = "book") -> list[Book]:
    """Return the books of a table. Raises UsageError where a total would be wrong.

    - ``table``: a frame with the columns of :data:`EXPECTED`, in any letter case; other columns are
      ignored. Labels of rows that are text say where a row is
    - ``name``: of the book, where no column says it
    """
    if not isinstance(table, pd.DataFrame):
        raise wrong_argument("book", table, f"a frame, or the name of a CSV: {EXPECTED}")
    frame = table.rename(columns=lambda name: str(name).strip().lower())
    ticker = [name for name in _TICKERS if name in frame]
    kinds = [name for name in AMOUNTS if name in frame]
    if len(ticker) != 1 or len(kinds) != 1 or not frame.columns.is_unique or not len(frame):
        got = f"the columns {listed(frame.columns)}" if len(frame) else "no rows"
        raise UsageError(f"book: got {got}; {EXPECTED}")
    named = frame.get("book", pd.Series(name, frame.index))
    if (blank := named.isna() | (named.astype(str).str.strip() == "")).any():
        where = _where(frame.index[blank][0])
        raise UsageError(f"{where}: no name in the column book; expected one in each row")
    named = named.astype(str).str.strip()
    return [
        _book(str(name), kinds[0], its.rename(columns={ticker[0]: "ticker"}))
        for name, its in frame.groupby(named.to_numpy(), sort=False)
    ]


def _book(name: str, kind: str, rows: pd.DataFrame) -> Book:
    amounts: dict[str, float] = {}
    seen: dict[str, str] = {}
    currencies: dict[str, str] = {}
    for where, row in _rows(rows):
        ticker = str(row["ticker"]).strip()
        if row["ticker"] is None or ticker.lower() in ("", "nan"):
            raise UsageError(f"{where}: no ticker; {EXPECTED}")
        if before := seen.get(key := spelling_key(ticker)):
            raise UsageError(
                f"{where}: {ticker} is twice in the book {name!r}, also on {before}; add up its "
                f"{kind}"
            )
        seen[key] = where
        amounts[CASH if key == CASH else ticker] = _number(where, kind, ticker, row[kind])
        currency = row.get("currency")
        if isinstance(currency, str) and currency.strip():
            currencies.setdefault(currency.strip().upper(), ticker)
    if len(currencies) > 1:
        (one, first), (other, second), *_ = currencies.items()
        raise UsageError(
            f"book {name!r}: {first} is in {one}, {second} in {other}; a sum needs one currency. "
            "Convert the values, or put each currency into a book of its own"
        )
    if kind == "weight":
        total, size = sum(amounts.values()), sum(map(abs, amounts.values()))
        if total <= _NO_SUM * size:
            raise UsageError(
                f"book {name!r}: its weights sum to {total:g}, so they are shares of nothing; "
                "expected a sum above 0. Add the capital as CASH, or give values"
            )
        amounts = {ticker: _WHOLE * its / total for ticker, its in amounts.items()}
    cash = amounts.pop(CASH, 0.0)
    if not cash and not any(amounts.values()):
        raise UsageError(f"book {name!r}: it holds nothing; leave it out")
    return Book(name, kind, {ticker: its for ticker, its in amounts.items() if its}, cash)


def _rows(rows: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where each row is, and its cells by column."""
    for label, cells in zip(rows.index, rows.to_dict("records"), strict=True):
        yield _where(label), {str(k): v for k, v in cells.items()}


def _where(label: Any) -> str:
    return label if isinstance(label, str) else f"row {label}"


def _number(where: str, kind: str, ticker: str, given: Any) -> float:
    try:
        if math.isfinite(number := float(given)):
            return number
    except (TypeError, ValueError):
        pass
    raise UsageError(
        f"{where}: {kind} of {ticker}: expected a number with a decimal point, and without signs "
        f"for thousands; got {given!r}"
    )
