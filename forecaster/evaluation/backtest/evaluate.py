"""An evaluation from end to end: forecasts, scores and tests of all series, in a folder."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import DataError, UsageError
from forecaster.evaluation.backtest.result import FORECASTS, Evaluation, check_folder
from forecaster.evaluation.backtest.summary import Provenance, Seconds, Summary
from forecaster.evaluation.baselines import Runner, check_torch, memory_used
from forecaster.evaluation.origins.cutoffs import cutoffs_of, usual_windows
from forecaster.evaluation.origins.rolling_origin import FrameWriter, Origins, RollingOrigin
from forecaster.evaluation.scores.tables import LATEST, Tables
from forecaster.files import atomic
from forecaster.forecasting import KEYS, renamed_columns, with_declared
from forecaster.ingest import Groups, Membership
from forecaster.series import OwnEnds, Panel, aligned_if, default_season, show_time
from forecaster.skipped import Kind, Skipped

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
"""Bands whose bounds and median are the 19 quantiles from 5 to 95 %, and a wider one."""
NOTHING = "no series belonged to the universe at any cutoff; look at its file"


@dataclasses.dataclass(frozen=True)
class BacktestOptions:
    """What to evaluate, and against what.

    - ``n_windows``: cutoffs to forecast from, the latest ones; None: 250, or fewer of short series
    - ``step_size``: times between two
    - ``baselines``: names of :data:`forecaster.evaluation.baselines.BASELINES`, and ``torch``, the
      same networks trained by PyTorch; ``naive`` is always among them
    - ``refit``: train at the first cutoff only (False), at each (True), or every so many
    - ``seed``: of our networks and PyTorch's
    - ``torch_sample``: how many of the series PyTorch trains, evenly picked
    - ``membership``: if given, forecasts count only from cutoffs at which the series belonged to
      the universe
    - ``ends``: as for :func:`forecaster.cross_validation`
    - ``cache``: a folder where slow baselines keep their forecasts
    - ``groups``: of the series, such as sectors, that the report summarises
    """

    n_windows: int | None = None
    step_size: int = 1
    baselines: tuple[str, ...] = ("naive", "ewma")
    refit: bool | int = False
    seed: int = 0
    torch_sample: int = 50
    membership: Membership | None = None
    ends: str = "auto"
    cache: Path | None = None
    groups: Groups | None = None

    @property
    def with_torch(self) -> bool:
        """Whether PyTorch trains networks too."""
        return "torch" in self.baselines

    @property
    def runner_names(self) -> list[str]:
        """The baselines that need no training, each once, naive first."""
        return list(dict.fromkeys(["naive", *(n for n in self.baselines if n != "torch")]))


@dataclasses.dataclass(frozen=True)
class BacktestCallbacks:
    """What is called as an evaluation goes on.

    - ``training``: as our networks train
    - ``torch``, ``forecast``: how many series are done, of how many
    """

    training: Callable[[swarm.Progress], None] | None = None
    torch: Callable[[int, int], None] | None = None
    forecast: Callable[[int, int], None] | None = None


def evaluate_to_folder(
    folder: Path,
    panel: Panel,
    config: Config | None = None,
    options: BacktestOptions | None = None,
    *,
    overwrite: bool = False,
    provenance: Provenance | None = None,
    finish: Callable[[Evaluation], None] | None = None,
    executor: swarm.Executor | None = None,
    callbacks: BacktestCallbacks | None = None,
) -> Evaluation:
    """Forecast from a rolling origin by our networks and baselines; score, test and write it all.

    The folder appears whole or not at all.

    - ``folder``: must not exist, or be an evaluation to ``overwrite``
    - ``config``: of our networks and PyTorch's
    - ``provenance``: of the panel's data
    - ``finish``: adds files to the evaluation's folder before it appears
    - ``executor``: where networks train and slow baselines are made

    Raises UsageError for an unknown baseline or one whose library is not installed, and for groups
    of other series; DataError when the panel is too short or no series belonged to the universe at
    a cutoff.
    """
    began = time.perf_counter()
    config, options = config or Config(), options or BacktestOptions()
    callbacks = callbacks or BacktestCallbacks()
    folder = folder.resolve()
    check_folder(folder, overwrite=overwrite)
    if options.with_torch:
        check_torch(config, refit=options.refit)
    if options.groups:
        options.groups.of(panel.ids)  # before the work
    names, cache = options.runner_names, options.cache
    config, panel = with_declared(config, panel)
    panel, own = _aligned(panel, options)
    windows = options.n_windows or usual_windows(len(panel.times), config, options.step_size)
    options = dataclasses.replace(options, n_windows=windows)
    cutoffs = cutoffs_of(panel, config.horizon, windows, options.step_size)
    known = panel.until(panel.times[cutoffs[0]])
    with Runner(
        names, config.horizon, LEVELS, known, season=config.season, cache=cache, executor=executor
    ) as runner:
        forecasters = Forecasters.fit(panel, config, options, runner, callbacks, executor)
        fitting = time.perf_counter() - began
        with atomic.write_folder(folder, replace=overwrite) as temporary:
            tables = write_forecasts(
                temporary / FORECASTS, forecasters, options, default_season(known.frequency), own,
                on_forecast=callbacks.forecast,
            )  # fmt: skip
            seconds = _seconds(forecasters, fitting, time.perf_counter() - began)
            stamped = (provenance or Provenance()).stamped()
            summary = summarise(
                forecasters, options, tables, seconds, stamped, own_ends=own is not None
            )
            evaluation = Evaluation(temporary, *tables, summary)
            evaluation.write()
            if finish:
                finish(evaluation)
    return dataclasses.replace(evaluation, folder=folder)


def _aligned(panel: Panel, options: BacktestOptions) -> tuple[Panel, OwnEnds | None]:
    """The panel, its series' ends aligned where the options say so."""
    if options.membership is not None and options.ends == "own":
        raise UsageError("dates of membership belong to common cutoffs; leave out ends = own")
    return aligned_if("common" if options.membership is not None else options.ends, panel)


