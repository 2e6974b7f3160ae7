"""An evaluation as a value, and the folder that stores it.

The folder may be damaged, edited, or made to do harm: tables are checked as they are read.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api import types

from forecaster.errors import DataError, UsageError, check_whole, listed, printable, wrong_argument
from forecaster.evaluation.backtest.summary import Summary
from forecaster.evaluation.origins.rolling_origin import NAIVE
from forecaster.evaluation.scores.scores import DRIFTLESS
from forecaster.evaluation.scores.tables import ALL, SeriesTest
from forecaster.files import open_for_arrow, parquet_groups, read_parquet_file
from forecaster.forecasting import FORECAST_BY, KEYS
from forecaster.series import as_html, as_text, names_in_short

_HOLDS = {
    **dict.fromkeys(("unique_id", "model", "test", FORECAST_BY), "text"),
    **dict.fromkeys(("ds", "cutoff"), "times"),
    "horizon": "whole numbers",
}
"""What the columns hold that are never empty; all others hold numbers."""
_DTYPES = {"times": "Miu", "whole numbers": "iu", "numbers": "biuf"}
_LEVELLED = re.compile(r"(pinball|coverage|width|winkler|fz0)-(?!\d+(\.\d+)?(e-\d+)?$)")


def check_tables(
    scores: pd.DataFrame, tests: pd.DataFrame, daily: pd.DataFrame, summary: Summary
) -> None:
    """Raise ValueError for tables other than those that an evaluation writes.

    All models have a score for the same series and steps ahead. A series that ends soon after its
    first cutoff has no outcome, and no row, at later steps.
    """
    keys = ["unique_id", "horizon", "model"]
    check_table("scores", scores, [*keys, "mae", "rmse"], keys)
    check_table("tests", tests, [*SeriesTest._fields, "p_adjusted"], [*keys, "test"])
    known = {"mae", "crps"} & set(scores)
    check_table("daily", daily, ["cutoff", "model", *known], ["cutoff", "model"])
    if NAIVE not in set(daily["model"]):
        raise ValueError(f"daily: model: no rows of {NAIVE}")
    pairs = len(scores[["unique_id", "horizon"]].drop_duplicates())
    if not pairs or scores["horizon"].min() != 1:
        raise ValueError("scores: horizon: expected steps ahead, from 1")
    for name in {summary.model, NAIVE}:
        if (count := int((scores["model"] == name).sum())) != pairs:
            raise ValueError(
                f"scores: model {name!r}: {count} rows; expected {pairs}, one for each series and "
                "step ahead"
            )
    if wrong := [name for name in map(str, scores) if _LEVELLED.match(name)]:
        raise ValueError(f"scores: column {wrong[0]!r}: expected a number after the first hyphen")
    if wrong := sorted(set(scores["model"]) ^ set(summary.models)):
        raise ValueError(f"scores: model {wrong[0]!r}: is only in the scores or in the summary")


def check_table(
    table: str, frame: pd.DataFrame, needed: Iterable[str], keys: Sequence[str] = ()
) -> None:
    """Raise ValueError for a column that lacks or is of another kind, and for repeated ``keys``."""
    for name in needed:
        if name not in frame:
            raise ValueError(f"{table}: no column {name!r}")
    for name in map(str, frame.columns):
        column, expected = frame[name], _HOLDS.get(name, "numbers")
        if expected == "text":
            sound = types.is_string_dtype(column) or column.dtype == "category"
        else:
            sound = column.dtype.kind in _DTYPES[expected]
        if not sound:
            raise ValueError(f"{table}: column {name!r}: expected {expected}; got {column.dtype}")
        if name in _HOLDS and column.isna().any():
            raise ValueError(f"{table}: column {name!r}: a value is missing")
        if table == "forecasts" and expected == "numbers" and np.isinf(column).any():
            raise ValueError(f"forecasts: column {name!r}: an infinite number")
    if keys and frame.duplicated(keys).any():
        raise ValueError(f"{table}: more than one row of the same {', '.join(keys)}")


FORECASTS = "forecasts.parquet"
SCORES, TESTS, DAILY, SUMMARY = (
    "scores.parquet", "tests.parquet", "daily.parquet", "summary.json",
)  # fmt: skip
_ENOUGH = 0.9  # of the series must have ratios of errors, for means of these to be quoted
_QUOTED = {
    "unique_id", "horizon", "model", "mae", "crps", DRIFTLESS, "rmse", "coverage-80", "coverage-95",
}  # fmt: skip
"""The columns of scores that sentences quote."""
_BYTES = {SCORES: 500, TESTS: 250, FORECASTS: 100}  # bytes of memory for a row while a page is made
_REQUIRED = {FORECASTS, SCORES, TESTS, DAILY, SUMMARY}
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
    def read(folder: Path, *, in_short: bool = False) -> "Evaluation":
        """Read the evaluation in a folder.

        ``in_short``: read only the rows and columns that :func:`forecaster.evaluation.verdict`
        uses, a fraction of the tables.

        Raises UsageError when there is none, DataError when it cannot be read.
        """
        try:
            summary, quoted = Summary.read(folder / SUMMARY), None
            if in_short:
                names = stored_schema(folder / SCORES).names
                quoted = [name for name in names if name in _QUOTED]
            scores, daily = _read(folder / SCORES, quoted), _read(folder / DAILY)
            tests = _together(folder / TESTS) if in_short else _read(folder / TESTS)
            check_tables(scores, tests, daily, summary)
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
        tables = {SCORES: self.scores, TESTS: self.tests, DAILY: self.daily}
        for name, table in tables.items():
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
        with self._read_forecasts():
            return stored_schema(self.folder / FORECASTS).names

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
        """Yield the row groups of the forecasts that have rows, each checked."""
        known, empty = set(self.scores["unique_id"]), True
        with self._read_forecasts():
            for table in parquet_groups(self.folder / FORECASTS, [*KEYS, *columns]):
                check_table("forecasts", part := table.to_pandas(), [*KEYS, *columns])
                if unknown := set(part["unique_id"]) - known:
                    raise ValueError(f"{listed(unknown)}: forecasts of a series without scores")
                if len({part[name].dtype.kind == "M" for name in ("ds", "cutoff")}) > 1:
                    raise ValueError("column 'cutoff': expected times like those of 'ds'")
                if len(part):
                    empty = False
                    yield part
            if empty:
                raise ValueError("no rows")

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


def bytes_of_tables(folder: Path) -> int:
    """Estimate the bytes of memory that the tables of an evaluation take while a page is made."""
    total = 0
    for name, each in _BYTES.items():
        with open_for_arrow(folder / name) as file:
            total += pq.read_metadata(file).num_rows * each
    return total


def stored_schema(path: Path) -> pa.Schema:
    """Return the columns of a file, and their types."""
    with open_for_arrow(path) as file:
        return pq.read_schema(file)


def _read(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    return read_parquet_file(path, columns).to_pandas()


def _together(path: Path) -> pd.DataFrame:
    """Read the tests of all steps ahead together, which are a fraction of all tests."""
    groups = [table.to_pandas() for table in parquet_groups(path)]
    return pd.concat([group[group["horizon"] == 0] for group in groups], ignore_index=True)


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
