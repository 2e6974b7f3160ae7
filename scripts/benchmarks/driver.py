"""Measure the processor time of the driver of a fit on a cluster, without its workers.

    python scripts/benchmarks/driver.py PRICES.parquet [--few 20] [--many 60] [--repeats 2]
        [--quick]

Runs a whole `forecaster fit` of stocks in a file, with its workers in this process: their messages
are pickled as for a cluster, and the processor time of their work is subtracted. The time of the
pooled network, which is trained once for any number of series, is subtracted, too. The fixed cost
of a fit, such as reading the file, is removed by measuring two numbers of series in turns, by
default 20 and 60. Writes `driver.csv` beside this script: milliseconds per further network, for the
driver alone, for pickling and for training. The times are processor time, so that other programs
matter less.
"""

import argparse
import tempfile
import time
from pathlib import Path

import cloudpickle
import pandas as pd

from forecaster import swarm
from forecaster.files import Home
from forecaster.forecasting.config import Config
from forecaster.forecasting.fitting import common, training
from forecaster.ingest import open_source
from forecaster.pipeline import DataRequest, fit_to_home

OUT = Path(__file__).with_suffix(".csv")


class Counted:
    """Two workers in this process; their processor time by function, and that of pickling."""

    is_local = False
    members_per_shard = 120

    def __init__(self):
        self.seconds = {"training": 0.0, "pickling": 0.0}

    def lanes(self):
        return [2, 2]

    def run(self, function, common, parts, *, per_core=False):
        for part in parts:
            sent = self._timed("pickling", cloudpickle.dumps, part)
            result = self._timed(
                "training", lambda sent=sent: function(common, cloudpickle.loads(sent))
            )
            back = cloudpickle.dumps(result)  # the worker would do this
            yield part, self._timed("pickling", cloudpickle.loads, back)

    def _timed(self, what, work, *args):
        began = time.process_time()
        result = work(*args)
        self.seconds[what] += time.process_time() - began
        return result


def measure(path: str, tickers: list[str], config: Config) -> dict[str, float]:
    """Return the seconds of each part of the work."""
    pooled, start = 0.0, common.train_pooled

    def timed(*args, **options):
        nonlocal pooled
        began = time.process_time()
        made = start(*args, **options)
        pooled += time.process_time() - began
        return made

    common.train_pooled = training.train_pooled = timed
    executor = Counted()
    with tempfile.TemporaryDirectory() as folder:
        request = DataRequest(open_source(f"files:{path}"), tickers)
        began = time.process_time()
        fit_to_home(Home(Path(folder)), request, config, 0, executor=executor)
        total = time.process_time() - began
    common.train_pooled = training.train_pooled = start
    its = executor.seconds
    alone = total - pooled - its["training"]
    return {"driver": alone, "pickling": its["pickling"], "training": its["training"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("prices", help="a Parquet file")
    parser.add_argument("--few", type=int, default=20)
    parser.add_argument("--many", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    given = parser.parse_args()
    out, path = OUT, given.prices
    if given.quick:
        given.few, given.many, given.repeats = 1, 2, 1
        out = Path(tempfile.mkdtemp()) / OUT.name
    frame = pd.read_parquet(path)
    names = frame[next(name for name in frame if name in ("unique_id", "ticker", "symbol", "Name"))]
    tickers = sorted(map(str, names.unique()))
    del frame, names
    swarm.keep_compiled(Path(tempfile.gettempdir()) / "forecaster-driver")
    config = Config(epochs=1) if given.quick else Config()
    measure(path, tickers[: given.few], config)  # compiles
    rows = []
    for _ in range(given.repeats):
        small, large = (measure(path, tickers[:n], config) for n in (given.few, given.many))
        networks = config.members * (given.many - given.few)
        rows.append({name: 1e3 * (large[name] - small[name]) / networks for name in small})
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows).round(2)
    table.to_csv(out, index=False)
    print("median", table.median().to_dict())


if __name__ == "__main__":
    main()
