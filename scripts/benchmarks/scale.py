"""Measure time, memory and disk of ingest, fit and predict by the number of series.

    python scripts/benchmarks/scale.py [--series 1000,3000,10000] [--steps 1000] [--memory 2GB]
    python scripts/benchmarks/scale.py --series 1000 --steps 100000
    python scripts/benchmarks/scale.py --series 1000,20000 --steps 1250 --prices --defaults
    python scripts/benchmarks/scale.py --figure-only
    python scripts/benchmarks/scale.py --quick

Simulated random walks with heavy tails (``unique_id, ds, y``) in a Parquet file, sorted by series;
with ``--prices`` daily open, high, low, close and volume of stocks that a common market moves.
Each command runs in a process of its own under a new home; its time, processor time and peak memory
come from the kernel (``wait4``), disk use from the files under the home. ``--epochs`` and
``--members`` make fits short enough to be measured in many sizes; reading, writing, forecasting and
memory do not depend on them; ``--defaults`` leaves both to the program. Adds its rows to
``scale.csv`` beside this script, replacing rows of the same size and settings, and draws
``scale.png`` from all rows.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
TABLE, FIGURE = HERE / "scale.csv", HERE / "scale.png"
KEYS = ["series", "steps", "data", "command", "memory", "members", "epochs"]
COMMANDS = ("ingest", "fit", "predict --all", "predict one")


def main() -> None:
    options = arguments()
    if not options.figure_only:
        for series in options.series:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                for row in measure(Path(folder), series, options):
                    write(row)
                    print(row, flush=True)
    draw(measured())


def measure(folder: Path, series: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure each command's cost for a number of series."""
    data, home = folder / "panel.parquet", folder / "home"
    (make_prices if options.prices else make_panel)(data, series, options.steps)
    source = ("--source", f"files:{data}", "--home", str(home))
    config = folder / "c.toml"
    config.write_text(f"members = {options.members}\nepochs = {options.epochs}\n")
    chosen = () if options.defaults else ("--config", str(config))
    fit = ("fit", *source, *chosen, "--memory", options.memory)
    out = ("--output", str(folder / "f.parquet"), "--overwrite", "--home", str(home))
    one = f"S{series // 2:07d}"
    commands = {
        "ingest": ("ingest", *source),
        "fit": fit,
        "predict --all": ("predict", "--all", *out),
        "predict one": ("predict", one, *out),
    }
    for name, command in commands.items():
        seconds, cpu, peak = run(command)
        yield {
            "series": series, "steps": options.steps,
            "data": "prices" if options.prices else "y", "command": name,
            "memory": options.memory,
            "members": "default" if options.defaults else str(options.members),
            "epochs": "default" if options.defaults else str(options.epochs),
            "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2),
            "peak_mb": round(peak / 1e6), "disk_mb": round(disk(home) / 1e6, 1),
            "cpus": os.cpu_count(),
        }  # fmt: skip


def make_panel(path: Path, series: int, steps: int) -> None:
    """Write a panel of random walks, some series at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    # A hundred thousand weekdays that end today would begin before the range of nanoseconds.
    first = "1680-01-01" if steps > 80_000 else "2000-01-03"
    times = pd.bdate_range(first, periods=steps).to_numpy("datetime64[ns]")
    fields = [("unique_id", pa.string()), ("ds", pa.timestamp("ns")), ("y", pa.float64())]
    part = max(1, 1_000_000 // steps)
    with pq.ParquetWriter(path, schema := pa.schema(fields)) as writer:
        for low in range(0, series, part):
            count = min(part, series - low)
            y = 100 * np.exp(np.cumsum(0.01 * random.standard_t(5, (count, steps)), axis=1))
            names = np.array([f"S{number:07d}" for number in range(low, low + count)], object)
            columns = {"unique_id": names.repeat(steps), "ds": np.tile(times, count)}
            writer.write_table(pa.table({**columns, "y": y.ravel()}, schema=schema))


def make_prices(path: Path, series: int, steps: int) -> None:
    """Write a panel of stocks: moves of the market, and own ones of changing volatility."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(7)
    dates = pd.bdate_range("2019-01-01", periods=steps).to_numpy("datetime64[ns]")
    market = 0.008 * random.standard_t(5, (1, steps))
    number = [(name, pa.float64()) for name in ("open", "high", "low", "close", "volume")]
    schema = pa.schema([("ticker", pa.string()), ("date", pa.timestamp("ns")), *number])
    with pq.ParquetWriter(path, schema) as writer:
        for low in range(0, series, 500):
            shape = min(500, series - low), steps
            usual, log = np.exp(random.normal(-4.2, 0.3, (shape[0], 1))), 0.0
            volatility = np.empty(shape)
            for step in range(steps):
                log = 0.97 * log + random.normal(0, 0.15, shape[0])
                volatility[:, step] = np.exp(log)
            own = 0.8 * usual * volatility * random.standard_t(5, shape)
            close = 50 * np.exp(np.cumsum(market + own, axis=1))
            begin = close * np.exp(random.normal(0, 0.005, shape))
            high = np.maximum(close * np.exp(abs(random.normal(0, 0.008, shape))), begin)
            least = np.minimum(close * np.exp(-abs(random.normal(0, 0.008, shape))), begin)
            volume = np.exp(random.normal(13, 0.5, shape)).round()
            names = np.array([f"S{number:07d}" for number in range(low, low + shape[0])], object)
            columns = [each.ravel() for each in (begin, high, least, close, volume)]
            keys = [names.repeat(steps), np.tile(dates, shape[0])]
            writer.write_table(pa.table([*keys, *columns], schema=schema))


