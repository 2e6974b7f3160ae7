"""From a source to a saved model, and from a saved model to forecasts: what the commands do."""

import dataclasses
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from forecaster import atomic, swarm
from forecaster.config import Config
from forecaster.errors import ModelError, UsageError
from forecaster.evaluation import (
    BacktestCallbacks,
    BacktestOptions,
    Evaluation,
    Provenance,
    check_folder,
    evaluate_to_folder,
)
from forecaster.evaluation.baselines import check_available, check_torch
from forecaster.forecasting import Model, fit, match_panel, predict, resolve_names, simulate
from forecaster.home import Home, run_name
from forecaster.ingest import (
    WRONG,
    Date,
    Source,
    Store,
    check_flags,
    flags_of,
    ingested,
    masked_rows,
    panel_from_store,
)
from forecaster.series import Panel, infer_frequency, show_time
from forecaster.storage import (
    METHODS,
    FitRequest,
    UnfinishedFit,
    choose_run,
    compare,
    data_digest,
    forecasting_panel,
    load,
    save_run,
    stored_newcomers,
    take_saved,
    tell_of_others,
)

OnTraining: TypeAlias = Callable[[swarm.Progress], None]


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """Which series to work on, and which of their rows.

    - ``source``: where the series come from
    - ``tickers``: which of them; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included; None: no limit
    - ``mask``: rows with these flags are left out of training, see :mod:`forecaster.ingest.quality`
    """

    source: Source
    tickers: Sequence[str] | None = None
    start: Date | None = None
    end: Date | None = None
    mask: Sequence[str] = WRONG


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """What is called while series are fetched and networks trained.

    - ``on_series(done, total)``: after each series that has arrived from the source
    - ``on_wait(message)``: when another process has to be waited for
    - ``on_training(progress)``: now and then while networks train
    - ``on_begin(fit)``: when training begins, with what it is resumed from if it is interrupted
    - ``on_notice(message)``: of other fits that were interrupted and wait to be resumed
    """

    on_series: Callable[[int, int], None] | None = None
    on_wait: Callable[[str], None] | None = None
    on_training: OnTraining | None = None
    on_begin: Callable[[UnfinishedFit], None] | None = None
    on_notice: Callable[[str], None] | None = None


@dataclasses.dataclass(frozen=True)
class SavedFit:
    """A fit that was saved in a folder, and the seconds it took.

    ``stale``: series that could not be updated before, with the reason.
    """

    model: Model
    folder: Path
    seconds: float
    stale: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Forecasts of a saved model.

    - ``panel``: the stored prices that were forecast from
    - ``frame``: the forecasts, as :func:`forecaster.predict` returns them
    - ``unknown``: tickers that the model has no network for, with the reason
    - ``late``: by series, how many sessions have passed since its latest row
    - ``run``: the folder of the model's run
    - ``jumped``: series whose latest session is a jump that may be an error, and its day
    """

    model: Model
    panel: Panel
    frame: pd.DataFrame
    unknown: dict[str, str]
    late: dict[str, int]
    run: Path
    jumped: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether the prices are of an invented market."""
        return self.model.provenance.get("source") == "simulated"


def fit_to_home(
    home: Home,
    data: DataRequest,
    config: Config,
    seed: int,
    *,
    tune: bool = False,
    run: str | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Fetch into the store, train, and save the model as a new run under ``home``.

    - ``home``: where prices and models are kept
    - ``data``: which series to learn from, and which of their rows
    - ``config``, ``seed``, ``tune``: as for :func:`forecaster.fit`
    - ``run``: what the run is called; by default its time
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
        )
        panel = _training_panel(arrived.store, request)
        tell_of_others(home, callbacks.on_notice or (lambda message: None))
        unfinished = UnfinishedFit.begin(home, request, run)
    with unfinished:
        if callbacks.on_begin:
            callbacks.on_begin(unfinished)
        model, folder = _train_and_save(home, panel, masked, unfinished, callbacks.on_training)
    return SavedFit(model, folder, time.perf_counter() - began, arrived.stale)


