"""Add predictions to the record. Its files are never changed, only joined.

    record/<time>-<hash>.parquet          one prediction: a row per series and forecast time; the
                                          hash begins with that of its source and run
    record/<time>-<hash>-joined.parquet   the predictions of a month, see forecaster.record.folder

Columns:

- ``made`` (UTC), ``run``, ``source``, ``target`` (the channel that was forecast), ``unique_id``
- ``origin`` (the time of the series' latest row), ``ds``, ``step``, ``value`` (at the origin)
- the median and the bounds of bands, named as in any frame of a model called ``forecast``
- ``probability_of_rise``
- ``value_5, time_5`` and ``value_20, time_20``: values and times of the rows 5 and 20 steps before
  the origin. With ``value`` they show later whether prices were adjusted

All values are in the units of the forecast.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from forecaster.files import Home, atomic
from forecaster.forecasting import FORECAST_BY, price_factor, renamed_columns
from forecaster.record.folder import join_small, readable, write_table
from forecaster.series import Panel

COLUMN = "forecast"
"""The name of every model in the record."""
STAMP = 19
"""Length of the time at the start of a run folder's name, which stays when the run is renamed."""
BEFORE = (5, 20)
"""Steps before the origin at which further values are recorded, to detect adjustments."""


class Made(NamedTuple):
    """A prediction to record.

    - ``panel``: the series up to the origin
    - ``frame``: from :func:`forecaster.predict`
    - ``model``: the name of the column of medians in ``frame``
    - ``run``, ``source``: the name of the saved model, and the source of its series
    """

    panel: Panel
    frame: pd.DataFrame
    model: str
    run: str
    source: str


def keep(home: Home, made: Made) -> Path:
    """Add a prediction to the record, whole or not at all; return its file.

    A prediction that equals the latest one of the same run and source is not added again, unless a
    wrong clock dated that later than now, which would count as made after its outcome. Raises
    WriteError if the file cannot be written.
    """
    table, now = _table(made), datetime.now(UTC)
    of = hashlib.sha256(f"{made.source}\n{made.run[:STAMP]}".encode("utf-8", "replace"))
    ours, content = of.hexdigest()[:6], pa.BufferOutputStream()
    with pa.ipc.new_stream(content, table.schema) as writer:
        writer.write_table(table)
    path = home.new_recorded(ours + hashlib.sha256(content.getvalue()).hexdigest()[:12], now)
    stamp, _, digest = path.stem.rpartition("-")
    past = [
        there
        for there in home.recorded()
        if there.stem[: len(stamp)] <= stamp and there.stem.rpartition("-")[2].startswith(ours)
    ]
    if past and past[-1].stem.endswith(digest) and list(readable(past[-1:])):
        return past[-1]
    stamps = pa.array([now] * len(table), pa.timestamp("ms", tz="UTC"))
    atomic.write_file(path, lambda to: write_table(table.add_column(0, "made", stamps), to))
    join_small(home)
    return path


def _table(made: Made) -> pa.Table:
    """Return the prediction with all columns except ``made``."""
    names = renamed_columns(made.frame, made.model, COLUMN)
    frame = made.frame.drop(columns=FORECAST_BY, errors="ignore").rename(columns=names)
    latest = _latest(made.panel, [str(name) for name in frame["unique_id"].unique()])
    step = frame.groupby("unique_id", sort=False).cumcount() + 1
    of_all = {"run": made.run, "source": made.source, "target": made.panel.target}
    rows = frame.join(latest, on="unique_id").assign(step=step.astype(np.int16), **of_all)
    first = [*of_all, "unique_id", "origin", "ds", "step", "value"]
    rows = rows[[*first, *rows.columns.drop(first)]]
    table = pa.Table.from_pandas(rows, preserve_index=False)
    return table.replace_schema_metadata().combine_chunks()  # so that equal rows have equal bytes


def _latest(panel: Panel, ids: Sequence[str]) -> pd.DataFrame:
    """Return ``origin`` and ``value`` of each series, and those ``BEFORE`` it, a row per series.

    If a series is too short, its first row is used.
    """
    row_of = {name: row for row, name in enumerate(panel.ids)}
    rows = np.array([row_of[name] for name in ids])
    positions = [np.flatnonzero(panel.mask[row]) for row in rows]
    values = panel.channel(panel.target) * price_factor(panel)[:, None]
    columns = {}
    for back in (0, *BEFORE):
        at = np.array([p[max(0, len(p) - 1 - back)] for p in positions])
        value, time = (f"value_{back}", f"time_{back}") if back else ("value", "origin")
        columns |= {value: values[rows, at].astype(float), time: panel.times[at]}
    return pd.DataFrame(columns, index=list(ids))
