"""Time the fit of each morning, when every series has one row more than on the day before.

    python scripts/benchmarks/mornings.py FILE.parquet --beside OTHER_TREE [--quick]

Each morning a new process fits 30 series of a file, whose latest rows are held back at first, with
this tree and with the other tree in turns. Each tree has a home of its own, which is empty on the
first morning. Writes ``mornings.csv`` beside this script: seconds of the processor, and by the wall
clock.
"""

import tempfile
from pathlib import Path

import pandas as pd
from starts import HERE, MOST, arguments, run, write


def day(frame: pd.DataFrame, folder: Path, later: int) -> Path:
    """Write the rows that are known some days before the last one; return their file."""
    path = folder / "prices.parquet"
    known = frame["date"] <= sorted(frame["date"].unique())[-1 - later]
    frame[known].to_parquet(folder / "new.parquet")
    return (folder / "new.parquet").replace(path)


def measured(file: Path, trees: dict[str, Path], mornings: int) -> list[list[object]]:
    """Return rows of the table: morning, tree, and its seconds."""
    frame = pd.read_parquet(file)
    frame = frame[frame["ticker"].isin(sorted(frame["ticker"].unique())[:MOST])]
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for morning in range(mornings):
            path = day(frame, folder, mornings - 1 - morning)
            for tree, place in trees.items():
                home = folder / tree / "home"
                home.parent.mkdir(exist_ok=True)
                took = run(place, ("fit", "--source", f"files:{path}"), home)
                rows.append([morning, tree, *(f"{seconds:.2f}" for seconds in took)])
                print(*rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, print and write the table."""
    given = arguments(__doc__.splitlines()[0], HERE.with_name("mornings.csv"), "mornings", 5)
    write(given.output, "morning", measured(given.file, given.trees, given.mornings))


if __name__ == "__main__":
    main()
