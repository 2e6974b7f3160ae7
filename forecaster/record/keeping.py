"""Forecasts as files of the record, which are added, and never changed but for being joined.

    record/<time>-<hash>.parquet          one prediction: a row for each series and time ahead
    record/<time>-<hash>-joined.parquet   many of them, see forecaster.record.files

``made`` (UTC), ``run``, ``source``, ``target`` (the channel that was forecast), ``unique_id``,
``origin`` (the time of the latest row), ``ds``, ``step``; ``value`` at the origin; the forecast and
its bounds, as in any frame, for a model that is called ``forecast``; ``probability_of_rise``. Then
``value_5, time_5`` and ``value_20, time_20``: rows that many steps before the origin. By these and
``value`` it is seen later whether prices were adjusted. All are in the units that were forecast.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from forecaster.files import atomic
from forecaster.forecasting import price_factor, renamed_columns
from forecaster.home import Home
from forecaster.record.files import join_small, write_table
from forecaster.series import Panel

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "forecast"
"""What the model is called in the record, whichever it was."""
BEFORE = (5, 20)
"""How many steps before the origin the other rows are by which adjustments are seen."""


class Made(NamedTuple):
    """A prediction.

    - ``panel``: what was forecast from
    - ``frame``: of :func:`forecaster.predict`
    - ``model``: the name of its column of medians
    - ``run``, ``source``: of the saved model
    """

    panel: Panel
    frame: pd.DataFrame
    model: str
    run: str
    source: str


def keep(home: Home, made: Made) -> Path:
    """Add a prediction to the record, whole or not at all; returns its file.

    What is in it already is not added again, or counts once. Raises WriteError when it cannot be
    written.
    """
    table, now = _table(made), datetime.now(UTC)
    digest = _digest(table)
    for path in home.record.glob(f"*-{digest}.parquet"):
        return path
    path = home.new_recorded(digest, now)
    atomic.write_file(path, lambda to: write_table(_stamped(table, now), to))
    join_small(home)
    return path


def _table(made: Made) -> "pa.Table":
    """All columns but the time at which it was made."""
    import pyarrow as pa

    frame, names = made.frame, renamed_columns(made.frame, made.model, COLUMN)
    ids = frame["unique_id"].to_numpy()
    each, counts = _counts(ids)
    origins, values = _known(made.panel, [str(name) for name in each])
    spread = lambda column: np.repeat(column, counts)  # noqa: E731
    constant = {"run": made.run, "source": made.source, "target": made.panel.target}
    columns = {name: pa.array([text] * len(ids)).dictionary_encode() for name, text in
               constant.items()}  # fmt: skip
    columns["unique_id"] = pa.array(ids.astype(object), pa.string())
    columns["origin"] = pa.array(spread(origins[0]))
    columns["ds"] = pa.array(frame["ds"].to_numpy())
    columns["step"] = pa.array(np.concatenate([np.arange(1, n + 1) for n in counts]), pa.int16())
    columns["value"] = pa.array(spread(values[0]))
    for name in frame.columns[2:]:
        columns[names.get(name, str(name))] = pa.array(frame[name].to_numpy(float))
    for steps, when, value in zip(BEFORE, origins[1:], values[1:], strict=True):
        columns[f"value_{steps}"], columns[f"time_{steps}"] = map(
            pa.array, (spread(value), spread(when))
        )
    return pa.table(columns)


def _counts(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The series of a frame in its order, and how many rows each has."""
    first = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return ids[first], np.diff(np.append(first, len(ids)))


def _known(panel: Panel, ids: Sequence[str]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Times and values of each series' latest row and of those before, (row,) each.

    A series that is shorter gives its first row instead.
    """
    row_of = {name: row for row, name in enumerate(panel.ids)}
    rows = np.array([row_of[name] for name in ids])
    places = [np.flatnonzero(panel.mask[row]) for row in rows]
    values = panel.channel(panel.target) * price_factor(panel)[:, None]
    at = [np.array([p[max(0, len(p) - 1 - back)] for p in places]) for back in (0, *BEFORE)]
    return [panel.times[a] for a in at], [values[rows, a].astype(float) for a in at]


def _digest(table: "pa.Table") -> str:
    """A short hash of what was forecast."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()[:12]


def _stamped(table: "pa.Table", now: datetime) -> "pa.Table":
    import pyarrow as pa

    return table.add_column(0, "made", pa.array([now] * len(table), pa.timestamp("ms", tz="UTC")))
