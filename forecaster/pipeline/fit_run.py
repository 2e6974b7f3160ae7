"""Fit a model to the series of a source, and continue a fit that was interrupted."""

import contextlib
import dataclasses
import platform
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from forecaster import __version__, swarm
from forecaster.errors import ModelError
from forecaster.files import Home
from forecaster.forecasting import (
    Config,
    Model,
    check_static,
    coverage_of,
    forecast_frame,
    prepared,
    widths_of,
)
from forecaster.pipeline.beginning import Begun, Callbacks, DataRequest, begun, resumed
from forecaster.pipeline.blocks import Scanned, reader_of_fit, scan
from forecaster.pipeline.train_run import train_shards
from forecaster.series import findings_in_words, show_time
from forecaster.storage import Run, SavedPart, save_shards
from forecaster.swarm.recurrence import products_of


class SavedFit(NamedTuple):
    """A fit that was saved as a run, with the seconds it took.

    - ``model``: a model of one of its series
    - ``stale``: series that could not be updated before, with the reason
    - ``again``: the unfinished fit that tries series with lost workers again, if there are any
    """

    run: Run
    model: Model
    seconds: float
    stale: Mapping[str, str]
    again: str | None


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
      trained in shards, with the same forecasts; the store then stays locked until the end
    - ``executor``: where networks train, as for :func:`forecaster.fit`
    - ``callbacks``: see :class:`Callbacks`

    A fit that is interrupted during training is continued by :func:`resume_fit`. Other fits under
    the same home, running or interrupted, are not affected.

    Raises DataError if no series can be used, UsageError if the run's name is taken, or if the
    memory is too small or cannot be limited, WriteError if nothing can be written.
    """
    began, callbacks = time.perf_counter(), callbacks or Callbacks()
    with begun(
        home, data, config, seed,
        tune=tune, run=run, memory=memory, executor=executor, callbacks=callbacks,
    ) as work:  # fmt: skip
        return _train_and_save(home, work, began)


def resume_fit(
    home: Home,
    name: str | None = None,
    *,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> SavedFit:
    """Continue a fit that was interrupted; the model is the same as without the interruption.

    - ``name``: as listed by :func:`forecaster.storage.unfinished_fits`; by default the only
      unfinished fit that is not running
    - ``executor``: where the rest trains; it may differ from before

    Raises UsageError if there is none, it is running, or there are several; ModelError if data,
    settings or program have changed since.
    """
    began, callbacks = time.perf_counter(), callbacks or Callbacks()
    with resumed(home, name, "fit", executor, callbacks) as work:
        try:
            return _train_and_save(home, work, began)
        except ValueError as error:
            raise ModelError(
                f"cannot resume: {error}. Run `forecaster fit` without --resume"
            ) from error


def _train_and_save(home: Home, work: Begun, began: float) -> SavedFit:
    """Train, save the model as a new run, and discard the unfinished fit.

    If series were lost with their workers, the other series are saved, and the fit is kept to try
    the lost series again.
    """
    unfinished, request = work.unfinished, work.unfinished.request
    reader, scanned = scan(reader_of_fit(work.store, request, work.masked))
    if reader.held is not None:
        check_static(reader.held, reader.request.config, tune=request.tune)
    scanned.say(latest=True)
    if request.series_per_shard is None:
        work.lock.close()  # all series have been read
    parts = train_shards(reader, scanned, work)
    skipped = scanned.skipped | {name: why for part in parts for name, why in part.skipped.items()}
    lost = any(part.lost for part in parts)
    scores = [part.scores for part in parts]
    widths = widths_of(request.config, scores, tune=request.tune)
    provenance = _provenance(scanned, parts, work) | {"coverage": coverage_of(scores, widths)}
    folder = save_shards(home, parts, widths, skipped, provenance, unfinished.run)
    if not lost:
        unfinished.discard()
    run = Run.read(folder)
    model = run.model(run.ids[:1])
    # A forecast tests the saved model, and compiles the program for the first `predict`. Covariates
    # may not yet be known beyond the end of the fit.
    unknown = [ModelError] if request.covariates.future else []
    with contextlib.suppress(*unknown):
        forecast_frame(*prepared(model, reader.panel(model.ids)), [], [])
    seconds = time.perf_counter() - began
    return SavedFit(run, model, seconds, request.stale, unfinished.name if lost else None)


def _provenance(scanned: Scanned, parts: Sequence[SavedPart], work: Begun) -> dict[str, Any]:
    """Return the record that a run stores of its training, its data and the program."""
    request, flags = work.unfinished.request, work.masked["flag"]
    return {
        "seed": request.seed,
        "training_seconds": sum(part.seconds for part in parts),
        "tuned": request.tune,
        "products": products_of(request.config.precision),
        "source": request.source,
        "start": request.start,
        "end": request.end,
        "whole_source": request.whole_source,
        "mask": list(request.mask),
        "findings": [*findings_in_words(scanned.findings, scanned.series).values()],
        "masked": {str(flag): int(count) for flag, count in flags.value_counts().items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "first": show_time(scanned.first),
        "last": show_time(scanned.last),
        "data_sha256": request.data_sha256,
        "future": request.covariates.future,
        "static": request.covariates.static,
        "reading": dataclasses.asdict(request.covariates.reading),
        "python": platform.python_version(),
        "versions": {
            "forecaster": __version__,
            **{name: version(name) for name in ("jax", "flax", "optax")},
        },
    }
