"""An evaluation in parts: some series at a time are measured and written, then joined on the disk.

A part is a folder as an evaluation's, but for p-values, which are adjusted over all series at the
end, and daily losses, which are sums of each batch, so that they add up as they would in one piece.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.errors import DataError
from forecaster.evaluation.backtest.evaluate import (
    NOTHING,
    BacktestOptions,
    Forecasters,
    forecast_batches,
    summarise,
)
from forecaster.evaluation.backtest.result import (
    DAILY,
    FORECASTS,
    SCORES,
    SUMMARY,
    TESTS,
    Evaluation,
)
from forecaster.evaluation.backtest.summary import Provenance, Seconds, Summary
from forecaster.evaluation.scores import significance
from forecaster.evaluation.scores.tables import TOGETHER, Tables, added, means_of_sums
from forecaster.files import atomic, open_for_arrow
from forecaster.series import OwnEnds

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = "key"
_NO_TABLES = Tables(
    pd.DataFrame({"unique_id": [], "model": []}), pd.DataFrame(), pd.DataFrame()
)  # fmt: skip


def measure_part(
    folder: Path,
    forecasters: Forecasters,
    options: BacktestOptions,
    season: int,
    own: OwnEnds | None,
    key: str,
    *,
    on_forecast: Callable[[int, int], None] | None = None,
) -> Summary:
    """Forecast and measure some series, write what came of it, whole or not at all.

    - ``folder``: takes the place of what is there
    - ``season``, ``own``: as of :func:`forecaster.evaluation.backtest.evaluate.forecast_batches`
    - ``key``: says what it was made of, for :func:`read_part`

    Raises WriteError when it cannot be written.
    """
    began = time.perf_counter()
    options = dataclasses.replace(options, groups=None)  # they are of all series
    with atomic.write_folder(folder, replace=True) as temporary:
        batches = forecast_batches(
            temporary / FORECASTS, forecasters, options, season, own, on_forecast=on_forecast
        )
        tables = _side_by_side(batches) if batches else _NO_TABLES
        baselines = {name: round(s, 2) for name, s in forecasters.runner.seconds.items()}
        torch = forecasters.torch and forecasters.torch.parts[0][0].provenance["training_seconds"]
        took = round(time.perf_counter() - began, 2)
        seconds = Seconds(0.0, 0.0, torch, baselines, took)
        summary = summarise(
            forecasters, options, tables, seconds, Provenance(), own_ends=own is not None
        )
        Evaluation(temporary, *tables, summary).write()
        (temporary / _KEY).write_text(key)
    return summary


def read_part(folder: Path, key: str) -> Summary | None:
    """What a measured part says of itself; None where there is none, or of something else."""
    if not (folder / _KEY).exists() or (folder / _KEY).read_text() != key:
        return None
    return Summary.read(folder / SUMMARY)


def _side_by_side(batches: Sequence[Tables]) -> Tables:
    """Tables of batches, of which only rows of the same kind are in one table."""
    scores, tests, daily = zip(*batches, strict=True)
    numbered = [table.assign(batch=number) for number, table in enumerate(daily)]
    return Tables(*(pd.concat(parts, ignore_index=True) for parts in (scores, tests, numbered)))


def summary_of_parts(summaries: Sequence[Summary], **changes: object) -> Summary:
    """What is to be said of all parts together; ``changes``: what only they know together.

    Raises DataError where no part has a forecast.
    """
    full = [summary for summary in summaries if summary.series]
    if not full:
        raise DataError(NOTHING)
    kinds = dict.fromkeys(name for part in summaries for name in part.peak_memory_gb)
    joined = dataclasses.replace(
        full[0],
        models=tuple(dict.fromkeys(name for part in full for name in part.models)),
        series=sum(part.series for part in full),
        skipped={name: why for part in summaries for name, why in part.skipped.items()},
        failed=_failed(summaries),
        peak_memory_gb={
            kind: max(part.peak_memory_gb.get(kind, 0.0) for part in summaries) for kind in kinds
        },
    )
    return dataclasses.replace(joined, **changes)  # pyright: ignore[reportArgumentType]


def _failed(summaries: Sequence[Summary]) -> Mapping[str, Mapping[str, str]]:
    names = dict.fromkeys(name for part in summaries for name in part.failed)
    failed: dict[str, dict[str, str]] = {name: {} for name in names}
    for part in summaries:
        for name, reasons in part.failed.items():
            failed[name] |= reasons
    return failed


def join_parts(parts: Sequence[Path], folder: Path, summary: Summary) -> None:
    """Write the files of an evaluation from those of its parts, one part in memory at a time.

    (But for the p-values, a number for each test.) ``parts``: in order, those with a forecast.
    """
    _write_tables(folder / FORECASTS, _row_groups(parts))
    _write_tables(folder / SCORES, (_read(part / SCORES) for part in parts))
    _write_tables(folder / TESTS, _adjusted(parts))
    sums: pd.DataFrame | None = None
    for part in parts:
        for _, batch in _read(part / DAILY).to_pandas().groupby("batch", sort=False):
            batch = batch.drop(columns="batch")
            sums = batch if sums is None else added(sums, batch)
    assert sums is not None
    with open_for_arrow(folder / DAILY, "wb") as file:
        means_of_sums(sums).to_parquet(file, index=False)
    summary.write(folder / SUMMARY)


def _adjusted(parts: Sequence[Path]) -> Iterator["pa.Table"]:
    """The tests of each part, their p-values adjusted over the series of all."""
    import pyarrow as pa

    p_values: dict[tuple[object, ...], list[np.ndarray]] = {}
    for part in parts:
        tests = _read(part / TESTS, [*TOGETHER, "p_value"]).to_pandas()
        for key, rows in tests.groupby(list(TOGETHER))["p_value"]:
            p_values.setdefault(tuple(key), []).append(rows.to_numpy())
    whole = {
        key: significance.false_discovery(np.concatenate(some)) for key, some in p_values.items()
    }
    used = dict.fromkeys(whole, 0)
    for part in parts:
        table = _read(part / TESTS)
        tests = table.select([*TOGETHER, "p_value"]).to_pandas()
        column = np.full(len(tests), np.nan)
        for key, rows in tests.groupby(list(TOGETHER)).indices.items():  # pyright: ignore[reportGeneralTypeIssues]
            begin = used[key]
            used[key] = begin + len(rows)
            column[rows] = whole[key][begin : used[key]]
        frame = table.to_pandas().assign(p_adjusted=column)
        yield pa.Table.from_pandas(frame, preserve_index=False)


def _row_groups(parts: Sequence[Path]) -> Iterator["pa.Table"]:
    import pyarrow.parquet as pq

    for part in parts:
        with open_for_arrow(part / FORECASTS) as opened:
            file = pq.ParquetFile(opened)
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)


def _read(path: Path, columns: list[str] | None = None) -> "pa.Table":
    import pyarrow.parquet as pq

    with open_for_arrow(path) as file:
        return pq.read_table(file, columns=columns)


def _write_tables(path: Path, tables: Iterator["pa.Table"]) -> None:
    """Tables of the same columns as one file."""
    import pyarrow.parquet as pq

    first = next(tables)
    with (
        open_for_arrow(path, "wb") as file,
        pq.ParquetWriter(file, first.schema, compression="zstd") as writer,
    ):
        writer.write_table(first)
        for table in tables:
            writer.write_table(table.cast(first.schema))
