"""Train the networks of an evaluation, then forecast and measure its series, shard by shard.

First the networks of all series are trained, once for each training that the options ask for; an
interrupted evaluation keeps its finished shards. Then some series at a time are forecast and
measured. Forecasts are the same bits whatever the number of shards, and scores the same but for
rounding.
"""

import dataclasses
import functools
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from forecaster.errors import Skipped
from forecaster.evaluation import (
    AT_ONCE,
    LEVELS,
    BacktestOptions,
    Evaluation,
    Provenance,
    RollingOrigin,
    Seconds,
    Summary,
    advised_of_windows,
    as_of_cutoff,
    by_torch,
    check_folder,
    cutoffs_in,
    groups_of,
    join_parts,
    measure_part,
    peers_of,
    settled_by_known,
    torch_sample,
    usual_windows,
    warn_of_ended,
)
from forecaster.evaluation.baselines import Runner, check_columns
from forecaster.files import from_text
from forecaster.forecasting import Config, Model, Widths, join_models, widths_of
from forecaster.ingest import flags_of
from forecaster.pipeline.beginning import Begun
from forecaster.pipeline.blocks import Past, Reader, past_of, scan, shards_of
from forecaster.pipeline.train_run import train_shards
from forecaster.series import default_season
from forecaster.storage import EvaluationRequest, ids_to_read, load_whole


class Trained(NamedTuple):
    """The networks of one training, stored on the disk.

    - ``known``: the data that they learned from
    - ``season``: number of steps in the season of most series at that time
    - ``cutoffs``: the cutoffs that they forecast from, as positions on the axis of all times
    - ``seconds``: that it took
    - ``skipped``: series without a network, with the reason
    - ``shard_of``: the shard with the network of each series
    - ``widths``: of all bands
    """

    known: Past
    season: int
    cutoffs: np.ndarray
    seconds: float
    skipped: dict[str, Skipped]
    shard_of: dict[str, Path]
    widths: Widths

    def model_of(self, ids: Sequence[str]) -> Model:
        """Return a model of these series' networks; if none has one, a model of another series."""
        there = [name for name in ids if name in self.shard_of] or [next(iter(self.shard_of))]
        of_shard: dict[Path, list[str]] = {}
        for name in there:
            of_shard.setdefault(self.shard_of[name], []).append(name)
        model = join_models([load_whole(folder).only(its) for folder, its in of_shard.items()])
        return dataclasses.replace(model, widths=self.widths)


def evaluate_shards(work: Begun, asked: EvaluationRequest, options: BacktestOptions) -> Evaluation:
    """Do the remaining work of an evaluation, and write its folder, whole or not at all.

    The result of several shards is read in its short form. Raises NoSeries if no network can be
    used, DataError if there is no forecast.
    """
    began, request = time.perf_counter(), work.unfinished.request
    folder = from_text(asked.folder)
    check_folder(folder, overwrite=asked.overwrite)
    provenance = Provenance(
        source=request.source, mask=request.mask, stale=dict(request.stale),
        data_sha256=work.store.index.digest(ids_to_read(request.ids, request.config)),
    ).stamped()  # fmt: skip
    in_one = request.series_per_shard is None
    # Rows are not learned from once their flag is known.
    flags = flags_of(work.store.flags(), request.mask) if request.mask else None
    ends = "common" if options.membership is not None else options.ends
    past = past_of(Reader.of(work.store, request), ends, flags)
    if in_one:
        work.lock.close()  # all series have been read
    check_columns(options.runner_names, past.layout.channels or ())
    trained = _trained(work, options, past)
    fitting = time.perf_counter() - began
    past, ids = trained[0].known, list(trained[0].shard_of)
    parts = _measured(work, options, trained)
    if not past.own:
        cutoffs = past.times[np.concatenate([each.cutoffs for each in trained])]
        warn_of_ended({name: int((cutoffs < past.ends[name]).sum()) for name in ids}, len(cutoffs))
    seconds = Seconds(
        training=sum(each.seconds for each in trained),
        fitting=round(fitting, 2),
        all=round(time.perf_counter() - began, 2),
    )
    groups = options.groups.of(request.ids) if options.groups else {}
    return join_parts(
        folder, parts, seconds, provenance, {n: groups[n] for n in ids if n in groups},
        {**past.request.skipped, **trained[0].skipped},
        overwrite=asked.overwrite, in_short=not in_one, finish=work.callbacks.on_evaluation,
    )  # fmt: skip


