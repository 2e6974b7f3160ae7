"""Run every command that writes with a fault at each of its operations on the disk in turn.

    LD_PRELOAD=disk.so python -m tests.cli.faulty DISK.SO FOLDER COMMAND KIND FIRST STEP

KIND: kill, ENOSPC or EIO. At the n-th write, creation, sync, rename or removal, for n = FIRST,
FIRST + STEP, ..., the command is killed or gets an error, in a process forked before JAX starts.
Then the old state must be there or the new one, whole; an error must be told in one clear line; and
the command, run again, must lead to the new state. Prints the number of faults.
"""

import ctypes
import errno
import importlib
import os
import pickle
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from forecaster.cli import main
from forecaster.evaluation import Evaluation
from forecaster.files import Home
from forecaster.ingest import Store
from forecaster.pipeline import beginning as memory
from forecaster.storage import load, unfinished_fits
from tests.conftest import prices
from tests.ingest.older import as_version

SETTINGS = """
hidden = 1
lookback = 10
burn_in = 3
horizon = 2
validation = 20
epochs = 2
start = "independent"
members = 1
"""


for module in (
    "forecaster.pipeline", "forecaster.report.page", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg", "pyarrow.parquet", "rich.progress",
):  # fmt: skip
    importlib.import_module(module)  # once for all processes


class Ended(NamedTuple):
    """The end of a process: its exit code (None: it was killed), its output, what failed."""

    code: int | None
    said: str
    failed: str
    result: object


class Command:
    """A command in a folder with ``home`` and ``out``, and the states allowed there."""

    arguments: tuple[str, ...]

    def prepare(self, folder: Path) -> None:
        """Make the state before the command: ``home`` with prices and a model."""

    def state(self, folder: Path) -> object:
        """Read the state of the folder as a user would; raise if it is neither old nor new."""
        raise NotImplementedError

    def again(self, folder: Path, *, done: bool) -> tuple[str, ...]:
        """Return the command that leads to the new state after a fault, or (``done``) keeps it."""
        return self.arguments


STATUS = ("status", "--home", "{folder}/home")


class Fit(Command):
    arguments = ("fit", "--source", "files:{folder}/p.csv", "--config", "{folder}/c.toml",
                 "--seed", "1", "--home", "{folder}/home")  # fmt: skip

    def state(self, folder) -> object:
        """Return the bits of all models; one that was killed once it was saved is saved again."""
        home = Home(folder / "home")
        for run in home.runs():
            load(run)
        return {(run / "model.safetensors").read_bytes() for run in home.runs()}

    def again(self, folder, *, done):
        home = Home(folder / "home")
        if begun := home.unfinished_fits():
            idle = unfinished_fits(home)
            assert len(begun) < 2 and not any(fit.running for fit in idle)
            return ("fit", "--resume", "--home", "{folder}/home")
        return STATUS if done else self.arguments


class Shards(Fit):
    """The same with one series per shard."""

    def state(self, folder) -> object:
        runs = Home(folder / "home").runs()
        for each in runs:
            load(each)
        return {
            tuple(path.read_bytes() for path in sorted(each.rglob("*.safetensors")))
            for each in runs
        }


class Predict(Command):
    arguments = ("predict", "--all", "--output", "{folder}/out/f.csv", "--overwrite",
                 "--home", "{folder}/home")  # fmt: skip

    def prepare(self, folder):
        (folder / "out" / "f.csv").write_text("old")

    def state(self, folder):
        paths = [path for path in (folder / "out").iterdir() if not path.name.startswith(".tmp-")]
        return {path.name: path.read_bytes() for path in paths}


class Picture(Predict):
    arguments = ("predict", "AAA", "--plot", "{folder}/out/f.png", "--overwrite",
                 "--home", "{folder}/home")  # fmt: skip


class Export(Predict):
    arguments = ("export", "--output", "{folder}/out/f.csv", "--overwrite",
                 "--home", "{folder}/home")  # fmt: skip


class ExportParquet(Predict):
    arguments = ("export", "--output", "{folder}/out/f.parquet", "--overwrite",
                 "--home", "{folder}/home")  # fmt: skip


class Evaluate(Command):
    arguments = ("evaluate", "--source", "files:{folder}/p.csv", "--config", "{folder}/c.toml",
                 "--windows", "{windows}", "--baselines", "naive", "--output", "{folder}/out/e",
                 "--overwrite", "--home", "{folder}/home")  # fmt: skip

    def prepare(self, folder):
        run(folder, tuple(part.format(windows=3, folder=folder) for part in self.arguments))

    def state(self, folder):
        """Return cutoffs and files of the evaluation, and check that each file can be read."""
        (path,) = (p for p in (folder / "out").iterdir() if not p.name.startswith(".tmp-"))
        evaluation = Evaluation.read(path)
        rows = len(evaluation.forecasts([]))
        assert "</html>" in (path / "report.html").read_text()
        files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        assert not [name for name in files if ".tmp-" in name]
        return evaluation.summary.cutoffs, rows, tuple(files), len(evaluation.scores)


