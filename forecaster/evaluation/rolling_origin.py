"""Forecast all series from a rolling origin, beside the outcomes."""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa

from forecaster import swarm
from forecaster.errors import (
    DataError,
    ForecasterWarning,
    Kind,
    Skipped,
    listed,
    name_reasons,
    warn_of_skipped,
)
from forecaster.evaluation.cutoffs import (
    advised_of_windows,
    as_of_cutoff,
    cutoffs_in,
    groups_of,
    settled_by_known,
)
from forecaster.files import as_file, atomic, open_for_arrow
from forecaster.forecasting import (
    FORECAST_BY,
    Config,
    Model,
    OwnNetwork,
    around_columns,
    changing_rows,
    check_levels,
    check_static,
    check_training,
    checked_config,
    fit_part,
    forecast_columns,
    forecast_latest,
    match_panel,
    with_declared,
)
from forecaster.ingest import ColumnOptions, Table, as_panel
from forecaster.series import ROWS_TO_BLEND, Histories, OwnEnds, Panel, aligned_if, check_market

NAIVE = "Naive"
AT_ONCE = 64
"""Number of series whose forecasts are in memory at the same time."""


@dataclasses.dataclass(frozen=True)
class Origins:
    """The forecasts to make: one entry per series, cutoff and horizon, in this order.

    - ``panel``: the series, with their ``histories``
    - ``row`` (entry,): the row of the series in the panel
    - ``step`` (entry,): the step of its history at the cutoff
    - ``ahead`` (entry,): the horizon minus one
    """

    panel: Panel
    histories: Histories
    row: np.ndarray
    step: np.ndarray
    ahead: np.ndarray

    @staticmethod
    def from_panel(
        panel: Panel,
        cutoffs: np.ndarray,
        horizon: int,
        left_out: np.ndarray | None = None,
        fewest: int = 2,
    ) -> "Origins":
        """Return the entries of all series.

        A series is forecast from each cutoff at which it was observed, except at its first row, and
        as far ahead as it was observed afterwards.

        - ``cutoffs``: positions on the panel's time axis
        - ``left_out`` (series, time): rows that are not forecast from
        - ``fewest``: minimum rows to forecast from; ignored for a series that has fewer at every
          cutoff
        """
        histories = Histories.from_panel(panel)
        at, steps = histories.positions, histories.positions.shape[1]
        # From a single row no baseline has bands.
        rows = np.arange(steps) - histories.first[:, None] + 1
        origin = np.isin(at, cutoffs) & (rows > 1)
        enough = origin & (rows >= fewest)
        origin = np.where(enough.any(1, keepdims=True), enough, origin)
        if left_out is not None:
            origin &= ~np.take_along_axis(left_out, at, axis=1)
        row, step = np.nonzero(origin)
        row, step = np.repeat(row, horizon), np.repeat(step, horizon)
        ahead = np.tile(np.arange(horizon), len(row) // horizon)
        known = step + 1 + ahead < steps
        return Origins(panel, histories, row[known], step[known], ahead[known])

    @functools.cached_property
    def keys(self) -> pd.DataFrame:
        """Return ``unique_id, ds, cutoff, y``, a row per entry; ``y`` is the outcome."""
        outcome = self.step + 1 + self.ahead
        return pd.DataFrame(
            {
                "unique_id": np.array(self.panel.ids, object)[self.row],
                "ds": self.panel.times[self.histories.positions[self.row, outcome]],
                "cutoff": self.panel.times[self.positions],
                "y": self._values[self.row, outcome],
            }
        )

    @property
    def positions(self) -> np.ndarray:
        """The position of each entry's cutoff on the panel's time axis, (entry,)."""
        return self.histories.positions[self.row, self.step]

    @property
    def latest(self) -> np.ndarray:
        """The value at the cutoff of each entry, (entry,)."""
        return self._values[self.row, self.step]

    @property
    def _values(self) -> np.ndarray:
        return self.histories.values[..., self.panel.channels.index(self.panel.target)]


def peers_of(models: Iterable[Model]) -> tuple[str, ...]:
    """Return the series that show the state of the market to any of some models."""
    return tuple(dict.fromkeys(name for model in models for name in model.peers))


@dataclasses.dataclass(frozen=True)
class RollingOrigin:
    """Models fitted on the data known at their first cutoff, ready to forecast from their cutoffs.

    A model neither learns nor forecasts from rows that were known at its first cutoff to look wrong
    (but it forecasts from a jump at the cutoff). Forecasts are compared with all rows, also with
    rows of zero or below. A series that is forecast in logarithms has no forecasts from its first
    such row after the cutoff on. No series is forecast from cutoffs whose model has no network for
    it.

    - ``panel``: the series that have networks, without the rows that were known at the very first
      cutoff to look wrong
    - ``parts``: each model, with its cutoffs as positions on the panel's time axis
    - ``level``: levels of the bands, in percent
    - ``ends``: restores the series' own times where their ends were aligned
    - ``skipped``: the series without networks, with the reason
    - ``lost``: filled by :meth:`batches`: the series without forecasts from some cutoffs, with the
      reason
    """

    panel: Panel
    parts: tuple[tuple[Model, np.ndarray], ...]
    level: tuple[float, ...]
    ends: OwnEnds | None = None
    skipped: Mapping[str, Skipped] = dataclasses.field(default_factory=dict[str, Skipped])
    lost: dict[str, Skipped] = dataclasses.field(default_factory=dict[str, Skipped], compare=False)

    @staticmethod
    def fit(
        panel: Panel | Table,
        config: Config | None,
        n_windows: int,
        step_size: int = 1,
        *,
        refit: bool | int = False,
        level: Sequence[float] = (80, 95),
        seed: int = 0,
        ends: str = "auto",
        network: OwnNetwork | None = None,
        executor: swarm.Executor | None = None,
        checkpoints: Callable[[int], swarm.Checkpoint] | None = None,
        on_progress: Callable[[swarm.Progress], None] | None = None,
        **columns: Unpack[ColumnOptions],
    ) -> "RollingOrigin":
        """Train networks on the data known at the first cutoff, or at several.

        - ``executor``: where networks train, as for :func:`forecaster.fit`
        - ``checkpoints``: where each training, counted from zero, keeps its state
        - all others: as for :func:`cross_validation`
        """
        panel = as_panel(panel, **columns)
        check_training(seed, executor=executor, on_progress=on_progress)
        levels = tuple(check_levels(level))
        config, panel = with_declared(checked_config(config), panel)
        check_market(panel)
        panel, own = aligned_if(ends, panel)
        check_static(panel, config, tune=False)
        cutoffs = cutoffs_in(panel.times, config.horizon, n_windows, step_size)
        known = panel.until(panel.times[cutoffs[0]]).masked()
        settled = settled_by_known(config, panel.target, changing_rows(known), n_windows)
        if settled is not config:  # by the last value, without a market
            config, panel = settled, dataclasses.replace(panel, market=None)
        parts = []
        for number, group in enumerate(groups_of(cutoffs, refit=refit)):
            known = panel.until(panel.times[group[0]])
            with advised_of_windows(n_windows):
                part = fit_part(
                    known, config, seed, network=network, executor=executor,
                    checkpoint=checkpoints and checkpoints(number), on_progress=on_progress,
                )  # fmt: skip
            parts.append((part.model, group))
        return RollingOrigin.of_models(panel, parts, levels, own)

    @staticmethod
    def of_models(
        panel: Panel,
        parts: Sequence[tuple[Model, np.ndarray]],
        level: Sequence[float],
        ends: OwnEnds | None = None,
    ) -> "RollingOrigin":
        """Prepare models that were trained on the data known at their first cutoffs.

        ``panel``: with all rows; others as the fields. Raises ModelError when none of the series
        can be forecast.
        """
        first, cutoffs = parts[0]
        if panel.peers is None:
            panel = panel.with_peers(peers_of(model for model, _ in parts))
        # A bad row after the first cutoff must not decide whether its series is forecast.
        # The reasons of the fit are kept; `match_panel` only knows that a network is missing.
        known = panel.masked(panel.times[cutoffs[0]], forecasting=True)
        skipped = as_of_cutoff(first.skipped, panel.times[cutoffs[0]])
        fitted = known.only(first.ids, skipped)
        # Nor must the spacing of later rows decide; ``latest=True`` would check it.
        matched = match_panel(first, first.transform.before_ends(fitted), latest=False)
        # All rows are outcomes, also those that no forecast can be made from.
        rows = dataclasses.replace(matched, mask=fitted.only(matched.ids).mask)
        unfitted = {n: matched.skipped[n] for n in panel.ids if n in first.skipped}
        return RollingOrigin(rows, tuple(parts), tuple(level), ends, unfitted)

    @property
    def config(self) -> Config:
        """The settings of all models."""
        return self.parts[0][0].config

    @property
    def says_rungs(self) -> bool:
        """Whether frames have the column ``forecast_by``: what each forecast rests on."""
        return self.parts[0][0].transform.takes_any

    @property
    def cutoffs(self) -> np.ndarray:
        """All cutoffs, as positions on the panel's time axis."""
        return np.concatenate([cutoffs for _, cutoffs in self.parts])

    def batches(self) -> Iterator[tuple[Origins, pd.DataFrame]]:
        """Yield the entries of each batch of series, and the models' forecasts.

        The forecasts have a row per entry, and no keys. Entries that no model of ours can forecast
        are left out, and their series are named in ``lost``.
        """
        for first in range(0, len(self.panel.ids), AT_ONCE):
            batch = self.panel.only(self.panel.ids[first : first + AT_ONCE])
            left_out = self._wrong_at_cutoffs(batch)
            fewest = ROWS_TO_BLEND if self.says_rungs else 2
            origins = Origins.from_panel(batch, self.cutoffs, self.config.horizon, left_out, fewest)
            origins = self._with_forecasts(origins)
            if len(origins.row):
                yield origins, self.forecasts(origins)

    def warn_of_losses(self) -> None:
        """Warn of the series that have no forecasts from some or all of the cutoffs."""
        warn_of_skipped(self.skipped)
        if self.lost:
            reasons = {name: str(why) for name, why in self.lost.items()}
            warnings.warn(
                f"{len(reasons)} series not forecast from all cutoffs:\n{name_reasons(reasons)}",
                ForecasterWarning,
                stacklevel=3,
            )

    def warn_of_ended(self) -> None:
        """Warn of series that end early, see :func:`warn_of_ended`."""
        mask, cutoffs = self.panel.mask, self.cutoffs
        last = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
        counts = (cutoffs < last[:, None]).sum(1)
        warn_of_ended(dict(zip(self.panel.ids, counts.tolist(), strict=True)), len(cutoffs))

    def _with_forecasts(self, origins: Origins) -> Origins:
        """Return the entries that a model can forecast; add the other series to ``lost``."""
        panel, at = origins.panel, origins.positions
        gone, reasons = np.zeros(len(at), bool), dict[int, Skipped | str]()
        for model, cutoffs in self.parts:  # in order of time
            there = np.isin(panel.ids, model.ids)
            known = panel.masked(panel.times[cutoffs[0]], forecasting=True)
            end = model.transform.ends(known)
            lost = np.isin(at, cutoffs) & (~there[origins.row] | (at >= end[origins.row]))
            for row in np.unique(origins.row[lost]).tolist():
                why = model.skipped.get(panel.ids[row], Skipped(Kind.NO_NETWORK))
                if there[row]:
                    why = model.transform.why_ended(panel, row, int(end[row]))
                reasons.setdefault(row, why)
            gone |= lost
        for row, why in reasons.items():
            own = origins.row == row
            count, every = (len(np.unique(at[some])) for some in (own & gone, own))
            detail = f"{count} of {every} cutoffs: {why}"
            self.lost[panel.ids[row]] = Skipped(Kind.NO_FORECASTS, detail=detail)
        left = (part[~gone] for part in (origins.row, origins.step, origins.ahead))
        return Origins(panel, origins.histories, *left)

    def _wrong_at_cutoffs(self, batch: Panel) -> np.ndarray | None:
        """Return which rows at cutoffs look wrong to the model of that cutoff, (series, time)."""
        if batch.flags is None:
            return None
        wrong = np.zeros(batch.mask.shape, bool)
        for _, cutoffs in self.parts:
            known = batch.flagged(batch.times[cutoffs[0]], forecasting=True)
            wrong[:, cutoffs] = known[:, cutoffs]
        return wrong

    def forecasts(self, origins: Origins) -> pd.DataFrame:
        """Return the models' forecasts, a row per entry; NaN for series without a network.

        Where any series can be forecast, ``forecast_by`` says what each forecast rests on, and the
        columns of :func:`.around_columns` where the outcomes lie in distributions of counts.
        """
        at, name, parts = origins.positions, self.config.column, list[pd.DataFrame]()
        columns = [*forecast_columns(name, self.level)]
        if self.says_rungs:
            columns += [*around_columns(name), FORECAST_BY]
        for model, cutoffs in self.parts:
            there = np.isin(origins.panel.ids, model.ids)
            ids = np.array(origins.panel.ids)[there].tolist()
            selected = np.isin(at, cutoffs) & there[origins.row]
            if not selected.any():
                continue
            panel = beside_peers_of(model, origins.panel.only(ids))
            panel = panel.masked(panel.times[cutoffs[0]], forecasting=True)
            panel = model.transform.before_ends(panel)
            transformed = model.transform.apply(panel, model.config.horizon)
            row = np.searchsorted(np.flatnonzero(there), origins.row[selected])
            # These histories differ from those of the origins: rows or series may be missing.
            step = _steps_at(panel, row, at[selected], transformed.z.shape[1])
            latest = int(transformed.z.shape[1] - step.min())
            entries = row, step - step.min(), origins.ahead[selected]
            outcomes = None
            if self.says_rungs:
                outcomes = np.full((len(ids), latest, self.config.horizon), np.nan)
                outcomes[entries] = origins.keys["y"].to_numpy()[selected]
            forecast = forecast_latest(
                model, panel, transformed, latest, self.level, outcomes=outcomes
            )
            made = {column: values[entries] for column, values in forecast.items()}
            if self.says_rungs:
                rungs = model.networks.methods[model.networks.rows_of(ids)]
                made[FORECAST_BY] = np.array([str(rung) for rung in rungs], object)[row]
            parts.append(pd.DataFrame(made, index=np.flatnonzero(selected)))
        together = pd.concat(parts) if parts else pd.DataFrame(dtype=float)
        return together.reindex(index=np.arange(len(at)), columns=columns)


def warn_of_ended(counts: Mapping[str, int], cutoffs: int) -> None:
    """Warn of series that end early, and so are forecast from fewer cutoffs than others.

    ``counts``: the number of cutoffs before the end of each series; ``cutoffs``: of all
    """
    ended = [f"{name} ({n} of {cutoffs})" for name, n in counts.items() if n < cutoffs]
    if ended:
        warnings.warn(
            f"{len(ended)} series end early, and are scored from fewer cutoffs than the others: "
            f"{listed(ended)}",
            ForecasterWarning,
            stacklevel=4,
        )


def cross_validation(
    panel: Panel | Table,
    config: Config | None = None,
    n_windows: int = 1,
    step_size: int = 1,
    *,
    refit: bool | int = False,
    level: Sequence[float] = (80, 95),
    seed: int = 0,
    ends: str = "auto",
    network: OwnNetwork | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
    **columns: Unpack[ColumnOptions],
) -> pd.DataFrame:
    """Forecast from a rolling origin; return the forecasts beside the outcomes.

    Networks are trained on the data known at the first cutoff. Series are forecast from the cutoffs
    at which they were observed.

    - ``panel``: the series, or a frame with them as :func:`forecaster.load_panel` takes it
    - ``n_windows``: number of cutoffs; the last is ``horizon`` times before the panel's end
    - ``step_size``: times between two cutoffs
    - ``refit``: True trains again at every cutoff, a number after this many cutoffs
    - ``level``: levels of the bands, in percent
    - ``seed``: decides on the initial weights and the batches
    - ``ends``: ``common``: cutoffs are the same times for all series, and a series that ends before
      them is skipped. ``own``: each series is forecast towards its own end, as in the M
      competitions; networks that start from a common network have then seen later times of other
      series. ``auto``: own where times only count the rows of each series
    - ``network``: a Flax module of your own, as for :func:`forecaster.fit`
    - ``on_progress``: called from time to time while networks train
    - ``columns``: what a frame's columns are, see :class:`forecaster.ingest.ColumnOptions`

    Warns of series without forecasts from some or all of the cutoffs.

    Returns a long frame ``unique_id, ds, cutoff, y``, the model's columns as of
    :func:`forecaster.predict`, among them ``forecast_by`` for series that are not prices, and
    ``Naive``, the last value. ``y`` is in the units of the panel's
    target, and all rows count, also those of zero or below. From such a row on, a series whose
    logarithm is forecast has no rows, with a warning that counts the cutoffs.

    Raises DataError when the panel is too short for these cutoffs, or nothing can be forecast from
    any of them.
    """
    rolling = RollingOrigin.fit(
        panel, config, n_windows, step_size, refit=refit, level=level, seed=seed, ends=ends,
        network=network, on_progress=on_progress, **columns,
    )  # fmt: skip
    frame = pd.concat(_frames(rolling), ignore_index=True)
    rolling.warn_of_losses()
    rolling.warn_of_ended()
    return frame


def cross_validation_to_parquet(
    path: str | Path,
    panel: Panel | Table,
    config: Config | None = None,
    n_windows: int = 1,
    step_size: int = 1,
    **options: Any,
) -> Path:
    """Write the frame of :func:`cross_validation` to a Parquet file, and return its path.

    Series are forecast and written in batches, so the frame need not fit into memory. An unfinished
    file is removed.

    - ``path``: the file
    - ``panel``, ``config``, ``n_windows``, ``step_size`` and further ``options``: as for
      :func:`cross_validation`
    """
    path = as_file(path)
    rolling = RollingOrigin.fit(panel, config, n_windows, step_size, **options)
    tables = (pa.Table.from_pandas(each, preserve_index=False) for each in _frames(rolling))
    atomic.write_file(path, lambda temporary: write_tables(temporary, tables))
    rolling.warn_of_losses()
    rolling.warn_of_ended()
    return path


def write_tables(path: Path, tables: Iterable[pa.Table], schema: pa.Schema | None = None) -> None:
    """Write tables of the same columns into one Parquet file; no file where there is no table.

    ``schema``: the schema of the file; None: the schema of the first table
    """
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as opened:
        writer: pq.ParquetWriter | None = None
        for table in tables:
            if writer is None:
                schema = schema or table.schema
                file = opened.enter_context(open_for_arrow(path, "wb"))
                writer = opened.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
            writer.write_table(table.cast(schema))


def beside_peers_of(model: Model, panel: Panel) -> Panel:
    """Return a panel with only the peers of this model, of those of several models."""
    known = () if panel.peers is None else panel.peers.ids
    own = tuple(name for name in model.peers if name in known)
    if panel.peers is None or not own or own == known:
        return panel
    return dataclasses.replace(panel, peers=panel.peers.only(own))


def _steps_at(panel: Panel, rows: np.ndarray, positions: np.ndarray, steps: int) -> np.ndarray:
    """Return the steps of some positions of a panel in histories of ``steps`` steps, (entry,)."""
    observed = panel.mask.cumsum(1)  # up to each position
    return steps - 1 - (observed[rows, -1] - observed[rows, positions])


def _frames(rolling: RollingOrigin) -> Iterator[pd.DataFrame]:
    """Yield the frame of each batch. Raises DataError where there is no forecast at all."""
    there = False
    for origins, forecasts in rolling.batches():
        around = around_columns(rolling.config.column)
        forecasts = forecasts.drop(columns=list(around), errors="ignore")
        frame = pd.concat([origins.keys, forecasts.assign(**{NAIVE: origins.latest})], axis=1)
        yield frame if rolling.ends is None else rolling.ends.restored(frame)
        there = True
    if not there:
        reasons = {name: str(why) for name, why in rolling.lost.items()}
        why = f":\n{name_reasons(reasons)}" if reasons else "; no series was observed at one"
        raise DataError(f"no forecast can be made from any cutoff{why}")
