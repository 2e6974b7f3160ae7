"""Run a simulated market through a year of mornings, with the faults that occur in a year.

    python scripts/production_year.py --folder /tmp/year --csv year.csv
    python scripts/production_year.py --quick [--seed 1]

In each session a file of prices is written, with or without an event, and ``forecaster daily`` is
run on it. After each run the script asserts what the store, the forecasts, the record, the alarms
and the exit code must be, and stops at the first difference. The events and their sessions follow
from the seed. The program takes the evening of the session for the present, and after each session
all files of its home are made a day older. The CSV has a row per session: event, exit code,
seconds, and the size of the home. ``--quick`` has ten tickers and half of the events,
each once: those of an even seed, or of an odd one. What is in ``production/``:

- ``market.py``: the simulated market
- ``year.py``: the mornings, and what is asserted of all of them
- ``events.py``: the events, and the results they must have
- ``clock.py``: runs the program at another time
"""

import argparse
import csv
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from production.events import EVENTS, ONCE
from production.year import COLUMNS, Done, Year, succeed

__all__ = ["EVENTS", "ONCE", "Done", "Year", "main", "schedule", "succeed"]

PLAIN_DAYS = 1  # number of sessions between two events; in these everything must be in order again


def schedule(sessions: int, seed: int, names: Sequence[str] = tuple(EVENTS)) -> dict[int, str]:
    """Return the events of a year by session: all of them in random order, again and again.

    Some occur only once.
    """
    chooser = random.Random(seed)
    events: dict[int, str] = {}
    left: list[str] = []
    for session in range(1, sessions, PLAIN_DAYS + 1):
        if not left:
            used = ONCE & set(events.values())
            left = [name for name in names if name not in used]
            chooser.shuffle(left)
        events[session] = left.pop()
    return events


def main() -> None:
    """Run a year, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="a new folder; by default a temporary one")
    parser.add_argument("--sessions", type=int, default=252)
    parser.add_argument(
        "--tickers", type=int, default=40, help="ten or more, or a change of currency may go unseen"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="a row per session")
    parser.add_argument("--events", nargs="+", choices=EVENTS, metavar="EVENT", help="only these")
    parser.add_argument(
        "--continue", action="store_true", dest="continued",
        help="begin the session again at which the year in this folder stopped",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="half of the events, each once")
    given = parser.parse_args()
    given.folder = given.folder or Path(tempfile.mkdtemp()) / "year"
    if given.quick:
        given.events, given.tickers = list(EVENTS)[given.seed % 2 :: 2], 10
        given.sessions = (PLAIN_DAYS + 1) * len(given.events) + 1
    if given.continued:
        year = Year.kept_in(given.folder)
    else:
        year = Year(given.folder, tickers=given.tickers, sessions=given.sessions, seed=given.seed)
        year.fit()
    events = schedule(given.sessions, given.seed, given.events or tuple(EVENTS))
    if given.csv is None:
        year.live(events, EVENTS)
    else:
        with given.csv.open("w", newline="", buffering=1) as file:  # a line at a time
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(row.values() for row in year.log)
            year.live(events, EVENTS, lambda row: writer.writerow(row.values()))
    last = year.log[-1]
    print(f"{len(year.log)} sessions without a wrong number; the home has {last['home_mb']} MB")


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
