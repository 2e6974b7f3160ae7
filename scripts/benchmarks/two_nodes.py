"""Compare two Ray nodes of one core each with two lanes of one process, in turns on one machine.

    python scripts/benchmarks/two_nodes.py --series 600 --repeats 3 [--quick]

The start of the cluster and its workers, and compilation, are not counted: each side trains once
before. Seconds are by the clock; on a busy machine processor seconds say more (of the process that
trains, or of the driver and the nodes' workers together). The networks must have the same bits.
Needs ray: `pip install -e ".[ray]"`.
"""

import argparse
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.distributed import Ray

OUT = Path(__file__).with_suffix(".csv")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--series", type=int, default=600)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--epochs", type=int, default=20)
    options.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    asked, out = options.parse_args(), OUT
    if asked.quick:
        asked.series, asked.repeats, asked.epochs = 8, 1, 1
        out = Path(tempfile.mkdtemp()) / OUT.name
    os.environ |= {"RAY_worker_niceness": "0"}  # otherwise workers have the lowest priority
    from ray.cluster_utils import Cluster

    store: dict[str, Any] = {"object_store_memory": 300 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **store)
    names = [f"S{k:05d}" for k in range(asked.series)]
    panel = fc.load_panel("simulated", names, start="2023-01-01")
    config = fc.Config(start="independent", members=1, epochs=asked.epochs)
    rows, last = [], {}
    with Ray(str(cluster.address)) as nodes:
        for repeat in range(asked.repeats + 1):
            for name, executor in (("two lanes", None), ("two nodes", nodes)):
                before = processor_seconds()
                model = fc.fit(panel, config, seed=0, executor=executor)
                cpu = processor_seconds() - before
                seconds = model.provenance["training_seconds"]
                last[name] = jax.tree.leaves(model.networks.params)
                if repeat:
                    rows.append((asked.series, name, repeat, round(seconds, 2), round(cpu, 2)))
                    print(*rows[-1], flush=True)
    cluster.shutdown()
    assert all(map(np.array_equal, *last.values())), "the bits differ"
    table = pd.DataFrame(rows, columns=["series", "where", "repeat", "seconds", "cpu"])
    table.to_csv(out, index=False)
    for what in ("seconds", "cpu"):
        median = table.groupby("where")[what].median()
        ratio = median["two lanes"] / median["two nodes"]
        print(f"by {what}: {ratio:.3f} of two lanes' throughput")


def processor_seconds() -> float:
    """Return the processor seconds of this process and of all nodes' workers so far."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            worker = (folder / "cmdline").read_bytes().startswith(b"ray::NodeWorker")
            if worker or int(folder.name) == os.getpid():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    main()
