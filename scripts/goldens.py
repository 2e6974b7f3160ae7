"""Compare the forecasts of eight invented panels with the committed ones, in ``tests/goldens``.

    python scripts/goldens.py [PANEL ...]
    python scripts/goldens.py --write
    python scripts/goldens.py --beside COMMIT

Each panel is forecast by ``predict`` and by ``cross_validation``. The table shows by how much the
forecasts of each panel differ, at most, in widths of the 80 % band; probabilities and what a
forecast rests on count too. The exit code is 1 where any differs by more than a
hundred-thousandth: that much may come from another processor, whose sums round differently.

- ``--write``: renew the committed files. A commit that is meant to change numbers does this, and
  its message quotes the table
- ``--beside COMMIT``: forecast with another commit, too, in a temporary worktree on this machine;
  the exit code is 1 where any bit differs
- ``--to FOLDER``: only forecast, and write the frames as Parquet files

Networks train for a few epochs, each the same number, so that rounding has no time to grow.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import forecaster as fc

ROOT = Path(__file__).resolve().parents[1]
GOLDENS = ROOT / "tests" / "goldens"
KEYS = ["by", "unique_id", "ds", "cutoff"]
TOLERANCE = 1e-5  # widths of the 80 % band
# Built by the installation, and not in git.
KERNEL = Path("forecaster/swarm/native/_kernels.so")
UPLOT = Path("forecaster/report/uplot.js")


class Case(NamedTuple):
    """A panel, how it is forecast, and the cutoffs of its cross-validation."""

    panel: Callable[[], fc.Panel]
    config: fc.Config
    n_windows: int = 2
    step_size: int = 1


def long_frame(values: dict[str, np.ndarray], frequency: str) -> pd.DataFrame:
    """Return series of any lengths that all end with 2024, as a long frame with two decimals."""
    parts = [
        pd.DataFrame(
            {"unique_id": name, "ds": dates(len(y), frequency), "y": np.asarray(y, float).round(2)}
        )
        for name, y in values.items()
    ]
    return pd.concat(parts, ignore_index=True)


def dates(rows: int, frequency: str) -> pd.DatetimeIndex:
    return pd.date_range(end="2024-12-31", periods=rows, freq=frequency)


def market(series: int, rows: int, seed: int) -> pd.DataFrame:
    """Return daily bars of stocks with common and own volatility, and earnings each quarter."""
    random = np.random.default_rng(seed)
    common = np.repeat(random.choice([0.7, 1.0, 1.8], rows // 20 + 1), 20)[:rows]
    parts = []
    for number in range(series):
        busy = np.arange(rows) % 65 == 7 * number % 65  # 65 business days are 13 weeks
        scale = 0.01 * common * np.where(busy, 3.0, 1.0)
        close = 50 * np.exp(np.cumsum(scale * random.standard_t(5, rows)))
        open_ = close * np.exp(0.3 * scale * random.normal(size=rows))
        high, low = np.maximum(open_, close), np.minimum(open_, close)
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": f"s{number:02d}",
                    "ds": dates(rows, "B"),
                    "open": open_.round(2),
                    "high": (high * (1 + 0.5 * scale * random.random(rows))).round(2),
                    "low": (low * (1 - 0.5 * scale * random.random(rows))).round(2),
                    "close": close.round(2),
                    "volume": random.integers(1_000, 2_000, rows) * np.where(busy, 3, 1),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def weeks(random: np.random.Generator, rows: int) -> np.ndarray:
    """Return a wandering level with a week, and more noise on Sundays."""
    steps = np.arange(rows)
    season = np.array([0, 1, 2, 1, 4, 9, -6])[steps % 7]
    noise = random.normal(size=rows) * np.where(steps % 7 == 6, 3, 1)
    return 60 + 0.3 * random.normal(size=rows).cumsum() + season + noise


def daily() -> fc.Panel:
    """Return eight daily series, two of which are long enough for networks."""
    random = np.random.default_rng(3)
    rows = [260, 240, 19, 22, 25, 28, 31, 34]
    return fc.load_panel(
        long_frame({f"s{n}": weeks(random, length) for n, length in enumerate(rows)}, "D")
    )


def monthly() -> fc.Panel:
    """Return monthly series: trends, seasons, both, a shift of the level, and noise."""
    random, steps = np.random.default_rng(4), np.arange(60)
    season = 12 * np.sin(2 * np.pi * steps / 12) + 5 * np.cos(4 * np.pi * steps / 12)
    noise = random.normal(size=(6, len(steps)))
    values = {
        "trend": 100 + 0.8 * steps + 2 * noise[0],
        "season": 100 + season + 2 * noise[1],
        "growth": np.exp(0.01 * steps) * (100 + 2 * season + 2 * noise[2]),
        "shift": 100 + 40 * (steps > 40) + 3 * noise[3],
        "walk": 200 + 4 * noise[4].cumsum(),
        "noise": 50 + 5 * noise[5],
    }
    return fc.load_panel(long_frame(values, "MS"))


def counts() -> fc.Panel:
    """Return daily sales of a few pieces, with a week."""
    random, steps = np.random.default_rng(5), np.arange(120)
    means = [mean * (1 + 0.7 * np.sin(2 * np.pi * steps / 7)) for mean in (1.5, 3, 5, 8)]
    return fc.load_panel(
        long_frame({f"s{n}": random.poisson(mean) for n, mean in enumerate(means)}, "D")
    )


def intermittent() -> fc.Panel:
    """Return monthly demand of parts, most months none; one part was never asked for."""
    random = np.random.default_rng(6)
    values = {
        f"s{n}": random.binomial(1, share, 48) * random.poisson(3, 48)
        for n, share in enumerate((0.1, 0.2, 0.3, 0.5))
    }
    return fc.load_panel(long_frame({**values, "never": np.zeros(48)}, "MS"))


def promotions() -> fc.Panel:
    """Return daily sales that promotions raise by 40 % and prices change; both known ahead."""
    random, rows, ahead = np.random.default_rng(7), 150, 3
    values, known = {}, []
    for number in range(5):
        promotion = (random.random(rows + ahead) < 0.2) * 1.0
        price = random.choice([8.0, 10.0, 12.0], rows + ahead)
        y = weeks(random, rows) * (1 + 0.4 * promotion[:rows]) * (10 / price[:rows])
        values[f"s{number}"] = y
        days = pd.date_range(dates(rows, "D")[0], periods=rows + ahead)
        known.append(
            pd.DataFrame(
                {"unique_id": f"s{number}", "ds": days, "promotion": promotion, "price": price}
            )
        )
    return fc.load_panel(long_frame(values, "D")).with_future(pd.concat(known))


def short() -> fc.Panel:
    """Return quarterly series of four to sixteen rows, one of them constant."""
    random = np.random.default_rng(8)
    values = {
        f"s{rows:02d}": 100 + 2 * np.arange(rows) + 4 * random.normal(size=rows)
        for rows in (4, 5, 6, 8, 10, 13, 16)
    }
    return fc.load_panel(long_frame({**values, "constant": np.full(9, 7.0)}, "QS"))


FEW: dict[str, Any] = {"epochs": 3, "patience": 3, "hidden": 4, "lookback": 30, "horizon": 3}
CASES = {
    "prices pooled": Case(
        lambda: fc.load_panel(market(10, 620, 1)), fc.Config(**FEW, members=2), n_windows=3
    ),
    "prices independent": Case(
        lambda: fc.load_panel(market(3, 300, 2)[["unique_id", "ds", "close"]]),
        fc.Config(**FEW, start="independent", members=1),
    ),
    "daily with networks": Case(daily, fc.Config(**FEW, members=1)),
    "monthly without": Case(monthly, fc.Config(horizon=6), step_size=3),
    "counts": Case(counts, fc.Config(**FEW, members=1)),
    "intermittent": Case(intermittent, fc.Config(horizon=6)),
    "covariates with promotions": Case(promotions, fc.Config(**FEW, members=1)),
    "short": Case(short, fc.Config(horizon=2), n_windows=1),
}


def made(case: Case) -> pd.DataFrame:
    """Forecast a panel by both functions; return their frames as one, without the outcomes."""
    panel = case.panel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = fc.predict(
            fc.fit(panel, case.config), panel, level=[80, 95], quantiles=[0.01, 0.6]
        )
        validated = fc.cross_validation(panel, case.config, case.n_windows, case.step_size)
    frame = pd.concat({"predict": predicted, "cross_validation": validated}, names=["by"])
    return frame.reset_index("by").drop(columns="y").sort_values(KEYS, ignore_index=True)


def file_of(name: str, folder: Path = GOLDENS, suffix: str = ".csv") -> Path:
    return folder / f"{name.replace(' ', '_')}{suffix}"


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(file_of(name), parse_dates=["ds", "cutoff"])


def write(name: str, frame: pd.DataFrame) -> None:
    frame.to_csv(file_of(name), index=False, float_format="%.10g", lineterminator="\n")


def change(golden: pd.DataFrame, frame: pd.DataFrame) -> float:
    """Return the largest difference of two frames, in widths of the golden 80 % band.

    Probabilities differ by their own unit. The difference is infinite where a forecast is missing
    in one of the frames, a text differs, or a band without width has changed.
    """
    rows = [one[KEYS].astype(str) for one in (golden, frame)]
    if list(golden) != list(frame) or not rows[0].equals(rows[1]):
        return np.inf
    width = (golden["LSTM-hi-80"] - golden["LSTM-lo-80"]).to_numpy()
    largest = 0.0
    for name in golden.columns.difference(KEYS):
        old, new = golden[name], frame[name]
        if not pd.api.types.is_numeric_dtype(old):
            texts = [one.astype(object).fillna("").astype(str) for one in (old, new)]
            largest = largest if texts[0].equals(texts[1]) else np.inf
            continue
        difference = np.abs(new.to_numpy(float) - old.to_numpy(float))
        if not (old.isna() == new.isna()).all():
            return np.inf
        unit = 1.0 if name == "probability_of_rise" else width
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(difference > 0, difference / unit, 0.0)
        largest = max(largest, float(each.max()))
    return largest


def compared(names: list[str], pairs: Callable[[str], float], limit: float) -> int:
    """Print the change of each panel; return 1 if any is above the limit."""
    changes = {name: pairs(name) for name in names}
    for name, size in changes.items():
        print(f"{name:28s} {size:10.3g} widths of the 80 % band{'  CHANGED' * (size > limit)}")
    return int(any(size > limit for size in changes.values()))


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder, with the built files that git ignores."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree"
        git("worktree", "add", "--detach", "--quiet", str(path), commit)
        try:
            for file in (KERNEL, UPLOT):
                if (ROOT / file).exists() and (path / file).parent.exists():
                    shutil.copy2(ROOT / file, path / file)
            if git("diff", "--name-only", commit, "--", str(KERNEL.parent)):
                subprocess.run(
                    [sys.executable, path / KERNEL.with_name("compiling.py"), path / KERNEL],
                    check=True,
                )
            yield path
        finally:
            git("worktree", "remove", "--force", str(path))


def git(*words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return ran.stdout.strip()


def frames_of(tree: Path, names: list[str], folder: Path) -> None:
    """Forecast with the package of a tree, in a process of its own, as users would."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, __file__, *names, "--to", folder],
        env=os.environ | {"PYTHONPATH": str(tree)},
        check=True,
    )


