"""Covariates from files: what is known in advance of series, and what each of them is."""

import dataclasses
import hashlib
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError, printable
from forecaster.ingest.column_names import canonical
from forecaster.ingest.csv_file import read_csv
from forecaster.ingest.parquet import read_parquet
from forecaster.paths import as_text, from_text
from forecaster.series import Panel
from forecaster.spelling import spelled, spellings

_PARQUET = (".parquet", ".pq")


@dataclasses.dataclass(frozen=True)
class CovariateFiles:
    """The files of covariates, as text of their full paths; None where there is none.

    - ``future``: rows ``unique_id, ds`` and columns of numbers, see :meth:`Panel.with_future`
    - ``static``: a row per series, see :meth:`Panel.with_static`
    """

    future: str | None = None
    static: str | None = None

    @staticmethod
    def of(future: Path | None = None, static: Path | None = None) -> "CovariateFiles":
        """Of two paths. Raises UsageError for one that is no file."""
        for path in (future, static):
            if path is not None and not path.is_file():
                raise UsageError(
                    f"{printable(path, lines=False)}: no such file; expected a CSV or Parquet file "
                    "of covariates"
                )
        return CovariateFiles(*(path and as_text(path.resolve()) for path in (future, static)))

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
            panel = panel.with_future(_read(from_text(self.future), panel))
        if self.static is not None:
            panel = panel.with_static(_read(from_text(self.static), panel))
        return panel


def _read(path: Path, panel: Panel) -> pd.DataFrame:
    """A table with the names of its series as the panel spells them."""
    where = printable(path, lines=False)
    try:
        is_parquet = path.name.lower().endswith(_PARQUET)
        table = read_parquet(path) if is_parquet else read_csv(path).frame
    except DataError:
        raise
    except (OSError, EOFError, ValueError, ArithmeticError, RuntimeError) as error:
        raise DataError(f"{where}: cannot be read: {str(error).splitlines()[0]}") from error
    names = {column: canonical(str(column)) for column in table}
    keys = {column: name for column, name in names.items() if name in ("unique_id", "ds")}
    table = table.rename(columns=keys)
    if "unique_id" in table:
        known = spellings(panel.ids)
        written = table["unique_id"].astype(str)
        table = table.assign(unique_id=[spelled(known, name) or name for name in written])
    return table
