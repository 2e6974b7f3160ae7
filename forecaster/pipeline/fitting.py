"""From a source to a saved model."""

import contextlib
import dataclasses
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import ModelError
from forecaster.forecasting import Model, check_static, fit, predict
from forecaster.home import Home
from forecaster.ingest import (
    Date,
    Store,
    check_flags,
    ingested,
    masked_rows,
    panel_from_store,
)
from forecaster.pipeline.requests import Callbacks, DataRequest
from forecaster.series import Panel, show_time
from forecaster.storage import (
    FitRequest,
    UnfinishedFit,
    data_digest,
    load,
    save_run,
    take_saved,
    tell_of_others,
)


@dataclasses.dataclass(frozen=True)
class SavedFit:
    """A fit that was saved in a folder, and the seconds it took.

    ``stale``: series that could not be updated before, with the reason.
    """

    model: Model
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
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Fetch into the store, train, and save the model as a new run under ``home``.

    - ``home``: where prices and models are kept
    - ``data``: which series to learn from, and which of their rows
    - ``config``, ``seed``, ``tune``: as for :func:`forecaster.fit`
    - ``run``: what the run is called; by default its time
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
    with ingested(
        home, data.source, data.tickers,
        start=data.start, on_series=callbacks.on_series, on_wait=callbacks.on_wait,
    ) as arrived:  # fmt: skip
        masked = masked_rows(arrived.store, arrived.ids, data.mask, data.end)
        request = FitRequest(
            source=data.source.name,
            ids=tuple(arrived.ids),
            skipped=dict(arrived.skipped),
            data_sha256=data_digest(arrived.store, arrived.ids, masked),
            config=config,
            seed=seed,
            tune=tune,
            start=_day(data.start),
            end=_day(data.end),
            mask=tuple(data.mask),
            covariates=data.covariates,
            covariates_sha256=data.covariates.sha256(),
        )
        panel = _training_panel(arrived.store, request)
        tell_of_others(home, callbacks.on_notice or (lambda message: None))
        unfinished = UnfinishedFit.begin(home, request, run)
    with unfinished:
        if callbacks.on_begin:
            callbacks.on_begin(unfinished)
        model, folder = _train_and_save(home, panel, masked, unfinished, executor, callbacks)
    return SavedFit(model, folder, time.perf_counter() - began, arrived.stale)


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
        return SavedFit(load(folder), folder, time.perf_counter() - began)
    with UnfinishedFit.find(home, name) as unfinished:
        if callbacks.on_begin:
            callbacks.on_begin(unfinished)
        store = Store.open(home, unfinished.request.source)
        with store.locked(callbacks.on_wait):
            masked = unfinished.masked_rows(store)
            panel = _training_panel(store, unfinished.request)
        try:
            model, folder = _train_and_save(home, panel, masked, unfinished, executor, callbacks)
        except ValueError as error:
            raise ModelError(
                f"cannot resume: {error}. Run `forecaster fit` without --resume"
            ) from error
    return SavedFit(model, folder, time.perf_counter() - began)


def _training_panel(store: Store, request: FitRequest) -> Panel:
    """The stored series as a fit learns from them; nothing after its end decides what is masked."""
    panel = panel_from_store(
        store, request.ids, request.skipped,
        start=request.start, end=request.end, mask=request.mask, known_by=request.end,
    )  # fmt: skip
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
    panel: Panel,
    masked: pd.DataFrame,
    unfinished: UnfinishedFit,
    executor: swarm.Executor | None,
    callbacks: Callbacks,
) -> tuple[Model, Path]:
    """Train, save the model as a new run, and discard the unfinished fit."""
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
    provenance = {**model.provenance, **_provenance(panel, masked, request)}
    provenance["fit"] = unfinished.name  # which is not resumed once this run is there
    model = dataclasses.replace(model, provenance=provenance)
    folder = save_run(home, model, name=unfinished.run)
    # What was saved must forecast; this also leaves the program for the first `predict`, compiled.
    # Covariates need not be known beyond the fit's end yet.
    with contextlib.suppress(*([ModelError] if panel.future is not None else [])):
        predict(load(folder), panel.only(model.ids[:1]))
    unfinished.discard()
    return model, folder


def _provenance(panel: Panel, masked: pd.DataFrame, request: FitRequest) -> dict[str, Any]:
    """What a run keeps of its data and of the program, beside what training itself reports."""
    return {
        "source": request.source,
        "start": request.start,
        "end": request.end,
        "mask": list(request.mask),
        "masked": {str(flag): int(count) for flag, count in masked["flag"].value_counts().items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "first": show_time(panel.times[0]),
        "last": show_time(panel.times[-1]),
        "data_sha256": request.data_sha256,
        "future": request.covariates.future,
        "static": request.covariates.static,
        "reading": dataclasses.asdict(request.covariates.reading),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("forecaster", "jax", "flax", "optax")},
    }


def _day(date: Date | None) -> str | None:
    return None if date is None else str(pd.Timestamp(date).date())