@dataclasses.dataclass(frozen=True)
class Forecasters:
    """All that forecasts in an evaluation.

    - ``networks``: ours
    - ``runner``: of the baselines
    - ``torch``: PyTorch's networks, for some of the series or none
    - ``torch_failed``: series that PyTorch could not train, with the reason
    """

    networks: RollingOrigin
    runner: Runner
    torch: RollingOrigin | None = None
    torch_failed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @staticmethod
    def fit(
        panel: Panel,
        config: Config,
        options: BacktestOptions,
        runner: Runner,
        callbacks: BacktestCallbacks,
        executor: swarm.Executor | None = None,
    ) -> "Forecasters":
        """Train our networks, and PyTorch's where the options say so."""
        assert options.n_windows is not None, "it is decided where the cutoffs are"
        networks = RollingOrigin.fit(
            panel, config, options.n_windows, options.step_size, refit=options.refit,
            level=LEVELS, seed=options.seed, executor=executor, on_progress=callbacks.training,
        )  # fmt: skip
        if not options.with_torch:
            return Forecasters(networks, runner)
        model, cutoffs = networks.parts[0]
        ids = torch_sample(model.ids, options.torch_sample)
        known = panel.until(panel.times[cutoffs[0]]).only(ids)
        trained = by_torch(networks, known, options.seed, callbacks.torch, executor)
        return Forecasters(networks, runner, *trained)

    @property
    def model(self) -> str:
        """The column of our networks."""
        return self.networks.config.column

    def forecasts(self) -> Iterator["Forecasts"]:
        """The forecasts of a batch of series after the other."""
        for origins, forecasts in self.networks.batches():
            parts = [origins.keys, forecasts, self.runner.run(origins)]
            if self.torch is not None:
                parts.append(_as_torch(self.torch.forecasts(origins), self.model))
            frame = pd.concat(parts, axis=1).assign(**{LATEST: origins.latest})
            yield Forecasts(origins, frame)


class Forecasts(NamedTuple):
    """All forecasts of a batch of series; ``frame``: keys, every model's columns and ``latest``."""

    origins: Origins
    frame: pd.DataFrame

    def of_members(self, membership: Membership | None) -> "Forecasts":
        """Those from cutoffs at which the series belonged to the universe."""
        if membership is None:
            return self
        ids, cutoffs = self.frame["unique_id"].to_numpy(), self.frame["cutoff"].to_numpy()
        frame = self.frame[membership.holds(ids, cutoffs)].reset_index(drop=True)
        return self._replace(frame=frame)

    def to_store(self) -> pd.DataFrame:
        """Forecasts as float32, half the room; the keys stay as they are."""
        frame = self.frame.drop(columns=LATEST)
        return frame.astype(dict.fromkeys(frame.columns[len(KEYS) :], np.float32))


def write_forecasts(
    path: Path,
    forecasters: Forecasters,
    options: BacktestOptions,
    season: int,
    own: OwnEnds | None = None,
    *,
    on_forecast: Callable[[int, int], None] | None = None,
) -> Tables:
    """Forecast all series batch by batch into a Parquet file; returns the tables of all.

    Arguments as of :func:`forecast_batches`. Raises DataError when there is nothing to write.
    """
    batches = forecast_batches(path, forecasters, options, season, own, on_forecast=on_forecast)
    if not batches:
        raise DataError(NOTHING)
    return Tables.combined(batches)


def forecast_batches(
    path: Path,
    forecasters: Forecasters,
    options: BacktestOptions,
    season: int,
    own: OwnEnds | None = None,
    *,
    on_forecast: Callable[[int, int], None] | None = None,
) -> list[Tables]:
    """Forecast series batch by batch into a Parquet file; returns the tables of each.

    - ``season``: steps in that of most series at the first cutoff; a batch may have another
    - ``own``: where series' ends were aligned; the file has their own times
    """
    batches, done, total = list[Tables](), 0, len(forecasters.networks.panel.ids)
    whole, step = forecasters.networks.panel, options.step_size
    first = whole.times[forecasters.networks.cutoffs[0]]
    with FrameWriter(path) as writer:
        for every in forecasters.forecasts():
            forecasts, panel = every.of_members(options.membership), every.origins.panel
            done += len(panel.ids)
            if forecasts.frame.empty:
                continue
            batches.append(
                Tables.of_batch(
                    forecasts.frame,
                    panel,
                    forecasters.model,
                    step,
                    first_cutoff=first,
                    season=season,
                )
            )
            if on_forecast:
                on_forecast(done, total)
            stored = forecasts.to_store()
            writer.write(stored if own is None else own.restored(stored))
    return batches


