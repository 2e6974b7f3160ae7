"""Forecast with a saved model."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.errors import (
    DamagedModel,
    Kind,
    ModelError,
    Skipped,
    UsageError,
    WriteError,
    name_reasons,
    printable,
)
from forecaster.files import Home
from forecaster.forecasting import (
    SERIES,
    USUAL_PATHS,
    GroupWeights,
    Model,
    check_paths,
    draw_paths,
    forecast_frame,
    is_quantile,
    possible_sums,
    prepared,
    price_factor,
    resolve_names,
    sums_of,
)
from forecaster.ingest import Columns, CovariateFiles, Store
from forecaster.record import Made, keep
from forecaster.series import (
    Date,
    Ends,
    Finding,
    Panel,
    find_late,
    findings_of,
    say_findings,
    show_time,
)
from forecaster.storage import (
    Run,
    all_series,
    choose_run,
    forecasting_panel,
    in_place_of,
    runs_of,
    store_of,
    stored_ends,
    stored_newcomers,
    under_new_names,
)

# Latest rows of each series that a prediction keeps by default, and at the least.
_KEPT, _LEAST_KEPT = 252, 21


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Forecasts of a saved model.

    - ``model``: a model of these series, of several shards the first one's
    - ``panel``: the latest rows of the stored prices that the forecasts are made from
    - ``frame``: the forecasts, as :func:`forecaster.predict` returns them
    - ``unknown``: tickers without a network, with the reason
    - ``run``: the folder of the model's run
    - ``findings``: what a user should know of the series: of the panel, see
      :func:`forecaster.series.findings_of`; and ``late``: it lacks sessions that are over;
      ``behind``: most others have them; ``ended``: it lacked those at the fit already, and is no
      price, see :func:`forecaster.series.find_late`; ``jumped``, ``frozen``,
      ``unadjusted``: of prices, see :func:`forecaster.storage.forecasting_panel`; ``constant``: it
      has never changed in any row; ``retired``: left out since no more rows are to come
    - ``factors``: by series, the factor from the target's units to quoted prices, by all its rows
    """

    model: Model
    panel: Panel
    frame: pd.DataFrame
    unknown: dict[str, Skipped]
    run: Path
    findings: Sequence[Finding] = ()
    factors: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def found(self, kind: str) -> dict[str, Finding]:
        """Return the findings of a kind by series."""
        return {one.name: one for one in self.findings if one.kind == kind}

    @property
    def simulated(self) -> bool:
        """Whether the prices are simulated."""
        return self.model.provenance.get("source") == "simulated"

    @property
    def summed(self) -> bool:
        """Whether the forecasts are those of sums of groups."""
        return SERIES in self.frame

    @property
    def ends(self) -> dict[str, str]:
        """By series, the time of its latest row."""
        return {name: show_time(its[-1]) for name, its in self.panel.times_of_rows().items()}


