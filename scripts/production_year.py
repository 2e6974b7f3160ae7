"""Run a simulated market through a year of mornings, with the faults that occur in a year.

    python scripts/production_year.py --folder /tmp/year --csv year.csv

In each session a file of prices is written, with or without an event, and ``forecaster daily`` is
run on it. After each run the script asserts what the store, the forecasts, the record, the alarms
and the exit code must be, and stops at the first difference. The events and their sessions follow
from the seed. The CSV has a row per session: event, seconds, exit code, and the size of the home.
"""

import argparse
import csv
import dataclasses
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.home import Home
from forecaster.ingest import Store
from forecaster.record import read_record

LEARNED = 400  # number of sessions before the year
COLUMNS = ("session", "event", "exit_code", "seconds", "home_mb", "files", "record_files")
PLAIN_DAYS = 2  # number of sessions between two events; in these everything must be in order again
SETTINGS = """
hidden = 4
lookback = 30
members = 1
burn_in = 10
horizon = 3
validation = 100
epochs = 4
learning_rate = 1e-2
start = "pooled"
"""
WATCH = """
source = "files:prices.csv"
forecasts = "forecasts.csv"
summary = "summary.json"
[alarms]
late = false       # the sessions are of years ago
coverage = {rate}
errors = false
"""


class Market:
    """The true prices of all tickers, and how the source shows them.

    - ``close``: the true prices, (session, ticker)
    - ``shown``: the factors by which the source multiplies them
    - ``first``, ``last``: the first and the last session of each ticker in the source
    """

    def __init__(self, tickers: int, sessions: int, seed: int):
        self.random = np.random.default_rng(seed)
        self.days = pd.bdate_range("2012-01-02", periods=sessions)
        self.names = [f"T{number:02}" for number in range(tickers)]
        spread = self.random.uniform(0.008, 0.025, tickers)
        market = 0.4 * self.random.normal(size=(sessions, 1))
        own = 0.9 * self.random.normal(size=(sessions, tickers))
        moves = spread * np.clip(market + own, -2.8, 2.8)  # only events cause jumps
        self.close = 100 * np.exp(np.cumsum(moves, axis=0))
        self.shown = np.ones_like(self.close)
        self.first = [0] * tickers
        self.last = [sessions] * tickers

    def add(self, name: str, close: np.ndarray, first: int) -> int:
        """List a ticker; return its number."""
        self.names.append(name)
        self.close = np.column_stack([self.close, close])
        self.shown = np.column_stack([self.shown, np.ones(len(close))])
        self.first.append(first)
        self.last.append(len(close))
        return len(self.names) - 1

    def table(self, session: int) -> pd.DataFrame:
        """Return the source's rows up to a session, one ticker after another."""
        parts = []
        for number, name in enumerate(self.names):
            rows = slice(self.first[number], min(session + 1, self.last[number]))
            close = self.close[rows, number] * self.shown[rows, number]
            if len(close):
                parts.append(pd.DataFrame({
                    "ticker": name, "date": self.days[rows].strftime("%Y-%m-%d"),
                    "open": close * 0.999, "high": close * 1.004, "low": close * 0.996,
                    "close": close, "volume": 1000 + np.arange(rows.start, rows.stop),
                }))  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    def listed(self, session: int) -> list[int]:
        """Return the numbers of tickers that have rows up to a session, and continue after it."""
        return [n for n in range(len(self.names)) if self.first[n] <= session < self.last[n]]


@dataclasses.dataclass
class Expected:
    """The expected result of a morning.

    - ``code``: the exit code, unless there are alarms of coverage, whose code is 4
    - ``alarms``: kinds and series; ``partly``: series that are named
    - ``forecast``: the series in the file of forecasts; None: the same as in the file before
    - ``failed``: the stage that fails
    """

    code: int = 0
    alarms: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    partly: set[str] = dataclasses.field(default_factory=set)
    forecast: set[str] | None = None
    failed: str = ""


