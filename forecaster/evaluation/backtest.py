"""Evaluate a panel: train, then forecast and measure some series at a time."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from forecaster import swarm
from forecaster.errors import (
    DataError,
    Kind,
    Skipped,
    UsageError,
    check_flag,
    check_names,
    check_seed,
    check_type,
    check_whole,
    has,
)
from forecaster.evaluation.baselines import (
    BASELINES,
    Runner,
    check_available,
    check_columns,
    check_torch,
)
from forecaster.evaluation.cutoffs import cutoffs_in, usual_windows
from forecaster.evaluation.evaluation import (
    FORECASTS,
    Evaluation,
    Provenance,
    Seconds,
    Summary,
    check_folder,
)
from forecaster.evaluation.rolling_origin import RollingOrigin, write_tables
from forecaster.evaluation.scores.tables import TOGETHER, Tables, false_discovery, means_of_sums
from forecaster.files import as_folder, atomic
from forecaster.forecasting import FORECAST_BY, KEYS, Config, Method, checked_config, with_declared
from forecaster.ingest import Groups, Membership
from forecaster.series import (
    Panel,
    aligned_if,
    default_season,
    findings_of,
    say_findings,
    show_time,
)

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
"""The bands of an evaluation, in percent: their bounds and the median are the quantiles 5 %, 10 %,
..., 95 %; one band more is wider."""
USUAL = ("naive", "drift", "ewma")
"""The usual baselines, which need no library."""


@dataclasses.dataclass(frozen=True)
class BacktestOptions:
    """What to evaluate, and which baselines to compare with.

    - ``n_windows``: number of cutoffs, the latest ones; None: 250, or fewer for short series
    - ``step_size``: times between two cutoffs
    - ``baselines``: names of :data:`forecaster.evaluation.baselines.BASELINES`, and ``torch``, the
      same networks trained by PyTorch; ``naive`` is always among them. None: those of
      :data:`USUAL`, and ``garch`` for prices where its library is installed
    - ``refit``: train at the first cutoff only (False), at each (True), or after this many cutoffs
    - ``seed``: the seed of our networks and of PyTorch's
    - ``torch_sample``: number of series that PyTorch trains, evenly spaced among all
    - ``membership``: if given, only forecasts from cutoffs at which the series belonged to the
      universe count
    - ``ends``: as for :func:`forecaster.cross_validation`
    - ``groups``: groups of series, such as sectors, that the report summarises

    Raises UsageError for a value of another type, and for own ends beside a membership.
    """

    n_windows: int | None = None
    step_size: int = 1
    baselines: tuple[str, ...] | None = ("naive", "ewma")
    refit: bool | int = False
    seed: int = 0
    torch_sample: int = 50
    membership: Membership | None = None
    ends: str = "auto"
    groups: Groups | None = None

    def __post_init__(self) -> None:
        if self.n_windows is not None:
            check_whole("n_windows", self.n_windows, 1)
        check_whole("step_size", self.step_size, 1)
        if self.baselines is not None:
            check_names("baselines", self.baselines)
        check_seed(self.seed)
        check_whole("torch_sample", self.torch_sample, 1)
        expected = "a forecaster.ingest.Membership or None"
        check_type("membership", self.membership, Membership | None, expected)
        check_type("groups", self.groups, Groups | None, "a forecaster.ingest.Groups or None")
        if self.membership is not None and self.ends == "own":
            raise UsageError("dates of membership need common cutoffs; leave out ends = own")

    def check(self, config: Config) -> None:
        """Raise UsageError for models that are not available here, or not beside these settings."""
        check_available(self.runner_names, config.model)
        if self.with_torch:
            check_torch(config, refit=self.refit)

    def settled(self, panel: Panel) -> "BacktestOptions":
        """Return the options with the usual baselines of a panel where none are named."""
        if self.baselines is not None:
            return self
        garch = ("garch",) if panel.target != "y" and has(BASELINES["garch"].library) else ()
        return dataclasses.replace(self, baselines=(*USUAL, *garch))

    @property
    def with_torch(self) -> bool:
        """Whether PyTorch trains networks too."""
        return "torch" in (self.baselines or ())

    @property
    def runner_names(self) -> list[str]:
        """The baselines other than PyTorch, each once, naive first."""
        named = USUAL if self.baselines is None else self.baselines
        return list(dict.fromkeys(["naive", *(name for name in named if name != "torch")]))


def evaluate_to_folder(
    folder: Path,
    panel: Panel,
    config: Config | None = None,
    options: BacktestOptions | None = None,
    *,
    overwrite: bool = False,
    executor: swarm.Executor | None = None,
    provenance: Provenance | None = None,
    checkpoints: Callable[[int], swarm.Checkpoint] | None = None,
    on_progress: Callable[[swarm.Progress], None] | None = None,
    on_torch: Callable[[int, int], None] | None = None,
    on_forecast: Callable[[int, int], None] | None = None,
    finish: Callable[[Evaluation, RollingOrigin], None] | None = None,
) -> Evaluation:
    """Forecast from a rolling origin by our networks and baselines; score and test the forecasts.

    The results are written into a folder, which appears whole or not at all.

    - ``folder``: a new folder, or an evaluation to ``overwrite``
    - ``config``: settings of our networks and PyTorch's
    - ``executor``: where networks train and slow baselines run
    - ``provenance``: where the panel comes from; by default unknown
    - ``checkpoints``: where each training, counted from zero, keeps its state, so that it can be
      resumed
    - ``on_progress``: called from time to time while our networks train
    - ``on_torch(done, total)``, ``on_forecast(done, total)``: called after series that PyTorch has
      trained, or that were forecast
    - ``finish``: adds files to the folder before it appears; it may use the networks

    Raises UsageError for an unknown baseline or one whose library is not installed, and for groups
    that name other series; DataError when the panel is too short, or when no series belonged to the
    universe at any cutoff.
    """
    began = time.perf_counter()
    options = BacktestOptions() if options is None else options
    check_type("panel", panel, Panel, "a Panel")
    check_flag("overwrite", overwrite)
    config, folder = checked_config(config), as_folder(folder).resolve()
    check_folder(folder, overwrite=overwrite)
    options = options.settled(panel)
    options.check(config)
    atomic.make_folder(folder.parent)
    check_columns(options.runner_names, panel.channels)
    groups = options.groups.of(panel.ids) if options.groups else {}
    known, networks = _trained(panel, config, options, executor, checkpoints, on_progress)
    torch = None, {}
    if options.with_torch:
        sample = torch_sample(networks.parts[0][0].ids, options.torch_sample)
        torch = by_torch(networks, known.only(sample), options.seed, on_torch)
    fitting = time.perf_counter() - began
    runner = Runner(options.runner_names, networks.config, known, LEVELS, executor, torch)
    with atomic.write_folder(folder, replace=overwrite) as temporary:
        tables = _measure(temporary / FORECASTS, known, networks, runner, options, on_forecast)
        networks.warn_of_ended()
        summary = dataclasses.replace(
            _summarise(networks, runner, options, tables.scores, fitting, began),
            groups={name: groups[name] for name in networks.panel.ids if name in groups},
            provenance=(provenance or Provenance()).stamped(),
        )
        Evaluation(temporary, *tables, summary).write()
        evaluation = Evaluation.read(temporary)
        if finish:
            finish(evaluation, networks)
    return dataclasses.replace(evaluation, folder=folder)


def _trained(
    panel: Panel,
    config: Config,
    options: BacktestOptions,
    executor: swarm.Executor | None,
    checkpoints: Callable[[int], swarm.Checkpoint] | None,
    on_progress: Callable[[swarm.Progress], None] | None,
) -> tuple[Panel, RollingOrigin]:
    """Return the panel as it was known at the first cutoff, and our networks, trained."""
    config, panel = with_declared(config, panel)
    ends = "common" if options.membership is not None else options.ends
    panel, own = aligned_if(ends, panel)
    windows = options.n_windows or usual_windows(
        panel.mask.sum(1), len(panel.times), panel.target, config, options.step_size
    )
    first = cutoffs_in(panel.times, config.horizon, windows, options.step_size)[0]
    known = panel.until(panel.times[first])
    found = [one for one in findings_of(known.masked()) if not one.of_latest]
    say_findings(found, len(panel.ids))
    networks = RollingOrigin.fit(
        panel, config, windows, options.step_size, refit=options.refit, level=LEVELS,
        seed=options.seed, ends="common", executor=executor, checkpoints=checkpoints,
        on_progress=on_progress,
    )  # fmt: skip
    return known, dataclasses.replace(networks, ends=own)


_LARGEST = 1e30  # value whose forecasts float32 holds, however far they reach


def batches_of(
    networks: RollingOrigin, runner: Runner, membership: Membership | None
) -> Iterator[tuple[Panel, pd.DataFrame]]:
    """Yield batches of series, and their forecasts from cutoffs at which they were members.

    The frame has the keys, and the columns of every model.
    """
    for origins, forecasts in networks.batches():
        frame = pd.concat([origins.keys, forecasts, runner.run(origins)], axis=1)
        if membership is not None:
            ids, cutoffs = frame["unique_id"].to_numpy(), frame["cutoff"].to_numpy()
            frame = frame[membership.holds(ids, cutoffs)].reset_index(drop=True)
        yield origins.panel, frame


def number_type(panel: Panel) -> type[np.floating[Any]]:
    """Return the type in which forecasts are stored: float32, unless a series is beyond it.

    Forecasts may be far from their series, so series near its limits (3e38, 1e-38) are beyond it.
    """
    values = np.abs(np.where(panel.mask, panel.channel(panel.target), 0.0)).max(axis=1)
    beyond = (values > _LARGEST) | ((values > 0) & (values < 1 / _LARGEST))
    return np.float64 if beyond.any() else np.float32


def torch_sample(ids: Sequence[str], most: int) -> list[str]:
    """Return the series that PyTorch trains: ``most`` at most, evenly spaced."""
    return list(ids[:: max(1, len(ids) // max(1, most))][:most])


def by_torch(
    networks: RollingOrigin,
    known: Panel,
    seed: int,
    on_series: Callable[[int, int], None] | None = None,
) -> tuple[RollingOrigin | None, dict[str, str]]:
    """Let PyTorch train networks of some series on ``known``, the data that our networks have seen.

    Returns the networks, and the series on which PyTorch failed, with the reason.
    """
    from forecaster.evaluation.baselines.torch_lstm import fit_by_torch

    ids = known.ids
    try:
        trained = fit_by_torch(known, networks.config, seed, on_series)
    except DataError as error:
        return None, dict.fromkeys(ids, str(error).splitlines()[-1].strip())
    failed = {name: str(why) for name, why in trained.skipped.items() if name in ids}
    both = networks.panel.only([name for name in networks.panel.ids if name in set(trained.ids)])
    return RollingOrigin(both, ((trained, networks.cutoffs),), networks.level), failed


def _measure(
    path: Path,
    known: Panel,
    networks: RollingOrigin,
    runner: Runner,
    options: BacktestOptions,
    on_forecast: Callable[[int, int], None] | None,
) -> Tables:
    """Write the forecasts of all series into a file, batch by batch; return their tables.

    Raises DataError where there is no forecast.
    """
    batches, number = list[Tables](), number_type(networks.panel)
    first, season = known.times[-1], default_season(known.frequency)

    def made() -> Iterator[pa.Table]:
        done = 0
        for panel, frame in batches_of(networks, runner, options.membership):
            done += len(panel.ids)
            if frame.empty:
                continue
            column = networks.config.column
            batches.append(Tables.of_batch(frame, panel, column, options.step_size, first, season))
            if on_forecast:
                on_forecast(done, len(networks.panel.ids))
            numbers = frame.columns[len(KEYS) :].drop(FORECAST_BY, errors="ignore")
            stored = frame.astype(dict.fromkeys(numbers, number))
            stored = stored if networks.ends is None else networks.ends.restored(stored)
            yield pa.Table.from_pandas(stored, preserve_index=False)

    write_tables(path, made())
    if not any(len(tables.scores) for tables in batches):
        raise DataError("no series belonged to the universe at any cutoff; look at its file")
    return joined(batches)


def joined(batches: Sequence[Tables]) -> Tables:
    """Return the tables of all series from those of batches, with adjusted p-values."""
    scores, tests, daily = (
        pd.concat(some, ignore_index=True) for some in zip(*batches, strict=True)
    )
    p_values = tests.groupby(list(TOGETHER))["p_value"]
    adjusted = tests.assign(p_adjusted=p_values.transform(false_discovery))
    return Tables(scores, adjusted, means_of_sums(daily))


def _summarise(
    networks: RollingOrigin,
    runner: Runner,
    options: BacktestOptions,
    scores: pd.DataFrame,
    fitting: float,
    began: float,
) -> Summary:
    """Return the summary without groups and provenance.

    ``fitting``: seconds until all were trained; ``began``: when the evaluation began
    """
    panel, cutoffs, torch = networks.panel, networks.panel.times[networks.cutoffs], runner.torch
    first, last = show_time(cutoffs[0]), show_time(cutoffs[-1])
    # Series without scores are not observed at and after a cutoff, or are no members then.
    kind = Kind.NO_SCORES if options.membership is None else Kind.NO_SCORES_AS_MEMBER
    without = sorted({*panel.ids} - {*scores["unique_id"]})
    unscored = Skipped(kind, first=first, last=last)
    methods = Counter[str]()
    if FORECAST_BY in scores:
        methods.update(scores.drop_duplicates("unique_id")[FORECAST_BY])
    failed = {
        networks.config.column: {name: str(why) for name, why in networks.lost.items()},
        **runner.failed,
    }
    return Summary(
        model=networks.config.column,
        models=tuple(dict.fromkeys(scores["model"])),
        series=int(scores["unique_id"].nunique()),
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
        own_ends=True if networks.ends else None,
        torch_series=len(torch.panel.ids) if torch is not None else None,
        seconds=_seconds(networks, runner, fitting, began),
        provenance=Provenance(),
        forecast_by={method: methods[method] for method in Method if methods[method]},
    )


def _seconds(networks: RollingOrigin, runner: Runner, fitting: float, began: float) -> Seconds:
    """Return how long the steps took; arguments as of :func:`_summarise`."""
    trained = [model.provenance["training_seconds"] for model, _ in networks.parts]
    torch = runner.torch and runner.torch.parts[0][0].provenance["training_seconds"]
    return Seconds(
        training=sum(trained),
        fitting=round(fitting, 2),
        all=round(time.perf_counter() - began, 2),
        torch=None if torch is None else round(torch, 2),
        baselines={name: round(seconds, 2) for name, seconds in runner.seconds.items()},
    )
