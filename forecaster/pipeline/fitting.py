"""Fit a model to the series of a source, and continue a fit that was interrupted."""

import contextlib
import dataclasses
import platform
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from forecaster import __version__, swarm
from forecaster.config import Config
from forecaster.errors import ModelError
from forecaster.forecasting import Model, check_auxiliary, predict, widths_of
from forecaster.home import Home
from forecaster.ingest import (
    Store,
    check_flags,
    ingested,
    masked_rows,
)
from forecaster.pipeline.market import wanted_of, with_market_of
from forecaster.pipeline.reading import Reader, check_covariates
from forecaster.pipeline.requests import Callbacks, DataRequest, check_memory, request_of
from forecaster.pipeline.scanning import Scanned, scan
from forecaster.pipeline.training import train_shards
from forecaster.processes import check_guarded
from forecaster.series import Scaling, findings_in_words, findings_said, show_time
from forecaster.skipped import Skipped
from forecaster.storage import (
    OpenRun,
    SavedPart,
    UnfinishedFit,
    ids_to_read,
    save_shards,
    take_saved,
    tell_of_others,
)
from forecaster.swarm.recurrence import products_of


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts that a run stores about all its series.

    - ``config, target, provenance, skipped``: as in a :class:`forecaster.Model`
    - ``report``: a row per series about its training
    - ``covariates``: further inputs of the networks
    - ``events``: for each future covariate, the factor on the volatility of prices on the days that
      it marks; empty if there are none
    - ``responses``: the mean effect of a change of each future covariate by 1, as a share of the
      series; empty if series do not respond
    - ``shards``: the number of shards; None for a run of one shard
    """

    config: Config
    target: str
    provenance: Mapping[str, Any]
    skipped: Mapping[str, Skipped]
    report: pd.DataFrame
    covariates: Scaling
    events: Sequence[float] = ()
    responses: Sequence[float] = ()
    shards: int | None = None

    @staticmethod
    def of(run: OpenRun, model: Model) -> "RunFacts":
        """Return the facts of a run; ``model``: a model of any of its series."""
        shards = len(run.index.folders)
        return RunFacts(
            model.config, model.target, model.provenance, run.skipped, run.index.frame(),
            model.transform.covariates, model.transform.events,
            model.transform.usual_responses(), None if shards == 1 else shards,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SavedFit:
    """A fit that was saved in a folder, with the seconds it took.

    - ``facts``: the facts of the run
    - ``stale``: series that could not be updated before, with the reason
    - ``again``: the unfinished fit that tries series with lost workers again, if there are any
    """

    facts: RunFacts
    folder: Path
    seconds: float
    stale: dict[str, str] = dataclasses.field(default_factory=dict)
    again: str | None = None


class _Saved(NamedTuple):
    """A run, and the unfinished fit that is kept because some of its series were lost."""

    facts: RunFacts
    folder: Path
    again: str | None = None


def fit_to_home(
    home: Home,
    data: DataRequest,
    config: Config,
    seed: int,
    *,
    tune: bool = False,
    run: str | None = None,
    memory: int | None = None,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Fetch series into the store, train, and save the model as a new run under ``home``.

    - ``home``: where prices and models are stored
    - ``data``: the series to learn from, and their rows
    - ``config``, ``seed``, ``tune``: as for :func:`forecaster.fit`
    - ``run``: the name of the run; by default its time
    - ``memory``: bytes to work in; by default a share of the free memory. Series that need more are
      trained in shards, with the same bits; the store then stays locked until the end
    - ``executor``: where networks train, as for :func:`forecaster.fit`
    - ``callbacks``: see :class:`Callbacks`

    A fit that is interrupted during training is continued by :func:`resume_fit`. Other fits under
    the same home, running or interrupted, are not affected.

    Raises DataError if no series can be used, UsageError if the run's name is taken, or if the
    memory is too small or cannot be limited, WriteError if nothing can be written.
    """
    began = time.perf_counter()
    check_guarded("a fit")
    callbacks = callbacks or Callbacks()
    check_memory(data, memory, "a fit")
    if data.learn_from is not None:
        check_auxiliary(config, tune=tune)
    swarm.keep_compiled(home.programs)
    check_flags(data.mask)
    if run is not None:
        home.check_new_name(run, fits=False)
    with contextlib.ExitStack() as lock:
        arrived = lock.enter_context(
            ingested(
                home, data.source, wanted_of(data, config),
                start=data.start, on_series=callbacks.on_series, on_wait=callbacks.on_wait,
            )
        )  # fmt: skip
        ids, config = with_market_of(arrived, data, config)
        arrived = arrived._replace(ids=ids)
        masked = masked_rows(arrived.store, ids_to_read(ids, config), data.mask, data.end)
        request = request_of(
            arrived, data, config, seed, masked, tune=tune, memory=memory, executor=executor
        )
        tell_of_others(home, callbacks.on_notice or (lambda message: None))
        with UnfinishedFit.begin(home, request, run) as unfinished:
            stored = _Stored(arrived.store, masked, lock)
            saved = _train_and_save(home, stored, unfinished, executor, callbacks)
    seconds = time.perf_counter() - began
    return SavedFit(saved.facts, saved.folder, seconds, arrived.stale, saved.again)


