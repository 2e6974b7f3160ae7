"""The summary of a daily run, for people, for programs and for `status`; and its state, kept.

    daily/<name>.json     the last run that ended, and the series that were known before it
    daily/<name>.begun    a run that has begun; while it works, it holds the lock of the folder

A run that finds ``.begun`` without a holder of the lock was preceded by one that was interrupted.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from forecaster.errors import WriteError, name_reasons
from forecaster.files import FolderLock, Home, atomic, is_held, make_folder, read_plain
from forecaster.record import Alarm

_BEGUN = ".begun"
EXIT_CODES = {"ok": 0, "failed": 1, "partly": 3, "alarm": 4}  # by the state


@dataclasses.dataclass
class Summary:
    """What a daily run did.

    - ``name``: of the daily run
    - ``began``: when, in UTC, in ISO 8601
    - ``source``, ``run``: where the rows come from, and the run that forecast; after a failure, of
      the last daily run that forecast; "" if none has
    - ``session``: the latest time of which most series have a row
    - ``stored``, ``changed``, ``forecast``: numbers of series
    - ``partly``: series that were left out or not updated, with the reason
    - ``alarms``: what to look at
    - ``bands``: why the bands that have changed most since the forecast before did so, in words
    - ``books``: what books may lose, beside their limit, in words
    - ``notices``: what else was said
    - ``scores``: by span (``month``, ``quarter``, ``all``), the scores of past forecasts
    - ``written``: by kind, the files that were written
    - ``seconds``: by stage, how long it took
    - ``stage``, ``error``: where and why it failed; "" if it did not
    """

    name: str
    began: str
    source: str = ""
    run: str = ""
    session: str = ""
    stored: int = 0
    changed: int = 0
    forecast: int = 0
    partly: dict[str, str] = dataclasses.field(default_factory=dict)
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    bands: list[str] = dataclasses.field(default_factory=list)
    books: list[str] = dataclasses.field(default_factory=list)
    notices: list[str] = dataclasses.field(default_factory=list)
    scores: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    written: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    stage: str = ""
    error: str = ""

    @property
    def state(self) -> str:
        """How the run ended, by the worst that was found: failed, alarm, partly or ok."""
        found = {"failed": self.error, "alarm": self.alarms, "partly": self.partly}
        return next((state for state, there in found.items() if there), "ok")

    @property
    def exit_code(self) -> int:
        """The exit code that tells a scheduler."""
        return EXIT_CODES[self.state]

    def as_json(self) -> str:
        """Return the summary as one JSON object, its state and exit code first.

        Numbers that are unknown are null.
        """
        ended = {"state": self.state, "exit_code": self.exit_code}
        values = {**ended, **vars(self), "alarms": [alarm._asdict() for alarm in self.alarms]}
        return msgspec.json.format(msgspec.json.encode(values), indent=1).decode() + "\n"

    def write(self, path: Path) -> None:
        """Write the summary, whole or not at all. Raises WriteError."""
        text = self.as_json()
        atomic.write_file(path, lambda to: to.write_text(text, "utf-8", "backslashreplace"))

    def lines(self) -> list[str]:
        """Return the summary in sentences, without what is wrong."""
        if not self.stored:
            return []
        lines = [f"{self.stored} series stored from {self.source}, {self.changed} with new rows"]
        if self.forecast:
            after = f" after {self.session}" if self.session else ""
            lines.append(f"{self.forecast} series forecast{after} by run {self.run}")
        lines += self.bands
        for span, scores in self.scores.items():
            if span != "all" and scores["outcomes"] == self.scores["all"]["outcomes"]:
                continue
            held = [f"{name.removeprefix('held-')} % bands covered {value:.0%}"
                    for name, value in scores.items() if name.startswith("held-")]  # fmt: skip
            lines.append(f"Past forecasts, {span}: {', '.join(held)}, CRPS {scores['crps']:.3f}")
        lines += self.books
        lines += [f"Wrote {path}" for path in self.written.values()]
        return lines

    def wrong(self) -> list[str]:
        """Return what is wrong in lines, alarms first."""
        lines = [f"Failed at {self.stage}: {self.error}"] if self.error else []
        if self.alarms:
            lines.append(f"Alarms ({len(self.alarms)}):")
            lines += [f"  {_shown(alarm)}" for alarm in self.alarms]
        if self.partly:
            lines.append(f"In part; left out or not updated ({len(self.partly)}):")
            lines.append(name_reasons(self.partly))
        return lines


def _shown(alarm: Alarm) -> str:
    series = "" if alarm.series is None else f"{alarm.series}: "
    since = f" (since {alarm.since})" if alarm.since else ""
    return f"{alarm.kind}: {series}{alarm.text}{since}"


class Kept(msgspec.Struct, frozen=True):
    """What the last daily run left for the next.

    - ``summary``: as :meth:`Summary.as_json` gives it
    - ``data``: a hash of the stored rows
    - ``before``, ``now``: the active series before its update and after it
    """

    summary: dict[str, Any]
    data: str = ""
    before: tuple[str, ...] | None = None
    now: tuple[str, ...] | None = None

    @staticmethod
    def read(home: Home, name: str) -> "Kept":
        """Read the state of a daily run; an empty one where there is none that can be read."""
        try:
            return msgspec.convert(json.loads(read_plain(_file(home, name))), Kept)
        except (OSError, ValueError):
            return Kept({})

    def known_before(self, data: str) -> tuple[str, ...] | None:
        """Return the series that were known before rows came; the same in a second run on them."""
        return self.before if data == self.data else self.now

    def write(self, home: Home, summary: Summary) -> None:
        """Write the state with another summary. Raises WriteError."""
        kept = msgspec.structs.replace(self, summary=json.loads(summary.as_json()))
        text = json.dumps(msgspec.to_builtins(kept), allow_nan=False)
        atomic.write_file(_file(home, summary.name), lambda to: to.write_text(text, "utf-8"))


class LastDay(NamedTuple):
    """The state of a daily run for `status`: what is being done or was done last.

    - ``state``: the state of the summary, or ``running`` or ``interrupted``
    - ``text``: the time of the run, and a sentence on what it did
    - ``run``: the name of the model's run that forecast; "" where it is not known
    """

    name: str
    state: str
    text: str
    run: str = ""


def last_days(home: Home) -> list[LastDay]:
    """Return the state of each daily run of a home, by name."""
    files = [*home.daily.glob("*.json"), *home.daily.glob(f"*{_BEGUN}")]
    names = {path.stem for path in files if not path.name.startswith(atomic.PREFIX)}
    running = is_held(home.daily) if names else False
    return [_last_day(home, name, running=running) for name in sorted(names)]


def _last_day(home: Home, name: str, *, running: bool) -> LastDay:
    begun, summary = _marker(home, name), Kept.read(home, name).summary
    run = str(summary.get("run") or "")
    if begun.exists():
        with contextlib.suppress(OSError, ValueError):
            since = read_plain(begun).decode("ascii", "replace")[:30]
            return LastDay(name, "running" if running else "interrupted", f"begun {since}", run)
    if not summary:
        return LastDay(name, "unknown", f"{_file(home, name)} cannot be read")
    parts = [f"begun {summary.get('began')}", f"{summary.get('forecast')} series forecast"]
    if summary.get("session"):
        parts[-1] += f" after {summary['session']}"
    alarms, partly = summary.get("alarms") or [], summary.get("partly") or {}
    parts += [f"{len(alarms)} alarms"] if alarms else []
    parts += [f"{len(partly)} series in part"] if partly else []
    parts += [f"{summary.get('stage')}: {summary['error']}"] if summary.get("error") else []
    return LastDay(name, str(summary.get("state")), "; ".join(parts), run)


@contextlib.contextmanager
def only_one(home: Home, name: str, began: str, wait: float) -> Iterator[None]:
    """Hold the lock of daily runs in the block; note that this one has begun, until it ends.

    An interruption leaves the note. Raises WriteError where the home cannot be written to, or
    another run still works after ``wait`` seconds.
    """
    make_folder(home.daily)
    lock = FolderLock(home.daily)
    with atomic.as_write_error(home.daily):
        taken = lock.try_acquire(wait)
    if not taken:
        raise WriteError(
            f"{home.daily}: another daily run has been working for more "
            f"than {wait:g} s; let it end, or wait longer (--wait SECONDS)"
        )
    try:
        atomic.write_file(_marker(home, name), lambda to: to.write_text(began, "ascii"))
        yield
        atomic.remove_file(_marker(home, name))
    finally:
        lock.release()


def _file(home: Home, name: str) -> Path:
    return home.daily / f"{name}.json"


def _marker(home: Home, name: str) -> Path:
    return home.daily / f"{name}{_BEGUN}"