class Ingest(Command):
    arguments = ("ingest", "--source", "files:{folder}/p.csv", "--home", "{folder}/home")

    def prepare(self, folder):
        """One series changes: of two, an error may let the first count and not the second."""
        table = pd.concat([prices("AAA", 170), prices("BBB", 160)])
        table.to_csv(folder / "p.csv", index=False)

    def state(self, folder):
        """The hashes of all series, each of which can be read."""
        (store,) = Store.all_of(Home(folder / "home"))
        store.read(store.ids)
        return {name: entry.sha256 for name, entry in store.index.series.items()}


class Move(Ingest):
    """The same where the store is of an older version."""

    def prepare(self, folder):
        super().prepare(folder)
        (store,) = Home(folder / "home").stores()
        as_version(2, store)


COMMANDS: dict[str, type[Command]] = {
    "fit": Fit, "shards": Shards, "predict": Predict, "picture": Picture,
    "export": Export, "parquet": ExportParquet, "evaluate": Evaluate, "ingest": Ingest,
    "move": Move,
}  # fmt: skip


def forked(work: Callable[[], object], folder: Path) -> Ended:
    """Run work in a process of its own; its output goes to files beside the folder."""
    said, note = folder.with_name("said.txt"), folder.with_name("note.pickle")
    note.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        code, result = 1, None
        with said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                result = work()
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 0
            except BaseException:
                traceback.print_exc()
            finally:
                disk.disk_disarm()
                sys.stdout.flush()
                sys.stderr.flush()
                note.write_bytes(pickle.dumps((disk.disk_failed().decode(), result)))
                os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return Ended(None, said.read_text(), "killed", None)
    return Ended(os.WEXITSTATUS(status), said.read_text(), *pickle.loads(note.read_bytes()))


def run(folder: Path, arguments: tuple[str, ...], number: int = 0, kind: str = "") -> Ended:
    """Run a command; with a number, that operation on the disk fails."""

    def work() -> None:
        if number:
            code = 0 if kind == "kill" else getattr(errno, kind)
            disk.disk_arm(str(folder).encode(), ctypes.c_long(number), code)
        main(list(arguments))

    return forked(work, folder)


def state_of(command: Command, folder: Path) -> object:
    """Read the state of a folder in a process of its own, since this one must start no threads."""
    ended = forked(lambda: command.state(folder), folder)
    assert ended.code == 0, ended.said
    return ended.result


def compare(command: Command, folder: Path, kind: str, first: int, step: int) -> int:
    """Fail at one operation after another; return the number of faults."""
    kept, old_run = folder.with_name("kept"), Home(folder / "home").runs()[0].name

    def go(arguments: tuple[str, ...], number: int = 0) -> Ended:
        filled = [part.format(folder=folder, old=old_run, windows=4) for part in arguments]
        return run(folder, tuple(filled), number, kind)

    def restore() -> None:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)

    shutil.copytree(folder, kept)
    whole = go(command.arguments)
    assert whole.code == 0, whole.said
    old, new = state_of(command, kept), state_of(command, folder)
    assert new != old
    shutil.rmtree(kept / "home" / "cache")  # with all compiled programs
    shutil.copytree(folder / "home" / "cache", kept / "home" / "cache")
    number, faults, told, errors = first, 0, 0, 0
    while True:
        restore()
        ended = go(command.arguments, number)
        where = f"operation {number}: {ended}"
        if ended.code is not None and not ended.failed:
            break
        faults += 1
        state = state_of(command, folder)
        assert state in (old, new), where
        assert "Traceback" not in ended.said, where
        if ended.code == 0:  # only tidying up or recording the forecast failed
            assert state == new, where
            warned = ended.said.count("Warning: not in the record")
            assert warned <= 1, where
            told += warned
        elif ended.code is not None:
            told, errors = told + 1, errors + 1
            assert ended.code == 1 and ended.said.count("Error: ") == 1, where
            assert re.search("cannot be (written|removed): ", ended.said), where
            assert "output is lost" not in ended.said, where
        if kind == "ENOSPC":
            left = [str(p) for p in folder.rglob(".tmp-*") if "cache" not in p.parts]
            assert left == [], (where, left)
        again = go(command.again(folder, done=state == new))
        assert again.code == 0, (where, again)
        assert state_of(command, folder) == new, where
        number += step
    if kind != "kill" and faults >= 8:  # more than tidying up has failed
        assert told > faults / 3 and errors > 0, (told, errors, faults)
    return faults


def make(command: Command, folder: Path) -> Path:
    """Make a home with prices of two series and a model, and the files that the command needs."""
    begin = folder / "work"
    (begin / "out").mkdir(parents=True)
    table = pd.concat([prices("AAA", 160), prices("BBB", 160)], ignore_index=True)
    table.to_csv(begin / "p.csv", index=False)
    (begin / "c.toml").write_text(SETTINGS)
    fit = tuple(part.format(folder=begin) for part in Fit.arguments)
    fitted = run(begin, (*fit, "--seed", "0"))
    assert fitted.code == 0, fitted.said
    command.prepare(begin)
    return begin


if __name__ == "__main__":
    disk = ctypes.CDLL(sys.argv[1])
    disk.disk_failed.restype = ctypes.c_char_p
    place, name, kind, first, step = sys.argv[2:]
    command = COMMANDS[name]()
    if name == "shards":
        memory.MOST_PER_SHARD = 1
    begin = make(command, Path(place))
    sys.stdout.write(f"{compare(command, begin, kind, int(first), int(step))}\n")
