"""Train the networks of an evaluation, then forecast and measure its series, shard by shard.

First the networks of all series are trained, once for each training that the options ask for. Then
some series at a time are forecast and measured. Finished parts are stored, so that an interrupted
evaluation can be continued. Forecasts are the same bits whatever the number of shards, and scores
the same but for rounding.
"""

import collections
import dataclasses
import functools
import gc
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from forecaster import swarm
from forecaster.errors import Skipped
from forecaster.evaluation import (
    AT_ONCE,
    LEVELS,
    BacktestCallbacks,
    BacktestOptions,
    Evaluation,
    Forecasters,
    Provenance,
    RollingOrigin,
    Seconds,
    Summary,
    advised_of_windows,
    as_of_cutoff,
    by_torch,
    cutoffs_in,
    groups_of,
    join_parts,
    measure_part,
    peers_of,
    read_part,
    settled_by_known,
    summary_of_parts,
    torch_sample,
    usual_windows,
    warn_of_ended,
)
from forecaster.evaluation.baselines import Runner, check_columns
from forecaster.files import atomic
from forecaster.forecasting import (
    Model,
    Widths,
    premium_of,
    widths_of,
)
from forecaster.pipeline.beginning import Begun
from forecaster.pipeline.blocks import Past, shards_of
from forecaster.pipeline.requests import Callbacks
from forecaster.pipeline.scanning import scan
from forecaster.pipeline.train_run import train_shards
from forecaster.series import Flags, OwnEnds, default_season
from forecaster.storage import SavedPart, load_parts


class Trained(NamedTuple):
    """The networks of one training, stored on the disk.

    - ``known``: the data that they learned from
    - ``season``: number of steps in the season of most series at that time
    - ``cutoffs``: the cutoffs that they forecast from, as positions on the axis of all times
    - ``parts``: the finished shards
    - ``widths``: of all bands, see :func:`forecaster.forecasting.widths_of`
    - ``skipped``: series without a network, with the reason
    - ``shard_of``: the shard with the network of each series
    """

    known: Past
    season: int
    cutoffs: np.ndarray
    parts: list[SavedPart]
    widths: Widths
    skipped: dict[str, Skipped]
    shard_of: dict[str, Path]

    def model(self, ids: Sequence[str]) -> Model:
        """Return a model of these series' networks; if none has one, a model of another series."""
        there = [name for name in ids if name in self.shard_of] or [next(iter(self.shard_of))]
        of_shard: dict[Path, list[str]] = {}
        for name in there:
            of_shard.setdefault(self.shard_of[name], []).append(name)
        return load_parts(of_shard, self.widths)


class Calls(NamedTuple):
    """The executor and the callbacks of an evaluation.

    - ``finish``: adds files to the evaluation's folder before it appears
    - ``executor``: where networks train and slow baselines run, as for :func:`forecaster.fit`
    - ``fetching``, ``evaluating``: called while series are fetched and networks train, and after
      that
    """

    finish: Callable[[Evaluation], None] | None = None
    executor: swarm.Executor | None = None
    fetching: Callbacks = Callbacks()
    evaluating: BacktestCallbacks = BacktestCallbacks()


class Job(NamedTuple):
    """An evaluation in progress; ``flags``: rows are not learned from once their flag is known."""

    work: Begun
    flags: Flags | None
    options: BacktestOptions
    calls: Calls


def evaluate_shards(
    job: Job, folder: Path, provenance: Provenance, *, overwrite: bool
) -> Evaluation:
    """Do the remaining work of an evaluation, and write its folder, whole or not at all.

    The result of several shards is read in its short form. Raises NoSeries if no network can be
    used, DataError if there is no forecast.
    """
    began = time.perf_counter()
    options, request = job.options, job.work.unfinished.request
    in_one = request.series_per_shard is None
    ends = "common" if options.membership is not None else options.ends
    past = Past.of_all(job.work.store, request, job.flags, ends)
    if in_one:
        job.work.lock.close()  # all series have been read
    check_columns(options.runner_names, past.layout.channels or ())
    measuring = _Measuring(job, trained := _trained(job, past))
    fitting = time.perf_counter() - began
    parts = measuring.parts()
    past = measuring.past
    if past.times is not None and not past.own:
        cutoffs = past.times[np.concatenate([each.cutoffs for each in trained])]
        counts = {name: int((cutoffs < past.ends[name]).sum()) for name in measuring.ids}
        warn_of_ended(counts, len(cutoffs))
    summaries = [summary for _, summary in parts]
    baselines = collections.Counter[str]()
    for summary in summaries:
        baselines.update(summary.seconds.baselines)
    seconds = Seconds(
        training=sum(part.seconds for each in trained for part in each.parts),
        fitting=round(fitting, 2),
        torch=next((s.seconds.torch for s in summaries if s.seconds.torch is not None), None),
        baselines={name: round(total, 2) for name, total in baselines.items()},
        all=round(time.perf_counter() - began, 2),
    )
    joined = summary_of_parts(
        summaries, seconds=seconds, provenance=provenance,
        groups=options.groups.of(measuring.ids) if options.groups else {},
    )  # fmt: skip
    skipped = {**past.request.skipped, **trained[0].skipped, **joined.skipped}
    with atomic.write_folder(folder, replace=overwrite) as temporary:
        measured = [part for part, its in parts if its.series]
        join_parts(measured, temporary, dataclasses.replace(joined, skipped=skipped))
        evaluation = Evaluation.read(temporary, in_short=not in_one)
        if job.calls.finish:
            job.calls.finish(evaluation)
    return dataclasses.replace(evaluation, folder=folder)


