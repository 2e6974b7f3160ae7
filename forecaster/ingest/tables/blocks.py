"""Read a large Parquet file in blocks of series.

This works for files whose row groups hold the series in sorted order, and in which the types of
columns show their roles: one column of text (names), one of times, and all others of numbers. Other
files are read whole.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError
from forecaster.files import is_text, open_parquet, parquet_groups, schema_of
from forecaster.ingest.tables.csv_file import Table
from forecaster.ingest.tables.file_reader import frames_of, join
from forecaster.ingest.tables.parquet import is_number, is_time, read_parquet
from forecaster.ingest.tables.roles import Columns, canonical

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_ROWS = 3_000_000  # files with fewer rows are read whole
_BLOCK, LARGEST_GROUP = 2_000_000, 8_000_000  # rows in a block, and in the largest row group


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A file in blocks of row groups.

    - ``ids``: all series, sorted
    - ``groups``: for each block, the numbers of its row groups and the series in it
    """

    path: Path
    ids: list[str]
    groups: list[tuple[list[int], set[str]]]

    @staticmethod
    def of(path: Path) -> "Blocks | None":
        """Divide a file into blocks; return None if it must be read whole.

        Small files, files with another layout and invalid ones are read whole; for invalid ones
        the reader of whole files then raises the error.
        """
        try:
            with open_parquet(path) as file:
                column = _column_of_names(schema_of(file.metadata))
                sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            if column is None or sum(sizes) < LEAST_ROWS or max(sizes) > LARGEST_GROUP:
                return None
            names = [_names(group[0]) for group in parquet_groups(path, [column], None, [column])]
        except (OSError, ValueError):
            return None
        return _blocks(path, names, sizes)

    def read(self, wanted: set[str], columns: Columns) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield name and frame of each wanted series, as `file_reader.read_series` returns them.

        Raises DataError if the file cannot be read or used.
        """
        # The last series may continue in the next block.
        left: tuple[str, pd.DataFrame] | None = None
        for groups, names in self.groups:
            if not names & wanted:
                continue
            for name, frame in sorted(self._frames(groups, columns).items()):
                if left is not None and left[0] == name:
                    left = name, join([left[1], frame])
                    continue
                if left is not None and left[0] in wanted:
                    yield left
                left = name, frame
        if left is not None and left[0] in wanted:
            yield left

    def _frames(self, groups: list[int], columns: Columns) -> dict[str, pd.DataFrame]:
        try:
            table = Table(read_parquet(self.path, groups=groups), plain_points=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read: {str(error).splitlines()[0]}") from error
        return frames_of(table, self.path, columns=columns)


def _column_of_names(schema: "pa.Schema") -> str | None:
    """Return the column of names; None unless one other column holds times and the rest numbers."""
    names = [f.name for f in schema if canonical(f.name) == "unique_id" and is_text(f.type)]
    times = [f.name for f in schema if canonical(f.name) == "ds" and is_time(f.type)]
    others = [f for f in schema if f.name not in (*names, *times)]
    plain = all(is_number(f.type) and canonical(f.name) not in ("unique_id", "ds") for f in others)
    return names[0] if len(names) == len(times) == 1 and others and plain else None


def _names(column: "pa.ChunkedArray") -> set[str]:
    """Return the names in a column of text or bytes. Raises ValueError if it is not UTF-8."""
    import pyarrow as pa

    names = column.unique().dictionary_decode().cast(pa.string())
    return {str(name or "").strip() for name in names.to_pylist()}


def _blocks(path: Path, names: list[set[str]], sizes: list[int]) -> Blocks | None:
    """Join row groups to blocks; return None unless they hold the series in sorted order."""
    groups: list[tuple[list[int], set[str]]] = []
    size = _BLOCK
    for number, (those, rows) in enumerate(zip(names, sizes, strict=True)):
        if "" in those or (number and max(names[number - 1]) > min(those)):
            return None
        if size + rows > _BLOCK:
            groups.append(([], set()))
            size = 0
        groups[-1][0].append(number)
        groups[-1][1].update(those)
        size += rows
    return Blocks(path, sorted(set().union(*names)), groups)
