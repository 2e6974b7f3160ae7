"""Read covariates from files: values known in advance, and static properties of series."""

import dataclasses
import hashlib
from pathlib import Path

from forecaster.errors import DataError, UsageError, printable, spelled, spellings
from forecaster.files import as_text, from_text, read_plain
from forecaster.ingest.tables.options import INFERRED, Columns
from forecaster.series import Panel


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
    def of(
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
        from forecaster.ingest.tables.covariate_table import read_covariates

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