def predict_from_home(
    home: Home,
    tickers: Sequence[str] | None,
    level: Sequence[float],
    run: str | Path | None = None,
    n_paths: int | None = None,
    covariates: CovariateFiles | None = None,
    history: int | None = None,
    on_notice: Callable[[str], None] | None = None,
    quantiles: Sequence[float] = (),
    end: Date | None = None,
    *,
    newcomers: bool | None = None,
    max_late: int | None = None,
    sums: GroupWeights | None = None,
    source: str | None = None,
) -> Prediction:
    """Forecast tickers, by default all, with a saved model and the stored prices.

    - ``tickers``: None: all series of the model but those that have been retired since
    - ``level``: of the bands, in percent
    - ``run``, ``on_notice``: see :func:`forecaster.storage.choose_run`
    - ``n_paths``: if given, the frame has this number of sample paths instead of bands
    - ``covariates``: files of covariates; by default those that the model was fitted with,
      if the run is under the home
    - ``quantiles``: probabilities beside the bands, as for :func:`forecaster.predict`
    - ``history``: the number of latest rows of each series in the panel, at least 21; by default
      252
    - ``end``: the day to forecast from, as if nothing after it were known; None: the latest row
    - ``newcomers``: whether all series include stored ones that are new since the fit, or were too
      short for it; None: if the fit took all that the source held
    - ``max_late``: leave out series that lack more sessions than this; None: none
    - ``sums``: if given, the frame has forecasts of the sums of these groups, from ``n_paths``
      paths; groups that lack a series are in ``unknown``
    - ``source``: of the run, where none is named; None: any

    Only the shards that hold these series are read, one after another.

    Tickers without a network whose prices are stored are forecast, with a warning, by the network
    that all series' networks started from, if there is one.

    Forecasts are added to the home's record, but not sample paths, and not those of an ``end``,
    whose outcomes may be known. Where the record cannot be written, ``on_notice`` is called.

    Raises ModelError when there is no model, or it can forecast none of the tickers, UsageError
    when there is no run of this name, and when one from elsewhere needs files of covariates.
    """
    if sums is not None:
        n_paths = USUAL_PATHS if n_paths is None else n_paths
        check_paths(n_paths, level, quantiles)
    swarm.keep_compiled(home.programs)
    chosen = choose_run(home, run, tickers, on_notice, source=source)
    store = store_of(home, chosen)
    opened = under_new_names(store, chosen)
    retired: list[str] = []
    if tickers is None:
        ids, unknown, retired = all_series(store, opened, newcomers=newcomers)
    else:
        ids, unknown = resolve_names(opened.ids, opened.index.skipped, tickers)
    asked = _Asked(
        opened, home, store, tuple(level), n_paths, sums, covariates or CovariateFiles(),
        on_notice or (lambda message: None), tuple(quantiles), end, max_late,
        max(_LEAST_KEPT, _KEPT if history is None else history),
        Ends(stored_ends(store) if end is None else {}),
    )  # fmt: skip
    try:
        made = _by_shard(asked, ids, unknown)
    except DamagedModel as error:
        if run is not None:
            raise
        raise DamagedModel(f"{error}; {in_place_of(chosen.folder, runs_of(home)[0])}") from error
    say_findings(made.findings, len(made.panel.ids))
    findings = [*made.findings, *(Finding("retired", name) for name in retired)]
    return dataclasses.replace(made, findings=findings)


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The run to forecast with, and the options; see :func:`predict_from_home`.

    - ``kept``: latest rows of each series that the prediction keeps
    - ``ends``: of all stored series; none where a day to forecast from was named. They are read
      once, so rows that arrive meanwhile count for the series of later shards only
    """

    run: Run
    home: Home
    store: Store
    level: tuple[float, ...]
    n_paths: int | None
    sums: GroupWeights | None
    covariates: CovariateFiles
    on_notice: Callable[[str], None]
    quantiles: tuple[float, ...]
    end: Date | None
    max_late: int | None
    kept: int
    ends: Ends

    @functools.cached_property
    def fitted(self) -> Ends:
        """The ends of all series at the fit, for which all shards are opened."""
        # The latest time of the fit before an update; of series without dates it is a number.
        updated = self.run.provenance.get("fitted_until") or ""
        dated = updated and not updated.lstrip("-").isdecimal()
        return Ends.at_fit(self.run.fitted_until, np.datetime64(updated, "ns") if dated else None)


def _predict(asked: _Asked, ids: list[str], unknown: dict[str, Skipped]) -> Prediction:
    """Forecast series whose networks are read together, and the stored ones of the unknown.

    Raises ModelError when none can be forecast.
    """
    model = asked.run.model(ids)
    new = stored_newcomers(asked.store, model, unknown)
    unknown = {name: reason for name, reason in unknown.items() if name not in new}
    ids = list(dict.fromkeys([*ids, *new.values()]))
    if not ids:
        raise ModelError("\n".join(f"{name}: {reason}" for name, reason in unknown.items()))
    panel, stored = forecasting_panel(asked.store, model, ids, asked.end)
    panel = with_covariates(panel, model, asked.covariates, asked.home, asked.run.folder)
    whole, usable = prepared(model, panel)  # with networks of new series
    late = list[Finding]()
    if asked.run.source != "simulated":  # which lacks sessions at random
        late = [*find_late(usable, asked.end, asked.ends, lambda: asked.fitted)]
    usable = _punctual(usable, late, asked.max_late)
    unknown |= {name: reason for name, reason in usable.skipped.items() if name in ids}
    frame, forecast, missing = _frame(asked, whole, usable)
    unknown |= missing
    if broken := [name for name in usable.ids if name not in forecast]:
        unknown |= dict.fromkeys(broken, Skipped(Kind.FORECAST_NOT_FINITE))
        usable = usable.only([name for name in usable.ids if name in forecast])
    # Not those that are not scored later, since they assume something, or look back.
    if asked.n_paths is None and not asked.covariates and asked.end is None:
        _record(asked, usable, frame, model.config.column)
    its = set(usable.ids)
    still = usable.constant() & (usable.mask.sum(1) > 1) & ~model.transform.counted(usable.ids)
    found = [
        *(one for one in (*stored, *late) if one.name in its),
        *(Finding("constant", usable.ids[row]) for row in np.flatnonzero(still)),
        *findings_of(usable, forecasting=True),
    ]
    factors = dict(zip(usable.ids, price_factor(usable).tolist(), strict=True))
    kept = _latest([usable], asked.kept)
    return Prediction(model, kept, frame, unknown, asked.run.folder, found, factors=factors)


def _frame(
    asked: _Asked, model: Model, panel: Panel
) -> tuple[pd.DataFrame, set[str], dict[str, Skipped]]:
    """Return forecasts, the series that they are made of, and groups that cannot be summed.

    Raises ModelError when no group can be.
    """
    column = model.config.column
    if asked.n_paths is None:
        frame = forecast_frame(model, panel, asked.level, asked.quantiles)
        return frame, set(frame["unique_id"]), {}
    paths = draw_paths(model, panel, asked.n_paths)
    ids = set(paths.panel.ids)
    if asked.sums is None:
        return paths.frame(column), ids, {}
    groups, missing = possible_sums(paths, asked.sums)
    if not groups:
        raise ModelError(f"no group can be summed:\n{name_reasons(missing)}")
    return sums_of(paths, groups, column, asked.level, asked.quantiles), ids, missing


def _record(asked: _Asked, panel: Panel, frame: pd.DataFrame, column: str) -> None:
    """Add forecasts to the home's record; say so where that cannot be written."""
    bands = frame[[name for name in frame if not is_quantile(name)]]
    try:
        keep(asked.home, Made(panel, bands, column, asked.run.folder.name, asked.run.source))
    except WriteError as error:
        asked.on_notice(f"Warning: not in the record, so `scorecard` will not know of it: {error}")


