"""Run the long set: what takes too long for the ordinary suite, in parts of some minutes.

    python scripts/long_set.py [--part N/5] [--turn commit] [--only NAME ...] [--list]

All of it takes at most thirty minutes on two quiet cores: mutants, fuzz, kills at random moments,
the suite's core under the conditions of other machines, mornings with every event of a year, and
each script in its quick form. Parts of one core run in pairs. Prints for each part its minutes by
the clock and of the processor, and the last lines of those that failed, whose exit code is 1.

A fifth of it takes at most six minutes: ``--part 2/5`` is the second, ``--turn commit`` takes the
one that the hash of the latest commit chooses. Fuzz and kills repeat a sixtieth of what
``pytest -m slow`` does (``FORECASTER_TEST_SHARE``). A part that lacks what it needs, such as
``FORECASTER_TEST_DATA``, is named as left out. All files are written to a temporary folder; a part
that changes the tree fails.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FIFTHS = 5
LIMIT = 1200.0  # seconds, after which a part has failed
SHARE = 60  # of that many repetitions of fuzz and kills one takes place
DATA = os.environ.get("FORECASTER_TEST_DATA", "")
STOCKS = f"{DATA}/us_stocks_2000_2015.parquet"
FLAGS = f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '--xla_backend_optimization_level=0')}"
CORE = ("tests/test_goldens.py", "tests/swarm/test_native.py")
TESTS = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow")


class Part(NamedTuple):
    """A command in a fifth of the set.

    - ``command``: ``{folder}`` stands for the temporary folder
    - ``cores``: how many it keeps busy
    - ``needs``: modules that must be installed, or ``data``
    """

    name: str
    fifth: int
    command: tuple[str, ...]
    cores: int = 1
    needs: tuple[str, ...] = ()

    def lacking(self) -> list[str]:
        """Return what it needs and is not here."""
        there: dict[str, bool] = {"data": Path(STOCKS).exists()}
        return [
            name for name in self.needs
            if not there.get(name, name != "data" and importlib.util.find_spec(name) is not None)
        ]  # fmt: skip


class Outcome(NamedTuple):
    """How a part ended: ``fine``, ``failed`` or ``left out``, with its seconds and last lines."""

    part: Part
    word: str
    seconds: float = 0.0
    processor: float = 0.0
    said: str = ""

    def row(self) -> str:
        times = f"{self.seconds / 60:6.1f} {self.processor / 60:9.1f}"
        return f"{self.part.fifth}/{FIFTHS}  {self.word:8} {times}  {self.part.name}"


def script(fifth: int, name: str, *options: str, needs: tuple[str, ...] = ()) -> Part:
    """Return the quick form of a script, whose programs are compiled as quickly as in tests."""
    command = ("env", FLAGS, "python", f"scripts/{name}", *options, "--quick")
    return Part(name, fifth, command, needs=needs)


def mutants(turn: int) -> Part:
    command = ("python", "scripts/mutants.py", "--turn", str(turn))
    return Part(f"mutants, turn {turn}", turn + 1, command, cores=2)


def tests(fifth: int, name: str, *paths: str) -> Part:
    return Part(name, fifth, (*TESTS, *paths))


def mornings(fifth: int, seed: int) -> Part:
    command = ("python", "scripts/production_year.py", "--quick", "--seed", str(seed))
    return Part(f"mornings, {('even', 'odd')[seed]} events", fifth, command)


PARTS = (
    *(mutants(turn) for turn in range(4)),
    Part("matrix", 5, ("bash", "scripts/matrix.sh", *CORE)),
    tests(2, "fuzz of files", "tests/ingest/test_fuzz.py", "tests/storage/test_fuzz.py"),
    tests(3, "kills", "tests/cli/test_faults.py"),
    mornings(5, 0),
    mornings(2, 1),
    Part("goldens.py", 1, ("python", "scripts/goldens.py", "short")),
    script(1, "accuracy/accuracy.py", "stocks", "baskets", "m4", needs=("data", "arch")),
    script(1, "accuracy/ablations.py", "--only", "season before", needs=("data",)),
    script(1, "accuracy/books.py", needs=("data",)),
    script(1, "accuracy/panels.py"),
    script(1, "accuracy/refits.py", needs=("data",)),
    script(1, "accuracy/scoreboard.py", "--only", "level shift", "--output", "{folder}/s.csv"),
    script(1, "accuracy/zoo.py"),
    script(1, "accuracy_networks.py", needs=("data",)),
    script(4, "benchmarks/gpu.py", "--output", "{folder}/gpu", needs=("torch",)),
    script(4, "benchmarks/published_job.py", needs=("torch",)),
    script(4, "benchmarks/rivals.py"),
    script(4, "benchmarks/scale.py"),
    script(4, "benchmarks/starts.py", STOCKS, needs=("data",)),
    script(3, "experiments/bagged_digits.py", needs=("sklearn", "torch")),
    script(3, "experiments/cart_pole.py"),
    script(3, "experiments/federated.py", needs=("sklearn",)),
    script(3, "experiments/five_hundred_stocks.py", needs=("torch",)),
    script(3, "experiments/gated_experts.py"),
    script(3, "experiments/hundred_in_one.py"),
    script(3, "experiments/many_series.py", needs=("torch",)),
    script(3, "experiments/smaller_models.py"),
    script(3, "experiments/two_spirals.py", needs=("torch",)),
    script(2, "real_files.py"),
    script(2, "gallery.py", needs=("PIL",)),
    script(2, "pictures.py"),
    script(2, "check_build.py", needs=("build",)),
    script(2, "kernels/sanitize.py"),
    script(2, "kernels/tanh_table.py"),
)  # fmt: skip


def chosen(parts: Iterable[Part], fifth: int | None, names: Sequence[str]) -> list[Part]:
    """Return the parts of a fifth, or with these names; those that keep two cores busy first."""
    kept = [
        part for part in parts
        if fifth in (None, part.fifth) and (not names or part.name in names)
    ]  # fmt: skip
    return sorted(kept, key=lambda part: -part.cores)


def fifth_of_commit() -> int:
    """Return the fifth that the hash of the latest commit chooses."""
    command = ["git", "rev-parse", "HEAD"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    return int(said.stdout, 16) % FIFTHS + 1


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of all parts, which write into a folder."""
    cache = os.environ.get("FORECASTER_TEST_CACHE") or str(folder / "compiled")
    return os.environ | {
        "TMPDIR": str(folder), "FORECASTER_HOME": str(folder / "home"), "MPLBACKEND": "agg",
        "MATRIX_EXTRAS": os.environ.get("MATRIX_EXTRAS", "test"),
        "FORECASTER_TEST_CACHE": cache, "FORECASTER_TEST_SHARE": str(SHARE),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }  # fmt: skip


