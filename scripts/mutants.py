"""Change one decisive line at a time, and see whether a test notices.

    python scripts/mutants.py [--only NAME ...] [--turn N] [--limit SECONDS] [--processes N]

The changes are in ``mutants.toml``. Each is made in a copy of the tree, never in the tree itself.
The tests run in three stages, up to the first failure: those that mirror the changed module and the
goldens, those that import the module by its own name, and those that import it through the door of
a package, or run its command. The quickest come first. A test that also fails without the change
does not count. Prints ``killed`` or ``survived`` with the seconds and the test, writes them to
``mutants.csv``, and ends with 1 if one survived.

``--turn N`` runs a quarter of them, those of N modulo 4, and writes no table. Compiled programs are
kept in the folder that ``FORECASTER_TEST_CACHE`` names, and otherwise for this run alone.
"""

import argparse
import ast
import concurrent.futures
import csv
import functools
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST, TABLE = ROOT / "scripts" / "mutants.toml", ROOT / "scripts" / "mutants.csv"
GOLDENS = "tests/test_goldens.py"
TURNS = 4
LIMIT = 150.0  # seconds for the tests of a mutant, after which it has survived
_BUILT = ("forecaster/swarm/native/_kernels.so", "forecaster/report/uplot.js")  # git ignores them
_NONE = 5  # the exit code of pytest without any test
_FAILED = re.compile(
    r"^(?:FAILED|ERROR) (\S+?\.py(?:::[\w:]+(?:\[.*?\])?)?)(?: - .*)?$", re.MULTILINE
)
COLUMNS = ("name", "file", "outcome", "seconds", "test")