def run(command: tuple[str, ...]) -> tuple[float, float, int]:
    """Run a command; return seconds, processor seconds, and peak memory in bytes."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "forecaster", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    unit = 1 if sys.platform == "darwin" else 1024
    cpu = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - began, cpu, usage.ru_maxrss * unit


def disk(folder: Path) -> int:
    """Return the bytes of the files in a folder; a file with two names counts once."""
    files = {s.st_ino: s.st_size for p in folder.rglob("*") if p.is_file() and (s := p.stat())}
    return sum(files.values())


def write(row: dict[str, Any]) -> None:
    """Put a row into the table; replace the row with the same keys."""
    table = pd.DataFrame([row])
    if TABLE.exists():
        table = pd.concat([measured(), table], ignore_index=True)
    table = table.drop_duplicates(KEYS, keep="last")
    order = table["command"].map({name: place for place, name in enumerate(COMMANDS)})
    table = table.assign(order=order).sort_values(["steps", "series", "order"])
    table.drop(columns="order").to_csv(TABLE, index=False)


def measured() -> pd.DataFrame:
    """Return the table so far; networks and epochs are text, since they may be "default"."""
    return pd.read_csv(TABLE, dtype={"members": str, "epochs": str})


def draw(table: pd.DataFrame) -> None:
    """Draw time and memory by the number of series, logarithmic; extrapolated time is dashed.

    Uses the settings that were measured in the most sizes.
    """
    import matplotlib.pyplot as plt

    settings = ["steps", "data", "memory", "members", "epochs"]
    most = table.groupby(settings)["series"].nunique().idxmax()
    table = table[(table[settings] == list(most)).all(axis=1)]
    steps, data = int(table["steps"].iloc[0]), table["data"].iloc[0]
    kind = "stocks" if data == "prices" else "series"
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for axis, column, label in (
        (axes[0], "cpu_seconds", "processor's seconds"),
        (axes[1], "peak_mb", "peak memory, MB"),
    ):
        for number, name in enumerate(COMMANDS):
            part = table[table["command"] == name].sort_values("series")
            x, y = part["series"].to_numpy(float), part[column].to_numpy(float)
            axis.plot(x, y, "o-", color=f"C{number}", label=name)
            if len(x) > 1 and column == "cpu_seconds":
                axis.plot(*extrapolated(x, y), "--", color=f"C{number}", alpha=0.5)
        axis.set(xscale="log", yscale="log", xlabel=f"{kind} of {steps:,} steps", ylabel=label)
        axis.grid(alpha=0.3, which="both")
    axes[0].legend(title="measured; dashed: extrapolated")
    figure.savefig(FIGURE, dpi=130)
    print(f"Drew {FIGURE}")


def extrapolated(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Extrapolate to a million series, by the cost per series between the two largest sizes."""
    each = max(0.0, (y[-1] - y[-2]) / (x[-1] - x[-2]))
    further = np.geomspace(x[-1], 1e6, 20)
    return further, y[-1] + each * (further - x[-1])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--series", type=numbers, default=[1_000, 3_000, 10_000])
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--memory", default="2GB", help="of a fit")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--prices", action="store_true", help="stocks, not series of one number")
    parser.add_argument("--defaults", action="store_true", help="the fit's own networks and epochs")
    parser.add_argument("--folder", help="where the data lie meanwhile; by default a temporary one")
    parser.add_argument("--figure-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    if options.quick:
        global TABLE, FIGURE
        folder = Path(tempfile.mkdtemp())
        TABLE, FIGURE = folder / TABLE.name, folder / FIGURE.name
        options.series, options.steps = [10, 20], 300
    return options


if __name__ == "__main__":
    main()