def _punctual(panel: Panel, late: Iterable[Finding], most: int | None) -> Panel:
    """Return the series that lack at most ``most`` sessions; the others are in ``skipped``.

    ``most``: None: keep all. Raises ModelError if no series is left.
    """
    why = {
        one.name: Skipped(Kind.LATE, rows=one.rows, needed=most)
        for one in late
        if most is not None and one.kind == "late" and one.rows > most
    }
    kept = [name for name in panel.ids if name not in why]
    if not kept:
        raise ModelError(f"every series is too late:\n{name_reasons(why)}")
    return panel.only(kept, why) if why else panel


def _by_shard(asked: _Asked, ids: list[str], unknown: dict[str, Skipped]) -> Prediction:
    """Make a prediction shard by shard; a series whose shard cannot forecast is among the unknown.

    Raises ModelError when no shard can forecast.
    """
    # Sample paths are drawn for all series together; bands can be made shard by shard.
    groups = asked.run.by_shard(ids) if asked.n_paths is None else [ids]
    parts: list[Prediction] = []
    failed: dict[str, Skipped] = {}
    for number, some in enumerate(groups):
        try:
            part = _predict(asked, some, {} if parts else unknown)
        except ModelError as error:
            failed |= dict.fromkeys(some, Skipped(Kind.OTHER, detail=str(error)))
            if number == len(groups) - 1 and not parts:
                raise
        else:
            # Models of all shards would fill the memory; they differ in nothing that is shown.
            parts.append(dataclasses.replace(part, model=parts[0].model) if parts else part)
    if len(groups) == 1:
        return parts[0]
    return dataclasses.replace(
        parts[0],
        panel=_latest([part.panel for part in parts], asked.kept),
        frame=pd.concat([part.frame for part in parts], ignore_index=True),
        unknown={n: why for part in parts for n, why in part.unknown.items()} | failed,
        factors={name: factor for part in parts for name, factor in part.factors.items()},
        findings=[one for part in parts for one in part.findings],
    )


def _latest(panels: Sequence[Panel], most: int) -> Panel:
    """Return the latest rows of the series of some panels, as one panel."""
    rows: dict[str, Any] = {}
    for panel in panels:
        for name, values, mask in zip(panel.ids, panel.values, panel.mask, strict=True):
            seen = np.flatnonzero(mask)[-most:]
            rows[name] = panel.times[seen], values[seen], panel.channels
    skipped = {name: why for panel in panels for name, why in panel.skipped.items()}
    return dataclasses.replace(Panel.from_arrays(rows, skipped), frequency=panels[0].frequency)


def with_covariates(
    panel: Panel, model: Model, files: CovariateFiles, home: Home, folder: Path
) -> Panel:
    """Add the model's covariates to a panel, from these files or else from those of the fit.

    Files of the fit are read as they were then; other files as they say, or else in the same way.

    Raises UsageError for a file that the model has no use for, and where a run that is not under
    the home would have to open a file by itself.
    """
    known = model.transform.covariates
    has = {"future": bool(known.future), "static": bool(known.numbers or known.words)}
    then = Columns(**model.provenance.get("reading") or {})
    for kind, needed in has.items():
        path: str | None = getattr(files, kind)
        # Perhaps no kind of event had happened before the fit: it then learned nothing from a list.
        if path is not None and not needed and not model.provenance.get(kind):
            raise UsageError(
                f"--{kind}: the model was fitted without {kind} covariates; leave it out, or fit "
                f"again with --{kind}"
            )
        if path is not None:
            reading = then if files.reading == Columns() else files.reading
            panel = CovariateFiles(**{kind: path}, reading=reading).added_to(panel)
        elif needed and (path := model.provenance.get(kind)) is not None:
            if not home.holds(folder):
                raise UsageError(
                    f"{printable(path, lines=False)}: not opened: the run {folder} names "
                    f"this file of {kind} covariates, but may be another's. Name the file yourself "
                    f"(`predict --{kind} FILE`) or, if the run is yours, move it to "
                    f"{home.models}"
                )
            panel = CovariateFiles(**{kind: path}, reading=then).added_to(panel)
    return panel
