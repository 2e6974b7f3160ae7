"""Time commands from the shell in this tree and in another tree: medians, both in turns.

    python scripts/benchmarks/starts.py FILE.parquet --beside OTHER_TREE [--quick]

Fits 30 series of a file once with this tree, then runs each command repeatedly on that home, with
this tree and with the other tree. Programs are compiled, and bytecode is written, before times are
taken. Writes ``starts.csv`` beside this script: processor seconds, and seconds by the wall clock.
"""

import argparse
import csv
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
COMMANDS = {
    "help": ("--help",),
    "predict": ("predict", "{ticker}"),
    "status": ("status",),
    "runs": ("runs",),
    "export": ("export", "{ticker}", "--output", "{folder}/x.csv", "--overwrite"),
}
MOST = 30  # number of series


def run(tree: Path, words: tuple[str, ...], home: Path) -> tuple[float, float]:
    """Run one command; return processor seconds, and seconds by the clock."""
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "PYTHONPYCACHEPREFIX": str(home.parent / "bytecode"),
        "FORECASTER_HOME": str(home),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "forecaster", *words],
        check=True, capture_output=True, env=environment, cwd=home.parent,
    )  # fmt: skip
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def prepare(file: Path, home: Path) -> str:
    """Fit some series of a file; return the ticker to predict."""
    import pandas as pd

    frame = pd.read_parquet(file)
    ids = sorted(frame["ticker"].unique())[:MOST]
    some = home.parent / "some.parquet"
    frame[frame["ticker"].isin(ids)].to_parquet(some)
    run(HERE.parents[2], ("fit", "--source", f"files:{some}"), home)
    return str(ids[0])


def measured(trees: dict[str, Path], repeats: int, ticker: str, home: Path) -> list[list[object]]:
    """Return rows of the table: command, tree, and the medians of its seconds."""
    rows: list[list[object]] = []
    for name, template in COMMANDS.items():
        words = tuple(word.format(ticker=ticker, folder=home.parent) for word in template)
        seconds: dict[str, list[tuple[float, float]]] = {tree: [] for tree in trees}
        for turn in range(repeats + 1):
            for tree, place in trees.items():
                took = run(place, words, home)
                if turn:  # the first turn compiles and writes bytecode
                    seconds[tree].append(took)
        for tree, times in seconds.items():
            medians = [f"{statistics.median(column):.2f}" for column in zip(*times, strict=True)]
            rows.append([name, tree, *medians])
            print(*rows[-1], flush=True)
    return rows


def arguments(title: str, table: Path, counted: str, count: int) -> argparse.Namespace:
    """Return the arguments of a script that compares two trees.

    ``counted``, ``count``: the name of an option that is a number, and its default
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("file", type=Path, help="daily prices: ticker, date, close, ...")
    parser.add_argument("--beside", type=Path, help="another tree of the program")
    parser.add_argument(f"--{counted}", type=int, default=count)
    parser.add_argument("--output", type=Path, default=table)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    given = parser.parse_args()
    if given.quick:
        setattr(given, counted, 1)
        given.output = Path(tempfile.mkdtemp()) / table.name
    given.trees = {"this": HERE.parents[2]} | ({"other": given.beside} if given.beside else {})
    return given


def write(table: Path, first: str, rows: list[list[object]]) -> None:
    """Write rows of seconds; ``first``: the name of the first column."""
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([[first, "tree", "processor_s", "wall_s"], *rows])


def main() -> None:
    """Measure, print and write the table."""
    given = arguments(__doc__.splitlines()[0], HERE.with_suffix(".csv"), "repeats", 5)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        rows = measured(given.trees, given.repeats, prepare(given.file, home), home)
    write(given.output, "command", rows)


if __name__ == "__main__":
    main()
