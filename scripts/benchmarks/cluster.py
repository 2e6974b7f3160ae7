"""Simulate a large fit on a Ray cluster of 10, 100 and 1,000 workers.

    python scripts/benchmarks/cluster.py [--quick]

The size of shards is the program's own; the queue, workers, their losses, the driver and its disk
are simulated in virtual time. The first cases simulate the queue alone, as used by `swarm.fit`. In
the last case the driver also reads, prepares and validates all series while no worker trains, as
`forecaster fit` does: as many series at a time as fit into its memory. Writes `cluster.csv` beside
this script, and the figure `cluster.png`.
Efficiency: the seconds of training divided by the number of workers times the total time; 1 means
workers that never wait and are never lost.
"""

import argparse
import dataclasses
import heapq
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from forecaster.swarm.execution.shards import next_size

matplotlib.use("Agg")
OUT = Path(__file__).with_suffix(".csv")


@dataclasses.dataclass(frozen=True)
class Case:
    """A cluster to simulate; times are in seconds.

    - ``network``: a core's time for a network, as measured on stocks of five years
    - ``uneven``: spread (sigma of the logarithm) of the time per network between shards
    - ``slow``: share of the workers that are three times as slow
    - ``lost``: mean time between two losses of a worker; ``back``: time until it is replaced
    - ``sent``, ``disk``: the driver's time per shard, and the bytes that its disk writes in a
      second
    """

    network: float = 0.028
    uneven: float = 0.0
    slow: float = 0.0
    lost: float = np.inf
    back: float = 20.0
    sent: float = 0.01
    disk: float = np.inf
    state: int = 30_000  # size of a network's state in bytes
    # The driver's time for a network while no worker trains: reading, preparing, validating.
    alone: float = 0.0
    group: int | None = None  # number of networks that are in memory together; None: all


# Measured by driver.py, as shares of the time of training.
MEASURED = pd.read_csv(OUT.with_name("driver.csv")).median()
SHARES = Case.network * MEASURED / MEASURED["training"]
ALONE = SHARES["driver"] + SHARES["pickling"]
CASES = {
    "even": Case(),
    "uneven shards": Case(uneven=0.5),
    "one in ten slow": Case(uneven=0.5, slow=0.1),
    "lost every hour": Case(uneven=0.5, lost=3600.0),
    "one disk, 2 GB/s": Case(uneven=0.5, disk=2e9),
    "one disk, 200 MB/s": Case(uneven=0.5, disk=2e8),
    "fit, 6,000 at a time": Case(uneven=0.5, alone=ALONE, group=6_000),
}
# Number of networks that a worker trains at once, and usual seconds of a shard.
AT_ONCE, USUAL = 8, 10.0


def simulate(case: Case, workers: int, networks: int, seed: int = 0) -> tuple[float, float]:
    """Return the total time in seconds, and the efficiency."""
    random = np.random.default_rng(seed)
    speeds = np.where(random.random(workers) < case.slow, 1 / 3, 1.0)
    usual, together = int(USUAL / case.network), case.group or networks
    now, work, idle = 0.0, 0.0, list(range(workers))
    ends: list[tuple[float, int, int, bool]] = []  # of shards: when, worker, size, whether lost
    for first in range(0, networks, together):
        left = group = min(together, networks - first)
        again, done = list[int](), 0
        while done < group:
            while idle and (again or left):
                worker = idle.pop(0)
                if not again:
                    again.append(min(left, next_size(left, usual, workers, AT_ONCE)))
                    left -= again[0]
                size, now = again.pop(0), now + case.sent
                spread = random.lognormal(-(case.uneven**2) / 2, case.uneven)
                needed = size * case.network * spread
                seconds = needed / speeds[worker]
                died = random.exponential(case.lost) if np.isfinite(case.lost) else np.inf
                work += needed if died > seconds else 0.0
                heapq.heappush(ends, (now + min(died, seconds), worker, size, died <= seconds))
            when, worker, size, is_lost = heapq.heappop(ends)
            now = max(now, when)
            if is_lost:
                again.append(size)
                heapq.heappush(ends, (now + case.back, worker, 0, False))
            else:  # of size 0: a lost worker is back
                now += size * case.state / case.disk  # 0 if the disk has no limit
                done += size
                idle.append(worker)
        now += group * case.alone
    return now, work / speeds.sum() / now


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    quick, rows = parser.parse_args().quick, []
    out = Path(tempfile.mkdtemp()) / OUT.name if quick else OUT
    for name, case in CASES.items():
        # A driver that prepares series itself cannot keep a thousand workers busy.
        for workers in (2, 10, 100) if quick or case.alone else (2, 10, 100, 1000):
            # With few workers, one loss more or less has a large effect.
            draws = range(20 if workers <= 10 and not quick else 2)
            each = [simulate(case, workers, 5_000 * workers, seed) for seed in draws]
            seconds, efficiency = np.mean(each, axis=0)
            rows.append((name, workers, 5_000 * workers, round(seconds), round(efficiency, 3)))
            print(*rows[-1], flush=True)
    table = pd.DataFrame(rows, columns=["case", "workers", "networks", "seconds", "efficiency"])
    table.to_csv(out, index=False)
    draw(table, out.with_suffix(".png"))


def draw(table: pd.DataFrame, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 4), layout="constrained")
    for (name, part), marker in zip(table.groupby("case", sort=False), "osD^vPX", strict=True):
        axes.plot(part["workers"], part["efficiency"], marker=marker, label=name)
    axes.set(xscale="log", ylim=(0, 1.05), xlabel="workers, of one core each", ylabel="efficiency")
    axes.set_title("A fit of 5,000 networks per worker, simulated")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
