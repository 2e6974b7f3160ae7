"""Time many small networks by this program and by other libraries: first and repeated calls.

    python scripts/benchmarks/rivals.py [--only NAME]... [--repeats 5] [--sides ours,vmap,torch]
        [--quick]
    python scripts/benchmarks/rivals.py --figure-only

Without ``--only`` it takes about an hour on two cores. Each task is written once it is measured.
Rows of other tasks and methods are kept in the file, and with ``--no-repeated`` or
``--first-repeats 0`` the columns that are not measured.

The tasks are the examples of TurbaNet (its README and tests, two spirals), larger networks,
networks of the digits' size, convolutional networks on the digits, transformers, LSTMs and GRUs,
and 1 to 1,024 members of one size; with full batches, Adam, and the same data for all methods
(``rival_work.py``, ``rival_sides.py``). A first call runs in a process of its own, which has
imported its libraries and compiles everything; ``second`` is the first call of the next process,
which finds compiled programs on disk if the library keeps any; repeated calls take turns in one
process. Writes ``rivals.csv`` beside this script: seconds of the first and the second call, the
median of the repeated calls, milliseconds of an epoch (of all members), and each time divided by
this program's time; draws ``rivals.png`` from it.

``rivals_second.csv`` has first and second calls of another machine, beside PyTorch alone,
``rivals_single.csv`` repeated single calls of 16 and of 500 networks, with ``fetched``.

``fetched`` is the plain ``vmap`` whose result is copied to the host after each single call.
TurbaNet is measured if it can be imported (``pip install --ignore-requires-python turbanet``).
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from rival_sides import MAKERS, takes_part
from rival_work import WORK

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = (
    "members", "repeated_seconds", "repeated_ratio", "first_seconds", "first_ratio", "epoch_ms",
    "second_seconds", "second_ratio",
)  # fmt: skip
_ENOUGH = 6.0  # seconds of repeated calls after which a method is not called a third time


def first_call(side: str, name: str) -> float:
    """Return the seconds from making the networks to the first result, in this process."""
    libraries = {"torch": ["torch"], "turbanet": ["turbanet"], "sklearn": ["sklearn.ensemble"]}
    digits = ["sklearn.datasets"] if WORK[name].classes else []
    for library in ["optax", *digits, *libraries.get(side, [])]:
        importlib.import_module(library)
    if side not in ("torch", "sklearn"):
        import jax
        from flax import linen, nnx  # noqa: F401

        if side == "ours":
            from forecaster import swarm

            swarm.use_all_cores()
            assert swarm.Swarm  # imports it
        jax.local_devices()
    began = time.perf_counter()
    MAKERS[side](WORK[name])()
    return time.perf_counter() - began


def first_calls(
    name: str, sides: list[str], repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return medians of first calls, each in a process of its own, in turns.

    The first dict is for processes that find no compiled programs on disk, the second for processes
    after such a process. Only this program keeps compiled programs by default; other methods do the
    same work twice, and their second call is another first call.
    """
    first: dict[str, list[float]] = {side: [] for side in sides}
    second: dict[str, list[float]] = {side: [] for side in sides}
    for side in sides * repeats:
        with tempfile.TemporaryDirectory() as folder:
            for seconds in (first, second):
                command = [sys.executable, __file__, "--first", side, "--only", name]
                environment = os.environ | {"FORECASTER_CACHE": folder}
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=environment
                )
                seconds[side].append(json.loads(done.stdout.splitlines()[-1]))
    return tuple(
        {side: statistics.median(each) for side, each in seconds.items()}
        for seconds in (first, second)
    )


def repeated_calls(name: str, sides: list[str], repeats: int) -> dict[str, float]:
    """Return the median of repeated calls, in turns; reverse the order in every second turn.

    Slow methods take fewer turns, but at least two.
    """
    from forecaster import swarm

    swarm.use_all_cores()
    runs = {side: MAKERS[side](WORK[name]) for side in sides}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(-1, repeats):
        for side in sides if repeat % 2 else reversed(sides):
            if len(seconds[side]) >= 2 and sum(seconds[side]) > _ENOUGH:
                continue
            began = time.perf_counter()
            runs[side]()
            if repeat >= 0:
                seconds[side].append(time.perf_counter() - began)
    return {side: statistics.median(each) for side, each in seconds.items()}


