"""The risk of books of positions: by a model in a notebook, or by a saved one and stored prices."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd

from forecaster import swarm
from forecaster.errors import (
    ForecasterWarning,
    Kind,
    ModelError,
    Skipped,
    UsageError,
    check_whole,
    listed,
    name_reasons,
    spelled,
    spellings,
)
from forecaster.files import Home
from forecaster.forecasting import (
    Model,
    check_levels,
    check_model,
    check_paths,
    draw_paths,
    prepared,
    price_factor,
    resolve_names,
)
from forecaster.ingest import ColumnOptions, CovariateFiles, Table, as_panel
from forecaster.pipeline.book_file import read_books
from forecaster.pipeline.predict_run import with_covariates
from forecaster.portfolio import (
    NOW,
    QUIET,
    Book,
    Futures,
    Holding,
    after_moves,
    moves_between,
    named_moves,
    spans_of,
)
from forecaster.series import (
    Date,
    Ends,
    Finding,
    Panel,
    find_late,
    findings_in_words,
    next_times,
    show_time,
    show_times,
)
from forecaster.storage import (
    choose_run,
    forecasting_panel,
    store_of,
    stored_ends,
    stored_newcomers,
    under_new_names,
)

HORIZONS = (1, 5, 10, 21)
"""The horizons of risk, as far as a model reaches."""
LEVELS = (95.0, 97.5, 99.0)
PATHS = 5000
_MONTH = 21  # sessions


@dataclasses.dataclass(frozen=True)
class Risk:
    """What books may lose.

    - ``frame``: long, a row for each book, ``(all)``, and each of its positions: see :func:`risk`
    - ``problems``: positions that are left out of totals, or could hardly be sold, with the reason
    - ``base``: by book, the money that per cent are of
    - ``until``: by horizon, the time at which it ends
    - ``origins``: the number of past sessions whose errors the paths are drawn from
    - ``since``: the time of the prices
    """

    frame: pd.DataFrame
    base: Mapping[str, float]
    problems: Mapping[str, str]
    until: Mapping[int, str]
    origins: int
    since: str

    def first(self, book: str) -> pd.DataFrame:
        """Return the whole book and its positions over the first horizon at the highest level."""
        its = self.frame[(self.frame["book"] == book) & (self.frame["scenario"] == NOW)]
        return its[(its["horizon"] == its["horizon"].min()) & (its["level"] == its["level"].max())]


def risk(
    model: Model,
    panel: Panel | Table,
    book: Any,
    level: Sequence[float] | float = LEVELS,
    horizon: Sequence[int] | int | None = None,
    *,
    moves: Mapping[str, float] | None = None,
    stress: Sequence[Date] | Date = (),
    n_paths: int = PATHS,
    seed: int = 0,
    history: Panel | None = None,
    **columns: Unpack[ColumnOptions],
) -> Risk:
    """Return value at risk and expected shortfall of books, and what each position carries.

    - ``model, panel, columns``: as for :func:`forecaster.predict`; of prices
    - ``book``: a frame, or the name of a CSV, with the column ``ticker`` and one of ``shares``,
      ``value`` and ``weight``; with ``book``, several books. What is short is negative, and cash
      has the ticker ``CASH``. Weights are relative to their sum
    - ``level``: the probabilities that losses stay below the value at risk, in percent
    - ``horizon``: numbers of sessions; by default those of 1, 5, 10 and 21 that the model forecasts
    - ``moves``: what if, by ticker, such as ``{"SPY": -0.05}``: the next session closes so, and
      books are measured again from there. The market of the model (:class:`forecaster.Config`)
      moves the others by their betas of the latest 250 rows; any other series moves alone.
      Compare with the scenario ``a quiet session``, on which nothing moves: one session more
      changes the volatility that is expected
    - ``stress``: past days, ``"2008-10-15"``, or spans, ``"2008-10-01:2008-10-31"``, whose joint
      moves meet the positions of today
    - ``n_paths``, ``seed``: as for :func:`forecaster.simulate`
    - ``history``: the rows of stresses; by default those of ``panel``

    The frame has the columns ``scenario`` (``now``, a worst path, a move or a stress), ``book``,
    ``unique_id``, ``value``, ``horizon``, ``level``, ``var``, ``es``, ``var_error`` (the standard
    error), ``var_alone`` and ``es_alone`` (of each position by itself, of a book their sum),
    ``move`` and ``profit``. All are money, of weights those of a book worth 100. Losses are above 0
    in ``var`` and ``es``, and below 0 as profits. The ``var`` and ``es`` of positions are
    contributions, which add up to those of their book.

    Every horizon is a step of the same joint paths of :func:`forecaster.simulate`, never a multiple
    of another. Raises UsageError for a horizon that the model does not forecast, and for a book
    whose total would be wrong: a ticker twice, two currencies, weights that sum to nothing. What is
    left out of the totals, such as an unknown ticker, is in ``problems``.
    """
    check_model(model)
    levels, steps = check_levels(level), _steps(horizon, model.config.horizon)
    check_paths(n_paths, (), [one / 100 for one in levels])
    panel = as_panel(panel, **columns)
    known = spellings([*panel.ids, *(panel.market.ids if panel.market else ())])
    books = [one.renamed(known) for one in read_books(book)]
    moves = {
        spelled(known, name) or name: its
        for name, its in named_moves((moves or {}).items()).items()
    }
    past, spans = (history or panel).masked(forecasting=True), spans_of(stress)
    model, part, reasons = _measurable(model, panel, _tickers(books), moves)
    draw = functools.partial(_futures, n_paths=n_paths, seed=seed, steps=steps)
    futures = draw(model, part)
    holdings = [Holding.from_book(one, futures) for one in books]
    problems = _problems(holdings, reasons, part)
    holdings = [one for one in holdings if one.ids or not one.book.amounts]
    frames = [one.risk(futures, levels) for one in holdings]
    profits: dict[str, Mapping[str, float]] = {}
    if moves:
        scenario = ", ".join(f"{name} {100 * move:+.4g} %" for name, move in moves.items())
        quiet, after, profits[scenario] = _next_session(draw, model, part, moves)
        for name, then in ((QUIET, quiet), (scenario, after)):
            frames += [one.risk(then, levels, name) for one in holdings]
    profits |= {span: moves_between(past, span) for span in spans}
    for scenario, moved in profits.items():
        frames += [one.moved(moved, scenario) for one in holdings]
        problems |= _unmoved(holdings, moved, scenario)
    base = {one.book.name: one.base for one in holdings}
    until = dict(zip(steps, futures.until, strict=True))
    frame, since = pd.concat(frames, ignore_index=True), show_time(part.times[-1])
    return Risk(frame, base, problems, until, futures.origins, since)


def risk_from_home(
    home: Home,
    book: str | Path,
    *,
    moves: Iterable[tuple[str, float]] = (),
    stress: Sequence[str] = (),
    run: str | Path | None = None,
    end: Date | None = None,
    on_notice: Callable[[str], None],
    **asked: Any,
) -> Risk:
    """Return the risk of books by a saved model and the stored prices; nothing is recorded.

    Stresses may lie before the rows that the model learned from.

    - ``moves``: pairs of a ticker and its move
    - ``run``, ``end``, ``on_notice``: as for :func:`forecaster.pipeline.predict_from_home`
    - the rest: as for :func:`risk`

    Prices that end before those of other stored series are among the problems, too.
    """
    books, moved = read_books(book), named_moves(moves)
    if not _tickers(books):
        raise UsageError("book: no position but cash, which has no risk")
    tickers = [*_tickers(books), *moved]
    swarm.keep_compiled(home.programs)
    chosen = choose_run(home, run, tickers, on_notice)
    store = store_of(home, chosen)
    opened = under_new_names(store, chosen)
    ids, unknown = resolve_names(opened.ids, opened.index.skipped, tickers)
    model = opened.model(ids)
    ids = [*dict.fromkeys([*ids, *stored_newcomers(store, model, unknown).values()])]
    panel, findings = forecasting_panel(store, model, ids, end)
    late = list[Finding]()
    if chosen.source == "simulated":
        on_notice("Simulated prices: this is the risk in an invented market.")
    else:
        late = [*find_late(panel, end, Ends({} if end else stored_ends(store)))]
    panel = with_covariates(panel, model, CovariateFiles(), home, opened.folder)
    history = panel = dataclasses.replace(panel, skipped={**unknown, **panel.skipped})
    if stress and model.provenance.get("start"):
        whole = dataclasses.replace(model, provenance={**model.provenance, "start": None})
        history, _ = forecasting_panel(store, whole, ids, end)
    found = risk(model, panel, books, moves=moved, stress=stress, history=history, **asked)
    measured = {*found.frame["unique_id"]}
    late = [one for one in late if one.name in measured]
    said = findings_in_words([*findings, *late], len(ids))
    for sentence in (text for kind, text in said.items() if kind != "behind"):
        on_notice(f"Warning: {sentence}")
    behind = {"prices": said["behind"]} if "behind" in said else {}
    return dataclasses.replace(found, problems={**found.problems, **behind})


def _tickers(books: Sequence[Book]) -> list[str]:
    return [*dict.fromkeys(name for one in books for name in one.amounts)]


def _steps(horizon: Sequence[int] | int | None, longest: int) -> list[int]:
    """Return the steps ahead to measure, in order. Raises UsageError for one beyond the model."""
    if horizon is None:
        return [step for step in HORIZONS if step <= longest]
    horizon = horizon if isinstance(horizon, Sequence) else [horizon]
    for step in horizon:
        check_whole("horizon", step, 1)
    if not horizon or max(horizon) > longest:
        raise UsageError(
            f"horizon: expected 1 to {longest}, the sessions that the model forecasts; got "
            f"{listed([*map(str, horizon)])}. A model that reaches further is fitted by "
            f"`forecaster fit --horizon {max(horizon, default=1)}` and the options of before"
        )
    return sorted({*horizon})


def _measurable(
    model: Model, panel: Panel, names: Sequence[str], moves: Collection[str]
) -> tuple[Model, Panel, dict[str, Skipped]]:
    """Return the series that have a price of today and a forecast, and why others have none.

    Today is the latest session of any position; what is known of moved series since then is cut.

    - ``names``: the positions
    - ``moves``: series to move, beside them. Raises UsageError for one without a price of today
    """
    if panel.target == "y":
        raise ModelError("a book needs prices; the model forecasts the column y. Fit on `close`")
    if not names:
        raise UsageError("book: no position but cash, which has no risk")
    if panel.peers is None:
        panel = panel.with_peers(model.peers)  # the state of the market is made from them
    wanted = [*dict.fromkeys([*names, *moves, *model.transform.market])]
    there = [name for name in wanted if name in panel.ids]
    unknown = Skipped(Kind.NOT_IN_MODEL, detail=f"{len(panel.ids)} series that can be forecast")
    reasons = {name: panel.skipped.get(name, unknown) for name in wanted if name not in there}
    if not {*there} & {*names}:
        raise _none_measured(reasons)
    model, part = prepared(model, panel.only(there))
    reasons |= part.skipped
    ends = [its[-1] for name, its in part.times_of_rows().items() if name in names]
    if not ends:
        raise _none_measured(reasons)
    latest, usual = max(ends), model.frequency
    part = part.until(latest)
    due = part.of_times(lambda times: bool(next_times(times, 1, usual)[0] <= latest))
    stale = {
        name: Skipped(
            Kind.OTHER, detail=f"no price of {show_time(latest)}, but of {show_time(its[-1])}"
        )
        for late, (name, its) in zip(due, part.times_of_rows().items(), strict=True)
        if late
    }
    for name in stale.keys() & moves:
        raise UsageError(f"a move of {name}: {stale[name]}")
    part = part.only([name for name in part.ids if name not in stale], stale)
    return model, part, reasons | stale


def _none_measured(reasons: Mapping[str, object]) -> ModelError:
    return ModelError(f"no position can be measured:\n{name_reasons(reasons)}")


def _futures(model: Model, panel: Panel, n_paths: int, seed: int, steps: Sequence[int]) -> Futures:
    """Draw joint futures of quoted prices."""
    paths = draw_paths(model, panel, n_paths, seed, steps)
    latest = np.array([values[-1] for values, _ in paths.panel.rows()])
    now, until = latest * price_factor(paths.panel), show_times(paths.times[0])
    return Futures(paths.panel.ids, now, paths.values, steps, until, paths.origins)


def _next_session(
    draw: Callable[[Model, Panel], Futures], model: Model, panel: Panel, moves: Mapping[str, float]
) -> tuple[Futures, Futures, dict[str, float]]:
    """Return futures after a quiet session and after moves, and the move of each series."""
    market = model.transform.market
    quiet, _ = after_moves(panel, dict.fromkeys(moves, 0.0), market)
    after, moved = after_moves(panel, moves, market)
    with warnings.catch_warnings():  # all has been said of today
        warnings.simplefilter("ignore", ForecasterWarning)
        return draw(*prepared(model, quiet)), draw(*prepared(model, after)), moved


def _unmoved(
    holdings: Sequence[Holding], moved: Mapping[str, float], scenario: str
) -> dict[str, str]:
    """Return the positions that have no move in a scenario, with the reason."""
    lacking = {name for one in holdings for name in one.ids} - moved.keys()
    why = "no session then and one before; left out of the total of that scenario"
    return {f"{name}, {scenario}": why for name in sorted(lacking)}


def _problems(
    holdings: Sequence[Holding], reasons: Mapping[str, Skipped], panel: Panel
) -> dict[str, str]:
    """Return what is wrong with positions. Raises ModelError where none can be measured.

    - ``reasons``: why positions are in no total
    - ``panel``: of those that are; larger ones than a month's volume could hardly be sold
    """
    found: dict[str, str] = {}
    volume = dict[str, float]()
    if "volume" in panel.channels:
        month = np.nansum(panel.channel("volume")[:, -_MONTH:], axis=1)
        volume = dict(zip(panel.ids, month.tolist(), strict=True))
    for one in holdings:
        of = f" in {one.book.name}" if len(holdings) > 1 else ""
        for name in one.missing:
            why = reasons.get(name, Skipped(Kind.FORECAST_NOT_FINITE))
            whole = sum(map(abs, [*one.book.amounts.values(), one.book.cash]))
            known = one.book.kind != "shares"
            share = f" ({abs(one.book.amounts[name]) / whole:.1%} of the book)" if known else ""
            found[f"{name}{of}"] = f"{why}; left out of all totals{share}"
        for name, shares in zip(one.ids, np.abs(one.shares).tolist(), strict=True):
            if one.book.kind != "weight" and shares > volume.get(name, np.inf):
                found[f"{name}{of}"] = (
                    f"{shares:,.0f} shares are more than the {volume[name]:,.0f} that were traded "
                    f"in the latest {_MONTH} sessions: hardly to be sold within these horizons"
                )
    if not any(one.ids for one in holdings):
        raise _none_measured(found)
    return found
