"""Time the store with many series: ingest one Parquet file of 3,000 tickers with 20 years each,
ingest it again without a change, and load it as a panel.

    python scripts/benchmarks/ingest_speed.py --output scripts/benchmarks/ingest_speed.csv

Each step runs in a process of its own, like a command; its seconds include the start.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

_STEPS = {
    "ingest": "from forecaster.cli import main; main(['ingest', '--source', f'files:{file}', "
    "'--home', home])",
    "ingest, no change": "from forecaster.cli import main; main(['ingest', '--source', "
    "f'files:{file}', '--home', home])",
    "load the panel": """
from pathlib import Path
from forecaster.files import Home
from forecaster.ingest import Store, panel_from_store
(store,) = Store.all_of(Home(Path(home)))
panel = panel_from_store(store, store.ids)
print(panel.values.shape)
""",
}


def make_file(path: Path, tickers: int, sessions: int) -> None:
    """Write random walks, as prices rounded to cents, as one long table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    days = pd.bdate_range("2005-01-03", periods=sessions)
    random = np.random.default_rng(0)
    writer = None
    for number in range(tickers):
        close = np.round(100 * np.exp(np.cumsum(random.normal(0, 0.01, sessions))), 2)
        wiggle = np.round(np.abs(random.normal(0, 0.5, (2, sessions))), 2)
        frame = pd.DataFrame(
            {
                "ticker": f"T{number:04d}", "date": days, "open": close, "high": close + wiggle[0],
                "low": close - wiggle[1], "close": close, "adj_close": close * 0.97,
                "volume": random.integers(100_000, 10_000_000, sessions),
            }
        )  # fmt: skip
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def run(step: str, file: Path, home: Path) -> tuple[float, float]:
    """Run one step; return its seconds and its peak memory (GB)."""
    import resource

    code = f"file, home = {str(file)!r}, {str(home)!r}\n" + _STEPS[step]
    code += "\n" if "main(" not in code else ""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tickers", type=int, default=3000)
    parser.add_argument("--sessions", type=int, default=5040)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help="CSV to write")
    parser.add_argument("--quick", action="store_true", help="a try with a small file")
    options = parser.parse_args()
    if options.quick:
        options.tickers, options.sessions, options.repeats = 10, 300, 1
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prices.parquet"
        make_file(file, options.tickers, options.sessions)
        for repeat in range(options.repeats):
            home = Path(folder) / f"home{repeat}"
            for step in _STEPS:
                seconds, peak = run(step, file, home)
                rows.append((step, repeat, round(seconds, 2), round(peak, 2)))
                print(*rows[-1], flush=True)
    table = pd.DataFrame(rows, columns=["step", "repeat", "seconds", "peak_memory_gb_so_far"])
    table = table.assign(
        tickers=options.tickers, sessions=options.sessions, cores=os.cpu_count(),
        machine=platform.processor() or platform.machine(), date=pd.Timestamp.now().date(),
    )  # fmt: skip
    print(table.groupby("step", sort=False)["seconds"].median())
    if options.output:
        table.to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
