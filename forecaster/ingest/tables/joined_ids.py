"""Series that are named by several columns together, such as a store and an item."""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from forecaster.errors import DataError, listed
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.numbers import is_number_column, plain_cells

SEPARATOR = "/"
"""Stands between the names of a joined series: ``S01/milk``."""
_MOST_TEXTS, _MOST_JOINED = 8, 3  # columns that are tried, and how many of them at once


def with_joined_ids(
    table: pd.DataFrame, id_col: str | None, parts: Sequence[str], where: TableLocation
) -> pd.DataFrame:
    """Return a table with the columns ``parts`` joined into one, of the name ``id_col``.

    A table that has a column of that name, or none of the parts, is returned unchanged. Raises
    DataError if it lacks some of them, and for an empty name in one.
    """
    found = [part for part in parts if part in table]
    if not found or id_col is None or id_col in table:
        return table
    if missing := [part for part in parts if part not in table]:
        raise DataError(
            f"{where}: no column {listed(list(map(repr, missing)))}, which should name the series "
            f"together with {listed(list(map(repr, found)))}; it has {listed(list(table.columns))}"
        )
    keys = pd.DataFrame({part: _names(table[part], part, where) for part in parts})
    groups = keys.groupby(list(parts), sort=False, observed=True).ngroup()
    first = keys.loc[~groups.duplicated()]
    joined = pd.Series([SEPARATOR.join(row) for row in first.itertuples(index=False)], dtype=object)
    if (same := joined.duplicated()).any():
        raise DataError(
            f"{where}: two series would have the name {joined[same].iloc[0]!r}, joined by "
            f"{SEPARATOR!r} from {listed(list(map(repr, parts)))}; replace {SEPARATOR!r} in these "
            "columns"
        )
    ids = joined.take(groups.to_numpy()).set_axis(table.index).astype("category")
    table = table.drop(columns=list(parts))
    table.insert(0, id_col, ids)
    return table


def _names(column: pd.Series, part: str, where: TableLocation) -> pd.Series:
    """Return one part of the names as categories. Raises DataError for an empty cell."""
    codes, kinds = pd.factorize(column)
    names = pd.Series(kinds, dtype=object).astype(str).str.strip()
    blank = pd.Series(np.append((names == "").to_numpy(), True)[codes], column.index)
    if blank.any():
        raise DataError(f"{where.cell(blank, part)}: empty; expected a name")
    merged, unique = pd.factorize(names)
    return pd.Series(pd.Categorical.from_codes(merged[codes], unique), column.index)


def key_columns(table: pd.DataFrame, times: pd.Series, known: Sequence[str]) -> list[str]:
    """Return the columns of text by which no time of a series repeats; empty if there are none.

    - ``table``, ``times``: the rows, and the time of each
    - ``known``: columns that are no names of series
    """
    texts = [
        str(name)
        for name in table
        if name not in known and _is_text(table[name]) and _repeats(table[name])
    ][:_MOST_TEXTS]
    for count in range(1, min(_MOST_JOINED, len(texts)) + 1):
        for some in itertools.combinations(texts, count):
            if not table[list(some)].assign(**{" ds": times}).duplicated().any():
                return list(some)
    return []


def _repeats(column: pd.Series) -> bool:
    """Return whether values are twice there on average; other things than text never are."""
    try:
        return 2 * column.nunique() <= len(column)
    except TypeError:  # a list, say, has no hash
        return False


def _is_text(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return False
    return not is_number_column(plain_cells(column))
