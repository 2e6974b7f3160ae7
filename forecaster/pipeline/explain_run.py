"""Explain the forecasts of a saved model, or of one in a notebook, and set other widths beside."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster import swarm
from forecaster.errors import (
    ForecasterWarning,
    ModelError,
    Skipped,
    has,
    pip_command,
    wrong_argument,
)
from forecaster.evaluation import baselines
from forecaster.files import Home
from forecaster.forecasting import (
    Explanation,
    Model,
    check_levels,
    check_model,
    explained,
    resolve_names,
)
from forecaster.ingest import ColumnOptions, CovariateFiles, Store, Table, as_panel
from forecaster.pipeline.predict_run import Prediction, with_covariates
from forecaster.series import Date, Finding, Panel, Time, findings_in_words, show_time
from forecaster.storage import (
    Run,
    all_series,
    choose_run,
    forecasting_panel,
    runs_of,
    store_of,
    stored_newcomers,
    under_new_names,
)

_BESIDE = 5  # most series that others forecast, too: GARCH takes a second for each
_MONTH = 20  # rows of the realised volatility
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days


def explain(
    model: Model,
    panel: Panel | Table,
    unique_id: str | Sequence[str] | None = None,
    *,
    at: Time | None = None,
    since: Time | None = None,
    level: float = 80.0,
    older: Model | None = None,
    implied: Mapping[str, float] | None = None,
    **columns: Unpack[ColumnOptions],
) -> Explanation:
    """Explain forecasts: the factors of each band, the terms of each median, and what changed.

    The width of a band of prices, log(upper/lower), is a product of named factors, and the
    logarithm of the median over the latest price a sum of terms. Medians of other series are sums
    in their own units. The result has the long frame ``frame``, and ``text(unique_id)``, which a
    notebook shows.

    - ``panel``: the series, or a frame with them, as for :func:`forecaster.predict`
    - ``unique_id``: the series to explain, or several; by default all
    - ``at``: explain the forecast from this time, as if later rows were unknown
    - ``since``: the time to compare with; by default that of the row before
    - ``level``: of the band, in percent
    - ``older``: the model of that time; the new fit is then a factor of its own
    - ``implied``: volatilities a year that options imply, in percent, to set beside
    - ``columns``: meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`

    Of up to five series of prices, GARCH, EWMA and the volatility of the latest 20 rows stand
    beside. Raises UsageError for unknown series, and errors as :func:`forecaster.predict` does.
    """
    check_model(model)
    (level,) = check_levels(level)
    panel = as_panel(panel, **columns)
    panel = panel if at is None else _known(panel, at)
    ids = (
        list(panel.ids)
        if unique_id is None
        else [unique_id]
        if isinstance(unique_id, str)
        else [*unique_id]
    )
    for name in ids:
        if name not in panel.ids:
            raise wrong_argument("unique_id", name, f"series of the panel, such as {panel.ids[0]}")
    times = panel.times[panel.mask.any(0)]
    if since is None:
        since = times[-2] if len(times) > 1 else None
    before = None if since is None else _known(panel, since)
    made = explained(model, panel, ids, level=level, before=before, older=older)
    return with_beside(made, panel.masked(forecasting=True), implied)


class Explained(NamedTuple):
    """What a home's forecasts are made of, their run, and unknown series with the reason."""

    explanation: Explanation
    run: Run
    unknown: dict[str, Skipped]


def explain_from_home(
    home: Home,
    tickers: Sequence[str] | None,
    *,
    run: str | Path | None = None,
    at: Date | None = None,
    since: Date | None = None,
    level: float = 80.0,
    implied: Mapping[str, float] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Explained:
    """Explain the forecasts of tickers, by default of all, from the stored prices.

    Both dates are forecast as ``predict --end`` does. The run is the one that ``predict`` takes;
    for a day in the past, the latest one that had seen no later row, if it is kept. If a fit lies
    between the two dates, the earlier one is also forecast with the run of that time.

    Arguments and errors as of :func:`forecaster.pipeline.predict_from_home`.
    """
    swarm.keep_compiled(home.programs)
    chosen = choose_run(home, run, tickers, on_notice)
    if at is not None and run is None and _seen_later(chosen, end := _end_of(at)):
        chosen = _run_at(home, chosen, end) or chosen
    store = store_of(home, chosen)
    opened = under_new_names(store, chosen)
    if tickers is None:
        ids, unknown, _ = all_series(store, opened, newcomers=False)
    else:
        ids, unknown = resolve_names(opened.ids, opened.index.skipped, tickers)
    new = stored_newcomers(store, opened.model(ids[:1]), unknown) if unknown else {}
    unknown = {name: reason for name, reason in unknown.items() if name not in new}
    first, *rest = opened.by_shard(ids)
    groups = [[*dict.fromkeys([*first, *new.values()])], *rest]
    if not groups[0]:
        raise ModelError("\n".join(f"{name}: {reason}" for name, reason in unknown.items()))
    both = [_explained(home, store, opened, some, at, since, level) for some in groups]
    parts = [made for made, _ in both]
    if sum(map(len, groups)) <= _BESIDE:
        parts = [with_beside(made, panel, implied) for made, panel in both]
    whole = parts[0]
    if len(parts) > 1:
        moves = {name: move for part in parts for name, move in part.moves.items()}
        others = [part.beside for part in parts if part.beside is not None]
        frame = pd.concat([part.frame for part in parts], ignore_index=True)
        beside = pd.concat(others, ignore_index=True) if others else None
        whole = dataclasses.replace(whole, frame=frame, moves=moves, beside=beside)
    return Explained(whole, opened, unknown)


def _explained(
    home: Home,
    store: Store,
    run: Run,
    ids: Sequence[str],
    at: Date | None,
    since: Date | None,
    level: float,
) -> tuple[Explanation, Panel]:
    """Explain series whose networks are read together; return also the panel, as it was known."""
    model = run.model([name for name in ids if name in set(run.ids)])

    def known(end: Date | None) -> tuple[Panel, list[Finding]]:
        panel, findings = forecasting_panel(store, model, ids, end)
        return with_covariates(panel, model, CovariateFiles(), home, run.folder), findings

    panel, findings = known(at)
    notes = [f"{said}." for said in findings_in_words(findings, len(ids)).values()]
    before = None if since is None else known(since)[0]
    times = panel.times[panel.mask.any(0)]
    if before is None and len(times) > 1:
        # Days are read again, since rows that looked wrong may have been found later.
        dated, latest = times.dtype.kind == "M", times[-2:]
        daily = dated and bool((latest == latest.astype("datetime64[D]")).all())
        before = known(show_time(times[-2]))[0] if daily else _known(panel, times[-2])
    older = None
    if before is not None and _seen_later(run, end := before.times[-1]):
        then = _run_at(home, run, end)
        older = None if then is None else _model_of(then, store, ids)
        who = "no run of that time is kept, so it makes both forecasts"
        if then is not None and older is not None:
            who = f"run {then.name} made the forecasts of that day"
        notes.append(f"Run {run.name} was fitted on rows after {show_time(end)}; {who}.")
    try:
        made = explained(model, panel, ids, level=level, before=before, older=older, notes=notes)
    except ModelError:  # perhaps nothing could be forecast from the row before
        if since is not None:
            raise
        made = explained(model, panel, ids, level=level)
    return made, panel


def explain_prediction(
    home: Home,
    made: Prediction,
    levels: Sequence[float],
    ids: Sequence[str] | None = None,
) -> Explanation:
    """Explain forecasts that have been made from a home, by the run that made them.

    ``levels``: of the bands; the one nearest to 80 % is explained. ``ids``: None: all series
    """
    end = made.panel.times[-1]
    at = show_time(end.astype("datetime64[D]")) if end.dtype.kind == "M" else None
    level = min(levels, key=lambda one: abs(one - 80))
    ids = list(made.panel.ids) if ids is None else ids
    with warnings.catch_warnings():  # the forecasts themselves have said all
        warnings.simplefilter("ignore", ForecasterWarning)
        return explain_from_home(home, ids, run=made.run, at=at, level=level).explanation


def _known(panel: Panel, time: Time) -> Panel:
    """Return the series that had a row at a time, as they were known."""
    known = panel.until(time)
    return known.only([n for n, row in zip(known.ids, known.mask, strict=True) if row.any()])


def _end_of(day: Date) -> np.datetime64:
    return np.datetime64(pd.Timestamp(day).normalize() + pd.Timedelta("1D") - pd.Timedelta(1))


def _seen_later(run: Run, time: Any) -> bool:
    """Return whether a run was fitted on rows after a time."""
    until = np.array([*run.fitted_until.values()])
    return until.dtype.kind == np.asarray(time).dtype.kind and bool(until.max() > time)


def _run_at(home: Home, run: Run, time: Any) -> Run | None:
    """Return the latest run of the same source that had seen no row after a time, if it is kept."""
    alike = (
        one
        for one in reversed(runs_of(home)[0])
        if (one.source, one.config.horizon) == (run.source, run.config.horizon)
    )
    return next((one for one in alike if one.fitted_until and not _seen_later(one, time)), None)


def _model_of(run: Run, store: Store, ids: Sequence[str]) -> Model | None:
    """Return the model of those of the series that a run knows."""
    run = under_new_names(store, run)
    there = set(run.ids)
    known = [name for name in ids if name in there]
    return run.model(known) if known else None


def with_beside(
    made: Explanation, panel: Panel, implied: Mapping[str, float] | None = None
) -> Explanation:
    """Return an explanation with what GARCH, EWMA, realised and implied volatility say beside.

    Only of a few series of dated prices.
    """
    ids = made.ids
    if len(ids) > _BESIDE or panel.target == "y" or panel.times.dtype.kind != "M":
        return made
    rows: list[dict[str, object]] = []
    for name in ids:
        values, times = panel.rows()[panel.ids.index(name)]
        own = made.of(name)
        ours = float(own[(own["of"] == "band") & (own["factor"] == "total")]["value"].iloc[0])
        years = float((times[-1] - times[0]) / _YEAR) / max(len(times) - 1, 1)
        realised = float(np.diff(np.log(values[-_MONTH - 1 :])).std())
        widths = {
            "this forecast": ours,
            f"realised, {_MONTH} rows": _of_deviation(realised, made.level),
            **_by_others(values, made.level),
        }
        if implied and name in implied:
            widths["implied"] = _of_deviation(implied[name] / 100 * years**0.5, made.level)
        rows += [
            {
                "unique_id": name, "name": said, "width": width,
                "a_year": 100 * width / _of_deviation(1.0, made.level) / years**0.5,
            }
            for said, width in widths.items()
        ]  # fmt: skip
    return dataclasses.replace(made, beside=pd.DataFrame(rows))


def _of_deviation(deviation: float, level: float) -> float:
    """Return the width of a normal band."""
    from scipy.special import ndtri

    return 2 * float(ndtri(0.5 + level / 200)) * deviation


def _by_others(values: Float[np.ndarray, " row"], level: float) -> dict[str, float]:
    """Return the widths that EWMA and GARCH forecast for the next row; NaN where one cannot."""
    quantiles = np.array([0.5 - level / 200, 0.5 + level / 200])
    job = baselines.Job(values, np.array([len(values) - 1]), 1, quantiles, 1)
    widths: dict[str, float] = {}
    for name in ("ewma", "garch"):
        baseline = baselines.BASELINES[name]
        if baseline.library and not has(baseline.library):
            widths[f"{baseline.column}: {pip_command(baseline.extra)} installs it"] = np.nan
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                low, high = baseline.load()(job)[0, 0]
            widths[baseline.column] = float(np.log(high / low))
        except ValueError as error:
            widths[f"{baseline.column}: {error}"] = np.nan
    return widths
