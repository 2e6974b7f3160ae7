"""Do what is due: update the prices, forecast, score past forecasts, and raise alarms.

Each step leaves nothing half-done when it is interrupted, and repeats nothing that is done: rows
that have arrived are not read again, and a forecast that is in the record is not added again. So an
interrupted run is continued by running it again, and a second run on the same rows changes nothing.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

# Rooms that load JAX are loaded by the stage that needs them: prices are read in less memory.
from forecaster import pipeline, record, report
from forecaster.daily.alarms import (
    JUMPED,
    LATE,
    alarms_of_prediction,
    alarms_of_risk,
    alarms_of_rows,
)
from forecaster.daily.day_summary import Kept, Summary, only_one
from forecaster.daily.watch import Watch
from forecaster.errors import ForecasterError, ForecasterWarning, WriteError
from forecaster.files import Home, Output, make_folder, run_name
from forecaster.ingest import (
    Columns,
    Groups,
    Ingested,
    Source,
    ingest,
    listed_tickers,
    open_source,
    parse_columns,
    read_groups,
    read_universe,
    refuse_alike,
)
from forecaster.machine import release_memory

if TYPE_CHECKING:
    import pandas as pd

_EXPLAINED = 3  # bands, in the summary


class _Due(NamedTuple):
    """What a daily run is to do, checked before it begins."""

    tickers: list[str] | None
    groups: Groups | None
    forecasts: "pipeline.ForecastTable | Output | None"


def run_day(home: Home, watch: Watch, *, wait: float = 600.0) -> Summary:
    """Do what is due, and return what was done, alarms and failures too.

    ``wait``: seconds to wait for another daily run on this home

    The summary is kept for `status`, and written to the watch's file. Raises UsageError for
    settings that cannot be, and WriteError where the home cannot be written to or another daily run
    keeps working.
    """
    began = datetime.now(UTC)
    summary = Summary(watch.name, began.isoformat(timespec="seconds"))
    make_folder(home.folder)
    with only_one(home, watch.name, summary.began, wait), _noted(summary):
        day = _Day(home, watch, summary, began)
        day.run()
        _finish(home, watch, summary, day.kept)
    return summary


def _finish(home: Home, watch: Watch, summary: Summary, kept: Kept) -> None:
    """Keep the summary, and write it where it is wanted; a failure to do so is one of the run."""
    if watch.summary is not None:
        summary.written["summary"] = str(watch.summary)
    try:
        if watch.summary is not None:
            summary.write(watch.summary)
        kept.write(home, summary)
    except WriteError as error:
        summary.stage, summary.error = summary.stage or "summary", summary.error or str(error)


@contextlib.contextmanager
def _noted(summary: Summary) -> Iterator[None]:
    """Add this package's warnings in the block to the notices."""

    def note(message: Warning | str, category: type[Warning], *where: object) -> None:
        if category.__module__.partition(".")[0] == "forecaster":
            summary.notices.append(f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", ForecasterWarning)
        warnings.showwarning = note
        yield


class _Day:
    """The stages of one daily run; ``kept`` is what the next one is to know."""

    def __init__(self, home: Home, watch: Watch, summary: Summary, began: datetime):
        self._home, self._watch, self._summary, self._began = home, watch, summary, began
        # After a failure, these stay those of the last run that forecast.
        self.kept = Kept.read(home, watch.name)
        last = self.kept.summary
        summary.source, summary.run = (str(last.get(name) or "") for name in ("source", "run"))

    def run(self) -> None:
        """Run all stages; note a failure in the summary."""
        try:
            with self._stage("check"):
                source, due = self._check()
            with self._stage("ingest"):
                arrived = self._ingest(source, due.tickers)
                del source  # it keeps what it has read
            with self._stage("predict"):
                made = self._predict(arrived)
            with self._stage("score"):
                card = self._score(arrived, made)
            with self._stage("write"):
                self._write(due, made, card)
            if self._watch.book is not None:
                with self._stage("risk"):
                    self._measure(self._watch.book, arrived.store.source, made)
        except (ForecasterError, OSError, MemoryError) as error:
            self._summary.error = str(error) or type(error).__name__
        except Exception as error:
            self._summary.error = f"{type(error).__name__}: {error}"
            _finish(self._home, self._watch, self._summary, self.kept)
            raise

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Note how long the block takes, and which one failed."""
        began = time.monotonic()
        self._summary.stage = name
        try:
            yield
        finally:
            release_memory()
            self._summary.seconds[name] = round(time.monotonic() - began, 3)
        self._summary.stage = ""

    def _check(self) -> tuple[Source, _Due]:
        """Open the source and check the outputs, so that what is wrong is said at once."""
        watch = self._watch
        roles = parse_columns(watch.columns)
        roles["date_format"], roles["missing"] = watch.date_format, watch.missing
        roles["decimal"], roles["frequency"] = watch.decimal, watch.frequency
        source = open_source(
            watch.source,
            columns=Columns.from_options(roles),
            append=watch.append,
            query=watch.query,
        )
        tickers = None
        if watch.tickers is not None:
            tickers = listed_tickers(watch.tickers) or read_universe(watch.tickers)
            refuse_alike(source, tickers)
        if watch.book is not None:
            pipeline.read_books(watch.book)
            if watch.alarms.risk is not None:
                pipeline.Limit.parse(str(watch.alarms.risk))
        groups = None if watch.groups is None else read_groups(watch.groups)
        forecasts = None
        if watch.forecasts is not None:
            option = f"{watch.name}: forecasts ="
            forecasts = pipeline.check_forecast_output(
                watch.forecasts, overwrite=True, option=option
            )
        return source, _Due(tickers, groups, forecasts)

    def _ingest(self, source: Source, tickers: list[str] | None) -> Ingested:
        """Bring the store up to date, and note which series came, changed or are missing."""
        arrived = ingest(self._home, source, tickers, refresh=self._watch.append)
        index = arrived.store.index
        data = index.digest()
        active = tuple(index.latest)
        known = self._summary.source in ("", arrived.store.source)
        before = self.kept.known_before(data) if known else None
        if before is not None and (renames := index.renames):
            there = set(active)  # an old name may be that of another series by now
            before = tuple(n if n in there else renames.get(n, n) for n in before)
        self.kept = Kept({}, data, before, active)
        summary = self._summary
        summary.source, summary.stored = arrived.store.source, len(arrived.ids)
        summary.changed = arrived.changed
        for name, why in arrived.quarantined.items():
            summary.notices.append(f"{name}: its damaged file was set aside: {why}")
        alarms, partly = alarms_of_rows(arrived, before, self._watch.alarms)
        summary.alarms += alarms
        summary.partly |= partly
        return arrived

    def _predict(self, arrived: Ingested) -> "pipeline.Prediction":
        """Forecast all series, and add the forecasts to the record."""
        watch, summary = self._watch, self._summary
        wanted = None
        if watch.tickers is not None:
            active = arrived.store.index.latest
            wanted = [name for name in arrived.ids if name in active]
        unrecorded: list[str] = []

        def note(message: str) -> None:
            (unrecorded if "not in the record" in message else summary.notices).append(message)

        made = pipeline.predict_from_home(
            self._home, wanted, watch.levels, watch.run, newcomers=watch.newcomers,
            max_late=watch.max_late, on_notice=note, source=arrived.store.source,
            quantiles=pipeline.FIXED_QUANTILES if watch.layout == "fixed" else (),
        )  # fmt: skip
        if unrecorded:
            raise WriteError(unrecorded[0].removeprefix("Warning: "))
        summary.run, summary.forecast = run_name(made.run), made.frame["unique_id"].nunique()
        ends = sorted(made.ends.values())
        summary.session = ends[len(ends) // 2]
        alarms, partly = alarms_of_prediction(made, watch.alarms, self._began)
        # Rows that did not come are late for that reason.
        known = {alarm.series for alarm in summary.alarms if alarm.kind != JUMPED}
        summary.alarms += [a for a in alarms if a.kind != LATE or a.series not in known - {None}]
        known |= summary.partly.keys()
        summary.partly |= {name: why for name, why in partly.items() if name not in known}
        return made

    def _score(self, arrived: Ingested, made: "pipeline.Prediction") -> "record.Scorecard":
        """Score past forecasts, and test whether they still hold what they promise."""
        summary, limits = self._summary, self._watch.alarms
        kept = record.record_of(self._home, arrived.store.source)
        for path, why in kept.damaged.items():
            summary.notices.append(f"Warning: {path}: left out, since it cannot be read: {why}")
        if arrived.store.source in kept.frames:
            self._explain(made, kept.frames[arrived.store.source])
        card = record.score_record(self._home, kept)
        for span in (*record.SPANS, "all"):
            part = card.over(span)
            if len(part.known):
                scores = part.total().drop(["forecasts", "open"])
                summary.scores[span] = {str(name): float(x) for name, x in scores.items()}
        retired = set(arrived.store.index.retired)
        found = record.forecast_alarms(card, limits.coverage, limits.errors)
        summary.alarms += [alarm for alarm in found if alarm.series not in retired]
        return card

    def _explain(self, made: "pipeline.Prediction", kept: "pd.DataFrame") -> None:
        """Say why the bands that have changed most since the forecast before did so."""
        levels = self._watch.levels
        ends = {name: times[-1] for name, times in made.panel.times_of_rows().items()}
        names = record.most_changed(
            kept, ends, min(levels, key=lambda one: abs(one - 80)), _EXPLAINED
        )
        if names:
            explained = pipeline.explain_prediction(self._home, made, levels, names)
            there = set(explained.ids)
            self._summary.bands = [explained.sentence(name) for name in names if name in there]

    def _write(self, due: _Due, made: "pipeline.Prediction", card: "record.Scorecard") -> None:
        """Write the table and the pages that are wanted, each whole or not at all."""
        watch = self._watch
        if watch.page is not None:
            why = pipeline.explain_prediction(self._home, made, watch.levels)
            shown = report.forecasts_of(self._home, made, watch.levels, due.groups, explained=why)
            self._written("page", watch.page, lambda to: report.build_forecasts(shown, to))
        if watch.scorecard is not None and len(card.rows):
            self._written("scorecard", watch.scorecard, lambda to: report.build_scorecard(card, to))
        if due.forecasts is None:
            return
        frame = pipeline.as_written(made, watch.layout, self._began)
        due.forecasts.write_table(frame)  # last, since other programs wait for it
        self._summary.written["forecasts"] = due.forecasts.shown

    def _measure(self, book: Path, source: str, made: "pipeline.Prediction") -> None:
        """Measure the risk of books, and add it to the record."""
        summary, limit = self._summary, self._watch.alarms.risk
        # What else there is to say of prices has been said of the forecasts.
        found = pipeline.risk_from_home(self._home, book, run=made.run, on_notice=lambda text: None)
        most = None if limit is None else str(limit)
        alarms, summary.books = alarms_of_risk(found, most)
        summary.alarms += alarms
        known = summary.partly.keys() | {alarm.series for alarm in summary.alarms}
        summary.partly |= {name: why for name, why in found.problems.items() if name not in known}
        pipeline.record_risk(self._home, source, found, made.run.name)

    def _written(self, kind: str, path: Path, write: Callable[[Path], object]) -> None:
        write(path)
        self._summary.written[kind] = str(path)
