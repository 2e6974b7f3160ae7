"""Covariates from files: what is known in advance of series, and what each of them is."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError, printable
from forecaster.files import as_text, from_text
from forecaster.ingest.tables.csv_file import Table, read_csv
from forecaster.ingest.tables.dates import to_times
from forecaster.ingest.tables.numbers import as_decimal, find_decimal, is_number_column, to_numbers
from forecaster.ingest.tables.parquet import read_parquet
from forecaster.ingest.tables.roles import Columns, canonical
from forecaster.ingest.tables.where import Place
from forecaster.series import Panel
from forecaster.spelling import spelled, spellings

_PARQUET = (".parquet", ".pq")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files of covariates are read, as those of series are.

    - ``decimal``: the sign before a fraction in numbers that are text; None: each file shows it
    - ``date_format``: how times are written; None: as each file shows
    - ``id_col``, ``time_col``: the columns with the series and the time, where a file has columns
      of these names

    Raises UsageError for what is no decimal sign or no format of dates.
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
        """As files of series are read with these."""
        return Reading(decimal, columns.date_format, columns.id_col, columns.time_col)


@dataclasses.dataclass(frozen=True)
class CovariateFiles:
    """The files of covariates, as text of their full paths; None where there is none.

    - ``future``: rows ``unique_id, ds`` and columns of numbers, see :meth:`Panel.with_future`
    - ``static``: a row per series, see :meth:`Panel.with_static`
    - ``reading``: how they are read
    """

    future: str | None = None
    static: str | None = None
    reading: Reading = dataclasses.field(default_factory=Reading)

    @staticmethod
    def of(
        future: Path | None = None, static: Path | None = None, reading: Reading | None = None
    ) -> "CovariateFiles":
        """Of two paths. Raises UsageError for one that is no file."""
        for path in (future, static):
            if path is not None and not path.is_file():
                raise UsageError(
                    f"{printable(path, lines=False)}: no such file; expected a CSV or Parquet file "
                    "of covariates"
                )
        texts = [path and as_text(path.resolve()) for path in (future, static)]
        return CovariateFiles(texts[0], texts[1], reading or Reading())

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.future is not None or self.static is not None

    def sha256(self) -> str | None:
        """A hash of their content; None without files. Raises DataError when one is gone."""
        if not self:
            return None
        digest = hashlib.sha256()
        for path in filter(None, (self.future, self.static)):
            try:
                digest.update(hashlib.sha256(from_text(path).read_bytes()).digest())
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        return digest.hexdigest()

    def added_to(self, panel: Panel) -> Panel:
        """The panel with what stands in the files. Raises DataError where it cannot be used."""
        if self.future is not None:
            panel = _added(from_text(self.future), self.reading, panel, panel.with_future)
        if self.static is not None:
            panel = _added(from_text(self.static), self.reading, panel, panel.with_static)
        return panel


def _added(
    path: Path, reading: Reading, panel: Panel, to: Callable[[pd.DataFrame], Panel]
) -> Panel:
    """The panel with a file; errors name it."""
    where = printable(path, lines=False)
    table = _read(path, where, reading, panel)
    try:
        return to(table)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _read(path: Path, where: str, reading: Reading, panel: Panel) -> pd.DataFrame:
    """A table with times as times, and the names of its series as the panel spells them."""
    columns = Columns(reading.id_col, reading.time_col, date_format=reading.date_format)
    is_parquet = path.name.lower().endswith(_PARQUET)
    try:
        if is_parquet:
            table = Table(read_parquet(path, columns, everything=True), plain_points=False)
        else:
            table = read_csv(path, as_decimal(reading.decimal), columns)
    except DataError:
        raise
    except (OSError, EOFError, ValueError, ArithmeticError, RuntimeError) as error:
        raise DataError(f"{where}: cannot be read: {str(error).splitlines()[0]}") from error
    keys = _keys(table.frame, where, reading)
    place = Place(where, rows=is_parquet, spelled={new: old for old, new in keys.items()})
    frame = _with_numbers(table._replace(frame=table.frame.rename(columns=keys)), place, reading)
    if "ds" in frame:
        frame = frame.assign(ds=_times(frame["ds"], place, reading))
    if "unique_id" in frame:
        known = spellings(panel.ids)
        written = frame["unique_id"].astype(str)
        frame = frame.assign(unique_id=[spelled(known, name) or name for name in written])
    return frame


def _keys(table: pd.DataFrame, where: str, reading: Reading) -> dict[str, str]:
    """The columns with series and times: those that are said, or of the names they usually have.

    Raises DataError when two columns could be the same.
    """
    keys = {str(column): canonical(str(column)) for column in table}
    keys = {column: name for column, name in keys.items() if name in ("unique_id", "ds")}
    for said, name in ((reading.id_col, "unique_id"), (reading.time_col, "ds")):
        if said is not None and said in table:
            keys = {old: new for old, new in keys.items() if new != name} | {said: name}
    if len(set(keys.values())) < len(keys):
        raise DataError(f"{where}: columns {', '.join(map(repr, keys))} mean the same; keep one")
    return keys


def _times(column: pd.Series, where: Place, reading: Reading) -> pd.Series:
    """Times as files of series have them, or where none is, as this file shows by itself.

    Where none is written as the series' files write theirs, the plans come from elsewhere.
    """
    form = reading.date_format
    if form is not None:
        text = column.astype(str).str.strip()
        form = None if pd.to_datetime(text, format=form, errors="coerce").isna().all() else form
    return to_times(column, where, form)


def _with_numbers(table: Table, where: Place, reading: Reading) -> pd.DataFrame:
    """The frame with columns of text that hold numbers as such; words stay as they are."""
    frame, decimal = table.frame, as_decimal(reading.decimal)
    texts = {
        str(name): frame[name].astype(str).where(frame[name].notna(), "")
        for name in frame
        if name not in ("unique_id", "ds") and not pd.api.types.is_numeric_dtype(frame[name])
    }
    texts = {name: column for name, column in texts.items() if is_number_column(column)}
    evidence = None
    if decimal is None:
        evidence = find_decimal(texts, where, plain_points=table.plain_points)
        decimal = evidence.decimal if evidence else "."
    return frame.assign(
        **{name: to_numbers(text, where, name, decimal, evidence) for name, text in texts.items()}
    )