def run(part: Part, variables: dict[str, str]) -> Outcome:
    """Run a part to its end, or to the limit; return how it went."""
    if lacking := part.lacking():
        return Outcome(part, "left out", said=f"needs {', '.join(lacking)}")
    command = [word.replace("{folder}", variables.get("TMPDIR", "")) for word in part.command]
    began, word = time.monotonic(), "failed"
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read().decode(errors="replace")
    seconds = time.monotonic() - began
    if process.returncode == 0:
        word = "fine"
    elif seconds >= LIMIT:
        word = "too long"
    return Outcome(part, word, seconds, used.ru_utime + used.ru_stime, said)


def outcomes(
    parts: Sequence[Part], variables: dict[str, str], tell: Callable[[str], None]
) -> list[Outcome]:
    """Run parts, those of one core in pairs."""
    done: list[Outcome] = []

    def one(part: Part) -> None:
        outcome = run(part, variables)
        done.append(outcome)
        tell(outcome.row())

    for part in parts:
        if part.cores > 1:
            one(part)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, [part for part in parts if part.cores == 1]))
    return done


def tree() -> str:
    """Return the files of the tree that differ from the latest commit."""
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    fifths = [f"{number}/{FIFTHS}" for number in range(1, FIFTHS + 1)]
    parser.add_argument("--part", metavar="N/5", choices=fifths, help="a fifth of the set")
    parser.add_argument("--turn", choices=["commit"], help="the fifth of the latest commit's hash")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these parts")
    parser.add_argument("--list", action="store_true", help="print the parts, and run nothing")
    options = parser.parse_args()
    if unknown := set(options.only) - {part.name for part in PARTS}:
        sys.exit(f"--only: no part {', '.join(sorted(unknown))}; --list prints them")
    fifth = fifth_of_commit() if options.turn else options.part and int(options.part[0])
    parts = chosen(PARTS, fifth, options.only)
    if options.list:
        print(*(f"{part.fifth}/{FIFTHS}  {part.name}" for part in parts), sep="\n")
        return
    began, before = time.monotonic(), tree()
    with tempfile.TemporaryDirectory(prefix="long-set-", ignore_cleanup_errors=True) as folder:
        variables = environment(Path(folder).resolve())
        done = outcomes(parts, variables, lambda line: print(line, flush=True))
    bad = [outcome for outcome in done if outcome.word not in ("fine", "left out")]
    for outcome in bad:
        print(f"\n{outcome.part.name}: {' '.join(outcome.part.command)}\n{outcome.said[-3000:]}")
    print("\n     ended    minutes processor")
    print(*(outcome.row() for outcome in sorted(done, key=lambda one: one.part.fifth)), sep="\n")
    for outcome in done:
        if outcome.word == "left out":
            print(f"Left out: {outcome.part.name} {outcome.said}")
    print(f"{len(done) - len(bad)} of {len(done)} fine or left out, "
          f"in {(time.monotonic() - began) / 60:.1f} minutes")  # fmt: skip
    if (after := tree()) != before:
        sys.exit(f"The tree has changed, expected that it does not:\n{after}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
