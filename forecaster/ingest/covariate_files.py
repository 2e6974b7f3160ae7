"""Read covariates from files: values known in advance, and static properties of series."""

import dataclasses
import hashlib
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError, printable, spelled, spellings, warn
from forecaster.files import as_text, from_text, read_plain
from forecaster.ingest.tables.cells import (
    BLANK,
    Decimal,
    TableLocation,
    is_marked,
    is_number_column,
    missing_option,
    number_columns,
)
from forecaster.ingest.tables.file_reader import is_parquet, read_table
from forecaster.ingest.tables.layout import with_clock, with_joined_ids
from forecaster.ingest.tables.options import INFERRED, Columns
from forecaster.ingest.tables.roles import canonical
from forecaster.ingest.tables.times import by_format, to_times
from forecaster.series import Panel


def read_covariates(path: Path, columns: Columns) -> pd.DataFrame:
    """Return a table of covariates with columns of numbers or words, ``unique_id`` and ``ds``.

    - ``columns``: how it is read; columns that it lacks are ignored

    Raises DataError, with the file's name, if it cannot be read.
    """
    name = printable(path, lines=False)
    table = read_table(path, columns)
    where, frame = TableLocation(name, is_parquet(path)), table.frame
    if columns.marks:
        frame = frame.mask(frame.apply(is_marked, marks=columns.marks))
    frame = with_joined_ids(frame, columns.id_col, columns.id_parts, where)
    if len(parts := columns.time_parts) == 2 and {*parts} <= {*frame}:
        times = with_clock(frame[parts[0]], frame[parts[1]], where)
        frame = frame.drop(columns=parts).assign(**{str(columns.time_col): times})
    keys = {str(column): canonical(str(column)) for column in frame}
    keys = {column: key for column, key in keys.items() if key in ("unique_id", "ds")}
    for column, key in ((columns.id_col, "unique_id"), (columns.time_col, "ds")):
        if column is not None and column in frame:  # the caller's columns take precedence
            keys = {old: new for old, new in keys.items() if new != key} | {column: key}
    if len(set(keys.values())) < len(keys):
        raise DataError(f"{name}: columns {', '.join(map(repr, keys))} mean the same; keep one")
    where = TableLocation(name, is_parquet(path), {new: old for old, new in keys.items()})
    frame = _with_numbers(frame.rename(columns=keys), where, columns.decimal or table.decimal)
    if "ds" in frame:
        frame = frame.assign(ds=_times(frame["ds"], where, columns.date_format))
    return frame


def _times(column: pd.Series, where: TableLocation, form: str | None) -> pd.Series:
    """Read times by the given date format, or in ISO 8601 if it fits none of them.

    Covariates may come from another source than the series, and so have another format.
    """
    if form is not None:
        text = column.astype(str).str.strip()
        try:
            form = None if by_format(text, form).isna().all() else form
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
    return to_times(column, where, form)[0]


def _with_numbers(
    frame: pd.DataFrame, where: TableLocation, decimal: Decimal | None
) -> pd.DataFrame:
    """Return the frame with numbers that are text as floats; other text stays as it is."""
    others = frame.drop(columns=["unique_id", "ds"], errors="ignore")
    numbers = number_columns(others, where, decimal)
    for name in others.columns.difference(list(numbers)):
        _warn_of_words_among_numbers(others[name].astype(str), where, name)
    given = [name for name in numbers if pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(**{name: numbers[name] for name in numbers if name not in given})


def _warn_of_words_among_numbers(column: pd.Series, where: TableLocation, name: str) -> None:
    """Warn of a column that is taken for words although most of its cells are numbers."""
    numbers = {kind for kind in column.unique() if is_number_column(pd.Series([kind]))}
    odd = ~column.str.strip().str.lower().isin(BLANK) & ~column.isin(numbers)
    if 0 < odd.sum() < column.isin(numbers).sum():
        warn(
            f"{where.cell(odd, name)}: {column[odd].iloc[0]!r} is not a number, so all of the "
            "column is taken for words. If it holds numbers, correct this cell, leave it empty, or "
            f"say {missing_option(column[odd])}"
        )


@dataclasses.dataclass(frozen=True)
class CovariateFiles:
    """The files of covariates: full paths as text, or None.

    - ``future``: rows ``unique_id, ds`` and columns of numbers, see :meth:`Panel.with_future`
    - ``static``: a row per series, see :meth:`Panel.with_static`
    - ``reading``: the options for reading them
    """

    future: str | None = None
    static: str | None = None
    reading: Columns = INFERRED

    @staticmethod
    def from_paths(
        future: Path | None = None, static: Path | None = None, reading: Columns = INFERRED
    ) -> "CovariateFiles":
        """Return two paths as covariate files. Raises UsageError if one is not a file."""
        for path in (future, static):
            if path is not None and not path.is_file():
                raise UsageError(
                    f"{printable(path, lines=False)}: no such file; expected a CSV or Parquet file "
                    "of covariates"
                )
        texts = [path and as_text(path.resolve()) for path in (future, static)]
        return CovariateFiles(texts[0], texts[1], reading)

    def __bool__(self) -> bool:
        """Return whether there is a file."""
        return self.future is not None or self.static is not None

    def sha256(self) -> str | None:
        """Return a hash of the files' content, or None. Raises DataError if one cannot be read."""
        if not self:
            return None
        digest = hashlib.sha256()
        for path in filter(None, (self.future, self.static)):
            try:
                digest.update(hashlib.sha256(read_plain(from_text(path))).digest())
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        return digest.hexdigest()

    def added_to(self, panel: Panel) -> Panel:
        """Return the panel with the covariates. Raises DataError if they cannot be used."""
        from forecaster.ingest.covariate_files import read_covariates

        for path, to in ((self.future, Panel.with_future), (self.static, Panel.with_static)):
            if path is None:
                continue
            name = printable(from_text(path), lines=False)
            frame = read_covariates(from_text(path), self.reading)
            if "unique_id" in frame:
                known, ids = spellings(panel.ids), frame["unique_id"].astype(object)
                ids = ids.where(ids.notna(), "").astype(str)
                frame = frame.assign(unique_id=[spelled(known, each) or each for each in ids])
            try:
                panel = to(panel, frame)
            except DataError as error:
                raise DataError(f"{name}: {error}") from error
        return panel