class _Stored(NamedTuple):
    """The store of the series, the rows that are left out, and the lock that protects both."""

    store: Store
    masked: pd.DataFrame
    lock: contextlib.ExitStack


def resume_fit(
    home: Home,
    name: str | None = None,
    *,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Continue a fit that was interrupted; the model is the same as without the interruption.

    - ``name``: as listed by :func:`forecaster.storage.unfinished_fits`; by default the only
      unfinished fit that is not running. If its process was killed after the model was saved, that
      model is returned
    - ``executor``: where the rest trains; it may differ from before

    Raises UsageError if there is none, it is running, or there are several; ModelError if data or
    program have changed since.
    """
    began = time.perf_counter()
    callbacks = callbacks or Callbacks()
    swarm.keep_compiled(home.programs)
    if folder := take_saved(home, name):
        opened = OpenRun.of(folder)
        facts = RunFacts.of(opened, opened.model(opened.ids[:1]))
        return SavedFit(facts, folder, time.perf_counter() - began)
    with UnfinishedFit.find(home, name) as unfinished, contextlib.ExitStack() as lock:
        store = Store.open(home, unfinished.request.source)
        lock.enter_context(store.locked(callbacks.on_wait))
        stored = _Stored(store, unfinished.masked_rows(store), lock)
        try:
            saved = _train_and_save(home, stored, unfinished, executor, callbacks)
        except ValueError as error:
            raise ModelError(
                f"cannot resume: {error}. Run `forecaster fit` without --resume"
            ) from error
    seconds = time.perf_counter() - began
    return SavedFit(saved.facts, saved.folder, seconds, again=saved.again)


def _train_and_save(
    home: Home,
    stored: _Stored,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> _Saved:
    """Train, save the model as a new run, and discard the unfinished fit.

    If series were lost with their workers, the other series are saved, and the fit is kept to try
    the lost series again.
    """
    request = unfinished.request
    check_covariates(request, "fit")
    reader, scanned = scan(Reader.of(stored.store, request, stored.masked))
    scanned.say(latest=True)
    if request.series_per_shard is None:
        stored.lock.close()  # all series have been read
    if callbacks.on_begin:
        callbacks.on_begin(unfinished)
    parts = train_shards(reader, scanned, unfinished, executor, callbacks)
    skipped = scanned.skipped | {name: why for part in parts for name, why in part.skipped.items()}
    lost = any(part.lost for part in parts)
    widths = widths_of(request.config, [part.scores for part in parts], tune=request.tune)
    provenance = _provenance(scanned, parts, stored.masked, unfinished)
    if lost:
        del provenance["fit"]  # the fit may be resumed although this run exists
    folder = save_shards(home, parts, widths, skipped, provenance, unfinished.run)
    stored.lock.close()
    opened = OpenRun.of(folder)
    model = opened.model(opened.ids[:1])
    # A forecast tests the saved model, and compiles the program for the first `predict`. Covariates
    # may not yet be known beyond the end of the fit.
    unknown = [ModelError] if request.covariates.future else []
    with contextlib.suppress(*unknown), findings_said():
        predict(model, reader.panel(model.ids))
    if not lost:
        unfinished.discard()
    return _Saved(RunFacts.of(opened, model), folder, unfinished.name if lost else None)


def _provenance(
    scanned: Scanned,
    parts: Sequence[SavedPart],
    masked: pd.DataFrame,
    unfinished: UnfinishedFit,
) -> dict[str, Any]:
    """Return the record that a run stores of its training, its data and the program."""
    request = unfinished.request
    return {
        "seed": request.seed,
        "training_seconds": sum(part.seconds for part in parts),
        "tuned": request.tune,
        "products": products_of(request.config.precision),
        "computed": next(dict(part.computed) for part in parts if not part.empty),
        "source": request.source,
        "start": request.start,
        "end": request.end,
        "whole_source": request.whole_source,
        "mask": list(request.mask),
        "findings": [*findings_in_words(scanned.findings, scanned.series).values()],
        "masked": {str(flag): int(count) for flag, count in masked["flag"].value_counts().items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "first": show_time(scanned.first),
        "last": show_time(scanned.last),
        "data_sha256": request.data_sha256,
        "future": request.covariates.future,
        "static": request.covariates.static,
        "learn_from": request.learn_from,
        "reading": dataclasses.asdict(request.covariates.reading),
        "python": platform.python_version(),
        "versions": {
            "forecaster": __version__,
            **{name: version(name) for name in ("jax", "flax", "optax")},
        },
        "fit": unfinished.name,  # a fit with a run is not resumed
    }
