"""Measure some series at a time, write each part, and join the parts on the disk.

An evaluation in one piece has one part. A part is a folder like that of an evaluation, but without
adjusted p-values, since they depend on all series, and with daily losses as sums of each batch.
"""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError, Kind, Skipped
from forecaster.evaluation.backtest.forecasters import Forecasters, number_type
from forecaster.evaluation.backtest.options import BacktestOptions
from forecaster.evaluation.backtest.result import (
    DAILY,
    FORECASTS,
    SCORES,
    SUMMARY,
    TESTS,
    Evaluation,
    stored_schema,
)
from forecaster.evaluation.backtest.summary import Provenance, Seconds, Summary
from forecaster.evaluation.origins.rolling_origin import write_tables
from forecaster.evaluation.scores import significance
from forecaster.evaluation.scores.tables import LATEST, TOGETHER, Tables, means_of_sums
from forecaster.files import atomic, open_for_arrow, parquet_groups, read_parquet_file
from forecaster.forecasting import FORECAST_BY, KEYS, Method
from forecaster.series import OwnEnds, show_time

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
    key: str = "",
    *,
    on_forecast: Callable[[int, int], None] | None = None,
) -> Summary:
    """Forecast and measure some series, and write the results, whole or not at all.

    - ``folder``: replaces what is there
    - ``season``: steps in the season of most series at the first cutoff
    - ``own``: where series' ends were aligned; the forecasts are written at their own times
    - ``key``: identifies what the part was made of, for :func:`read_part`
    - ``on_forecast(done, total)``: called after each batch of series

    Returns the summary of the part. Raises WriteError when it cannot be written.
    """
    batches = [_NO_TABLES]
    with atomic.write_folder(folder, replace=True) as temporary:
        made = _forecast(batches, forecasters, options, season, own, on_forecast)
        write_tables(temporary / FORECASTS, made)
        tables = joined(batches[1:] or batches)
        summary = _summarise(forecasters, options, tables, own_ends=own is not None)
        Evaluation(temporary, *tables, summary).write()
        (temporary / _KEY).write_text(key)
    return summary


def joined(batches: Sequence[Tables]) -> Tables:
    """Return the tables of batches one below the other."""
    return Tables(*(pd.concat(some, ignore_index=True) for some in zip(*batches, strict=True)))


def read_part(folder: Path, key: str) -> Summary | None:
    """Return the summary of a measured part; None where there is none, or one of another key."""
    if not (folder / _KEY).exists() or (folder / _KEY).read_text() != key:
        return None
    return Summary.read(folder / SUMMARY)


def _forecast(
    batches: list[Tables],
    forecasters: Forecasters,
    options: BacktestOptions,
    season: int,
    own: OwnEnds | None,
    on_forecast: Callable[[int, int], None] | None,
) -> Iterator["pa.Table"]:
    """Yield the forecasts of series batch by batch; add the tables of each batch to ``batches``."""
    import pyarrow as pa

    whole, done = forecasters.networks.panel, 0
    first, number = whole.times[forecasters.networks.cutoffs[0]], number_type(whole)
    for panel, frame in forecasters.forecasts(options.membership):
        done += len(panel.ids)
        if frame.empty:
            continue
        batches.append(
            Tables.of_batch(frame, panel, forecasters.model, options.step_size, first, season)
        )
        if on_forecast:
            on_forecast(done, len(whole.ids))
        stored = frame.drop(columns=LATEST)
        numbers = stored.columns[len(KEYS) :].drop(FORECAST_BY, errors="ignore")
        stored = stored.astype(dict.fromkeys(numbers, number))
        stored = stored if own is None else own.restored(stored)
        yield pa.Table.from_pandas(stored, preserve_index=False)