class Mutant(NamedTuple):
    """A change of one line.

    - ``file``: below ``forecaster/``
    - ``old``, ``new``: the text that occurs once in it, and what replaces it
    - ``wrong``: what becomes wrong
    """

    name: str
    file: str
    old: str
    new: str
    wrong: str

    @property
    def path(self) -> str:
        return f"forecaster/{self.file}"

    def applied(self, text: str) -> str:
        """Return the changed text. Raises ValueError unless the old line occurs exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.name}: {self.path}: expected {self.old!r} once; it is there {count} times. "
                f"If the line has moved or changed, bring its entry in {LIST.name} up to date"
            )
        return text.replace(self.old, self.new)


class Outcome(NamedTuple):
    """What became of a mutant; ``test``: the one that failed, or what was run."""

    mutant: Mutant
    killed: bool
    seconds: float
    test: str

    def row(self) -> tuple[str, ...]:
        word = "killed" if self.killed else "survived"
        return self.mutant.name, self.mutant.file, word, f"{self.seconds:.0f}", self.test


def read_mutants() -> list[Mutant]:
    """Return all mutants in the order of the file."""
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]


def misfits(mutants: Iterable[Mutant]) -> list[str]:
    """Return a message for each mutant whose line is not in its file, or there more than once."""
    found: list[str] = []
    for mutant in mutants:
        try:
            mutant.applied((ROOT / mutant.path).read_text())
        except (OSError, ValueError) as error:
            found.append(str(error))
    return found


# ---- the tests of a module ----


@functools.cache
def _doors(package: str) -> dict[str, tuple[str, str]]:
    """Return by name the module, and the name there, of what a package's stub lets through."""
    stub = ROOT / package.replace(".", "/") / "__init__.pyi"
    if not stub.exists():
        return {}
    return {
        alias.asname or alias.name: (f"{package}.{node.module}", alias.name)
        for node in ast.walk(ast.parse(stub.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def _module_of(package: str, name: str) -> str:
    """Return the module that a name of a module or package comes from."""
    if _is_module(f"{package}.{name}"):
        return f"{package}.{name}"
    if name in (doors := _doors(package)):
        return _module_of(*doors[name])
    return package


class Imports(NamedTuple):
    """The modules that a file imports: by their own names, and through a package's door."""

    named: frozenset[str]
    through_doors: frozenset[str]

    @staticmethod
    @functools.cache
    def read(path: Path) -> "Imports":
        named, doors, packages = set[str](), set[str](), dict[str, tuple[str]]()
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.partition(".")[0] == "forecaster":
                        named.add(alias.name)
                        packages[alias.asname or alias.name] = (alias.name,)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forecaster"):
                module = str(node.module)
                named.add(module)
                for alias in node.names:
                    found = _module_of(module, alias.name)
                    (named if found == f"{module}.{alias.name}" else doors).add(found)
                    packages[alias.asname or alias.name] = (found,)
        for node in ast.walk(tree):  # fc.predict, swarm.fit
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                doors.update(
                    _module_of(name, node.attr) for name in packages.get(node.value.id, ())
                )
        return Imports(frozenset(named), frozenset(doors - named))


def stages_of(mutant: Mutant) -> list[list[str]]:
    """Return the test files to run for a mutant; in each stage the shortest come first."""
    module = mutant.path.removesuffix(".py").replace("/", ".")
    commands = _commands_of(module)
    stages: tuple[list[str], ...] = ([], [], [])
    tests = sorted(ROOT.glob("tests/**/test_*.py"), key=lambda path: path.read_text().count("\n"))
    for path in tests:
        name, imports = path.relative_to(ROOT).as_posix(), Imports.read(path)
        if name == GOLDENS:
            continue
        if _mirrors(path, mutant):
            stages[0].append(name)
        elif module in imports.named:
            stages[1].append(name)
        elif module in imports.through_doors or _runs(path, commands):
            stages[2].append(name)
    stages[0].extend([GOLDENS] if (ROOT / GOLDENS).exists() else [])
    return [stage for stage in stages if stage]


def _commands_of(module: str) -> set[str]:
    """Return the names of the commands of a module of the command line, or that import it."""
    if not module.startswith("forecaster.cli."):
        return set()
    every = {path: f"forecaster.cli.{path.stem}" for path in ROOT.glob("forecaster/cli/*.py")}
    above = {name for path, name in every.items() if module in Imports.read(path).named}
    return {name.rpartition(".")[2] for name in (module, *above)}


def _runs(path: Path, commands: set[str]) -> bool:
    """Return whether a test file runs one of these commands."""
    if not commands:
        return False
    return re.search(rf'\((?:\n\s*)?"(?:{"|".join(commands)})"', path.read_text()) is not None


def _mirrors(path: Path, mutant: Mutant) -> bool:
    """Return whether a test file is named for the changed module, or for a folder that it is in."""
    room, *folders = Path(mutant.file).with_suffix("").parts
    if path.parent.name not in (room, "tests", "cli"):
        return False
    # A room may be one file.
    names = {*folders[-1:], *(folders if path.parent.name == room else [])} or {room}
    if room in ("daily", "distributed", "pipeline", "benchmark"):
        names.add(room)
    return path.stem.removeprefix("test_").removesuffix("s") in {n.removesuffix("s") for n in names}


# ---- copies of the tree ----


class Copy:
    """A copy of the tree in which one mutant at a time is made."""

    def __init__(self, folder: Path, cache: Path):
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        )  # fmt: skip
        for name in {*listed.stdout.split("\0"), *_BUILT} - {""}:
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        # Processes that tests start import the copy, too.
        self._environment = os.environ | {
            "PYTHONPATH": str(folder), "FORECASTER_TEST_CACHE": str(cache),
            "FORECASTER_HOME": str(folder / ".home"),
        }  # fmt: skip

    def write(self, name: str, text: str) -> None:
        """Write a module; compiled code of a file of the same size and second would be used on."""
        path = self.folder / name
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def failure(
        self, tests: Sequence[str], seconds: float, without: Sequence[str] = ()
    ) -> str | None:
        """Return the first test that fails, None if none does.

        ``without``: tests that do not count. Raises TimeoutError when the seconds are over.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
        command += [*tests, *(f"--deselect={name}" for name in without)]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self._environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode in (0, _NONE):
            return None
        found = _FAILED.search(said)
        return found[1] if found else f"pytest ended with {process.returncode}: {said[-300:]}"


def tried(mutant: Mutant, copy: Copy, limit: float) -> Outcome:
    """Make a mutant in a copy, run its tests, and take it back."""
    began = time.monotonic()
    before = (copy.folder / mutant.path).read_text()
    without: list[str] = []
    stages = stages_of(mutant)
    while stages:
        copy.write(mutant.path, mutant.applied(before))
        try:
            name = copy.failure(stages[0], limit - (time.monotonic() - began), without)
        except TimeoutError:
            return Outcome(mutant, False, time.monotonic() - began, f"none in {limit:.0f} s")
        finally:
            copy.write(mutant.path, before)
        if name is None:
            stages = stages[1:]
            continue
        seconds = time.monotonic() - began
        if not _fails_anyway(copy, name):
            return Outcome(mutant, True, seconds, name)
        without.append(name)
    return Outcome(mutant, False, time.monotonic() - began, "none")


def _fails_anyway(copy: Copy, name: str) -> bool:
    """Return whether a test fails without the change, too."""
    try:
        return copy.failure([name], LIMIT) is not None
    except TimeoutError:
        return True


def outcomes(mutants: Sequence[Mutant], limit: float, processes: int) -> Iterator[Outcome]:
    """Yield the outcome of each mutant as it ends."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        room = Path(folder).resolve()
        cache = Path(os.environ.get("FORECASTER_TEST_CACHE") or room / "compiled").resolve()
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(processes):
            copies.put(Copy(room / str(number), cache))

        def one(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return tried(mutant, copy, limit)
            finally:
                copies.put(copy)

        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            for done in concurrent.futures.as_completed([pool.submit(one, m) for m in mutants]):
                yield done.result()


def write_table(found: Iterable[Outcome]) -> None:
    """Write outcomes to the table, in the order of the list; rows of mutants not run now stay."""
    rows: dict[str, Sequence[str]] = {}
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            rows = {row["name"]: [row[name] for name in COLUMNS] for row in csv.DictReader(file)}
    rows |= {outcome.mutant.name: outcome.row() for outcome in found}
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows[m.name] for m in read_mutants() if m.name in rows)


def of_turn(mutants: Sequence[Mutant], turn: int) -> list[Mutant]:
    """Return a quarter of the mutants."""
    return list(mutants[turn % TURNS :: TURNS])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these mutants")
    parser.add_argument("--turn", type=int, metavar="N", help="a quarter of them")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each")
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2), help="side by side")
    options = parser.parse_args()
    mutants = read_mutants()
    if wrong := misfits(mutants):
        sys.exit("\n".join(wrong))
    if unknown := set(options.only) - {mutant.name for mutant in mutants}:
        names = ", ".join(mutant.name for mutant in mutants)
        sys.exit(f"--only: no mutant {', '.join(sorted(unknown))}; there are {names}")
    if options.only:
        mutants = [mutant for mutant in mutants if mutant.name in options.only]
    if options.turn is not None:
        mutants = of_turn(mutants, options.turn)
    began, found = time.monotonic(), list[Outcome]()
    for outcome in outcomes(mutants, options.limit, options.processes):
        found.append(outcome)
        name, file, word, seconds, test = outcome.row()
        say(f"{word:8} {seconds:>4} s  {name}  ({file}): {test}")
        if options.turn is None:
            write_table(found)
    survivors = [outcome.mutant for outcome in found if not outcome.killed]
    killed = len(found) - len(survivors)
    say(f"{killed} of {len(found)} killed in {time.monotonic() - began:.0f} s")
    for mutant in survivors:
        say(f"No test notices {mutant.name}: {mutant.wrong}")
    sys.exit(1 if survivors else 0)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
