"""Run the command line as if at another time.

    python scripts/production/clock.py 2013-05-06T22:40 WORDS...

The clock goes on from that time (UTC). Times of files stay those of the real clock.
``FORECASTER_KILLED_AT=MODULE:FUNCTION`` ends the process, as ``kill -9`` does, when that function
is called.
"""

import importlib
import os
import signal
import sys
from datetime import UTC, datetime, timedelta, tzinfo

import pandas as pd

# The modules that ask `datetime` for the time and use it for more than a message.
MODULES = "forecaster.files.home", "forecaster.record.keeping", "forecaster.daily.day"
KILLED_AT = "FORECASTER_KILLED_AT"


def set_clock(now: datetime) -> None:
    """Let the program's clock go on from a time."""
    shift = now - datetime.now(UTC)

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + shift

    for name in MODULES:
        vars(importlib.import_module(name))["datetime"] = Shifted
    pd.Timestamp.now = staticmethod(_later(pd.Timestamp.now, shift))


def _later(now, shift: timedelta):
    return lambda tz=None: now(tz) + shift


def kill_at(place: str) -> None:
    """End the process when a function is called, given as ``MODULE:FUNCTION``."""
    module, _, function = place.partition(":")
    found = importlib.import_module(module)
    assert hasattr(found, function), f"{module} has no {function}"
    vars(found)[function] = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    from forecaster.cli import main

    set_clock(datetime.fromisoformat(sys.argv.pop(1)).replace(tzinfo=UTC))
    if KILLED_AT in os.environ:
        kill_at(os.environ[KILLED_AT])
    main()