def _summarise(
    forecasters: Forecasters, options: BacktestOptions, tables: Tables, *, own_ends: bool
) -> Summary:
    """Return the summary of a part, without the fields that depend on all parts."""
    networks, torch, runner = forecasters.networks, forecasters.torch, forecasters.runner
    panel, cutoffs = networks.panel, networks.panel.times[networks.cutoffs]
    first, last = show_time(cutoffs[0]), show_time(cutoffs[-1])
    # Series without scores are not observed at and after a cutoff, or are no members then.
    kind = Kind.NO_SCORES if options.membership is None else Kind.NO_SCORES_AS_MEMBER
    without = sorted({*panel.ids} - {*tables.scores["unique_id"]})
    unscored = Skipped(kind, first=first, last=last)
    rungs = Counter[str]()
    if FORECAST_BY in tables.scores:
        rungs.update(tables.scores.drop_duplicates("unique_id")[FORECAST_BY])
    failed = {
        forecasters.model: {name: str(why) for name, why in networks.lost.items()},
        **runner.failed,
        "torch": dict(forecasters.torch_failed),
    }
    return Summary(
        model=forecasters.model,
        models=tuple(dict.fromkeys(tables.scores["model"])),
        series=int(tables.scores["unique_id"].nunique()),
        cutoffs=len(cutoffs),
        step_size=options.step_size,
        horizon=networks.config.horizon,
        levels=tuple(f"{level:g}" for level in networks.level),
        first_cutoff=first,
        last_cutoff=last,
        first=show_time(panel.times[0]),
        last=show_time(panel.times[-1]),
        refit=options.refit,
        seed=options.seed,
        config=networks.config,
        target=panel.target,
        skipped={**panel.skipped, **{name: networks.lost.get(name, unscored) for name in without}},
        failed={name: reasons for name, reasons in failed.items() if reasons},
        membership=options.membership is not None,
        own_ends=own_ends or None,
        torch_series=len(torch.panel.ids) if torch is not None else None,
        seconds=Seconds(
            training=0.0,
            fitting=0.0,
            torch=round(torch.parts[0][0].provenance["training_seconds"], 2) if torch else None,
            baselines={name: round(s, 2) for name, s in runner.seconds.items()},
            all=0.0,
        ),
        provenance=Provenance(),
        forecast_by={rung.value: rungs[rung] for rung in Method if rungs[rung]},
        by_last_value={name: len(s) for name, s in runner.by_last_value.items() if s},
    )


def summary_of_parts(summaries: Sequence[Summary], **changes: object) -> Summary:
    """Return the summary of all parts together; ``changes``: fields that no single part knows.

    Raises DataError where no part has a forecast.
    """
    full = [summary for summary in summaries if summary.series]
    if not full:
        raise DataError("no series belonged to the universe at any cutoff; look at its file")
    failed: dict[str, dict[str, str]] = {}
    rungs, by_last_value = Counter[str](), Counter[str]()
    for part in summaries:
        for name, reasons in part.failed.items():
            failed.setdefault(name, {}).update(reasons)
        rungs.update(part.forecast_by)
        by_last_value.update(part.by_last_value)
    together = dataclasses.replace(
        full[0],
        models=tuple(dict.fromkeys(name for part in full for name in part.models)),
        series=sum(part.series for part in full),
        skipped={name: why for part in summaries for name, why in part.skipped.items()},
        failed=failed,
        forecast_by=dict(rungs),
        by_last_value=dict(by_last_value),
    )
    return dataclasses.replace(together, **changes)  # pyright: ignore[reportArgumentType]


def join_parts(parts: Sequence[Path], folder: Path, summary: Summary) -> None:
    """Write the files of an evaluation from those of its parts.

    ``parts``: in order, those with a forecast. All p-values are in memory, and of everything else
    that of one part.
    """
    import pyarrow as pa

    if len(parts) == 1:
        shutil.copyfile(parts[0] / FORECASTS, folder / FORECASTS)
    else:
        groups = (group for part in parts for group in parquet_groups(part / FORECASTS))
        schemas = [stored_schema(part / FORECASTS) for part in parts]
        widest = pa.unify_schemas(schemas, promote_options="permissive")  # see `number_type`
        write_tables(folder / FORECASTS, groups, widest)
    write_tables(folder / SCORES, (read_parquet_file(part / SCORES) for part in parts))
    write_tables(folder / TESTS, _adjusted(parts))
    daily = pd.concat([read_parquet_file(part / DAILY).to_pandas() for part in parts])
    with open_for_arrow(folder / DAILY, "wb") as file:
        means_of_sums(daily).to_parquet(file, index=False)
    summary.write(folder / SUMMARY)


def _adjusted(parts: Sequence[Path]) -> Iterator["pa.Table"]:
    """Yield the tests of each part, with p-values adjusted over the series of all parts."""
    import pyarrow as pa

    needed = [read_parquet_file(part / TESTS, [*TOGETHER, "p_value"]) for part in parts]
    p_values = pa.concat_tables(needed).to_pandas(categories=["test", "model"])
    by_test = p_values.groupby(list(TOGETHER), observed=True)["p_value"]
    adjusted = by_test.transform(significance.false_discovery).to_numpy()
    for part in parts:
        table = read_parquet_file(part / TESTS)
        yield table.append_column("p_adjusted", pa.array(adjusted[: len(table)]))
        adjusted = adjusted[len(table) :]
