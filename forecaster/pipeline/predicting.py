"""From a saved model to forecasts."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from forecaster import swarm
from forecaster.errors import ModelError, UsageError, WriteError
from forecaster.forecasting import Model, match_panel, predict, resolve_names, simulate
from forecaster.home import Home, run_name
from forecaster.ingest import CovariateFiles, Reading
from forecaster.record import Made, keep
from forecaster.series import Panel, infer_frequency
from forecaster.skipped import Kind, Skipped
from forecaster.storage import (
    METHODS,
    OpenRun,
    choose_run,
    compare,
    forecasting_panel,
    load,
    save_run,
    stored_newcomers,
)

_KEPT = 252  # latest rows of each series, of a prediction that goes shard by shard


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
    unknown: dict[str, Skipped]
    late: dict[str, int]
    run: Path
    jumped: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether the prices are of an invented market."""
        return self.model.provenance.get("source") == "simulated"


def predict_from_home(
    home: Home,
    tickers: Sequence[str] | None,
    level: Sequence[float],
    run: str | Path | None = None,
    n_paths: int | None = None,
    covariates: CovariateFiles | None = None,
    history: int | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Prediction:
    """Forecast tickers, by default all, with a saved model and the stored prices.

    - ``run``, ``on_notice``: see :func:`forecaster.storage.choose_run`
    - ``covariates``: files of what else is known; by default those that the model was fitted with
    - ``history``: latest rows of each series that the prediction's panel has at least; of a run
      that is not in shards it has all
    - ``n_paths``: where given, the prediction's frame has so many sample paths, and no bands

    Of a run in shards, only those with these series are read, one after the other.

    Tickers that the model has no network for, but whose prices are stored, are forecast by the one
    that all series' networks started from, where there is one, with a warning.

    What is forecast, but for sample paths, is added to the home's record. Where it cannot be
    written, that is one notice.

    Raises ModelError when there is no model, or it can forecast none of the tickers, UsageError
    when there is no run of this name.
    """
    swarm.keep_compiled(home.cache)
    folder = choose_run(home, run, tickers, on_notice)
    opened = OpenRun.of(folder)
    ids, unknown = resolve_names(opened.ids, opened.skipped, tickers)
    # Paths are of all series together; bands can be made shard by shard.
    groups = [ids] if n_paths is not None else opened.by_shard(ids)
    asked = _Asked(home, opened, tuple(level), n_paths, covariates or CovariateFiles(), on_notice)
    if len(groups) == 1:
        return _predict(asked, ids, unknown)
    most = max(_KEPT, history or 0)
    return _joined(_by_shard(asked, groups, unknown, most), most)


class _Asked(NamedTuple):
    """What is forecast with, and how; see :func:`predict_from_home`."""

    home: Home
    run: OpenRun
    level: tuple[float, ...]
    n_paths: int | None
    covariates: CovariateFiles
    on_notice: Callable[[str], None] | None


def _predict(asked: _Asked, ids: list[str], unknown: dict[str, Skipped]) -> Prediction:
    """Forecast series whose networks are read together, and of the unknown those that are stored.

    Raises ModelError when none can be.
    """
    home, folder = asked.home, asked.run.folder
    model = asked.run.model(ids)
    new = stored_newcomers(home, model, unknown)
    unknown = {name: reason for name, reason in unknown.items() if name not in new}
    ids = list(dict.fromkeys([*ids, *new.values()]))
    if not ids:
        raise ModelError("\n".join(f"{name}: {reason}" for name, reason in unknown.items()))
    panel, jumped = forecasting_panel(home, model, ids)
    panel = _with_covariates(panel, model, asked.covariates)
    usable = match_panel(model, panel)
    lost = {name: reason for name, reason in usable.skipped.items() if name in ids}
    if asked.n_paths is None:
        frame = predict(model, usable, asked.level)
        source = str(model.provenance.get("source"))
        made = Made(usable, frame, model.config.column, folder.name, source)
        if not asked.covariates:  # what would be under other plans is no forecast to be held to
            _keep(home, made, asked.on_notice)
    else:
        frame = simulate(model, usable, asked.n_paths)
    return Prediction(model, usable, frame, unknown | lost, _sessions_late(usable), folder, jumped)


def _by_shard(
    asked: _Asked, groups: Sequence[list[str]], unknown: dict[str, Skipped], most: int
) -> list[Prediction]:
    """A prediction for each shard that can forecast; the first names the series of the others.

    ``most``: rows of each series that are kept.

    Raises ModelError when none can.
    """
    parts: list[Prediction] = []
    failed: dict[str, Skipped] = {}
    for number, ids in enumerate(groups):
        try:
            part = _predict(asked, ids, {} if parts else unknown)
        except ModelError as error:
            failed |= dict.fromkeys(ids, Skipped(Kind.OTHER, detail=str(error)))
            if number == len(groups) - 1 and not parts:
                raise
            continue
        parts.append(_latest(part, most, parts[0].model if parts else None))
    return [dataclasses.replace(parts[0], unknown=parts[0].unknown | failed), *parts[1:]]


def _latest(part: Prediction, most: int, model: Model | None = None) -> Prediction:
    """A prediction with the latest rows of its panel alone, and in place of its model another."""
    panel = part.panel
    kept = {name: panel.latest_rows(row, most) for row, name in enumerate(panel.ids)}
    panel = Panel.from_arrays(kept, panel.skipped)
    return dataclasses.replace(part, panel=panel, model=model or part.model)


def _joined(parts: Sequence[Prediction], most: int) -> Prediction:
    """Forecasts of all shards as one."""
    panels = [part.panel for part in parts]
    latest = {
        name: panel.latest_rows(row, most) for panel in panels for row, name in enumerate(panel.ids)
    }
    skipped = {name: why for panel in panels for name, why in panel.skipped.items()}
    return dataclasses.replace(
        parts[0],
        panel=Panel.from_arrays(latest, skipped),
        frame=pd.concat([part.frame for part in parts], ignore_index=True),
        unknown={name: why for part in parts for name, why in part.unknown.items()},
        late={name: count for part in parts for name, count in part.late.items()},
        jumped={name: day for part in parts for name, day in part.jumped.items()},
    )


def _with_covariates(panel: Panel, model: Model, files: CovariateFiles) -> Panel:
    """The panel with what the model was fitted with, from these files or from those of the fit.

    Those of the fit are read as they were then, others as these say, or else like those.
    """
    known = model.transform.covariates
    has = {"future": bool(known.future), "static": bool(known.numbers or known.words)}
    then = Reading(**model.provenance.get("reading") or {})
    for kind, needed in has.items():
        path: str | None = getattr(files, kind)
        if path is not None and not needed:
            raise UsageError(
                f"--{kind}: the model was fitted without {kind} covariates; leave it out, or fit "
                f"again with --{kind}"
            )
        if path is not None:
            reading = then if files.reading == Reading() else files.reading
            panel = CovariateFiles(**{kind: path}, reading=reading).added_to(panel)
        elif needed and (path := model.provenance.get(kind)) is not None:
            panel = CovariateFiles(**{kind: path}, reading=then).added_to(panel)
    return panel


def _keep(home: Home, made: Made, on_notice: Callable[[str], None] | None) -> None:
    """Add a prediction to the record; a home that cannot be written to still answers."""
    try:
        keep(home, made)
    except WriteError as error:
        if on_notice is not None:
            on_notice(f"Warning: not in the record, so `scorecard` will not know of it: {error}")


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
    panel = _with_covariates(panel, model, CovariateFiles())
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
