"""The summary of a daily run, for people, for programs and for `status`."""

import dataclasses
from pathlib import Path

import msgspec

from forecaster.errors import name_reasons
from forecaster.files import atomic
from forecaster.record import Alarm

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
