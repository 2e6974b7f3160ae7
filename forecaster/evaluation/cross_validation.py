"""Forecasts from a rolling origin over all series at once, next to what came."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster import atomic, swarm
from forecaster.config import Config
from forecaster.errors import DataError, UsageError
from forecaster.forecasting import RISE, Model, check_levels, fit, forecast_latest, match_panel
from forecaster.series import Histories, Panel, show_time

NAIVE = "Naive"
KEYS = ("unique_id", "ds", "cutoff", "y")
_AT_ONCE = 64  # series whose forecasts are in memory at the same time


@dataclasses.dataclass(frozen=True)
class Origins:
    """Where forecasts are made from, and what came: one entry per series, cutoff and horizon.

    ``row``, ``step`` and ``ahead`` index series, the step (of :class:`Histories`) a forecast is
    made at, and the horizon less one; ``keys``: ``unique_id, ds, cutoff, y``, a row per entry, in
    order of series, cutoff and horizon.
    """

    panel: Panel
    histories: Histories
    row: np.ndarray
    step: np.ndarray
    ahead: np.ndarray
    keys: pd.DataFrame

    @staticmethod
    def of(panel: Panel, cutoffs: np.ndarray, horizon: int) -> "Origins":
        """``cutoffs``: places on the panel's time axis. Series are forecast from the cutoffs at
        which they were observed, as far ahead as they were observed after them."""
        histories = Histories.of(panel)
        at, steps = histories.positions, histories.positions.shape[1]
        row, step = np.nonzero(np.isin(at, cutoffs))
        row, step = np.repeat(row, horizon), np.repeat(step, horizon)
        ahead = np.tile(np.arange(horizon), len(row) // horizon)
        known = step + 1 + ahead < steps
        row, step, ahead = row[known], step[known], ahead[known]
        target = step + 1 + ahead
        keys = pd.DataFrame(
            {
                "unique_id": np.array(panel.ids, object)[row],
                "ds": panel.times[at[row, target]],
                "cutoff": panel.times[at[row, step]],
                "y": histories.values[row, target, panel.channels.index(panel.target)],
            }
        )
        return Origins(panel, histories, row, step, ahead, keys)

    @property
    def latest(self) -> np.ndarray:
        """The value at the origin of each entry."""
        return self.histories.values[
            self.row, self.step, self.panel.channels.index(self.panel.target)
        ]


@dataclasses.dataclass(frozen=True)
class Rolling:
    """Models fitted on what was known at their first cutoff, ready to forecast from them all.

    ``parts``: each model with the cutoffs (places on the panel's time axis) it forecasts from.
    """

    panel: Panel
    parts: tuple[tuple[Model, np.ndarray], ...]
    level: tuple[float, ...]

    @staticmethod
    def fit(
        panel: Panel,
        config: Config,
        n_windows: int,
        step_size: int = 1,
        *,
        refit: bool | int = False,
        level: Sequence[float] = (80, 95),
        seed: int = 0,
        on_progress: Callable[[swarm.Progress], None] | None = None,
    ) -> "Rolling":
        """Train; arguments as of :func:`cross_validation`."""
        levels = tuple(check_levels(level))
        cutoffs = cutoffs_of(panel, config.horizon, n_windows, step_size)
        parts = []
        for some in _groups(cutoffs, refit):
            model = fit(panel.until(panel.times[some[0]]), config, seed, on_progress=on_progress)
            parts.append((model, some))
        first = parts[0][0]
        # A bad row must not decide, before it is seen, whether its series is forecast at all.
        # What the fit left out, match_panel only misses: why is the fit's to say, in one place.
        left = panel.only(first.ids, first.skipped)
        panel = match_panel(first, first.transform.without_bad_rows(left))
        return Rolling(panel, tuple(parts), levels)

    @property
    def config(self) -> Config:
        """The models' config."""
        return self.parts[0][0].config

    @property
    def cutoffs(self) -> np.ndarray:
        """All cutoffs, places on the panel's time axis."""
        return np.concatenate([some for _, some in self.parts])

    def batches(self) -> Iterator[tuple[Origins, pd.DataFrame]]:
        """Some series after the others: their origins and the models' forecasts from them, a row
        per entry, without the keys."""
        for first in range(0, len(self.panel.ids), _AT_ONCE):
            some = self.panel.only(self.panel.ids[first : first + _AT_ONCE])
            origins = Origins.of(some, self.cutoffs, self.config.horizon)
            if len(origins.keys):
                yield origins, self.forecasts(origins)

    def forecasts(self, origins: Origins) -> pd.DataFrame:
        """The models' forecasts, a row per entry; NaN for series without a network."""
        name = self.config.column
        bounds = [f"{name}-{side}-{level:g}" for level in self.level for side in ("lo", "hi")]
        count = len(origins.keys)
        columns = {column: np.full(count, np.nan) for column in (name, *bounds)}
        steps = origins.histories.positions.shape[1]
        for model, cutoffs in self.parts:
            known = set(model.ids)
            ids = [name for name in origins.panel.ids if name in known]
            at = origins.histories.positions[origins.row, origins.step]
            mine = np.isin(at, cutoffs) & np.isin(origins.keys["unique_id"], ids)
            if not mine.any():
                continue
            panel = origins.panel.only(ids)
            transformed = model.transform.apply(panel, model.config.horizon)
            # The longest history may have been that of a series without a network.
            shift = steps - transformed.z.shape[1]
            step = origins.step[mine] - shift
            latest = int(transformed.z.shape[1] - step.min())
            forecast = forecast_latest(model, panel, transformed, latest, self.level)
            row = np.searchsorted(np.array(_places(origins.panel, ids)), origins.row[mine])
            for name, values in forecast.items():
                if name == RISE:
                    continue
                columns[name][mine] = values[row, step - step.min(), origins.ahead[mine]]
        return pd.DataFrame(columns)


def cross_validation(
    panel: Panel,
    config: Config | None = None,
    n_windows: int = 1,
    step_size: int = 1,
    *,
    refit: bool | int = False,
    level: Sequence[float] = (80, 95),
    seed: int = 0,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> pd.DataFrame:
    """Forecasts from a rolling origin, next to what came.

    The last ``n_windows`` cutoffs, ``step_size`` times apart, the last of them ``horizon`` times
    before the panel's end. Networks are trained on what was known at the first cutoff; with
    ``refit=True`` again at every cutoff, with a number at every so many.

    Returns a long frame ``unique_id, ds, cutoff, y``, the model's columns as in
    :func:`~forecaster.forecasting.fitting.predict`, and ``Naive``, the last value. ``y`` is in the units
    of the panel's target. Series are forecast from the cutoffs at which they were observed.

    Raises DataError when the panel is too short for so many cutoffs.
    """
    rolling = Rolling.fit(
        panel, config or Config(), n_windows, step_size,
        refit=refit, level=level, seed=seed, on_progress=on_progress,
    )  # fmt: skip
    return pd.concat(_frames(rolling), ignore_index=True)


def cross_validation_to_parquet(
    path: str | Path,
    panel: Panel,
    config: Config | None = None,
    n_windows: int = 1,
    step_size: int = 1,
    *,
    refit: bool | int = False,
    level: Sequence[float] = (80, 95),
    seed: int = 0,
    on_progress: Callable[[swarm.Progress], None] | None = None,
) -> Path:
    """As :func:`cross_validation`, the frame written to a Parquet file some series at a time, so
    that it need not fit into memory. Nothing is left of a file that was not finished."""
    rolling = Rolling.fit(
        panel, config or Config(), n_windows, step_size,
        refit=refit, level=level, seed=seed, on_progress=on_progress,
    )  # fmt: skip
    write_frames(Path(path), _frames(rolling))
    return Path(path)


def write_frames(path: Path, frames: Iterator[pd.DataFrame]) -> None:
    """Write frames of the same columns one after another into one Parquet file, or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(to) -> None:
        writer = None
        try:
            for frame in frames:
                table = pa.Table.from_pandas(frame, preserve_index=False)
                writer = writer or pq.ParquetWriter(to, table.schema, compression="zstd")
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()

    atomic.write_file(path, write)


def cutoffs_of(panel: Panel, horizon: int, n_windows: int, step_size: int) -> np.ndarray:
    """Places of the cutoffs on the time axis, in order. Raises DataError when it is too short."""
    if n_windows < 1 or step_size < 1:
        raise DataError(
            f"n_windows and step_size must be 1 or more; got {n_windows} and {step_size}"
        )
    last = len(panel.times) - 1 - horizon
    first = last - (n_windows - 1) * step_size
    if first < 1:
        raise DataError(
            f"{n_windows} cutoffs {step_size} apart need more than "
            f"{(n_windows - 1) * step_size + horizon + 1} times; the panel has {len(panel.times)}, "
            f"up to {show_time(panel.times[-1])}"
        )
    return np.arange(first, last + 1, step_size)


def _groups(cutoffs: np.ndarray, refit: bool | int) -> list[np.ndarray]:
    """Cutoffs that share a model."""
    if refit is False:
        return [cutoffs]
    every = 1 if refit is True else refit
    if every < 1:
        raise UsageError(f"refit: expected True, False or a whole number of 1 or more; got {refit}")
    return [cutoffs[start : start + every] for start in range(0, len(cutoffs), every)]


def _places(panel: Panel, ids: Sequence[str]) -> list[int]:
    wanted = set(ids)
    return [row for row, name in enumerate(panel.ids) if name in wanted]


def _frames(rolling: Rolling) -> Iterator[pd.DataFrame]:
    for origins, forecasts in rolling.batches():
        yield pd.concat([origins.keys, forecasts.assign(**{NAIVE: origins.latest})], axis=1)
