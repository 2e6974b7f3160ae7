"""Read covariates from files: values known in advance, and static properties of series."""

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.errors import DataError, UsageError, printable, spelled, spellings
from forecaster.files import as_text, from_text, read_plain
from forecaster.series import Panel

if TYPE_CHECKING:
    from forecaster.ingest.tables.roles import Columns


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options for reading files of covariates.

    - ``decimal``: the decimal sign in numbers that are text; None: inferred for each file
    - ``date_format``: how times are written; None: inferred for each file
    - ``missing``: marks that stand for no number, separated by commas
    - ``id_col``, ``time_col``: the columns with the series and the time; files without columns of
      these names ignore them
    """

    decimal: str | None = None
    date_format: str | None = None
    id_col: str | None = None
    time_col: str | None = None
    missing: str | None = None

    @staticmethod
    def of(decimal: str | None, columns: "Columns") -> "Reading":
        """Return a reading with the options of the series' files."""
        return Reading(
            decimal, columns.date_format, columns.id_col, columns.time_col, columns.missing
        )

    def columns(self) -> "Columns":
        """Return the same options in the form that tables take.

        Raises UsageError for an invalid decimal sign or date format.
        """
        from forecaster.ingest.tables.decimals import as_decimal
        from forecaster.ingest.tables.roles import Columns

        return Columns(
            self.id_col, self.time_col, date_format=self.date_format, missing=self.missing,
            decimal=as_decimal(self.decimal),
        )  # fmt: skip


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
        """Return two paths as covariate files.

        Raises UsageError if one is not a file, or if the reading is not valid.
        """
        reading = reading or Reading()
        if future or static:
            reading.columns()
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
        from forecaster.ingest.tables.covariate_table import read_covariates

        for path, to in ((self.future, Panel.with_future), (self.static, Panel.with_static)):
            if path is None:
                continue
            name = printable(from_text(path), lines=False)
            frame = read_covariates(from_text(path), self.reading.columns())
            if "unique_id" in frame:
                known, ids = spellings(panel.ids), frame["unique_id"].astype(object)
                ids = ids.where(ids.notna(), "").astype(str)
                frame = frame.assign(unique_id=[spelled(known, each) or each for each in ids])
            try:
                panel = to(panel, frame)
            except DataError as error:
                raise DataError(f"{name}: {error}") from error
        return panel
