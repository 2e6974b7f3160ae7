"""Explain the forecasts of a saved model, or of one in a notebook, and set other widths beside."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float

from forecaster import swarm
from forecaster.errors import ForecasterWarning, ModelError, Skipped, check_whole, wrong_argument
from forecaster.evaluation import baselines
from forecaster.files import Home
from forecaster.forecasting import (
    ONE_DEVIATION,
    Explanation,
    Model,
    check_levels,
    check_model,
    explained,
    normal_scores_of,
    resolve_names,
)
from forecaster.ingest import ColumnOptions, CovariateFiles, Store, Table, as_panel
from forecaster.pipeline.predict_run import Prediction, with_covariates
from forecaster.series import Finding, Panel, Time, findings_in_words, show_time
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

_BESIDE = 5  # most series that GARCH forecasts, too: each takes a tenth of a second
_MONTH = 20  # rows of the realised volatility
_YEAR = np.timedelta64(31_557_600, "s")  # 365.25 days
_OURS, _REALISED = "this forecast", f"realised, {_MONTH} rows"


def explain(
    model: Model,
    panel: Panel | Table,
    unique_id: str | Sequence[str] | None = None,
    *,
    at: Time | None = None,
    since: Time | None = None,
    level: float = 80.0,
    step: int = 1,
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
    - ``step``: the step ahead that ``text`` shows; the frame has all
    - ``older``: the model of that time; the new fit is then a factor of its own
    - ``implied``: volatilities a year that options imply, in percent, to set beside
    - ``columns``: meaning of a frame's columns, see :class:`forecaster.ingest.ColumnOptions`

    Beside prices stand EWMA and the volatility of the latest 20 rows, and of up to five series
    GARCH(1,1) with Student-t errors. Raises UsageError for unknown series or a step beyond the
    horizon, and errors as :func:`forecaster.predict` does.
    """
    check_model(model)
    (level,) = check_levels(level)
    check_step(step, model.config.horizon)
    panel = as_panel(panel, **columns)
    panel = panel if at is None else _known(panel, at)
    given = panel.ids if unique_id is None else unique_id
    ids = [given] if isinstance(given, str) else [*given]
    panel.positions_of(ids, "unique_id")
    times = panel.times[panel.mask.any(0)]
    if since is None:
        since = times[-2] if len(times) > 1 else None
    before = None if since is None else _known(panel, since)
    made = explained(model, panel, ids, level=level, step=step, before=before, older=older)
    return with_beside(made, panel.masked(forecasting=True), implied)


def check_step(step: int, horizon: int) -> None:
    """Raise UsageError for anything but a step ahead that a model forecasts."""
    check_whole("step", step, 1)
    if step > horizon:
        raise wrong_argument("step", step, f"1 to {horizon}, the steps that the model forecasts")


class Explained(NamedTuple):
    """What a home's forecasts are made of, their run, and unknown series with the reason."""

    explanation: Explanation
    run: Run
    unknown: dict[str, Skipped]

    def table(self) -> pd.DataFrame:
        """Return all factors and terms, with the run, the earlier date, and what others say.

        Widths by others are in columns of their names, beside the total of the band of the step
        that is shown.
        """
        made = self.explanation
        frame = made.frame.assign(run=self.run.name, since=made.since)
        if made.beside is None:
            return frame
        others = made.beside[made.beside["name"] != _OURS]
        others = others.pivot(index="unique_id", columns="name", values="width")
        its = (frame["of"] == "band") & (frame["factor"] == "total") & (frame["step"] == made.step)
        wide = others.reindex(frame["unique_id"]).set_axis(frame.index)
        return frame.join(wide.where(its).rename_axis(columns=None))


@dataclasses.dataclass(frozen=True)
class Question:
    """What is to be explained.

    - ``at``, ``since``: the day, or the number of the row, to explain the forecast from, and that
      to compare with; by default the latest one, and the row before
    - ``level``, ``step``: of the band, and the step ahead that is shown
    - ``implied``: volatilities a year that options imply, in percent, by series
    """

    at: Time | None = None
    since: Time | None = None
    level: float = 80.0
    step: int = 1
    implied: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])