class Morning(NamedTuple):
    """The effect of an event on one morning.

    - ``table``: the rows in the file; a text is the file's content; None: the file does not change
    - ``expected``: the expected result of the first run
    - ``repaired``: whether the correct file follows in the same morning, with another run
    - ``before``, ``after``: functions called before and after the run
    """

    table: pd.DataFrame | str | None
    expected: Expected
    repaired: bool = False
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    output: str


def as_process(*words: str, limit: int | None = None) -> Done:
    """Run the program in a process of its own; ``limit``: the largest file it may write."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "forecaster", *words]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, check=False)
    return Done(done.returncode, done.stdout + done.stderr)


class Year:
    """A home, a market, and the events of its sessions."""

    def __init__(
        self, folder: Path, *, tickers: int, sessions: int, seed: int, rate: str = "0.04",
        run: Callable[..., Done] = as_process,
    ):  # fmt: skip
        self.folder, self.home, self.run = folder, Home(folder / "home"), run
        self.market = Market(tickers, LEARNED + sessions, seed)
        self.random = random.Random(seed)
        self.sessions = sessions
        self.retired: set[str] = set()
        self.rows: dict[str, int] = {}
        self.forecast: set[str] = set()
        self.log: list[dict[str, object]] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "daily.toml").write_text(WATCH.format(rate=rate))
        (folder / "settings.toml").write_text(SETTINGS)

    def fit(self) -> None:
        """Fit on the sessions before the year."""
        self.write(self.market.table(LEARNED - 1))
        done = self.run("fit", "--source", f"files:{self.folder / 'prices.csv'}", "--config",
                        str(self.folder / "settings.toml"), "--home", str(self.home))  # fmt: skip
        assert done.code == 0, done.output

    def write(self, table: "pd.DataFrame | str") -> None:
        """Write the file of prices."""
        path = self.folder / "prices.csv"
        if isinstance(table, str):
            path.write_text(table)
        else:
            table.to_csv(path, index=False)

    def command(self, *words: str) -> Done:
        """Run a command with the year's home."""
        return self.run(*words, "--home", str(self.home))

    @property
    def daily(self) -> tuple[str, ...]:
        """The words of the daily command."""
        return "daily", str(self.folder / "daily.toml"), "--quiet"

    def live(
        self,
        events: dict[int, str],
        on_session: Callable[[dict[str, object]], object] | None = None,
    ) -> None:
        """Run all sessions.

        - ``events``: the event of each session of the year that has one
        - ``on_session(row)``: called after each session, with its row of the CSV
        """
        for number in range(self.sessions):
            name = events.get(number, "")
            began = time.monotonic()
            code = self.morning(LEARNED + number, name)
            files = [path for path in self.home.folder.rglob("*") if path.is_file()]
            seconds = round(time.monotonic() - began, 2)
            size = round(sum(path.stat().st_size for path in files) / 1e6, 3)
            values = number, name, code, seconds, size, len(files), len(self.home.recorded())
            self.log.append(dict(zip(COLUMNS, values, strict=True)))
            if on_session is not None:
                on_session(self.log[-1])

    def morning(self, session: int, event: str) -> int:
        """Run one morning, and assert the expected result; return the exit code."""
        if not event:
            sound = self.market.table(session)
            morning = Morning(sound, Expected(forecast=self.all_names(session)))
        else:
            morning = EVENTS[event](self, session)
        if morning.before is not None:
            morning.before()
        if morning.table is not None:
            self.write(morning.table)
        done = self.command(*self.daily)
        self.check(done, morning.expected, session, event)
        if morning.after is not None:
            morning.after()
        if morning.repaired:
            self.write(self.market.table(session))  # for events that have not changed the market
            again = self.command(*self.daily)
            expected = Expected(forecast=self.all_names(session))
            self.check(again, expected, session, f"{event}, mended")
        return done.code

    def check(self, done: Done, expected: Expected, session: int, event: str) -> None:
        """Assert the expected result of a run."""
        day = self.market.days[session].strftime("%Y-%m-%d")
        where = f"{day}, {event or 'nothing'}: {done.output}"
        summary = json.loads((self.folder / "summary.json").read_text())
        alarms = {(one["kind"], one["series"]) for one in summary["alarms"]}
        tested = {one for one in alarms if one[0] == "coverage"}
        assert alarms - tested == expected.alarms, (where, alarms, expected)
        assert set(summary["partly"]) == expected.partly, (where, summary["partly"], expected)
        code = 4 if tested and expected.code in (0, 3) else expected.code
        assert done.code == summary["exit_code"] == code, (where, done.code, expected)
        assert bool(done.output) == (code != 0), where  # a run in order prints nothing
        self._check_store(where)
        if expected.failed:
            assert summary["stage"] == expected.failed, where
            return
        forecasts = pd.read_csv(self.folder / "forecasts.csv")
        names = self.forecast if expected.forecast is None else expected.forecast
        assert set(forecasts["unique_id"]) == names, (where, set(forecasts["unique_id"]) ^ names)
        assert (forecasts.groupby("unique_id").size() == 3).all(), where
        assert np.isfinite(forecasts.drop(columns=["unique_id", "ds"]).select_dtypes("number")
                           ).all(axis=None), where  # fmt: skip
        on_time = forecasts[~forecasts["unique_id"].isin(expected.partly)]
        if expected.code == 0:
            assert (on_time["ds"] > day).all(), where
        self.forecast = names
        (record,) = read_record(self.home).frames.values()
        assert not record.duplicated(["unique_id", "origin", "ds"]).any(), where
        if expected.code == 0:
            made = record[record["origin"] == self.market.days[session]]
            assert set(made["unique_id"]) == names and not made["made_after"].any(), where

    def _check_store(self, where: str) -> None:
        """Assert that no series has lost rows."""
        (store,) = Store.all_of(self.home)
        rows = {name: entry.rows for name, entry in store.index.series.items()}
        for name, count in self.rows.items():
            assert rows.get(name, 0) >= count, (where, name, count, rows.get(name))
        self.rows = rows

    def choose(self, session: int) -> int:
        """Choose a ticker that is listed and not retired."""
        names = self.market.names
        return self.random.choice(
            [n for n in self.market.listed(session) if names[n] not in self.retired]
        )

    def all_names(self, session: int) -> set[str]:
        """Return the tickers that are forecast."""
        return {self.market.names[n] for n in self.market.listed(session)} - self.retired