def summarise(
    forecasters: Forecasters,
    options: BacktestOptions,
    tables: Tables,
    seconds: Seconds,
    provenance: Provenance,
    *,
    own_ends: bool = False,
) -> Summary:
    """The summary of an evaluation whose tables are complete."""
    networks, torch = forecasters.networks, forecasters.torch
    panel, cutoffs = networks.panel, networks.panel.times[networks.cutoffs]
    return Summary(
        model=forecasters.model,
        models=tuple(dict.fromkeys(tables.scores["model"])),
        series=int(tables.scores["unique_id"].nunique()),
        cutoffs=len(cutoffs),
        step_size=options.step_size,
        horizon=networks.config.horizon,
        levels=tuple(f"{level:g}" for level in networks.level),
        first_cutoff=show_time(cutoffs[0]),
        last_cutoff=show_time(cutoffs[-1]),
        first=show_time(panel.times[0]),
        last=show_time(panel.times[-1]),
        refit=options.refit,
        seed=options.seed,
        config=networks.config,
        target=panel.target,
        skipped={**panel.skipped, **_without_scores(networks, tables, options.membership)},
        failed=_failed(forecasters),
        membership=options.membership is not None,
        own_ends=own_ends or None,
        torch_series=len(torch.panel.ids) if torch is not None else None,
        groups=options.groups.of(panel.ids) if options.groups else {},
        seconds=seconds,
        peak_memory_gb=_peak_memory(forecasters),
        provenance=provenance,
    )


def torch_sample(ids: Sequence[str], most: int) -> list[str]:
    """The series that PyTorch trains, evenly picked."""
    return list(ids[:: max(1, len(ids) // max(1, most))][:most])


def by_torch(
    networks: RollingOrigin,
    known: Panel,
    seed: int,
    on_series: Callable[[int, int], None] | None,
    executor: swarm.Executor | None,
) -> tuple[RollingOrigin | None, dict[str, str]]:
    """Networks of some series trained by PyTorch on what ours have seen, ``known``.

    Also returns the series on which it failed, with the reason.
    """
    from forecaster.evaluation.baselines import fit_by_torch

    ids = known.ids
    try:
        trained = fit_by_torch(known, networks.config, seed, executor=executor, on_series=on_series)
    except DataError as error:
        return None, dict.fromkeys(ids, str(error).splitlines()[-1].strip())
    failed = {name: str(why) for name, why in trained.skipped.items() if name in ids}
    both = networks.panel.only([name for name in networks.panel.ids if name in set(trained.ids)])
    return RollingOrigin(both, ((trained, networks.cutoffs),), networks.level), failed


def _as_torch(forecasts: pd.DataFrame, model: str) -> pd.DataFrame:
    """Forecasts under the name of PyTorch."""
    from forecaster.evaluation.baselines import COLUMN

    return forecasts.rename(columns=renamed_columns(forecasts, model, COLUMN))


def _without_scores(
    networks: RollingOrigin, tables: Tables, membership: Membership | None
) -> dict[str, Skipped]:
    """Series that were observed at no cutoff, or not after one, or were no members."""
    times = networks.panel.times[networks.cutoffs]
    kind = Kind.NO_SCORES if membership is None else Kind.NO_SCORES_AS_MEMBER
    reason = Skipped(kind, first=show_time(times[0]), last=show_time(times[-1]))
    return dict.fromkeys(sorted({*networks.panel.ids} - {*tables.scores["unique_id"]}), reason)


def _failed(forecasters: Forecasters) -> dict[str, Mapping[str, str]]:
    """By baseline, the series it failed on and why; only baselines that failed on any."""
    failed = forecasters.runner.failed | {"torch": dict(forecasters.torch_failed)}
    return {name: reasons for name, reasons in failed.items() if reasons}


def _seconds(forecasters: Forecasters, fitting: float, total: float) -> Seconds:
    torch = forecasters.torch
    return Seconds(
        training=sum(m.provenance["training_seconds"] for m, _ in forecasters.networks.parts),
        fitting=round(fitting, 2),
        torch=round(torch.parts[0][0].provenance["training_seconds"], 2) if torch else None,
        baselines={name: round(s, 2) for name, s in forecasters.runner.seconds.items()},
        all=round(total, 2),
    )


def _peak_memory(forecasters: Forecasters) -> dict[str, float]:
    """GB of this process, and of the processes of baselines and of PyTorch, each together."""
    memory = {"forecaster": memory_used()[1], "baselines": sum(forecasters.runner.memory.values())}
    if forecasters.torch is not None:
        report = forecasters.torch.parts[0][0].report
        memory["torch"] = int(report.groupby("process")["process_memory"].max().sum())
    return {name: round(kib / 2**20, 2) for name, kib in memory.items()}