def explain_from_home(
    home: Home,
    tickers: Sequence[str] | None,
    question: Question,
    *,
    run: str | Path | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Explained:
    """Explain the forecasts of tickers, by default of all, from the stored prices.

    Both dates are forecast as ``predict --end`` does. The run is the one that ``predict`` takes;
    for a day in the past, the latest one that had seen no later row, if it is kept. If a fit lies
    between the two dates, the earlier one is also forecast with the run of that time.

    Arguments and errors as of :func:`forecaster.pipeline.predict_from_home`.
    """
    swarm.keep_compiled(home.programs)
    chosen = _chosen(home, run, tickers, question.at, on_notice or (lambda message: None))
    check_step(question.step, chosen.config.horizon)
    check_levels(question.level)
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
    parts = [_explained(home, store, opened, some, question) for some in groups]
    return Explained(_joined(parts), opened, unknown)


def _chosen(
    home: Home,
    run: str | Path | None,
    tickers: Sequence[str] | None,
    at: Time | None,
    say: Callable[[str], None],
) -> Run:
    """Return the run to explain, and say which it is once it is known."""
    said: list[str] = []
    chosen = choose_run(home, run, tickers, said.append)
    past = None
    if at is not None and run is None and _seen_later(chosen, end := _end_of(at)):
        past = _run_at(home, chosen, end)
    for line in said:
        if past is None or not line.startswith(("Run: ", "  newer")):
            say(line)
    if past is not None:
        say(f"Run: {past}, the latest one that had seen no row after {show_time(at)}")
    return past or chosen


def _joined(parts: Sequence[Explanation]) -> Explanation:
    """Join the explanations of series whose networks were read one after another."""
    first = parts[0]
    if len(parts) == 1:
        return first
    beside = [part.beside for part in parts if part.beside is not None]
    return dataclasses.replace(
        first,
        frame=pd.concat([part.frame for part in parts], ignore_index=True),
        moves={name: move for part in parts for name, move in part.moves.items()},
        seen={name: said for part in parts for name, said in part.seen.items()},
        beside=pd.concat(beside, ignore_index=True) if beside else None,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _explained(
    home: Home, store: Store, run: Run, ids: Sequence[str], question: Question
) -> Explanation:
    """Explain series whose networks are read together."""
    model = run.model([name for name in ids if name in set(run.ids)])

    def known(end: Time | None) -> tuple[Panel, list[Finding]]:
        numbered = isinstance(end, int | np.integer)
        panel, findings = forecasting_panel(store, model, ids, None if numbered else end)
        panel = with_covariates(panel, model, CovariateFiles(), home, run.folder)
        return (_known(panel, end) if numbered else panel), findings

    panel, findings = known(question.at)
    notes = [f"{said}." for said in findings_in_words(findings, len(ids)).values()]
    before = None if question.since is None else known(question.since)[0]
    times = panel.times[panel.mask.any(0)]
    if before is not None and before.times[-1] >= times[-1]:
        expected = f"a time before {show_time(times[-1])}, that of the latest row"
        raise wrong_argument("since", show_time(question.since), expected)
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
    if before is not None and len(ids) <= _BESIDE:  # each file is read once more
        notes += _splits(store, panel.ids, before.times[-1], times[-1])
    as_asked: dict[str, Any] = {"level": question.level, "step": question.step}
    try:
        made = explained(model, panel, ids, **as_asked, before=before, older=older, notes=notes)
    except ModelError:  # perhaps nothing could be forecast from the row before
        if question.since is not None:
            raise
        made = explained(model, panel, ids, **as_asked)
    return with_beside(made, panel, question.implied)


def _splits(store: Store, ids: Sequence[str], since: Any, until: Any) -> Iterator[str]:
    """Say for which splits between two times the prices before them are adjusted."""
    for name in ids:
        rows, found = store.read_delivered(name), dict[Any, tuple[float, str]]()
        if "splits" in rows:  # which the source has applied
            made = rows[rows["splits"].fillna(0) > 0].set_index("ds")["splits"]
            found = {time: (1 / by, "split") for time, by in made.items()}
        for one in store.corrections_of(name).adjustments:
            kind = "split" if one.split else "change of unit"
            found[pd.Timestamp(one.time)] = one.factor, kind
        for time, (factor, kind) in found.items():
            if since < time <= until and factor != 1:
                day, by = show_time(time), f"multiplied by {factor:.4g} for a {kind}"
                yield f"{name}: prices before {day} are {by}, so no factor takes it for a move."


def explain_prediction(
    home: Home, made: Prediction, levels: Sequence[float], ids: Sequence[str] | None = None
) -> Explanation:
    """Explain forecasts that have been made from a home, by the run that made them.

    ``levels``: of the bands; the one nearest to 80 % is explained. ``ids``: None: all series
    """
    end = made.panel.times[-1]
    at = show_time(end.astype("datetime64[D]")) if end.dtype.kind == "M" else None
    question = Question(at, level=min(levels, key=lambda one: abs(one - 80)))
    ids = list(made.panel.ids) if ids is None else ids
    with warnings.catch_warnings():  # the forecasts themselves have said all
        warnings.simplefilter("ignore", ForecasterWarning)
        return explain_from_home(home, ids, question, run=made.run).explanation


def _known(panel: Panel, time: Time) -> Panel:
    """Return the series that had a row at a time, as they were known."""
    known = panel.until(time)
    return known.only([n for n, row in zip(known.ids, known.mask, strict=True) if row.any()])


def _end_of(time: Time) -> Any:
    """Return the end of a day, or the number of a row."""
    if isinstance(time, int | np.integer):
        return time
    return np.datetime64(pd.Timestamp(time).normalize() + pd.Timedelta("1D") - pd.Timedelta(1))


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
    """Return an explanation with what EWMA, GARCH, realised and implied volatility say beside.

    Only of dated prices. GARCH forecasts a few series alone, since each takes its time. Volatility
    a year is that of a normal distribution whose middle 68 % are as wide, whatever the level.
    """
    if panel.target == "y" or panel.times.dtype.kind != "M":
        return made
    rows = list[tuple[str, str, float, float]]()
    known = dict(zip(panel.ids, panel.rows(), strict=True))
    now = made.frame[made.frame["step"] == made.step].set_index("unique_id")
    widths = now.loc[(now["of"] == "band") & (now["factor"] == "total"), "value"]
    deviations = now.loc[(now["of"] == "forecast") & (now["factor"] == "deviation"), "value"]
    normal = np.diff(normal_scores_of([0.5 - made.level / 200, 0.5 + made.level / 200])).item()
    for name in made.ids:
        values, times = known[name]
        years = made.step * float((times[-1] - times[0]) / _YEAR) / max(len(times) - 1, 1)
        realised = made.step**0.5 * float(np.diff(np.log(values[-_MONTH - 1 :])).std())
        said = {_OURS: (widths[name], deviations[name]), _REALISED: (normal * realised, realised)}
        said["EWMA"] = _by_other(values, made, baselines.ewma)
        if len(made.ids) <= _BESIDE:
            said["GARCH"] = _by_other(values, made, baselines.range_garch)
        if implied and name in implied:
            deviation = implied[name] / 100 * years**0.5
            said["implied"] = normal * deviation, deviation
        rows += [(name, who, by, 100 * one / years**0.5) for who, (by, one) in said.items()]
    beside = pd.DataFrame(rows, columns=["unique_id", "name", "width", "a_year"])
    return dataclasses.replace(made, beside=beside)


def _by_other(
    values: Float[np.ndarray, " row"], made: Explanation, forecast: Callable[..., np.ndarray]
) -> tuple[float, float]:
    """Return the width of a baseline's band of the step shown, and half that of 68 %; or NaN.

    With squared changes in place of ranges, that of ranges is GARCH(1,1) with Student-t errors. It
    needs no library, and was within two per cent of the width by that of ``evaluate``.
    """
    shares = np.array([0.5 - made.level / 200, 0.5 + made.level / 200, *ONE_DEVIATION])
    squares = np.square(np.diff(np.log(values), prepend=np.nan))
    origin = np.array([len(values) - 1])
    job = baselines.Job(values, origin, made.step, shares, 1, variance=squares)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high, below, above = np.log(forecast(job)[0, -1])
    except ValueError:  # too few rows, or no change
        return np.nan, np.nan
    return float(high - low), float(above - below) / 2
