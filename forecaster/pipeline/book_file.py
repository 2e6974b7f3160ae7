"""Read what a user gives of books: a file of positions, and a limit. Light to import."""

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from forecaster.errors import UsageError, listed
from forecaster.ingest import read_rows
from forecaster.portfolio import Book, books_of


class Limit(NamedTuple):
    """The most that the value at risk of the first horizon at the highest level should be."""

    amount: float
    per_cent: bool

    @staticmethod
    def parse(text: str) -> "Limit":
        """Read ``5%``, or an amount of money. Raises UsageError for anything else."""
        number = text.strip()
        try:
            limit = Limit(float(number.removesuffix("%")), number.endswith("%"))
        except ValueError as error:
            raise UsageError(f"limit {text}: expected 5%, or an amount such as 50000") from error
        if not 0 < limit.amount < float("inf"):
            raise UsageError(f"limit {text}: expected a limit above 0, such as 5% or 50000")
        return limit

    def money(self, base: float) -> float:
        """Return the limit in money; ``base``: what per cent are of."""
        return self.amount * base / 100 if self.per_cent else self.amount


def read_books(book: Any) -> list[Book]:
    """Return the books of a table or of a CSV file; books as they are.

    Raises UsageError where a total would be wrong.
    """
    if isinstance(book, list):
        return book
    if not isinstance(book, str | Path):
        return books_of(book)
    lines = read_rows(Path(book))
    header, rows = lines[0].cells if lines else [], lines[1:]
    for row in rows:
        if len(row.cells) != len(header):
            raise UsageError(
                f"{row.where}: expected {len(header)} cells, {listed(header)}; got "
                f"{len(row.cells)}. Numbers have a decimal point and no signs for thousands"
            )
    table = pd.DataFrame([row.cells for row in rows], [row.where for row in rows], header)
    return books_of(table, Path(book).stem)
