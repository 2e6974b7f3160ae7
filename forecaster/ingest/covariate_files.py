"""Read covariates from files: values known in advance, and static properties of series."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError, printable, spelled, spellings, warn
from forecaster.files import as_text, from_text, read_plain
from forecaster.ingest.tables.csv_file import Table
from forecaster.ingest.tables.dates import by_format, to_times
from forecaster.ingest.tables.decimals import (
    BLANK,
    Decimal,
    as_decimal,
    check_finite,
    find_decimal,
    is_number_column,
    to_numbers,
)
from forecaster.ingest.tables.file_reader import is_parquet, read_table
from forecaster.ingest.tables.layout import with_joined_ids
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.roles import Columns, canonical
from forecaster.series import Panel


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options for reading files of covariates.

    - ``decimal``: the decimal sign in numbers that are text; None: inferred for each file
    - ``date_format``: how times are written; None: inferred for each file
    - ``id_col``, ``time_col``: the columns with the series and the time; files without columns of
      these names ignore them

    Raises UsageError for an invalid decimal sign or date format.
    """

    decimal: str | None = None
    date_format: str | None = None
    id_col: str | None = None
    time_col: str | None = None

    def __post_init__(self) -> None:
        as_decimal(self.decimal)
        Columns(self.id_col, self.time_col, date_format=self.date_format)

    @staticmethod
    def of(decimal: str | None, columns: Columns) -> "Reading":
        """Return a reading with the options of the series' files."""
        return Reading(decimal, columns.date_format, columns.id_col, columns.time_col)


@dataclasses.dataclass(frozen=True)
class CovariateFiles:
    """The files of covariates: full paths as text, or None.

    - ``future``: rows ``unique_id, ds`` and columns of numbers, see :meth:`Panel.with_future`
    - ``static``: a row per series, see :meth:`Panel.with_static`
    - ``reading``: the options for reading them
    """

    future: str | None = None
    static: str | None = None
    reading: Reading = dataclasses.field(default_factory=Reading)

    @staticmethod
    def of(
        future: Path | None = None, static: Path | None = None, reading: Reading | None = None
    ) -> "CovariateFiles":
        """Return two paths as covariate files. Raises UsageError if one is not a file."""
        for path in (future, static):
            if path is not None and not path.is_file():
                raise UsageError(
                    f"{printable(path, lines=False)}: no such file; expected a CSV or Parquet file "
                    "of covariates"
                )
        texts = [path and as_text(path.resolve()) for path in (future, static)]
        return CovariateFiles(texts[0], texts[1], reading or Reading())

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
        if self.future is not None:
            panel = _added(from_text(self.future), self.reading, panel, panel.with_future)
        if self.static is not None:
            panel = _added(from_text(self.static), self.reading, panel, panel.with_static)
        return panel


def _added(
    path: Path, reading: Reading, panel: Panel, to: Callable[[pd.DataFrame], Panel]
) -> Panel:
    """Return the panel with the covariates of a file; errors name the file."""
    name = printable(path, lines=False)
    columns = Columns(
        reading.id_col, reading.time_col, date_format=reading.date_format,
        decimal=as_decimal(reading.decimal),
    )  # fmt: skip
    table = read_table(path, columns)
    where = TableLocation(name, is_parquet(path))
    frame = with_joined_ids(table.frame, reading.id_col, columns.id_parts, where)
    keys = {str(column): canonical(str(column)) for column in frame}
    keys = {column: key for column, key in keys.items() if key in ("unique_id", "ds")}
    for column, key in ((reading.id_col, "unique_id"), (reading.time_col, "ds")):
        if column is not None and column in frame:  # the caller's columns take precedence
            keys = {old: new for old, new in keys.items() if new != key} | {column: key}
    if len(set(keys.values())) < len(keys):
        raise DataError(f"{name}: columns {', '.join(map(repr, keys))} mean the same; keep one")
    where = TableLocation(name, is_parquet(path), {new: old for old, new in keys.items()})
    table = table._replace(frame=frame.rename(columns=keys))
    frame = _with_numbers(table, where, columns.decimal)
    if "ds" in frame:
        frame = frame.assign(ds=_times(frame["ds"], where, reading))
    if "unique_id" in frame:
        known = spellings(panel.ids)
        ids = frame["unique_id"].astype(object).where(frame["unique_id"].notna(), "").astype(str)
        frame = frame.assign(unique_id=[spelled(known, each) or each for each in ids])
    try:
        return to(frame)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _times(column: pd.Series, where: TableLocation, reading: Reading) -> pd.Series:
    """Read times by the given date format; if it does not fit, infer the format from this file.

    Covariates may come from another source than the series, and so have another format.
    """
    form = reading.date_format
    if form is not None:
        text = column.astype(str).str.strip()
        try:
            form = None if by_format(text, form).isna().all() else form
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
    return to_times(column, where, form)


def _with_numbers(table: Table, where: TableLocation, decimal: Decimal | None) -> pd.DataFrame:
    """Return the frame with numbers that are text as floats; other text stays as it is."""
    frame, texts = table.frame, dict[str, pd.Series]()
    for name in map(str, frame):
        if pd.api.types.is_float_dtype(frame[name]):
            check_finite(frame[name], where, name)
        elif name not in ("unique_id", "ds") and not pd.api.types.is_numeric_dtype(frame[name]):
            text = frame[name].astype(str).where(frame[name].notna(), "")
            if is_number_column(text):
                texts[name] = text
            else:
                _warn_of_words_among_numbers(text, where, name)
    decimal = decimal or table.decimal or find_decimal(texts, where)
    return frame.assign(
        **{name: to_numbers(text, where, name, decimal) for name, text in texts.items()}
    )


def _warn_of_words_among_numbers(column: pd.Series, where: TableLocation, name: str) -> None:
    """Warn of a column that is taken for words although most of its cells are numbers."""
    numbers = {kind for kind in column.unique() if is_number_column(pd.Series([kind]))}
    odd = ~column.str.strip().str.lower().isin(BLANK) & ~column.isin(numbers)
    if 0 < odd.sum() < column.isin(numbers).sum():
        warn(
            f"{where.cell(odd, name)}: {column[odd].iloc[0]!r} is not a number, so all of the "
            "column is taken for words. If it holds numbers, correct this cell or leave it empty"
        )