def _trained(job: Job, past: Past) -> list[Trained]:
    """Train all networks, or find networks that have been trained already."""
    config, options, times = past.request.config, job.options, past.times
    assert times is not None
    most = int(past.lengths.max())
    windows = options.n_windows or usual_windows(
        past.lengths, len(times), past.target, config, options.step_size
    )
    cutoffs = cutoffs_in(times, config.horizon, windows, options.step_size)
    settle = functools.partial(
        settled_by_known, most=most, n_windows=windows, step_size=options.step_size
    )
    trained: list[Trained] = []
    for number, group in enumerate(groups_of(cutoffs, refit=options.refit)):
        known = dataclasses.replace(
            past, cutoff=times[group[0]], settle=None if trained else settle
        )  # fmt: skip
        with advised_of_windows(most, config, windows, options.step_size):
            trained.append(_train(job, known, group, number))
        # The first cutoff decides whether there are networks.
        past = past.with_config(trained[0].known.request.config)
    return trained


def _train(job: Job, known: Past, cutoffs: np.ndarray, number: int) -> Trained:
    """Train the networks that forecast from some cutoffs."""
    known, scanned = scan(known)
    stage = job.work.unfinished.stage(number)
    parts = train_shards(known, scanned, stage, job.calls.executor, job.calls.fetching)
    assert known.cutoff is not None
    skipped = scanned.skipped | {name: why for part in parts for name, why in part.skipped.items()}
    skipped = as_of_cutoff(skipped, known.cutoff)
    shard_of = {name: part.folder for part in parts for name in part.ids}
    widths = widths_of(known.request.config, [part.scores for part in parts])
    frequency = known.frequency or known.known(scanned.ids).frequency
    return Trained(known, default_season(frequency), cutoffs, parts, widths, skipped, shard_of)


@dataclasses.dataclass(frozen=True)
class _Measuring:
    """Forecasts and measures the series that have networks; ``trained``: at least one training."""

    job: Job
    trained: Sequence[Trained]

    @property
    def past(self) -> Past:
        """Reads the series."""
        return self.trained[0].known

    @property
    def ids(self) -> list[str]:
        """The series that have networks."""
        return list(self.trained[0].shard_of)

    def parts(self) -> list[tuple[Path, Summary]]:
        """Forecast and measure all series that are not yet measured; return all parts in order."""
        ids, shard = self.ids, self.past.request.series_per_shard
        size = len(ids)
        if shard is not None:
            # Each training adds a model of the same series. Batches are those of a single shard.
            size = max(1, shard // len(self.trained) // AT_ONCE) * AT_ONCE
        parts: list[tuple[Path, Summary]] = []
        for number, names in enumerate(shards_of(ids, size)):
            folder, key = self.job.work.unfinished.measured(number), self._key(names)
            summary = read_part(folder, key)
            if summary is None:
                summary = self._measure(names, folder, key, number * size)
            parts.append((folder, summary))
        return parts

    def _measure(self, names: Sequence[str], folder: Path, key: str, done: int) -> Summary:
        """Forecast and measure some series, and write the results; return their summary.

        ``done``: the number of series before them
        """
        config, calls = self.past.request.config, self.job.calls
        networks, own = self._rolling(names)
        known = self.past.known(names[:1])
        runner = Runner(
            self.job.options.runner_names, config.horizon, LEVELS, known,
            season=config.season, executor=calls.executor, premium=premium_of(config, known),
        )  # fmt: skip
        on_forecast = calls.evaluating.forecast or (lambda done, total: None)
        try:
            return measure_part(
                folder, Forecasters(networks, runner, *self._torch), self.job.options,
                self.trained[0].season, own, key,
                on_forecast=lambda some, _: on_forecast(done + some, len(self.ids)),
            )  # fmt: skip
        finally:
            if self.past.held is None:
                gc.collect()

    def _rolling(self, names: Sequence[str]) -> tuple[RollingOrigin, OwnEnds | None]:
        """Return the networks of some series, ready to forecast from all cutoffs."""
        parts = [(each.model(names), each.cutoffs) for each in self.trained]
        peers = peers_of(model for model, _ in parts)
        panel, own = dataclasses.replace(self.past, peers=peers).aligned(names)
        return RollingOrigin.of_models(panel, parts, LEVELS, own), own

    @functools.cached_property
    def _sample(self) -> list[str]:
        options = self.job.options
        return torch_sample(self.ids, options.torch_sample) if options.with_torch else []

    @functools.cached_property
    def _torch(self) -> tuple[RollingOrigin | None, dict[str, str]]:
        """PyTorch's networks of a sample, and the series that it failed on, with the reason."""
        if not self._sample:
            return None, {}
        networks, _ = self._rolling(self._sample)
        known, on_series = self.past.known(self._sample), self.job.calls.evaluating.torch
        return by_torch(networks, known, self.job.options.seed, on_series)

    def _key(self, names: Sequence[str]) -> str:
        """Return a hash of the inputs of some series' forecasts, except for the request."""
        told = "\0".join([*names, "", *self._sample])
        digest = hashlib.sha256(told.encode("utf-8", "surrogateescape"))
        for each in self.trained:
            for part in each.widths:
                digest.update(part.tobytes())
            digest.update("".join("01"[name in each.shard_of] for name in names).encode())
        return digest.hexdigest()