def beside(commit: str, names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, worktree(commit) as tree:
        now, then = Path(folder) / "now", Path(folder) / "then"
        frames_of(ROOT, names, now)
        frames_of(tree, names, then)

        def bits(name: str) -> float:
            before, after = (pd.read_parquet(file_of(name, at, ".parquet")) for at in (then, now))
            return change(before, after)

        return compared(names, bits, 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("panels", nargs="*", metavar="PANEL", help=f"any of {', '.join(CASES)}")
    parser.add_argument("--write", action="store_true", help="renew the committed files")
    parser.add_argument("--beside", metavar="COMMIT", help="compare with another commit, by bits")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="only forecast, into Parquet")
    options = parser.parse_args()
    names = options.panels or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no panel {unknown[0]!r}; there are {', '.join(CASES)}")
    if options.beside:
        return beside(options.beside, names)
    if options.to:
        for name in names:
            made(CASES[name]).to_parquet(file_of(name, options.to, ".parquet"))
        return 0

    def beside_golden(name: str) -> float:
        frame = made(CASES[name])
        size = change(read(name), frame) if file_of(name).exists() else np.inf
        if options.write:
            write(name, frame)
        return size

    status = compared(names, beside_golden, TOLERANCE)
    return 0 if options.write else status


if __name__ == "__main__":
    sys.exit(main())
