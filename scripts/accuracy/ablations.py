"""Leave one mechanism out at a time, and score what becomes of the forecasts.

    python scripts/accuracy/ablations.py [--only NAME ...] [--quick]

``ablations.toml`` says what is left out: a line, what replaces it, and the sets of
``scoreboard.py`` in which it may matter. Each change is made in a copy of the tree, in which the
scoreboard scores the sets. The figures of the default are those of ``scoreboard.csv``, which must
be current. A mechanism is worth what the mean loss rises by over the sets of which a figure changes
by more than rounding. ``--quick`` scores quick sets and writes no table.

A row per mechanism and set in ``ablations.csv``; ``unchanged`` says that no figure changed:

- ``crps``, ``mase``, ``quantile_loss``, ``loss_1``: without the mechanism, with it = 1
- ``coverage_80``, ``coverage_95``, ``coverage_99``: the differences, in points
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pandas as pd

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
LIST, TABLE = HERE.with_suffix(".toml"), HERE.with_suffix(".csv")
DEFAULT = HERE.with_name("scoreboard.csv")
ROUNDING = 2e-4  # of losses and shares
LOSSES = ["crps", "mase", "quantile_loss", "loss_1"]
SHARES = ["coverage_80", "coverage_95", "coverage_99"]


def mutants() -> ModuleType:
    """Return the module that changes a line in a copy of the tree."""
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


class Ablation(NamedTuple):
    """A mechanism, the text in a file that makes it, what replaces it, and the sets to score."""

    name: str
    file: str
    old: str
    new: str
    sets: tuple[str, ...]


def read() -> list[Ablation]:
    """Return the mechanisms in the order of the file."""
    return [Ablation(**entry) for entry in tomllib.loads(LIST.read_text())["ablation"]]


def scores(folder: Path, sets: list[str], quick: bool) -> pd.DataFrame:
    """Score sets with the program of a folder, a row per set."""
    with tempfile.TemporaryDirectory() as room:
        table = Path(room) / "scores.csv"
        script = folder / "scripts" / "accuracy" / "scoreboard.py"
        command = [sys.executable, str(script), "--output", str(table), "--only", *sets]
        subprocess.run(
            command + ["--quick"] * quick, check=True, cwd=folder, stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(folder)},
        )  # fmt: skip
        return pd.read_csv(table).set_index("set")


def compared(name: str, without: pd.DataFrame, default: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a mechanism."""
    default = default.loc[without.index]
    rows = (without[LOSSES] / default[LOSSES]).round(4)
    rows[SHARES] = (100 * (without[SHARES] - default[SHARES])).round(2)
    apart = (without[LOSSES + SHARES] / default[LOSSES + SHARES] - 1).abs()
    rows["unchanged"] = (apart.fillna(0.0) < ROUNDING).all(axis=1)
    return rows.reset_index().assign(mechanism=name)[["mechanism", "set", *rows.columns]]


def main() -> None:
    every = read()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[one.name for one in every])
    parser.add_argument("--quick", action="store_true", help="quick sets, and no table")
    options = parser.parse_args()
    chosen = [one for one in every if one.name in (options.only or [one.name])]
    tools = mutants()
    changes = {one.name: tools.Mutant(one.name, one.file, one.old, one.new, "") for one in every}
    if wrong := tools.misfits([*changes.values()]):
        sys.exit("\n".join(wrong))
    with tempfile.TemporaryDirectory(prefix="ablations-") as room:
        copy = tools.Copy(Path(room), Path(room) / "compiled")
        sets = list(dict.fromkeys(name for one in chosen for name in one.sets))
        kept = pd.read_csv(DEFAULT)
        default = kept[kept["size"] == ("quick" if options.quick else "full")].set_index("set")
        if lacking := [name for name in sets if name not in default.index]:
            default = pd.concat([default, scores(copy.folder, lacking, options.quick)])
        for one in chosen:
            change = changes[one.name]
            before = (copy.folder / change.path).read_text()
            copy.write(change.path, change.applied(before))
            rows = compared(one.name, scores(copy.folder, list(one.sets), options.quick), default)
            copy.write(change.path, before)
            changed = rows[~rows["unchanged"]]
            print(
                f"{one.name}: {len(changed)} of {len(rows)} sets change; "
                + ", ".join(f"{loss} {changed[loss].mean():.4f}" for loss in LOSSES),
                flush=True,
            )
            if not options.quick:
                write(rows, [one.name for one in every])


def write(rows: pd.DataFrame, order: list[str]) -> None:
    """Write the rows of a mechanism to the table; those of others stay."""
    kept = pd.read_csv(TABLE) if TABLE.exists() else rows[:0]
    kept = kept[kept["mechanism"].isin(order) & ~kept["mechanism"].isin(rows["mechanism"])]
    table = pd.concat([kept, rows], ignore_index=True) if len(kept) else rows
    place = {name: number for number, name in enumerate(order)}
    table = table.sort_values("mechanism", key=lambda names: names.map(place), kind="stable")
    table.to_csv(TABLE, index=False)


if __name__ == "__main__":
    main()
