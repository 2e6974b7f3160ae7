"""Provide what all experiments need: options, paired timing, provenance, tables and figures."""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster import __version__, swarm

swarm.use_all_cores()  # before anything starts JAX

HERE = Path(__file__).parent
COLOURS = ("#1f6f8b", "#c8553d", "#7a7a7a", "#8a6fa8", "#4f8a3c")


def parser(doc: str | None, **defaults: int) -> argparse.ArgumentParser:
    """Make a parser with the options of every experiment, and further numbers with defaults."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of minutes, no result"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, help="folder for CSV and figure [default: beside the script]"
    )
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    return parser


def folder(options: argparse.Namespace) -> Path:
    """Return the folder for results; a quick run does not overwrite committed results."""
    if options.output is None and options.quick:
        options.output = Path(tempfile.mkdtemp(prefix="forecaster-experiment-"))
    options.output = options.output or HERE
    options.output.mkdir(parents=True, exist_ok=True)
    return options.output


def paired(
    runs: Mapping[str, Callable[[], Any]], repeats: int, warm_up: bool = True
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Time runs in turn; reverse the order in every second repeat.

    Returns a table ``method, repeat, seconds``, in which repeat -1 is the first run, with
    compilation, and the last result of each run.
    """
    rows, results = [], {}
    for repeat in range(-1 if warm_up else 0, repeats):
        names = list(runs) if repeat % 2 == 0 else list(runs)[::-1]
        for name in names:
            began = time.perf_counter()
            results[name] = runs[name]()
            rows.append((name, repeat, time.perf_counter() - began))
    return pd.DataFrame(rows, columns=["method", "repeat", "seconds"]), results


def medians(table: pd.DataFrame, by: list[str], value: str = "seconds") -> pd.DataFrame:
    """Return median, lowest and highest over the repeats, without the first run."""
    counted = table[table["repeat"] >= 0].groupby(by, sort=False)[value]
    return counted.agg(["median", "min", "max"]).reset_index()


def provenance(seed: int) -> dict[str, Any]:
    """Return versions, machine, seed and date, as columns of a table."""
    import jax

    packages = ("jax", "flax", "optax", "numpy", "torch", "scikit-learn")
    versions = [
        f"{name} {importlib.metadata.version(name)}"
        for name in packages
        if importlib.util.find_spec(name.replace("scikit-learn", "sklearn"))
    ]
    return {
        "versions": "; ".join(
            [f"python {platform.python_version()}", f"forecaster {__version__}", *versions]
        ),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "machine": f"{platform.system()} {platform.machine()}",
        "seed": seed,
        "date": str(pd.Timestamp.now().date()),
    }


def write(options: argparse.Namespace, table: pd.DataFrame, name: str | None = None) -> Path:
    """Write a table, with the provenance in its last columns, and print its path."""
    path = folder(options) / f"{name or Path(sys.argv[0]).stem}.csv"
    table.round(6).assign(**provenance(options.seed)).to_csv(path, index=False)
    print(f"wrote {path}", flush=True)
    return path


def figure(options: argparse.Namespace, drawn: Any, name: str | None = None) -> Path:
    """Write a figure beside the table."""
    path = folder(options) / f"{name or Path(sys.argv[0]).stem}.png"
    drawn.savefig(path, dpi=150, facecolor="white", bbox_inches="tight")
    print(f"wrote {path}", flush=True)
    return path


def axes(count: int = 1, width: float = 5.0, height: float = 3.6) -> tuple[Any, Any]:
    """Return axes side by side, drawn without a display."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(1, count, figsize=(width * count, height), squeeze=False)
    for place in axes[0]:
        place.spines[["top", "right"]].set_visible(False)
    return drawn, axes[0]


def log_log(place: Any, table: pd.DataFrame, x: str, title: str, label: str) -> None:
    """Draw each method's median with a band from the lowest to the highest repeat.

    The band of three repeats contains the median with 75 % confidence.
    """
    for colour, (name, part) in zip(COLOURS, table.groupby("method", sort=False), strict=False):
        place.plot(part[x], part["median"], "o-", ms=3, color=colour, label=name)
        place.fill_between(part[x], part["min"], part["max"], color=colour, alpha=0.2, lw=0)
    place.set(xscale="log", yscale="log", xlabel=x, ylabel=label, title=title)
    place.legend(frameon=False, fontsize=8)
