"""From a source to a saved model."""

import contextlib
import dataclasses
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ModelError
from forecaster.forecasting import check_static, fit, predict
from forecaster.home import Home
from forecaster.ingest import (
    Date,
    Ingested,
    Store,
    check_flags,
    ingested,
    masked_rows,
    panel_from_store,
)
from forecaster.pipeline.facts import RunFacts
from forecaster.pipeline.market import wanted_of, with_market_of
from forecaster.pipeline.memory import series_at_a_time
from forecaster.pipeline.requests import Callbacks, DataRequest
from forecaster.pipeline.sharding import Reader, common_spread_of, scan, train_shards
from forecaster.series import Panel, show_time
from forecaster.storage import (
    FitRequest,
    OpenRun,
    UnfinishedFit,
    data_digest,
    ids_to_read,
    load,
    save_run,
    save_shards,
    take_saved,
    tell_of_others,
)
from forecaster.swarm.recurrence import products_of


@dataclasses.dataclass(frozen=True)
class SavedFit:
    """A fit that was saved in a folder, and the seconds it took.

    - ``facts``: what can be told of the model
    - ``stale``: series that could not be updated before, with the reason
    """

    facts: RunFacts
    folder: Path
    seconds: float
    stale: dict[str, str] = dataclasses.field(default_factory=dict)


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
    """Fetch into the store, train, and save the model as a new run under ``home``.

    - ``home``: where prices and models are kept
    - ``data``: which series to learn from, and which of their rows
    - ``config``, ``seed``, ``tune``: as for :func:`forecaster.fit`
    - ``run``: what the run is called; by default its time
    - ``memory``: bytes that may be taken; by default a share of what is free. Series that need more
      are trained in shards, with the same bits; the store stays locked until they are
    - ``executor``: where networks train, as for :func:`forecaster.fit`
    - ``callbacks``: what is called meanwhile

    When it is interrupted during training, :func:`resume_fit` continues it. Other fits under the
    same home, running or interrupted, are left as they are.

    Raises DataError when no series can be used, UsageError when the run's name is taken, WriteError
    when nothing can be written.
    """
    began = time.perf_counter()
    callbacks = callbacks or Callbacks()
    swarm.keep_compiled(home.cache)
    check_flags(data.mask)
    if run is not None:
        home.check_new_name(run)
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
        request = _request(arrived, data, config, seed, masked, tune=tune, memory=memory)
        tell_of_others(home, callbacks.on_notice or (lambda message: None))
        with UnfinishedFit.begin(home, request, run) as unfinished:
            stored = _Stored(arrived.store, masked, lock)
            facts, folder = _train_and_save(home, stored, unfinished, executor, callbacks)
    return SavedFit(facts, folder, time.perf_counter() - began, arrived.stale)


def _request(
    arrived: Ingested,
    data: DataRequest,
    config: Config,
    seed: int,
    masked: pd.DataFrame,
    *,
    tune: bool,
    memory: int | None,
) -> FitRequest:
    """What is to be done, once the series have arrived in the store."""
    store, ids = arrived.store, arrived.ids
    return FitRequest(
        source=data.source.name,
        ids=tuple(ids),
        skipped=dict(arrived.skipped),
        data_sha256=data_digest(store, ids_to_read(ids, config), masked),
        config=config,
        seed=seed,
        tune=tune,
        start=_day(data.start),
        end=_day(data.end),
        mask=tuple(data.mask),
        covariates=data.covariates,
        covariates_sha256=data.covariates.sha256(),
        # What covariates become is learned from all series.
        shard=None if data.covariates else series_at_a_time(store, ids, config, memory),
    )


