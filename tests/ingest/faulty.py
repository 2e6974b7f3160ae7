"""Faults of the disk, injected one after another: run as a program, in a process of its own.

    python -m tests.ingest.faulty FOLDER KIND STEP

KIND: kill, ENOSPC or EIO. For n = 1, 1 + STEP, ... the n-th write, fsync, rename or removal of an
update fails in a forked process; then every series must be there in its old or its new state, and
a second run must complete the update. Prints how many faults there were.
"""

import errno
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from forecaster.errors import StoreError, WriteError
from forecaster.files import Home
from forecaster.ingest import ingest
from forecaster.ingest.sources.source import Fetched
from forecaster.ingest.store.store import Store
from tests.conftest import prices

NO_FAULT, TIDYING = 77, 3  # nothing failed; only tidying up failed, the update counted


class Market:
    """Three series at first; five later, of which two have changed."""

    name = "market"

    def __init__(self, later: bool):
        self.later = later

    def fingerprint(self):
        return f"later {self.later}"

    def tickers(self):
        return ["AAA", "BBB", "CCC", "DDD", "EEE"] if self.later else ["AAA", "BBB", "CCC"]

    def frame(self, name: str) -> pd.DataFrame:
        rows = 60 if self.later and name in ("AAA", "BBB") else 50
        table = prices(name, rows).rename(columns={"ticker": "unique_id", "date": "ds"})
        return table.assign(ds=pd.to_datetime(table["ds"]))

    def fetch(self, tickers, start=None, known=None):
        for name in tickers:
            yield Fetched(name, self.frame(name))


def fail_at(number: int, kind: str) -> Callable[[], bool]:
    """Let the number-th operation on the disk fail; writes fail halfway. Returns whether it has."""
    count = 0

    def fault() -> None:
        nonlocal count
        count += 1
        if count != number:
            return
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, kind)
        raise OSError(code, os.strerror(code))

    def before(function):
        def wrapped(*args, **kwargs):
            fault()
            return function(*args, **kwargs)

        return wrapped

    write_bytes = Path.write_bytes

    def halfway(path, data):
        write_bytes(path, data[: len(data) // 2])
        fault()
        return write_bytes(path, data)

    setattr(Path, "write_bytes", halfway)  # noqa: B010
    for name in ("fsync", "replace", "rename", "unlink"):
        setattr(os, name, before(getattr(os, name)))
    return lambda: count >= number


def forked(work) -> int:
    """The exit status of work done in a process of its own."""
    child = os.fork()
    if not child:
        try:
            os._exit(work())
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    return os.waitpid(child, 0)[1]


def main(folder: Path, kind: str, step: int) -> None:
    begin = folder / "begin"

    def states(home: Path) -> dict[str, str]:
        store = Store.open(Home(home), "market")
        assert not store.damages()
        return {name: entry.sha256 for name, entry in store.index.series.items()}

    def first() -> int:
        ingest(Home(begin), Market(False), None)
        return 0

    def update(home: Path, number: int) -> int:
        failed = fail_at(number, kind)
        try:
            ingest(Home(home), Market(True), None)
        except (StoreError, WriteError):
            return 2
        return TIDYING if failed() else NO_FAULT

    def check(home: Path) -> int:
        old = states(begin)
        updated = states(home)
        ingest(Home(home), Market(True), None)
        new = states(home)
        assert len(new) == 5 and new["AAA"] != old["AAA"]
        store = Store.open(Home(home), "market")
        for name in new:
            pd.testing.assert_frame_equal(store.read_one(name), Market(True).frame(name))
        for name, state in updated.items():
            assert state in (old.get(name), new[name]), name
        assert set(old) <= set(updated)
        store.flags()
        return 0

    assert forked(first) == 0
    faults = tidying = 0
    for number in itertools.count(1, step):
        home = folder / f"home{number}"
        shutil.copytree(begin, home)
        ended = forked(lambda home=home, number=number: update(home, number))
        assert forked(lambda home=home: check(home)) == 0, (number, ended)
        shutil.rmtree(home)
        faults += not (os.WIFEXITED(ended) and os.WEXITSTATUS(ended) == NO_FAULT)
        if os.WIFSIGNALED(ended):
            assert kind == "kill" and os.WTERMSIG(ended) == signal.SIGKILL, (number, ended)
            continue
        if os.WEXITSTATUS(ended) == NO_FAULT:
            break
        assert kind != "kill" and os.WEXITSTATUS(ended) in (2, TIDYING), (number, ended)
        tidying += os.WEXITSTATUS(ended) == TIDYING
    assert tidying < faults / 2  # most faults are told to the user
    sys.stdout.write(f"{faults}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
