"""Where something stands in a table, for errors: in the words of whoever made the table."""

import dataclasses
from collections.abc import Mapping

import pandas as pd


@dataclasses.dataclass(frozen=True)
class Place:
    """A table, as errors name it.

    - ``name``: the file, or "the frame"
    - ``rows``: whether its rows are counted; a file of text has lines, the first of them the header
    - ``spelled``: its columns, by the name that they have here
    """

    name: str
    rows: bool = False
    spelled: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    def __str__(self) -> str:
        return self.name

    def column(self, name: str) -> str:
        """A column as the table spells it."""
        return self.spelled.get(name, name)

    def cell(self, bad: pd.Series, name: str) -> str:
        """Where the first bad cell of a column is; the index of ``bad`` counts rows from 0."""
        row = int(bad.index[int(bad.to_numpy().argmax())])
        row_or_line = f"row {row + 1}" if self.rows else f"line {row + 2}"
        return f"{self.name}, {row_or_line}, column {self.column(name)!r}"
