"""Decide how many series are trained at a time in the available memory."""

import math
import re
from collections.abc import Sequence

from forecaster import swarm
from forecaster.errors import UsageError
from forecaster.forecasting import Config, bytes_of_combining, bytes_of_sample, bytes_of_series
from forecaster.ingest import Store
from forecaster.machine import cores, free_memory

# Maximum number of series in a shard for every two lanes. `predict` reads a shard whole.
MOST_PER_SHARD = 2_000
_FEWEST = 20
_PROGRAM = 800 * 2**20  # bytes that the program needs without any series, including compilation
_PROCESS = 400 * 2**20  # bytes of a process that fits shards, without any series
_WITHOUT_NETWORKS = 4  # such a series takes at most 1/4 of the memory of one that is trained
_SHARE = 0.6  # default share of the free memory
_UNITS = {"": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_memory(text: str) -> int:
    """Return the bytes of a size such as ``2GB`` or ``1500 MiB``.

    Raises UsageError for any other text, and for less than the program alone needs.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B?\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(f"--memory {text}: expected a size such as 2GB or 1500MB")
    number, unit, binary = match.groups()
    size = int(float(number) * (1024 if binary else 1000) ** _UNITS[unit.upper()])
    if size <= _PROGRAM:
        raise UsageError(
            f"--memory {text}: the program alone takes about {_PROGRAM / 1e9:.1f} GB; expected more"
        )
    return size


def check_fits(store: Store, ids: Sequence[str], config: Config) -> None:
    """Raise UsageError unless these stored series fit into the free memory together."""
    steps, channels = _largest(store, ids)
    need = len(ids) * bytes_of_series(config, steps, channels) + bytes_of_combining(config, steps)
    if need > (free := free_memory()):
        raise UsageError(
            f"{len(ids):,} series, the longest of {steps:,} rows, take up to {need / 1e9:.1f}GB "
            f"together, and {free / 1e9:.1f}GB is free; take fewer series (--tickers), fewer rows "
            "(--start), or a machine with more memory"
        )


def _largest(store: Store, ids: Sequence[str]) -> tuple[int, int]:
    """Return the rows of the longest series, and the channels of the first."""
    return max(store.index.series[name].rows for name in ids), len(store.channels(ids[0]))


def portions(
    store: Store,
    ids: Sequence[str],
    config: Config,
    memory: int | None,
    executor: swarm.Executor | None = None,
) -> tuple[int | None, int]:
    """Return how many of these stored series are trained and saved together; None: all.

    The second number is that of processes that fit shards without networks, one shard each.

    - ``memory``: bytes for the fit; by default a share of the free memory
    - ``executor``: where they train; a large cluster gets larger shards, if they fit into memory,
      because it waits for the last series of each

    Raises UsageError, with the smallest sufficient memory, if the memory, by default all that is
    free, is too small for a few series, or for the sample from which all series' networks start.
    """
    steps, channels = _largest(store, ids)
    each = bytes_of_series(config, steps, channels)
    more = max(0, bytes_of_combining(config, steps) - each)  # of one series at a time
    sample = bytes_of_sample(config, len(ids), steps, channels)
    few = min(_FEWEST, len(ids)) * each + more
    least = _PROGRAM + max(sample, few)
    if (free_memory() + _PROGRAM if memory is None else memory) < least:  # a part is taken already
        what = "the networks that all start from"
        if few > sample:
            what = "a few of them" if len(ids) > 1 else "it"
        size = f"{math.ceil(least / 1e8) / 10:g}GB"
        given = "--memory" if memory is not None else "the free memory"
        raise UsageError(
            f"{given} of {(memory or free_memory()) / 1e9:.2f}GB is too little for {len(ids):,} "
            f"series, the longest of {steps:,} rows: training {what} takes up to {size}; take "
            f"fewer rows (--start), a shorter horizon, or --memory {size} or more"
        )
    budget = int(_SHARE * free_memory()) if memory is None else memory
    fit = max(_FEWEST, (budget - _PROGRAM - more) // each)
    lanes = 2 if executor is None or executor.is_local else sum(executor.lanes())
    most = min(fit, MOST_PER_SHARD * max(1, lanes // 2))
    if len(ids) <= most:
        return None, 1
    each_shard = math.ceil(len(ids) / math.ceil(len(ids) / most))
    processes = (budget - _PROGRAM) // (_PROCESS + each_shard * each // _WITHOUT_NETWORKS)
    return each_shard, max(1, min(processes, cores()))