def main() -> None:
    options = arguments()
    if options.first:
        print(first_call(options.first, options.only[0]))
        return
    path = options.output or TABLE
    if not options.figure_only:
        for name in WORK:
            if any(part in name for part in options.only or [""]):
                update(path, measured(name, options))
    draw(pd.read_csv(path), path.with_suffix(".png"))


def update(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows to the table; columns that they lack stay as they are."""
    keys = ["work", "side"]
    table = pd.DataFrame(rows).set_index(keys)
    if path.exists():
        table = table.combine_first(pd.read_csv(path).set_index(keys))
    table = table.reindex(columns=[name for name in COLUMNS if name in table])
    places = {name: place for place, name in enumerate([*WORK, *MAKERS])}
    table = table.reset_index().sort_values(keys, key=lambda names: names.map(places))
    table[["work", "members", *table.columns.drop(["work", "members"])]].to_csv(path, index=False)


def measured(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each method of a task."""
    work, rows = WORK[name], []
    sides = [side for side in options.sides.split(",") if takes_part(side, work) and _has(side)]
    firsts = min(1, options.first_repeats) if work.sweep else options.first_repeats
    repeated = {} if options.no_repeated else repeated_calls(name, sides, options.repeats)
    first, second = first_calls(name, sides, firsts) if firsts else ({}, {})
    for side in sides:
        row: dict[str, Any] = {"work": name, "members": work.members, "side": side}
        for kind, seconds in (("repeated", repeated), ("first", first), ("second", second)):
            if seconds:
                row[f"{kind}_seconds"] = round(seconds[side], 4)
                row[f"{kind}_ratio"] = round(seconds[side] / seconds["ours"], 3)
        if repeated:
            row["epoch_ms"] = round(1e3 * repeated[side] / work.steps, 4)
        rows.append(row)
        print(row, flush=True)
    return rows


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw each method's time relative to this program's, and time by the number of members."""
    import matplotlib.pyplot as plt

    sweep = [name for name, work in WORK.items() if work.sweep]
    swept = table["work"].isin(sweep)
    works = list(table.loc[~swept, "work"].drop_duplicates())[::-1]
    figure, axes = plt.subplots(2, 2, figsize=(11, 10), layout="constrained", height_ratios=(2, 1))
    for axis, kind in zip(axes[0], ("repeated", "first"), strict=True):
        for number, side in enumerate(MAKERS):
            part = table[(table["side"] == side) & ~swept]
            if side != "ours" and f"{kind}_ratio" in part:
                rows = [works.index(work) for work in part["work"]]
                axis.plot(part[f"{kind}_ratio"], rows, "o", color=f"C{number}", label=side)
        axis.axvline(1.0, color="C0")
        axis.set(xscale="log", title=f"{kind} calls", xlabel="time / ours (right of 1: ours wins)")
        axis.set_xticks([0.1, 0.3, 1, 3, 10, 30, 100], ["0.1", "0.3", "1", "3", "10", "30", "100"])
        axis.minorticks_off()
        axis.set_xlim(0.1, 130 if kind == "repeated" else 10)
        axis.set_yticks(range(len(works)), works if axis is axes[0, 0] else [""] * len(works))
        axis.grid(alpha=0.3)
    shown = {"epoch_ms": "ms for an epoch", "first_seconds": "seconds for the first call"}
    for axis, (column, label) in zip(axes[1], shown.items(), strict=True):
        for number, side in enumerate(MAKERS):
            part = table[(table["side"] == side) & swept]
            if len(part) and column in part:
                axis.plot(part["members"], part[column], "o-", color=f"C{number}", label=side)
        axis.set(xscale="log", yscale="log", xlabel="members of 8-32-1", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    axes[1, 0].legend()
    figure.savefig(path, dpi=130)
    print(f"Drew {path}")


def _has(side: str) -> bool:
    return side in ("ours", "vmap", "fetched") or importlib.util.find_spec(side) is not None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", help="works whose name contains this")
    parser.add_argument("--sides", default=",".join(MAKERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--first-repeats", type=int, default=2, help="0: no first calls")
    parser.add_argument("--no-repeated", action="store_true")
    parser.add_argument("--output", type=Path, help="a CSV; the figure lies beside it")
    parser.add_argument("--figure-only", action="store_true")
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        options.only, options.sides = ["step, 500 of 3-1"], "ours,vmap"
        options.repeats, options.first_repeats = 1, 1
        options.output = Path(tempfile.mkdtemp()) / TABLE.name
    return options


if __name__ == "__main__":
    main()
