"""Describe the place of a cell in a user's table, for error messages."""

import dataclasses
from collections.abc import Mapping

import pandas as pd


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