class _Stored(NamedTuple):
    """Where the series are, which rows of them are left out, and what keeps them as they are."""

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

    ``name``: see :func:`forecaster.storage.unfinished_fits`; by default the only one that is not
    running. One that was killed once its model was saved gives that model. ``executor``: where the
    rest of it trains, wherever it began. Raises UsageError when
    there is none, it is running, or several could be meant; ModelError when data or program have
    changed since.
    """
    began = time.perf_counter()
    callbacks = callbacks or Callbacks()
    swarm.keep_compiled(home.cache)
    if folder := take_saved(home, name):
        return SavedFit(_facts(folder), folder, time.perf_counter() - began)
    with UnfinishedFit.find(home, name) as unfinished, contextlib.ExitStack() as lock:
        store = Store.open(home, unfinished.request.source)
        lock.enter_context(store.locked(callbacks.on_wait))
        stored = _Stored(store, unfinished.masked_rows(store), lock)
        try:
            facts, folder = _train_and_save(home, stored, unfinished, executor, callbacks)
        except ValueError as error:
            raise ModelError(
                f"cannot resume: {error}. Run `forecaster fit` without --resume"
            ) from error
    return SavedFit(facts, folder, time.perf_counter() - began)


def _facts(folder: Path) -> RunFacts:
    opened = OpenRun.of(folder)
    model = opened.model([])
    return RunFacts.of(model) if opened.whole else RunFacts.of_shards(folder, model)


def _training_panel(store: Store, request: FitRequest) -> Panel:
    """The stored series as a fit learns from them; nothing after its end decides what is masked."""
    panel = panel_from_store(
        store, request.read, request.skipped,
        start=request.start, end=request.end, mask=request.mask, known_by=request.end,
    )  # fmt: skip
    if (market := request.config.market) is not None:
        panel = panel.with_market(market, forecast=market in request.ids)
    if request.covariates.sha256() != request.covariates_sha256:
        raise ModelError(
            "the files of covariates have changed since the fit was interrupted; run `forecaster "
            "fit` without --resume"
        )
    panel = request.covariates.added_to(panel)
    check_static(panel, request.config, tune=request.tune)
    return panel


def _train_and_save(
    home: Home,
    stored: _Stored,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> tuple[RunFacts, Path]:
    """Train, save the model as a new run, and discard the unfinished fit."""
    if unfinished.request.shard is not None:
        return _train_in_shards(home, stored, unfinished, executor, callbacks)
    panel = _training_panel(stored.store, unfinished.request)
    stored.lock.close()
    if callbacks.on_begin:
        callbacks.on_begin(unfinished)
    request = unfinished.request
    model = fit(
        panel,
        request.config,
        request.seed,
        tune=request.tune,
        checkpoint=unfinished.checkpoint,
        executor=executor,
        on_progress=callbacks.on_training,
    )
    span = show_time(panel.times[0]), show_time(panel.times[-1])
    provenance = {**model.provenance, **_provenance(span, stored.masked, unfinished)}
    model = dataclasses.replace(model, provenance=provenance)
    folder = save_run(home, model, name=unfinished.run)
    # What was saved must forecast; this also leaves the program for the first `predict`, compiled.
    # Covariates need not be known beyond the fit's end yet.
    with contextlib.suppress(*([ModelError] if panel.future is not None else [])):
        predict(load(folder), panel.only(model.ids[:1]))
    unfinished.discard()
    return RunFacts.of(model), folder


def _train_in_shards(
    home: Home,
    stored: _Stored,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> tuple[RunFacts, Path]:
    """The same, of series that are read, trained, written and forgotten some at a time."""
    request = unfinished.request
    scanned = scan(stored.store, request, stored.masked)
    reader = Reader(stored.store, request, stored.masked, scanned.layout, scanned.frequency)
    if callbacks.on_begin:
        callbacks.on_begin(unfinished)
    parts = train_shards(reader, scanned, unfinished, executor, callbacks)
    skipped = scanned.skipped | {n: why for part in parts for n, why in part.skipped.items()}
    said = {"seed": request.seed, "training_seconds": sum(part.seconds for part in parts)}
    said |= {"tuned": request.tune, "products": products_of(request.config.precision)}
    span = show_time(scanned.first), show_time(scanned.last)
    provenance = {**said, **_provenance(span, stored.masked, unfinished)}
    spread = common_spread_of(request, scanned, parts)
    folder = save_shards(home, parts, spread, skipped, provenance, unfinished.run)
    stored.lock.close()
    opened = OpenRun.of(folder)
    model = opened.model(opened.ids[:1])
    predict(model, reader.panel(model.ids[:1]))  # as after a fit in one piece
    unfinished.discard()
    return RunFacts.of_shards(folder, model), folder


def _provenance(
    span: tuple[str, str], masked: pd.DataFrame, unfinished: UnfinishedFit
) -> dict[str, Any]:
    """What a run keeps of its data and of the program, beside what training itself reports."""
    request = unfinished.request
    return {
        "source": request.source,
        "start": request.start,
        "end": request.end,
        "mask": list(request.mask),
        "masked": {str(flag): int(count) for flag, count in masked["flag"].value_counts().items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "first": span[0],
        "last": span[1],
        "data_sha256": request.data_sha256,
        "future": request.covariates.future,
        "static": request.covariates.static,
        "reading": dataclasses.asdict(request.covariates.reading),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("forecaster", "jax", "flax", "optax")},
        "fit": unfinished.name,  # which is not resumed once this run is there
    }


def _day(date: Date | None) -> str | None:
    return None if date is None else str(pd.Timestamp(date).date())
