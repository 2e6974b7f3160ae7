"""An evaluation as a value, and the folder that stores it.

The summary has a hash of each table, so that a table that is damaged or another's is named.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from forecaster.errors import DataError, UsageError, check_whole, listed, printable, wrong_argument
from forecaster.evaluation.backtest.summary import Summary
from forecaster.evaluation.scores.tables import ALL
from forecaster.files import open_for_arrow, parquet_groups, read_parquet_file
from forecaster.forecasting import KEYS
from forecaster.series import as_html, as_text, names_in_short

FORECASTS, SUMMARY = "forecasts.parquet", "summary.json"
_TABLES = "scores.parquet", "tests.parquet", "daily.parquet"
_ENOUGH = 0.9  # of the series must have ratios of errors, for means of these to be quoted
_REQUIRED = {FORECASTS, *_TABLES, SUMMARY}
_ADDED = {"figures", "report.html", "comparison.csv", "coverage.csv", "groups.csv"}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A rolling-origin evaluation.

    - ``folder``: where it is stored, together with its forecasts
    - ``scores``: a row per series, model and horizon
    - ``tests``: a row per series, horizon and test
    - ``daily``: a row per cutoff and model: losses relative to the naive's errors of the same
      series and horizon, averaged over series and horizons
    - ``summary``: settings, provenance, times, skipped series
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
    def read(folder: Path) -> "Evaluation":
        """Read the evaluation in a folder.

        Raises UsageError when there is none, DataError when it cannot be read.
        """
        try:
            summary = Summary.read(folder / SUMMARY)
            summary.check_hashes(folder)
            tables = (read_parquet_file(folder / name).to_pandas() for name in _TABLES)
            scores, tests, daily = tables
            if set(scores["model"]) != set(summary.models):
                raise ValueError(f"{SUMMARY} and {_TABLES[0]} name other models")
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} holds no evaluation: {Path(error.filename or SUMMARY).name} is "
                f"missing; make one with `forecaster evaluate --output {folder}`"
            ) from error
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder}: the evaluation cannot be read: {error}. Run `forecaster evaluate` again"
            ) from error
        return Evaluation(folder, scores, tests, daily, summary)

    def write(self) -> None:
        """Write the tables and the summary, but not the forecasts, into the folder."""
        for name, table in zip(_TABLES, (self.scores, self.tests, self.daily), strict=True):
            with open_for_arrow(self.folder / name, "wb") as file:
                table.to_parquet(file, index=False)
        self.summary.write(self.folder / SUMMARY)

    def grouped(self, groups: Mapping[str, str]) -> "Evaluation":
        """Return the same evaluation with these groups of series."""
        return dataclasses.replace(self, summary=dataclasses.replace(self.summary, groups=groups))

    @property
    def model(self) -> str:
        """The column of our model."""
        return self.summary.model

    @property
    def ids(self) -> list[str]:
        """The series that have scores."""
        return [str(name) for name in self.scores["unique_id"].unique()]

    @property
    def losses(self) -> list[str]:
        """The scores that compare models: of whole distributions, if any, and of points."""
        return [name for name in ("crps", "mae") if name in self.scores]

    @property
    def sharpest_score(self) -> str:
        """The score of whole distributions if there are any, else the score of point forecasts."""
        return self.losses[0]

    @functools.cached_property
    def summed(self) -> bool:
        """Whether models are compared by sums of their errors over series, not by means of ratios.

        So it is for series other than prices, such as counts, where more than a tenth of the series
        have no ratio to some other model, because its error is zero at some horizon. Those that
        have ratios are then few and special, and an error close to zero makes a ratio huge.
        """
        if self.summary.of_prices:
            return False
        for score in self.losses:
            table = self.scores.pivot(index=["unique_id", "horizon"], columns="model", values=score)
            zero = table.eq(0).groupby(level="unique_id").any()
            known = table.notna().groupby(level="unique_id").all()
            both = known.mul(known[self.model], axis=0).drop(columns=self.model)
            exists = both & ~zero[both.columns]
            if (exists.sum() < _ENOUGH * both.sum()).any():
                return True
        return False

    def forecasts(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read these columns of the forecasts, after ``unique_id, ds, cutoff, y``.

        Like all methods that read forecasts, raises DataError when they cannot be read.
        """
        return pd.concat(self._groups(columns), ignore_index=True)

    @property
    def columns(self) -> list[str]:
        """The columns of the stored forecasts."""
        with self._read_forecasts(), open_for_arrow(self.folder / FORECASTS) as file:
            return pq.read_schema(file).names

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield what :meth:`forecasts` returns, some series at a time, to save memory."""
        rest = pd.DataFrame()
        for part in self._groups(columns):
            part = pd.concat([rest, part], ignore_index=True) if len(rest) else part
            # The next row group may continue the last series.
            unfinished = part["unique_id"] == part["unique_id"].iloc[-1]
            rest = part[unfinished].reset_index(drop=True)
            if not unfinished.all():
                yield part[~unfinished].reset_index(drop=True)
        yield rest

    def _groups(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield the row groups of the forecasts that have rows."""
        with self._read_forecasts():
            for table in parquet_groups(self.folder / FORECASTS, [*KEYS, *columns]):
                if len(table):
                    yield table.to_pandas()

    @contextlib.contextmanager
    def _read_forecasts(self) -> Iterator[None]:
        """Turn any error of reading the forecasts into a DataError that names the file."""
        try:
            yield
        except (OSError, ValueError) as error:
            where = self.folder / FORECASTS
            raise DataError(
                f"{where}: cannot be read: {error}. Run `forecaster evaluate` again"
            ) from error


def check_asked(evaluation: Evaluation, horizon: object, *scores: object) -> None:
    """Raise UsageError unless an evaluation has this horizon, or it is :data:`ALL`, and scores."""
    check_whole("horizon", horizon, ALL)
    last = int(evaluation.scores["horizon"].max())
    if horizon not in (ALL, *evaluation.scores["horizon"].unique()):
        raise wrong_argument("horizon", horizon, f"1 to {last}, or {ALL} for all of them")
    numbers = evaluation.scores.drop(columns="horizon").select_dtypes("number").columns
    for score in scores:
        if not isinstance(score, str) or score not in numbers:
            raise wrong_argument("score", score, f"one of {listed(numbers)}")


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise UsageError for a folder that exists, unless it holds an evaluation to overwrite."""
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