def _trained(work: Begun, options: BacktestOptions, past: Past) -> list[Trained]:
    """Train all networks, or find networks that have been trained already."""
    config, times, step = past.request.config, past.times, options.step_size
    windows = options.n_windows or usual_windows(
        past.lengths, len(times), past.target, config, step
    )
    cutoffs = cutoffs_in(times, config.horizon, windows, step)
    settle: Callable[[Config, str, int], Config]
    settle = functools.partial(settled_by_known, n_windows=windows)
    trained: list[Trained] = []
    for number, group in enumerate(groups_of(cutoffs, refit=options.refit)):
        with advised_of_windows(windows):
            known, scanned = scan(dataclasses.replace(past, cutoff=times[group[0]]), settle)
            parts = train_shards(known, scanned, work, number)
        # The first cutoff decides whether there are networks.
        past, settle = past.with_config(known.request.config), lambda config, *_: config
        reasons = {name: why for part in parts for name, why in part.skipped.items()}
        frequency = known.frequency or known.known(scanned.ids).frequency
        trained.append(
            Trained(
                known, default_season(frequency), group, sum(part.seconds for part in parts),
                as_of_cutoff(scanned.skipped | reasons, times[group[0]]),
                {name: part.folder for part in parts for name in part.ids},
                widths_of(known.request.config, [part.scores for part in parts]),
            )
        )  # fmt: skip
    return trained


def _measured(
    work: Begun, options: BacktestOptions, trained: Sequence[Trained]
) -> dict[Path, Summary]:
    """Forecast and measure all series; return all parts in order."""
    past, ids = trained[0].known, list(trained[0].shard_of)
    shard, size = past.request.series_per_shard, len(ids)
    if shard is not None:
        # Each training adds a model of the same series. Batches are those of a single shard.
        size = max(1, shard // len(trained) // AT_ONCE) * AT_ONCE
    on_forecast, torch = work.callbacks.on_forecast, _by_torch(work, trained, ids, options)
    parts: dict[Path, Summary] = {}
    for number, names in enumerate(shards_of(ids, size)):
        folder = work.unfinished.folder / f"measured-{number:04d}"
        networks, done = _rolling(trained, names), number * size
        known = past.known(names[:1])
        runner = Runner(options.runner_names, networks.config, known, LEVELS, work.executor, torch)
        parts[folder] = measure_part(
            folder, networks, runner, options, trained[0].season,
            on_forecast=lambda some, _, done=done: on_forecast(done + some, len(ids)),
        )  # fmt: skip
        if past.held is None:
            gc.collect()
    return parts


def _by_torch(
    work: Begun, trained: Sequence[Trained], ids: Sequence[str], options: BacktestOptions
) -> tuple[RollingOrigin | None, dict[str, str]]:
    """Return PyTorch's networks of a sample, and the series that it failed on, with the reason."""
    if not options.with_torch:
        return None, {}
    sample = torch_sample(ids, options.torch_sample)
    known = trained[0].known.known(sample)
    return by_torch(_rolling(trained, sample), known, options.seed, work.callbacks.on_torch)


def _rolling(trained: Sequence[Trained], names: Sequence[str]) -> RollingOrigin:
    """Return the networks of some series, ready to forecast from all cutoffs."""
    parts = [(each.model_of(names), each.cutoffs) for each in trained]
    peers = peers_of(model for model, _ in parts)
    panel, own = dataclasses.replace(trained[0].known, peers=peers).aligned(names)
    return RollingOrigin.of_models(panel, parts, LEVELS, own)
