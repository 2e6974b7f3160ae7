"""A home in production: a file of prices each session, the daily run on it, and what must be."""

import dataclasses
import json
import os
import pickle
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Set
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from production.market import Market

from forecaster.files import Home
from forecaster.ingest import Store
from forecaster.record import read_record

LEARNED = 400  # number of sessions before the year
COLUMNS = (
    "session",
    "day",
    "event",
    "exit_code",
    "alarms_of_coverage",
    "seconds",
    "daily_seconds",
    "daily_cpu_seconds",
    "home_mb",
    "files",
    "cache_files",
    "record_files",
    "record_mb",
    "runs",
    "stores",
)
CLOCK = Path(__file__).with_name("clock.py")
EVENING = timedelta(hours=23, minutes=40)  # of the daily run, in UTC
OVER = timedelta(hours=21, minutes=30)  # all sessions of New York are over then, in UTC
KEPT = "kept"  # folder with what is needed to continue a year
MODEL_AGE = 180  # days after which a model is too old, as in the watch
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
levels = [{levels}]
forecasts = "forecasts.csv"
summary = "summary.json"
[alarms]
late = {late}
coverage = {rate}
errors = false
"""


@dataclasses.dataclass
class Expected:
    """The expected result of a morning.

    - ``code``: the exit code, unless there are alarms of coverage, whose code is 4
    - ``alarms``: kinds and series; ``partly``: series that are named
    - ``forecast``: the series in the file of forecasts; None: the same as in the file before
    - ``failed``: the stage that fails
    - ``behind``: whether forecasts may begin with days that are past
    """

    code: int = 0
    alarms: Set[tuple[str, str | None]] = frozenset()
    partly: set[str] = dataclasses.field(default_factory=set)
    forecast: set[str] | None = None
    failed: str = ""
    behind: bool = False


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


def command_of(words: tuple[str, ...], now: datetime | None) -> list[str]:
    """Return the command line of the program; ``now``: the time that it takes for the present."""
    if now is None:
        return [sys.executable, "-m", "forecaster", *words]
    return [sys.executable, str(CLOCK), now.isoformat(), *words]


def as_process(
    *words: str, now: datetime | None = None, limit: int | None = None, killed_at: str = ""
) -> Done:
    """Run the program in a process of its own.

    - ``limit``: the largest file it may write, in bytes
    - ``killed_at``: the function that ends it when it is called, see ``clock.py``
    """

    def limited() -> None:
        assert limit is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    environment = os.environ | ({"FORECASTER_KILLED_AT": killed_at} if killed_at else {})
    done = subprocess.run(
        command_of(words, now), capture_output=True, text=True, check=False, env=environment,
        preexec_fn=None if limit is None else limited,
    )  # fmt: skip
    return Done(done.returncode, done.stdout + done.stderr)


class Year:
    """A home, a market, and the events of its sessions.

    - ``clock``: whether the daily runs take the evening of their session for the present; False:
      they see the real clock, and nothing is late
    - ``run``: runs a command
    """

    def __init__(
        self, folder: Path, *, tickers: int, sessions: int, seed: int, rate: str = "0.04",
        clock: bool = True, run: Callable[..., Done] = as_process,
    ):  # fmt: skip
        self.folder, self.home, self.run = folder, Home(folder / "home"), run
        self.market = Market(tickers, LEARNED + sessions, seed)
        self.random = random.Random(seed)
        self.sessions, self.rate, self.clock = sessions, rate, clock
        self._ahead: timedelta | None = None
        self.retired: set[str] = set()
        self.rows: dict[str, int] = {}
        self.forecast: set[str] = set()
        self.fitted = self.market.days[LEARNED - 1]
        self.log: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.toml").write_text(SETTINGS)
        self.watch(80, 95)

    def watch(self, *levels: int) -> None:
        """Write the file of the daily run, with some levels of bands."""
        shown = ", ".join(map(str, levels))
        late = "2" if self.clock else "false  # the sessions are of years ago"
        text = WATCH.format(levels=shown, late=late, rate=self.rate)
        (self.folder / "daily.toml").write_text(text)

    @property
    def source(self) -> str:
        """The source of prices."""
        return f"files:{self.folder / 'prices.csv'}"

    def fit(self, session: int = LEARNED - 1, *options: str) -> None:
        """Fit on the sessions until one, by default those before the year."""
        self.set_clock(session)
        self.write(self.market.table(session))
        self.fit_all(*options)
        self.fitted = self.market.days[session]

    def fit_all(self, *options: str) -> None:
        """Fit, and assert that only tickers that were listed lately are skipped, and named."""
        config = str(self.folder / "settings.toml")
        done = self.command("fit", "--source", self.source, "--config", config, *options)
        market = self.market
        skipped = re.search(r"^Skipped (\d+):\n((?:  .*\n)+)", done.output, re.MULTILINE)
        lines = "" if skipped is None else skipped[2]
        named = {n for n in market.names if re.search(rf"\b{n}\b", lines)}
        assert len(named) == (0 if skipped is None else int(skipped[1])), done.output
        lately = {n for n, first in zip(market.names, market.first, strict=True)
                  if first >= LEARNED - 7}  # fmt: skip
        assert named <= lately and done.code == (3 if named else 0), done.output

    def set_clock(self, session: int, wrong_by: timedelta = timedelta()) -> None:
        """Set the clock of the program to the evening of a session."""
        if self.clock:
            right = self.market.days[session].to_pydatetime() + EVENING
            self._ahead = right + wrong_by - datetime.now()

    @property
    def now(self) -> datetime | None:
        """The program's present; None: the real one."""
        return None if self._ahead is None else datetime.now() + self._ahead

    def write(self, table: "pd.DataFrame | str") -> None:
        """Write the file of prices."""
        path = self.folder / "prices.csv"
        if isinstance(table, str):
            path.write_text(table)
        else:
            table.to_csv(path, index=False)

    def words(self, *words: str) -> tuple[str, ...]:
        """Return the words of a command with the year's home."""
        return *words, "--home", str(self.home)

    def command(self, *words: str) -> Done:
        """Run a command with the year's home."""
        words = self.words(*words)
        return self.run(*words, now=self.now) if self.clock else self.run(*words)

    def stored(self, *words: str) -> Done:
        """Run a command on what is stored of the year's source."""
        return self.command(*words, "--source", self.source)

    def summary(self) -> dict:
        """Return the summary of the last run."""
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def daily(self) -> tuple[str, ...]:
        """The words of the daily command."""
        return "daily", str(self.folder / "daily.toml"), "--quiet"

    def live(
        self,
        events: Mapping[int, str],
        known: "Mapping[str, Callable[[Year, int], Morning]]",
        on_session: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        """Run all sessions that are left.

        - ``events``: the event of each session of the year that has one
        - ``known``: the events by name
        - ``on_session(row)``: called after each session, with its row of the CSV
        """
        for number in range(len(self.log), self.sessions):
            self._keep()
            session, name = LEARNED + number, events.get(number, "")
            self.set_clock(session)
            began = time.monotonic()
            morning = known[name](self, session) if name else self.plain(session)
            code = self.morning(session, name, morning)
            seconds = round(time.monotonic() - began, 2)
            self.log.append(self._row(number, name, code, seconds))
            # Of the home only the prices and the record may grow.
            last = self.log[-1]
            assert last["cache_files"] < 160 and last["runs"] < 20 and last["stores"] < 8, last
            self._let_a_day_pass()
            if on_session is not None:
                on_session(self.log[-1])

    def _keep(self) -> None:
        """Keep all that is needed to begin the next session again."""
        kept = self.folder / KEPT
        shutil.rmtree(kept, ignore_errors=True)
        times = {path: path.stat() for path in self.home.folder.rglob("*")}
        shutil.copytree(self.home.folder, kept / "home")
        for path, at in times.items():  # to be copied is no use
            for each in (path, kept / "home" / path.relative_to(self.home.folder)):
                os.utime(each, ns=(at.st_atime_ns, at.st_mtime_ns))
        for path in self.folder.iterdir():
            if path.is_file():
                shutil.copy2(path, kept)
        state = {name: value for name, value in vars(self).items() if name != "run"}
        (kept / "year.pickle").write_bytes(pickle.dumps(state))

    @staticmethod
    def kept_in(folder: Path, run: Callable[..., Done] = as_process) -> "Year":
        """Return a year as it was before its last session, and put back its files."""
        kept, year = folder / KEPT, object.__new__(Year)
        vars(year).update(pickle.loads((kept / "year.pickle").read_bytes()), run=run)
        # The home knows its source by the path of the file of prices.
        assert year.folder == folder, f"the year of {year.folder} cannot be continued in {folder}"
        shutil.rmtree(year.home.folder)
        shutil.copytree(kept / "home", year.home.folder)
        for path in kept.iterdir():
            if path.is_file():
                shutil.copy2(path, folder)
        return year

    def _row(self, number: int, event: str, code: int, seconds: float) -> dict[str, Any]:
        """Return a session's row of the CSV."""
        size = {path: path.stat().st_size for path in self.home.folder.rglob("*") if path.is_file()}
        record = [path for path in size if self.home.record in path.parents]
        cache = [path for path in size if self.home.cache in path.parents]
        summary = self.summary()
        covered = sum(alarm["kind"] == "coverage" for alarm in summary["alarms"])
        day = self.market.days[LEARNED + number].strftime("%Y-%m-%d")
        values = (
            number, day, event, code, covered, seconds, *self.daily_seconds,
            round(sum(size.values()) / 1e6, 3), len(size), len(cache), len(record),
            round(sum(size[path] for path in record) / 1e6, 3), len(self.home.runs()),
            len(self.home.stores()),
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))

    def _let_a_day_pass(self) -> None:
        """Make all files of the home a day older, so that what is cleaned by age is cleaned."""
        for path in self.home.folder.rglob("*"):
            times = path.stat()
            os.utime(path, (times.st_atime - 86_400, times.st_mtime - 86_400))

    def plain(self, session: int) -> Morning:
        """Return a morning without an event."""
        return Morning(self.market.table(session), self.sound(session))

    def sound(self, session: int) -> Expected:
        """Return the expected result of a run on the correct file: all series, and no alarm."""
        return Expected(forecast=self.all_names(session))

    def morning(self, session: int, event: str, morning: Morning) -> int:
        """Run one morning, and assert the expected result; return the exit code."""
        if morning.before is not None:
            morning.before()
        if morning.table is not None:
            self.write(morning.table)
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.command(*self.daily)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        of_processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        self.daily_seconds = round(time.monotonic() - began, 2), round(of_processor, 2)
        self.check(done, morning.expected, session, event)
        if morning.after is not None:
            morning.after()
        if morning.repaired:
            self.write(self.market.table(session))  # for events that have not changed the market
            self.check_again(session, f"{event}, mended")
        return done.code

    def check_again(self, session: int, event: str, expected: Expected | None = None) -> None:
        """Run once more, and assert the result, by default that all is well."""
        done = self.command(*self.daily)
        self.check(done, expected or self.sound(session), session, event)

    def check(self, done: Done, expected: Expected, session: int, event: str) -> None:
        """Assert the expected result of a run."""
        now = self.market.days[session]
        day = now.strftime("%Y-%m-%d")
        where = f"{day}, {event or 'nothing'}: {done.output}"
        summary = self.summary()
        alarms = {(one["kind"], one["series"]) for one in summary["alarms"]}
        tested = {one for one in alarms if one[0] == "coverage"}
        code = 4 if tested and expected.code in (0, 3) else expected.code
        wanted = expected.alarms
        if self.clock and not expected.failed and (now - self.fitted).days > MODEL_AGE:
            wanted, code = wanted | {("model", None)}, 4
        assert alarms - tested == wanted, (where, alarms ^ wanted, expected)
        assert set(summary["partly"]) == expected.partly, (where, summary["partly"], expected)
        assert done.code == summary["exit_code"] == code, (where, done.code, expected)
        assert bool(done.output) == (code != 0), where  # a run in order prints nothing
        assert "Traceback" not in done.output, where
        self._check_store(where)
        if expected.failed:
            assert summary["stage"] == expected.failed, where
            return
        names = self.forecast if expected.forecast is None else expected.forecast
        self._check_forecasts(where, day, names, expected)
        self._check_scores(where, summary)
        self.forecast = names

    def _check_forecasts(self, where: str, day: str, names: set[str], expected: Expected) -> None:
        """Assert which series are forecast for which days, and that the record has the same."""
        forecasts = pd.read_csv(self.folder / "forecasts.csv", parse_dates=["ds"])
        assert set(forecasts["unique_id"]) == names, (where, set(forecasts["unique_id"]) ^ names)
        assert (forecasts.groupby("unique_id").size() == 3).all(), where
        numbers = forecasts.drop(columns=["unique_id", "ds"]).select_dtypes("number")
        assert np.isfinite(numbers).all(axis=None), where
        on_time = forecasts[~forecasts["unique_id"].isin(expected.partly)]
        if expected.code == 0:
            assert (on_time["ds"] > day).all(), where
        elif not expected.behind:
            assert (on_time["ds"] >= day).all(), where
        (record,) = read_record(self.home).frames.values()
        assert not record.duplicated(["run", "unique_id", "origin", "ds"]).any(), where
        counted = record[~record["made_after"]]
        if self.clock:
            made = counted["made"].dt.tz_localize(None)
            assert (made < counted["ds"] + OVER).all(), (where, counted[made >= counted["ds"]])
        if expected.code == 0:
            run = self.home.find_run(self.summary()["run"]).name
            made = counted[(counted["origin"] == day) & (counted["run"] == run)]
            both = made.merge(forecasts, on=["unique_id", "ds"])
            assert len(both) == len(forecasts), (where, names - set(both["unique_id"]))
            for name in map(str, forecasts.filter(regex="^LSTM")):
                ours = both[name.replace("LSTM", "forecast")]
                assert np.allclose(ours, both[name], rtol=1e-9), (where, name)

    def _check_scores(self, where: str, summary: Mapping) -> None:
        """Assert that past forecasts score as those of a sound model of this market do."""
        scores = summary["scores"].get("all", {})
        if scores.get("outcomes", 0) >= 2000:
            assert 0.97 < scores["crps"] < 1.04, (where, scores)
            assert 0.7 < scores["held-80"] < 0.88, (where, scores)

    def _check_store(self, where: str) -> None:
        """Assert that no series has lost rows."""
        store = Store.open(self.home, self.source)
        rows = {name: entry.rows for name, entry in store.index.series.items()}
        for name, count in self.rows.items():
            assert rows.get(name, 0) >= count, (where, name, count, rows.get(name))
        self.rows = rows

    def choose(self, session: int, *others: int) -> int:
        """Choose a ticker that is listed and not retired, and none of ``others``."""
        names = self.market.names
        return self.random.choice(
            [n for n in self.market.listed(session) if names[n] not in self.retired
             and n not in others]
        )  # fmt: skip

    def all_names(self, session: int) -> set[str]:
        """Return the tickers that are forecast."""
        return {self.market.names[n] for n in self.market.listed(session)} - self.retired


def succeed(done: Done) -> None:
    """Assert that a command ended with exit code 0."""
    assert done.code == 0, done.output
