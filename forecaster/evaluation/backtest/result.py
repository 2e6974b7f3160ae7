"""An evaluation as a value, and the folder that holds it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from forecaster.errors import DataError, UsageError, printable
from forecaster.evaluation.backtest.summary import Summary
from forecaster.files import open_for_arrow
from forecaster.forecasting import KEYS
from forecaster.showing import as_html, as_text, names_in_short

FORECASTS = "forecasts.parquet"
SCORES, TESTS, DAILY, SUMMARY = (
    "scores.parquet", "tests.parquet", "daily.parquet", "summary.json",
)  # fmt: skip
_SPOKEN = ("coverage-80", "coverage-95")
_BYTES = {SCORES: 500, TESTS: 250, FORECASTS: 100}  # of a row in memory, on the way to a page
_REQUIRED = {FORECASTS, SCORES, TESTS, DAILY, SUMMARY}
_ADDED = {"figures", "report.html", "comparison.csv", "coverage.csv", "groups.csv"}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A rolling-origin evaluation.

    - ``folder``: where it is stored, with its forecasts
    - ``scores``: a row per series, model and horizon
    - ``tests``: a row per series, horizon and test
    - ``daily``: a row per cutoff and model: losses in units of the naive's errors of the same
      series and horizon, means over both
    - ``summary``: settings, provenance, times, what was left out
    """

    folder: Path
    scores: pd.DataFrame
    tests: pd.DataFrame
    daily: pd.DataFrame
    summary: Summary

    def __repr__(self) -> str:
        return as_text(*self._facts())

    def _repr_html_(self) -> str:
        return as_html(*self._facts())

    def _facts(self) -> tuple[str, dict[str, str]]:
        summary = self.summary
        facts = {
            "models": names_in_short(summary.models),
            "cutoffs": f"{summary.cutoffs:,}, {summary.first_cutoff} to {summary.last_cutoff}",
            "folder": printable(self.folder),
        }
        return f"Evaluation of {summary.series:,} series", facts

    @staticmethod
    def read(folder: Path, *, in_short: bool = False) -> "Evaluation":
        """The evaluation in a folder.

        ``in_short``: only what :func:`forecaster.evaluation.verdict` says something of, a fraction
        of the tables of very many series.

        Raises UsageError when there is none, DataError when it cannot be read.
        """
        try:
            summary = Summary.read(folder / SUMMARY)
            if in_short:
                scores = _read(folder / SCORES, _in_words(folder / SCORES))
                tests = _read(folder / TESTS, filters=[("horizon", "==", 0)])
            else:
                scores, tests = (_read(folder / name) for name in (SCORES, TESTS))
            daily = _read(folder / DAILY)
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} holds no evaluation: {Path(error.filename or SUMMARY).name} is "
                f"missing; make one with `forecaster evaluate --output {folder}`"
            ) from error
        except (OSError, ValueError) as error:
            raise DataError(f"{folder}: the evaluation cannot be read: {error}") from error
        return Evaluation(folder, scores, tests, daily, summary)

    def write(self) -> None:
        """Write everything but the forecasts into the folder."""
        tables = {SCORES: self.scores, TESTS: self.tests, DAILY: self.daily}
        for name, table in tables.items():
            with open_for_arrow(self.folder / name, "wb") as file:
                table.to_parquet(file, index=False)
        self.summary.write(self.folder / SUMMARY)

    def grouped(self, groups: Mapping[str, str]) -> "Evaluation":
        """The same evaluation with its series in these groups."""
        return dataclasses.replace(self, summary=dataclasses.replace(self.summary, groups=groups))

    @property
    def model(self) -> str:
        """The column of our own model."""
        return self.summary.model

    @property
    def sharpest_score(self) -> str:
        """The score that judges whole distributions where there are any, else point forecasts."""
        return "crps" if "crps" in self.scores else "mae"

    def forecasts(self, columns: Sequence[str]) -> pd.DataFrame:
        """These columns of the forecasts, after ``unique_id, ds, cutoff, y``."""
        return _read(self.folder / FORECASTS, [*KEYS, *columns])

    @property
    def columns(self) -> list[str]:
        """The columns of the stored forecasts."""
        import pyarrow.parquet as pq

        with open_for_arrow(self.folder / FORECASTS) as opened:
            return pq.read_schema(opened).names

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """As :meth:`forecasts`, some series after others, so that not all are in memory."""
        import pyarrow.parquet as pq

        rest = pd.DataFrame()
        with open_for_arrow(self.folder / FORECASTS) as opened:
            file = pq.ParquetFile(opened)
            for number in range(file.num_row_groups):
                part = file.read_row_group(number, [*KEYS, *columns]).to_pandas()
                part = pd.concat([rest, part], ignore_index=True) if len(rest) else part
                unfinished = part["unique_id"] == part["unique_id"].iloc[-1]  # it may go on
                rest = part[unfinished].reset_index(drop=True)
                if not unfinished.all():
                    yield part[~unfinished].reset_index(drop=True)
        if len(rest):
            yield rest


def bytes_of_tables(folder: Path) -> int:
    """About how much memory the tables of an evaluation take, and what a page makes of them."""
    return sum(_rows(folder / name) * each for name, each in _BYTES.items())


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    with open_for_arrow(path) as file:
        return pq.read_metadata(file).num_rows


def _in_words(path: Path) -> list[str]:
    """The columns of scores that are spoken of."""
    import pyarrow.parquet as pq

    with open_for_arrow(path) as file:
        names = pq.read_schema(file).names
    said = {"unique_id", "horizon", "model", "mae", "crps", "rmse"}
    return [name for name in names if name in said or name in _SPOKEN]


def _read(
    path: Path, columns: list[str] | None = None, filters: list[tuple[str, str, int]] | None = None
) -> pd.DataFrame:
    with open_for_arrow(path) as file:
        return pd.read_parquet(file, columns=columns, filters=filters)


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise UsageError for a folder that exists, unless it is an evaluation to overwrite."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected the name of a folder")
    if not overwrite:
        raise UsageError(f"{folder} exists; choose another folder, or add --overwrite")
    names = {path.name for path in folder.iterdir()}
    if names and not names >= _REQUIRED:
        raise UsageError(f"{folder} holds no evaluation, so it is not overwritten; choose another")
    if foreign := sorted(names - _REQUIRED - _ADDED):
        raise UsageError(
            f"{folder} holds files that are not an evaluation's ({', '.join(foreign[:3])}), so it "
            "is not overwritten; move them, or choose another folder"
        )
