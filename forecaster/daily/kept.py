"""Keep the state of the last daily run.

    daily/<name>.json     the last run that ended, and the series that were known before it
    daily/<name>.begun    a run that has begun; while it works, it holds the lock of the folder

A run that finds ``.begun`` without a holder of the lock was preceded by one that was interrupted.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from forecaster.daily.day_summary import Summary
from forecaster.errors import WriteError
from forecaster.files import FolderLock, Home, atomic, is_held, make_folder, read_plain

_BEGUN = ".begun"


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
