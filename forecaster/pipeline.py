"""From a source to a saved model, and from a saved model to forecasts: what the commands do."""

import dataclasses
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster import storage, swarm
from forecaster.config import Config
from forecaster.errors import ModelError, UsageError
from forecaster.evaluation import (
    BacktestOptions,
    Callbacks,
    Evaluation,
    Provenance,
    check_folder,
    cutoffs_of,
    evaluate_to_folder,
)
from forecaster.evaluation.baselines import check_available, check_torch
from forecaster.forecasting import Model, fit, match_panel, predict
from forecaster.ingest import (
    WRONG,
    Membership,
    Source,
    Store,
    check_kinds,
    ingested,
    masked_rows,
    panel_from_store,
    without_flagged,
)
from forecaster.series import Panel, infer_frequency, show_time
from forecaster.storage import METHODS, Request, compare, latest_run, load, new_run, save


@dataclasses.dataclass(frozen=True)
class SavedFit:
    """A fit that was saved. ``first`` and ``last``: the dates of its data; ``stale``: series that
    could not be updated before, with the reason."""

    model: Model
    folder: Path
    first: str
    last: str
    seconds: float
    stale: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Forecasts of the latest model. ``unknown``: tickers it has no network for, with the reason.

    ``late``: by series, how many sessions have passed since its latest row. ``jumped``: series
    whose latest session is a jump that may be an error, and its day.
    """

    model: Model
    panel: Panel
    frame: pd.DataFrame
    unknown: dict[str, str]
    late: dict[str, int]
    jumped: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether the prices are of an invented market."""
        return self.model.provenance.get("source") == "simulated"


