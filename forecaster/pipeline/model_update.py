"""Update the model of a run with the rows that are stored now, and save it as a new run."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from forecaster import __version__, swarm
from forecaster.errors import DataError, Skipped, UsageError, name_reasons
from forecaster.files import Home, run_name
from forecaster.forecasting import (
    Model,
    forecast_frame,
    learnable,
    prepared,
    resolve_names,
    rows_since,
    update,
)
from forecaster.record import ERRORS_RATE, forecast_alarms, record_of, score_record
from forecaster.series import Panel, show_time
from forecaster.storage import Run, choose_run, learning_panel, save_run, store_of, under_new_names


class UpdatedRun(NamedTuple):
    """A run that was updated.

    - ``run``: the new run
    - ``before``: the name of the run that it continues
    - ``series``: the names of the series that learned from new rows
    - ``gone``: the series that could not learn, with the reason; their forecasts are as before
    - ``seconds``: the time of the whole update
    """

    run: Run
    before: str
    series: list[str]
    gone: dict[str, Skipped]
    seconds: float


def update_run(
    home: Home,
    run: str | None = None,
    tickers: Sequence[str] | None = None,
    *,
    older_than: int | None = None,
    alarmed: bool = False,
    seed: int | None = None,
    name: str | None = None,
    executor: swarm.Executor | None = None,
    on_training: Callable[[swarm.Progress], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> UpdatedRun:
    """Continue the training of a run's networks on the rows stored now, and save a new run.

    Series that are not updated keep their networks and bands, bit for bit. Nothing is fetched.

    - ``run``: the run to continue; by default the run that :func:`predict_from_home` would take
    - ``tickers``: the series that may be updated; by default all
    - ``older_than``: minimum number of new rows of a series to update; by default 1, or with
      ``alarmed`` any number, since only alarms then choose the series
    - ``alarmed``: also update the series that alarms of past forecasts name
    - ``seed``: by default the seed of the run
    - ``name``: the name of the new run; by default its time
    - ``executor, on_training``: as for :func:`forecaster.fit`

    Raises UsageError for a run with searched settings or with covariates, DataError if no series is
    to be updated, ModelError if there is no run or its prices are not stored.
    """
    began = time.perf_counter()
    swarm.keep_compiled(home.programs)
    if name is not None:
        home.check_new_name(name, fits=False)
    opened = choose_run(home, run, tickers, on_notice)
    store = store_of(home, opened)
    opened = under_new_names(store, opened)
    folder = opened.folder
    model = opened.model(opened.ids)
    if model.transform.covariates.future or model.provenance.get("static"):
        raise UsageError(
            f"run {run_name(folder)} sees covariates, whose files an update does not read. Run "
            "`forecaster fit` with them again"
        )
    stored = learning_panel(store, model, model.ids)
    panel = learnable(model, stored)
    wanted = _wanted(home, model, panel, tickers, older_than, alarmed=alarmed)
    trained = time.perf_counter()
    new = update(
        model, panel, wanted, executor=executor, on_progress=on_training,
        seed=int(model.provenance.get("seed", 0)) if seed is None else seed,
    )  # fmt: skip
    provenance = _provenance(new, panel, run_name(folder), time.perf_counter() - trained)
    done = provenance["updated"]
    new = dataclasses.replace(new, provenance=provenance)
    # It tests that the saved model can forecast.
    forecast_frame(*prepared(new.only(done[:1]), panel.only(done[:1])), [], [])
    saved = Run.read(save_run(home, new, name))
    seconds = time.perf_counter() - began
    named = set(model.ids if tickers is None else wanted)
    gone = {each: why for each, why in panel.skipped.items() if each in named}
    return UpdatedRun(saved, run_name(folder), done, gone, seconds)


def _wanted(
    home: Home,
    model: Model,
    panel: Panel,
    tickers: Sequence[str] | None,
    older_than: int | None,
    *,
    alarmed: bool,
) -> list[str]:
    """Return the series to update. Raises DataError if there is none."""
    rows = rows_since(model, panel)
    if tickers is not None:
        named, unknown = resolve_names(model.ids, model.skipped, tickers)
        if unknown:
            raise UsageError(f"tickers that the run has no networks for:\n{name_reasons(unknown)}")
        rows = {each: rows[each] for each in named if each in rows}
    alarms = _alarmed(home, model) if alarmed else set()
    least = older_than if older_than is not None else None if alarmed else 1
    wanted = [
        each
        for each, new in rows.items()
        if new and (each in alarms or (least is not None and new >= least))
    ]
    if not wanted:
        why = ["no series has an alarm"] if alarmed else []
        if least is not None:
            why.append(f"none has {least:,} or more stored rows that it has not learned from")
        raise DataError(
            f"nothing to update: {' and '.join(why)}; the most new rows of a series is "
            f"{max(rows.values(), default=0)}. Run `forecaster ingest` first, or lower --older-than"
        )
    return wanted


def _alarmed(home: Home, model: Model) -> set[str]:
    """Return the series that alarms of past forecasts name; all series if an alarm is about all."""
    card = score_record(home, record_of(home, model.provenance.get("source")))
    if not len(card.rows):
        return set()
    named = {alarm.series for alarm in forecast_alarms(card, errors=ERRORS_RATE)}
    return set(model.ids) if None in named else {name for name in named if name is not None}


def _provenance(model: Model, panel: Panel, before: str, seconds: float) -> dict[str, Any]:
    """Return the record that the new run stores of its data and the program."""
    dropped = ("fit", "data_sha256", "masked")
    kept = {name: value for name, value in model.provenance.items() if name not in dropped}
    return {
        **kept,
        "training_seconds": seconds,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "last": show_time(panel.times[-1]),
        "end": None,
        "continues": before,
        "versions": {**kept.get("versions", {}), "forecaster": __version__},
    }