def resume_fit(
    home: Home, name: str | None = None, *, callbacks: Callbacks | None = None
) -> SavedFit:
    """Continue a fit that was interrupted; the model is the same as without the interruption.

    ``name``: see :func:`forecaster.storage.unfinished_fits`; by default the only one that is not
    running. One that was killed once its model was saved gives that model. Raises UsageError when
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
            model, folder = _train_and_save(home, panel, masked, unfinished, callbacks.on_training)
        except ValueError as error:
            raise ModelError(
                f"cannot resume: {error}. Run `forecaster fit` without --resume"
            ) from error
    return SavedFit(model, folder, time.perf_counter() - began)


def _training_panel(store: Store, request: FitRequest) -> Panel:
    """The stored series as a fit learns from them; nothing after its end decides what is masked."""
    return panel_from_store(
        store, request.ids, request.skipped,
        start=request.start, end=request.end, mask=request.mask, known_by=request.end,
    )  # fmt: skip


def _train_and_save(
    home: Home,
    panel: Panel,
    masked: pd.DataFrame,
    unfinished: UnfinishedFit,
    on_training: OnTraining | None,
) -> tuple[Model, Path]:
    """Train, save the model as a new run, and discard the unfinished fit."""
    request = unfinished.request
    model = fit(
        panel,
        request.config,
        request.seed,
        tune=request.tune,
        checkpoint=unfinished.checkpoint,
        on_progress=on_training,
    )
    provenance = {**model.provenance, **_provenance(panel, masked, request)}
    provenance["fit"] = unfinished.name  # which is not resumed once this run is there
    model = dataclasses.replace(model, provenance=provenance)
    folder = save_run(home, model, name=unfinished.run)
    # What was saved must forecast; this also leaves the program for the first `predict`, compiled.
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
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("forecaster", "jax", "flax", "optax")},
    }


def evaluate_from_home(
    home: Home,
    data: DataRequest,
    config: Config,
    options: BacktestOptions,
    *,
    folder: Path | None = None,
    overwrite: bool = False,
    finish: Callable[[Evaluation], None] | None = None,
    fetching: Callbacks | None = None,
    evaluating: BacktestCallbacks | None = None,
) -> Evaluation:
    """Fetch into the store, and evaluate in a folder.

    Rows with a flag of the mask are left out of training where the flag was known at the cutoff;
    the rows that forecasts are compared with all stay.

    - ``options``: what to evaluate against what; baselines are kept under ``home``
    - ``folder``: by default a new one under ``home``; one that exists is an error unless it is an
      evaluation to ``overwrite``
    - ``finish``: adds to the evaluation's folder before it appears
    - ``fetching``, ``evaluating``: what is called meanwhile
    """
    fetching = fetching or Callbacks()
    check_flags(data.mask)
    atomic.sweep(home.evaluations)
    folder = (folder or home.new_evaluation()).resolve()
    check_folder(folder, overwrite=overwrite)
    check_available([name for name in options.baselines if name != "torch"])
    if options.with_torch:
        check_torch(config, refit=options.refit)
    swarm.keep_compiled(home.cache)
    with ingested(
        home, data.source, data.tickers,
        start=data.start, on_series=fetching.on_series, on_wait=fetching.on_wait,
    ) as arrived:  # fmt: skip
        store = arrived.store
        panel = panel_from_store(
            store, arrived.ids, dict(arrived.skipped), start=data.start, end=data.end
        )
        if data.mask:
            panel = panel.with_flags(flags_of(store.flags(), data.mask))
    provenance = Provenance(
        source=data.source.name,
        data_sha256=store.digest(arrived.ids),
        mask=tuple(data.mask),
        stale=arrived.stale,
    )
    return evaluate_to_folder(
        folder, panel, config, dataclasses.replace(options, cache=home.baselines_cache),
        overwrite=overwrite, provenance=provenance, finish=finish, callbacks=evaluating,
    )  # fmt: skip


def _day(date: Date | None) -> str | None:
    return None if date is None else str(pd.Timestamp(date).date())


def predict_from_home(
    home: Home,
    tickers: Sequence[str] | None,
    level: Sequence[float],
    run: str | Path | None = None,
    n_paths: int | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Prediction:
    """Forecast tickers, by default all, with a saved model and the stored prices.

    - ``run``, ``on_notice``: see :func:`forecaster.storage.choose_run`
    - ``n_paths``: where given, the prediction's frame has so many sample paths, and no bands

    Tickers that the model has no network for, but whose prices are stored, are forecast by the one
    that all series' networks started from, where there is one, with a warning.

    Raises ModelError when there is no model, or it can forecast none of the tickers, UsageError
    when there is no run of this name.
    """
    swarm.keep_compiled(home.cache)
    folder = choose_run(home, run, tickers, on_notice)
    model = load(folder)
    ids, unknown = resolve_names(model.ids, model.skipped, tickers)
    new = stored_newcomers(home, model, unknown)
    unknown = {name: reason for name, reason in unknown.items() if name not in new}
    ids = list(dict.fromkeys([*ids, *new.values()]))
    if not ids:
        raise ModelError("\n".join(f"{name}: {reason}" for name, reason in unknown.items()))
    panel, jumped = forecasting_panel(home, model, ids)
    usable = match_panel(model, panel)
    lost = {name: reason for name, reason in usable.skipped.items() if name in ids}
    frame = predict(model, usable, level) if n_paths is None else simulate(model, usable, n_paths)
    return Prediction(model, usable, frame, unknown | lost, _sessions_late(usable), folder, jumped)


def compress_from_home(
    home: Home,
    run: str | Path | None = None,
    method: str | None = None,
    on_method: Callable[[int, int], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> tuple[pd.DataFrame, Path | None]:
    """Compare smaller files of a run on the stored prices; ``run`` is as for forecasting.

    With a ``method``, that one is written as a new run, whose folder is returned too.

    Raises UsageError when the run is a compressed one.
    """
    swarm.keep_compiled(home.cache)
    folder = choose_run(home, run, None, on_notice)
    model = load(folder)
    if origin := model.provenance.get("compressed_from"):
        raise UsageError(
            f"{run_name(folder)} is compressed already; name the run it was made from: "
            f"`forecaster compress {origin}`"
        )
    panel, _ = forecasting_panel(home, model, list(model.ids))
    table = compare(model, panel, on_method)
    if method is None:
        return table, None
    provenance = {**model.provenance, "compressed_from": run_name(folder), "compressed_by": method}
    model = dataclasses.replace(model, provenance=provenance)
    return table, save_run(home, model, METHODS[method])


def _sessions_late(panel: Panel) -> dict[str, int]:
    """By series, how many sessions have passed since its latest row."""
    now = pd.Timestamp.now()
    late = {}
    for name, observed in zip(panel.ids, panel.mask, strict=True):
        times = panel.times[observed]
        late[name] = infer_frequency(times).elapsed(times[-1], now)
    return late