def fit_to_home(
    home: Path,
    source: Source,
    tickers: Sequence[str] | None,
    config: Config,
    seed: int,
    *,
    tune: bool = False,
    start=None,
    end=None,
    mask: Sequence[str] = WRONG,
    on_series: Callable[[int, int], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    on_progress: Callable[[Any], None] | None = None,
) -> SavedFit:
    """Fetch into the store, train, and save the model as a new run under ``home``.

    ``mask``: rows with these flags are left out, see :mod:`forecaster.ingest.quality`.
    Interrupted while it trains, it can be gone on with by :func:`resume_fit`.

    Raises DataError when no series can be used, WriteError when nothing can be written.
    """
    began = time.perf_counter()
    swarm.keep_compiled(home / "cache")
    check_kinds(mask)
    fetching: Any = {"start": start, "on_series": on_series, "on_wait": on_wait}
    with ingested(home, source, tickers, **fetching) as arrived:
        masked = masked_rows(arrived.store, arrived.ids, mask, end)
        request = Request(
            source.name, tuple(arrived.ids), dict(arrived.skipped),
            storage.digest(arrived.store, arrived.ids, masked), config, seed, tune,
            _day(start), _day(end), tuple(mask),
        )  # fmt: skip
        panel = _training_panel(arrived.store, request)
        checkpoint = storage.begin(home, request)
    result = _fit_panel(home, panel, masked, request, checkpoint, began, on_progress)
    return dataclasses.replace(result, stale=arrived.stale)


def resume_fit(home: Path, *, on_progress: Callable[[Any], None] | None = None) -> SavedFit:
    """Go on with the fit that was interrupted; it ends as if it had not been.

    Raises UsageError when there is none, ModelError when data or program have changed since.
    """
    began = time.perf_counter()
    swarm.keep_compiled(home / "cache")
    request, checkpoint = storage.find(home)
    store = Store.open(home, request.source)
    with store.locked():
        masked = storage.check_data(request, store)
        panel = _training_panel(store, request)
    try:
        return _fit_panel(home, panel, masked, request, checkpoint, began, on_progress)
    except ValueError as error:
        raise ModelError(f"cannot go on: {error}. Run `forecaster fit` without --resume") from error


def _training_panel(store: Store, request: Request) -> Panel:
    """The stored series as a fit learns from them. Nothing after its end decides what is left
    out."""
    span: Any = {"start": request.start, "end": request.end, "known_by": request.end}
    return panel_from_store(store, request.ids, request.skipped, mask=request.mask, **span)


def _fit_panel(home, panel, masked, request, checkpoint, began, on_progress) -> SavedFit:
    """Train, save the model, and forget that it was storage."""
    model = fit(
        panel,
        request.config,
        request.seed,
        tune=request.tune,
        checkpoint=checkpoint,
        on_progress=on_progress,
    )
    provenance = {
        **model.provenance,
        "source": request.source,
        "start": request.start,
        "end": request.end,
        "mask": list(request.mask),
        "masked": {str(kind): int(count) for kind, count in masked["flag"].value_counts().items()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "first": show_time(panel.times[0]),
        "last": show_time(panel.times[-1]),
        "data_sha256": request.data_sha256,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("forecaster", "jax", "flax", "optax")},
    }
    model = dataclasses.replace(model, provenance=provenance)
    folder = save(model, new_run(home, request.config.model))
    # What was saved must forecast; this also leaves the program for the first `predict`, compiled.
    predict(load(folder), panel.only(model.ids[:1]))
    storage.forget(home)
    seconds = time.perf_counter() - began
    return SavedFit(model, folder, provenance["first"], provenance["last"], seconds)


def evaluate_from_home(
    home: Path,
    source: Source,
    tickers: Sequence[str] | None,
    config: Config,
    seed: int,
    folder: Path | None,
    baselines: Sequence[str],
    *,
    windows: int,
    step: int,
    refit: bool | int = False,
    torch_sample: int = 50,
    overwrite: bool = False,
    start=None,
    end=None,
    mask: Sequence[str] = WRONG,
    membership: Membership | None = None,
    on_series: Callable[[int, int], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    finish: Callable[[Evaluation], None] | None = None,
    callbacks: Callbacks | None = None,
) -> Evaluation:
    """Fetch into the store, and evaluate in a folder, by default a new one under ``home``.

    ``mask``: rows with these flags are left out of training, as far as they could be told at the
    first cutoff; the rows that forecasts are compared with stay. ``membership``: forecasts count
    only from cutoffs at which the ticker belonged to the universe. ``refit``, ``torch_sample``: of
    :class:`forecaster.evaluation.BacktestOptions`; ``finish``, ``callbacks``: of
    :func:`forecaster.evaluation.evaluate_to_folder`.
    """
    check_kinds(mask)
    folder = folder or home / _EVALUATIONS / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    folder = folder.resolve()
    check_folder(folder, overwrite=overwrite)
    check_available([name for name in baselines if name != "torch"])
    if "torch" in baselines:
        check_torch(config, refit=refit)
    swarm.keep_compiled(home / "cache")
    fetching: Any = {"start": start, "on_series": on_series, "on_wait": on_wait}
    with ingested(home, source, tickers, **fetching) as arrived:
        store = arrived.store
        panel = panel_from_store(store, arrived.ids, dict(arrived.skipped), start=start, end=end)
        if mask:
            first = panel.times[cutoffs_of(panel, config.horizon, windows, step)[0]]
            panel = without_flagged(panel, store.flags(), tuple(mask), known_by=first)
    options = BacktestOptions(
        windows, step, tuple(baselines), refit, seed, torch_sample, membership,
        cache=home / "cache" / "baselines",
    )  # fmt: skip
    provenance = Provenance(
        source=source.name,
        data_sha256=store.digest(arrived.ids),
        mask=tuple(mask),
        stale=arrived.stale,
    )
    return evaluate_to_folder(
        folder, panel, config, options,
        overwrite=overwrite, provenance=provenance, finish=finish, callbacks=callbacks,
    )  # fmt: skip


def _day(date) -> str | None:
    return None if date is None else str(pd.Timestamp(date).date())


def latest_evaluation(home: Path) -> Path:
    """The newest evaluation under ``home``. Raises UsageError when there is none."""
    found = sorted((home / _EVALUATIONS).glob("*/summary.json"))
    if not found:
        raise UsageError(
            f"no evaluation in {home / _EVALUATIONS}; run `forecaster evaluate` first, or name the "
            "folder of one"
        )
    return found[-1].parent


_EVALUATIONS = "evaluations"


def predict_from_home(
    home: Path, tickers: Sequence[str] | None, level: Sequence[float], run: Path | None = None
) -> Prediction:
    """Forecast tickers, by default all, with the latest model and the stored prices.

    Raises ModelError when there is no model, or it has a network for none of the tickers.
    """
    swarm.keep_compiled(home / "cache")
    model = load(run or latest_run(home))
    known, unknown = _known(model, tickers)
    if not known:
        lines = "\n".join(f"{name}: {reason}" for name, reason in unknown.items())
        raise ModelError(lines)
    panel, jumped = _panel_of(home, model, known)
    usable = match_panel(model, panel)
    lost = {name: why for name, why in usable.skipped.items() if name in known}
    frame = predict(model, usable, level)
    return Prediction(model, usable, frame, unknown | lost, _late(usable), jumped)


def _panel_of(home: Path, model: Model, known: Sequence[str]) -> tuple[Panel, dict[str, str]]:
    """The stored prices that a model forecasts from, over the span and with the mask of its fit;
    and the days of unconfirmed jumps, which a forecast does not leave out: most are true."""
    store = Store.open(home, str(model.provenance.get("source")))
    gone = [name for name in known if name not in store.ids]
    if gone:
        raise ModelError(
            f"{', '.join(gone[:5])}: the prices are no longer stored under {store.folder}; "
            f"run `forecaster ingest --source {model.provenance.get('source')}` again"
        )
    start, end = (model.provenance.get(part) for part in ("start", "end"))
    mask = [kind for kind in model.provenance.get("mask", ()) if kind != "unconfirmed"]
    jumped = {}
    if store.looked_through:
        flags = masked_rows(store, known, ("unconfirmed",), end)
        jumped = {str(row.unique_id): show_time(row.ds) for row in flags.itertuples()}
    else:  # an older version, or a run that was interrupted
        mask = []
    span: Any = {"start": start, "end": end, "known_by": end}
    return panel_from_store(store, known, mask=mask, **span), jumped


def compress_from_home(
    home: Path,
    run: Path | None = None,
    method: str | None = None,
    on_method: Callable[[int, int], None] | None = None,
) -> tuple[pd.DataFrame, Path | None]:
    """Compare smaller files of a run, by default the latest, on the stored prices; with a
    ``method``, write that one as a new run, whose folder is returned too."""
    swarm.keep_compiled(home / "cache")
    folder = run or latest_run(home)
    model = load(folder)
    if origin := model.provenance.get("compressed_from"):
        raise UsageError(
            f"{folder.name} is compressed already; name the run it was made from: "
            f"`forecaster compress {origin}`"
        )
    table = compare(model, _panel_of(home, model, list(model.ids))[0], on_method)
    if method is None:
        return table, None
    provenance = {**model.provenance, "compressed_from": folder.name, "compressed_by": method}
    model = dataclasses.replace(model, provenance=provenance)
    return table, save(model, new_run(home, model.config.model), METHODS[method])


def _known(model: Model, tickers: Sequence[str] | None) -> tuple[list[str], dict[str, str]]:
    """Tickers as the model writes them, and why it does not know the others."""
    if tickers is None:
        return list(model.ids), {}
    known: dict[str, None] = {}
    unknown: dict[str, str] = {}
    for name in tickers:
        if (found := _spelled(model, name)) is not None:
            known[found] = None
        elif (why := model.skipped.get(name) or model.skipped.get(name.upper())) is not None:
            unknown[name] = f"was skipped by the fit: {why}"
        else:
            unknown[name] = f"not in the latest model ({len(model.ids)} series){_near(model, name)}"
    return list(known), unknown


def _spelled(model: Model, name: str) -> str | None:
    """A name as the model has it: letter case and the sign before a share class do not matter."""
    if name in set(model.ids):
        return name
    ids = {known.upper(): known for known in model.ids}
    upper = name.strip().upper()
    tries = (upper, upper.replace(".", "-"), upper.replace("-", "."))
    return next((ids[n] for n in tries if n in ids), None)


def _near(model: Model, name: str) -> str:
    ids = {known.upper(): known for known in model.ids}
    near = get_close_matches(name.upper(), ids, n=5, cutoff=0.5)
    near = near or [known for known in ids if known.startswith(name.upper()[:1])][:5]
    return f"; near: {', '.join(ids[n] for n in near)}" if near else ""


def _late(panel: Panel) -> dict[str, int]:
    now = pd.Timestamp.now()
    own = [panel.times[seen] for seen in panel.mask]
    return {
        name: infer_frequency(times).elapsed(times[-1], now)
        for name, times in zip(panel.ids, own, strict=True)
    }