def _cut(year: Year, session: int) -> Morning:
    """Write a file with only the latest day."""
    table = year.market.table(session)
    day = year.market.days[session].strftime("%Y-%m-%d")
    names = year.all_names(session)
    alarms = {("shrunk", name) for name in names}
    return Morning(table[table["date"] == day], Expected(4, alarms, forecast=names), True)


def _torn(year: Year, session: int) -> Morning:
    """Write a file that ends within a line."""
    text = year.market.table(session).to_csv(index=False)
    return Morning(text[: len(text) * 2 // 3], Expected(1, failed="ingest"), True)


def _empty(year: Year, session: int) -> Morning:
    """Write a file with only a heading."""
    text = year.market.table(session).head(0).to_csv(index=False)
    return Morning(text, Expected(1, failed="ingest"), True)


def _half(year: Year, session: int) -> Morning:
    """Write a file with every other ticker."""
    table, names = year.market.table(session), year.all_names(session)
    gone = set(sorted(names)[::2])
    alarms = {("changed", name) for name in gone}
    return Morning(table[~table["ticker"].isin(gone)], Expected(4, alarms, forecast=names), True)


def _late(year: Year, session: int) -> Morning:
    """Leave out the latest day of one ticker."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    latest = table["date"] == year.market.days[session].strftime("%Y-%m-%d")
    table = table[~(latest & (table["ticker"] == name))]
    return Morning(table, Expected(3, partly={name}, forecast=year.all_names(session)), True)


def _blank(year: Year, session: int) -> Morning:
    """Leave out the close of one ticker on the latest day."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    latest = table["date"] == year.market.days[session].strftime("%Y-%m-%d")
    table.loc[latest & (table["ticker"] == name), "close"] = np.nan
    return Morning(table, Expected(3, partly={name}, forecast=year.all_names(session)), True)


def _future(year: Year, session: int) -> Morning:
    """Add a row of one ticker that is dated years ahead."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    row = table[table["ticker"] == name].tail(1).assign(date="2190-01-04")
    table = pd.concat([table, row])
    return Morning(table, Expected(3, partly={name}, forecast=year.all_names(session)), True)


def _repeated(year: Year, session: int) -> Morning:
    """Read the same file again; nothing changes."""
    year.write(year.market.table(session))
    year.check(year.command(*year.daily), Expected(forecast=year.all_names(session)), session, "")
    forecasts, files = (year.folder / "forecasts.csv").read_bytes(), set(year.home.recorded())

    def unchanged() -> None:
        assert (year.folder / "forecasts.csv").read_bytes() == forecasts
        assert set(year.home.recorded()) == files

    return Morning(None, Expected(forecast=year.all_names(session)), after=unchanged)


def _frozen(year: Year, session: int) -> Morning:
    """Repeat the close of one ticker for six sessions, until the true ones come."""
    number, table = year.choose(session), year.market.table(session)
    name = year.market.names[number]
    rows = (table["ticker"] == name) & (
        table["date"] >= year.market.days[session - 5].strftime("%Y-%m-%d")
    )
    for column in ("open", "high", "low", "close"):
        table.loc[rows, column] = table.loc[rows, column].iloc[0]
    alarms = {("frozen", name)}
    return Morning(table, Expected(4, alarms, forecast=year.all_names(session)), True)


def _bad_tick(year: Year, session: int) -> Morning:
    """Show one price nearly twice as high, and correct it later."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    latest = table["date"] == year.market.days[session].strftime("%Y-%m-%d")
    for column in ("open", "high", "low", "close"):
        table.loc[latest & (table["ticker"] == name), column] *= 1.83
    alarms = {("jumped", name)}
    return Morning(table, Expected(4, alarms, forecast=year.all_names(session)), True)


def _revised(year: Year, session: int) -> Morning:
    """Revise earlier rows of one ticker by a tenth of a percent."""
    year.market.shown[session - 20 : session - 10, year.choose(session)] *= 1.001
    return Morning(year.market.table(session), Expected(forecast=year.all_names(session)))


def _restated_split(year: Year, session: int) -> Morning:
    """Split one ticker; the source restates all of its rows."""
    year.market.shown[:, year.choose(session)] /= 2
    return Morning(year.market.table(session), Expected(forecast=year.all_names(session)))


def _split(year: Year, session: int) -> Morning:
    """Split one ticker; the source restates nothing, and the user adjusts it."""
    number = year.choose(session)
    name = year.market.names[number]
    year.market.shown[session:, number] /= 4
    alarms = {("jumped", name)}
    return Morning(
        year.market.table(session), Expected(4, alarms, forecast=year.all_names(session)), True,
        after=lambda: _succeed(year.command("adjust", name)),
    )  # fmt: skip


def _currency(year: Year, session: int) -> Morning:
    """Change the currency of all prices; the user adjusts them."""
    year.market.shown[session:] *= 0.73
    alarms = {("jumped", name) for name in year.all_names(session)}
    return Morning(
        year.market.table(session), Expected(4, alarms, forecast=year.all_names(session)), True,
        after=lambda: _succeed(year.command("adjust", "--all")),
    )  # fmt: skip


def _listing(year: Year, session: int) -> Morning:
    """List a new ticker with eight rows."""
    close = year.market.close[:, year.choose(session)] * 0.7
    name = f"N{len(year.market.names)}"
    year.market.add(name, close, session - 7)
    names = year.all_names(session)
    return Morning(year.market.table(session), Expected(4, {("changed", name)}, forecast=names))


def _delisting(year: Year, session: int) -> Morning:
    """Remove a ticker from the source; the user retires it."""
    number = year.choose(session)
    name, names = year.market.names[number], year.all_names(session)
    year.market.first[number] = len(year.market.days)

    def retire() -> None:
        _succeed(year.command("tickers", "retire", name))
        year.retired.add(name)

    expected = Expected(4, {("changed", name)}, forecast=names)
    return Morning(year.market.table(session), expected, after=retire)


def _renaming(year: Year, session: int) -> Morning:
    """Give a ticker another name from this session on; the user renames it."""
    number = year.choose(session)
    old, market, names = year.market.names[number], year.market, year.all_names(session)
    new = f"R{session}"
    market.names[number], year.rows = new, {k: v for k, v in year.rows.items() if k != old}
    alarms = {("changed", old), ("changed", new)}
    return Morning(
        market.table(session), Expected(4, alarms, forecast={*names, new}), True,
        after=lambda: _renamed(year, old, new),
    )  # fmt: skip


def _renamed(year: Year, old: str, new: str) -> None:
    _succeed(year.command("tickers", "rename", old, new))
    year.rows.pop(old, None)


def _killed(year: Year, session: int) -> Morning:
    """Kill the run at a random moment, and run it again."""
    year.write(year.market.table(session))
    words = [*year.daily, "--home", str(year.home)]
    process = subprocess.Popen([sys.executable, "-m", "forecaster", *words])
    try:
        process.wait(year.random.uniform(0.2, 6))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return Morning(None, Expected(forecast=year.all_names(session)))


def _two(year: Year, session: int) -> Morning:
    """Begin two runs at once."""
    year.write(year.market.table(session))
    command = [sys.executable, "-m", "forecaster", *year.daily, "--home", str(year.home)]
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert all(
        one.wait() in (0, 4) for one in both
    )  # 4: bands of a ticker may have stopped covering
    return Morning(None, Expected(forecast=year.all_names(session)))


def _full_disk(year: Year, session: int) -> Morning:
    """Let no file of more than 3,000 bytes be written, as on a full disk."""
    year.write(year.market.table(session))
    done = as_process(*year.daily, "--home", str(year.home), limit=3000)
    assert done.code == 1 and "cannot be" in done.output, done
    return Morning(None, Expected(forecast=year.all_names(session)))


def _succeed(done: Done) -> None:
    assert done.code == 0, done.output


EVENTS: dict[str, Callable[[Year, int], Morning]] = {
    "cut": _cut, "torn": _torn, "empty": _empty, "half": _half, "late": _late, "blank": _blank,
    "future": _future, "repeated": _repeated, "frozen": _frozen, "bad tick": _bad_tick,
    "revised": _revised, "restated split": _restated_split, "split": _split,
    "currency": _currency, "listing": _listing, "delisting": _delisting,
    "renaming": _renaming,
}  # fmt: skip
IN_PROCESSES: dict[str, Callable[[Year, int], Morning]] = {
    "killed": _killed, "two at once": _two, "full disk": _full_disk,
}  # fmt: skip
"""Events that need processes of their own."""
EVENTS |= IN_PROCESSES


def schedule(sessions: int, seed: int, names: Sequence[str] = tuple(EVENTS)) -> dict[int, str]:
    """Return the events of a year by session: all of them in random order, again and again.

    A change of currency occurs only once.
    """
    chooser = random.Random(seed)
    events: dict[int, str] = {}
    left: list[str] = []
    for session in range(1, sessions, PLAIN_DAYS + 1):
        if not left:
            used = set(events.values())
            left = [name for name in names if name != "currency" or name not in used]
            chooser.shuffle(left)
        events[session] = left.pop()
    return events


def main() -> None:
    """Run a year, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="a new folder")
    parser.add_argument("--sessions", type=int, default=252)
    parser.add_argument("--tickers", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="a row per session")
    given = parser.parse_args()
    year = Year(given.folder, tickers=given.tickers, sessions=given.sessions, seed=given.seed)
    year.fit()
    events = schedule(given.sessions, given.seed)
    if given.csv is None:
        year.live(events)
    else:
        with given.csv.open("w", newline="", buffering=1) as file:  # a line at a time
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            year.live(events, lambda row: writer.writerow(row.values()))
    last = year.log[-1]
    print(f"{len(year.log)} sessions without a wrong number; the home has {last['home_mb']} MB")


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
