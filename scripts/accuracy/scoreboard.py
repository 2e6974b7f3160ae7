"""Score the default on real and invented panels; print the difference from the last table.

    python scripts/accuracy/scoreboard.py [--only SET ...] [--quick] [--output scoreboard.csv]

``FORECASTER_TEST_DATA`` names the folder with the data; without it only the invented panels are
scored. ``--quick`` takes five minutes: fewer sets, of fewer series, or three invented panels
without the data; its rows have the size "quick". Rows that are not measured again stay in the file.

- stocks: adjusted closes, one to five days ahead, from each day of a year (quick: each tenth). The
  networks are fitted before the year. 2008, a year that fell, 2014, and 2016 and 2017, on which
  nothing in the program was chosen: whoever chooses something on one of them says so here
- M1, NN3, NN5 (counted rows, and with dates), car parts, and one in three of M4's hourly and weekly
  training series: the last horizon of each series is withheld
- seven real files, from the cutoffs of ``real_files_sets.json``, fitted again at each. The rival is
  the one with the lowest quantile loss among the seven methods of ``real_files_rivals.parquet``
- invented panels, whose rival is their true distribution: promotions that are known ahead; shops
  that are closed at night and on Sundays; the first weeks of products (only theirs are scored); the
  weeks after a stock-out; days of earnings that are known ahead (only these days are scored); a
  level that has just shifted

A row per set, a mean over series. Losses are in units of the mean absolute change over a season
before the first cutoff, as MASE is; for stocks in percent of the price:

- ``crps``: from the quantiles at 1, 2, ..., 99 %; ``mase``; ``quantile_loss``: the mean at 10, 50
  and 90 %; ``loss_1``: at 1 %
- ``coverage_80``, ``coverage_95``, ``coverage_99``: shares of outcomes inside the bands
- ``rival``, ``of_rival``: its name, and our quantile loss divided by the rival's
- ``seconds`` of processor time of ``cross_validation``, compiling included, which other work on the
  machine hardly affects; the peak ``memory`` in MB. Each set has a process of its own
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

import forecaster as fc

LEVELS = [*range(2, 99, 2), 95, 99]
PERCENTS = [f"pinball-{q / 100:g}" for q in range(1, 100)]
LOSSES = ["crps", "mase", "quantile_loss", "loss_1"]
SHARES = ["coverage_80", "coverage_95", "coverage_99"]
TRUTH = "truth"


class Task(NamedTuple):
    """A panel, the arguments of its cross-validation, and the forecasts of rivals.

    - ``season``: rows in a season, of MASE
    - ``rivals``: ``unique_id, ds``, perhaps ``cutoff``, and the columns of models; only rows that
      it has are scored
    """

    panel: fc.Panel
    season: int
    horizon: int
    n_windows: int = 1
    step_size: int = 1
    refit: bool = False
    rivals: pd.DataFrame | None = None


def data(name: str) -> Path:
    return Path(os.environ["FORECASTER_TEST_DATA"]) / name


def some(names: pd.Series, every: int) -> pd.Series:
    """Return which rows belong to every n-th series, by name."""
    return names.isin(np.sort(names.unique())[::every])


def stocks(year: int, quick: bool) -> Task:
    file = "us_stocks_2000_2015" if year < 2016 else "sp500_2013_2018"
    frame = pd.read_parquet(data(f"{file}.parquet"))
    frame = frame[some(frame["ticker"], 50 if quick else 10)]
    dates = pd.to_datetime(frame["date"])
    panel = fc.load_panel(frame[(dates >= f"{year - 10}-01-01") & (dates < f"{year + 1}-01-08")])
    days = int((panel.times >= np.datetime64(f"{year}-01-01")).sum()) - 4  # from the day before
    step = 10 if quick else 1
    return Task(panel, 5, 5, days // step, step)


def withheld(
    frame: pd.DataFrame, every: int, horizon: int, season: int, first: str | None = None
) -> Task:
    """Return a task that withholds the last horizon of each series, or of all.

    ``first``: the day of row 1, where the series are to have dates
    """
    frame = frame.astype({"unique_id": str})[["unique_id", "ds", "y"]]
    frame = frame[some(frame["unique_id"], every)].sort_values(["unique_id", "ds"])
    # Counted towards the end, so that all series have the same cutoff.
    to_come = frame.groupby("unique_id").cumcount(ascending=False)
    frame["ds"] = to_come.max() - to_come
    if first is not None:
        frame["ds"] = pd.Timestamp(first) + pd.to_timedelta(frame["ds"], unit="D")
    return Task(fc.load_panel(frame.dropna()), season, horizon)


def m1(period: str, horizon: int, season: int, quick: bool) -> Task:
    frame = pd.read_parquet(data("m1.parquet"))
    return withheld(frame[frame["period"] == period], 4 if quick else 1, horizon, season)


def small(name: str, horizon: int, season: int, quick: bool, first: str | None = None) -> Task:
    frame = pd.read_parquet(data("small_panels.parquet"))
    return withheld(frame[frame["panel"] == name], 6 if quick else 1, horizon, season, first)


def m4(kind: str, horizon: int, season: int, quick: bool) -> Task:
    frame = pd.read_parquet(data(f"m4_{kind}_train.parquet"))
    frame = frame.set_axis(["unique_id", "ds", "y"], axis=1)
    return withheld(frame, 40 if quick else 3, horizon, season)


def real(name: str, quick: bool) -> Task:
    about = json.loads(data("real_files_sets.json").read_text())[name]
    frame = pd.read_parquet(data("real_files.parquet"))
    frame = frame[frame["panel"] == name].astype({"unique_id": str}).drop(columns="panel")
    rivals = pd.read_parquet(data("real_files_rivals.parquet"))
    rivals = rivals[(rivals["set"] == name) & (rivals["model"] != "ours")]
    count = 1 if quick else about["k"]
    return Task(
        fc.load_panel(frame), about["m"], about["h"], count, about["step"], count > 1,
        as_columns(rivals, np.sort(frame["ds"].unique())),
    )  # fmt: skip


def as_columns(rivals: pd.DataFrame, times: np.ndarray) -> pd.DataFrame:
    """Return forecasts with a row per model as a frame with columns for each model."""
    cutoff = np.searchsorted(times, rivals["cutoff"].to_numpy())
    rivals = rivals.assign(ds=times[cutoff + 1 + rivals["step"]])
    rivals = rivals.astype({"unique_id": str, "model": str})
    wide = rivals.pivot(
        index=["unique_id", "ds", "cutoff"], columns="model", values=["q50", "q10", "q90"]
    ).astype(float)
    ends = {"q50": "", "q10": "-lo-80", "q90": "-hi-80"}
    wide.columns = [f"{model}{ends[quantile]}" for quantile, model in wide.columns]
    return wide.reset_index()


def invented(
    frame: pd.DataFrame,
    horizon: int,
    n_windows: int,
    step_size: int,
    known: tuple[str, ...] = (),
    season: int = 7,
) -> Task:
    """Return a task whose rival is the true distribution.

    - ``frame``: ``unique_id, ds, y``; the normal distribution of each value by ``mean`` and
      ``deviation``; ``scored``, whether it is scored
    - ``known``: columns that are known ahead
    """
    panel = fc.load_panel(frame[["unique_id", "ds", "y"]])
    if known:
        panel = panel.with_future(frame[["unique_id", "ds", *known]])
    truth = true_quantiles(frame[frame["scored"]], lambda mean: mean)
    return Task(panel, season, horizon, n_windows, step_size, rivals=truth)


def true_quantiles(frame: pd.DataFrame, unit: Callable[[pd.Series], pd.Series]) -> pd.DataFrame:
    """Return the true quantiles as the columns of a model.

    ``unit``: turns a value on the scale of ``mean`` into the series' own
    """
    out = {TRUTH: unit(frame["mean"])}
    for level in LEVELS:
        distance = float(ndtri(0.5 + level / 200)) * frame["deviation"]
        out[f"{TRUTH}-lo-{level}"] = unit(frame["mean"] - distance)
        out[f"{TRUTH}-hi-{level}"] = unit(frame["mean"] + distance)
    return pd.concat([frame[["unique_id", "ds"]], pd.DataFrame(out)], axis=1)


def series(name: str, times: np.ndarray, mean: np.ndarray, deviation: float, seed: int, **columns):
    """Return one series: normal values around a known mean; the deviation is a share of it."""
    random = np.random.default_rng([seed, *name.encode()])
    y = mean + deviation * mean * random.normal(size=len(mean))
    facts = {"mean": mean, "deviation": deviation * mean, "scored": True}
    return pd.DataFrame({"unique_id": name, "ds": times, "y": y} | facts | columns)


WEEK = np.array([1.0, 0.9, 0.95, 1.0, 1.2, 1.5, 0.6])


def promotions(quick: bool) -> Task:
    random, rows = np.random.default_rng(1), 180
    days = pd.date_range("2024-01-01", periods=rows)
    parts = []
    for number in range(10):
        promotion = random.binomial(1, 0.2, rows)
        mean = (50 + 10 * number) * WEEK[days.day_of_week] * (1 + 0.4 * promotion)
        parts.append(series(f"s{number}", days, mean, 0.05, 1, promotion=promotion))
    return invented(pd.concat(parts, ignore_index=True), 7, 4, 7, ("promotion",))


def closed_hours(quick: bool) -> Task:
    hours = pd.date_range("2024-01-01", periods=24 * 56, freq="h")
    noon = np.where(hours.hour.isin(range(8, 20)), 1 + np.sin(np.pi * (hours.hour - 8) / 12), 0)
    mean = noon * (hours.day_of_week < 6)
    parts = [series(f"s{n}", hours, (20 + 5 * n) * mean, 0.1, 2) for n in range(4)]
    return invented(pd.concat(parts, ignore_index=True), 24, 7, 24, season=24)


def closed_days(quick: bool) -> Task:
    days = pd.date_range("2024-01-01", periods=200)
    mean = WEEK[days.day_of_week] * (days.day_of_week < 6)
    parts = [series(f"s{n}", days, (50 + 10 * n) * mean, 0.1, 3) for n in range(8)]
    return invented(pd.concat(parts, ignore_index=True), 14, 4, 7)


def first_weeks(quick: bool) -> Task:
    """Return old products and ten new ones, of one to four weeks, whose sales still rise."""
    days = pd.date_range("2024-01-01", periods=160)
    parts = []
    for number in range(24):
        age = 140 if number < 14 else 8 + (20 * (number - 14)) // 9
        own = days[-age - 7 :]
        rising = 1 - 0.7 * np.exp(-np.arange(age + 7) / 15)
        size = 40 + 60 * (number % 5)
        part = series(f"s{number:02d}", own, size * rising * WEEK[own.day_of_week], 0.1, 4)
        parts.append(part.assign(scored=number >= 14))
    return invented(pd.concat(parts, ignore_index=True), 7, 1, 1)


def stock_out(quick: bool) -> Task:
    """Return sales that were zero for two weeks, until a week before the cutoff."""
    days = pd.date_range("2024-01-01", periods=180)
    parts = []
    for number in range(10):
        part = series(f"s{number}", days, (40 + 8 * number) * WEEK[days.day_of_week], 0.1, 5)
        out = slice(len(days) - 14 - 7 - 14, len(days) - 14 - 7)
        part.iloc[out, part.columns.get_loc("y")] = 0.0
        parts.append(part)
    return invented(pd.concat(parts, ignore_index=True), 14, 1, 1)


def level_shift(quick: bool) -> Task:
    """Return levels that rose or fell by a third, one to three weeks before the cutoff."""
    days = pd.date_range("2024-01-01", periods=180)
    parts = []
    for number in range(12):
        after = np.arange(len(days)) >= len(days) - 7 - (7 + 14 * number // 11)
        mean = (60 + 10 * number) * np.where(after, (2 / 3, 4 / 3)[number % 2], 1.0)
        parts.append(series(f"s{number:02d}", days, mean, 0.05, 6))
    return invented(pd.concat(parts, ignore_index=True), 7, 1, 1)


def earnings(quick: bool) -> Task:
    """Return prices whose moves are four times as wide on days of earnings, one day ahead."""
    random, rows, every = np.random.default_rng(7), 700, 21
    days = pd.bdate_range("2021-01-01", periods=rows)
    parts = []
    for number in range(8):
        event = np.arange(rows) % every == 2 * number
        deviation = np.where(event, 0.04, 0.01)
        price = np.log(100) + np.cumsum(deviation * random.normal(size=rows))
        latest = np.concatenate([[np.nan], price[:-1]])
        own = {"unique_id": f"s{number}", "ds": days, "close": np.exp(price)}
        parts.append(pd.DataFrame(own | {"mean": latest, "deviation": deviation, "scored": event}))
    frame = pd.concat(parts, ignore_index=True)
    listed = frame[frame["scored"]]
    panel = fc.load_panel(frame[["unique_id", "ds", "close"]])
    truth = true_quantiles(listed, np.exp)
    return Task(panel.with_future(listed[["unique_id", "ds"]]), 5, 1, 126, rivals=truth)


SETS: dict[str, Callable[[bool], Task]] = {
    "promotions": promotions,
    "closed hours": closed_hours,
    "closed days": closed_days,
    "first weeks": first_weeks,
    "stock-out": stock_out,
    "earnings days": earnings,
    "level shift": level_shift,
    "NN3": lambda quick: small("nn3", 18, 12, quick),
    "NN5": lambda quick: small("nn5", 56, 7, quick),
    "NN5 with dates": lambda quick: small("nn5", 56, 7, quick, "1996-03-18"),
    "car parts": lambda quick: small("carparts", 12, 12, quick),
    "M1 yearly": lambda quick: m1("YEARLY", 6, 1, quick),
    "M1 quarterly": lambda quick: m1("QUARTERLY", 8, 4, quick),
    "M1 monthly": lambda quick: m1("MONTHLY", 18, 12, quick),
    "M4 weekly": lambda quick: m4("weekly", 13, 1, quick),
    "M4 hourly": lambda quick: m4("hourly", 48, 24, quick),
    **{
        name: lambda quick, name=name: real(name, quick)
        for name in (
            "tourism_au", "fuel_es", "bdg2_hourly", "wiki_daily", "bike_hourly", "taxi_30min",
            "classic_monthly",
        )
    },
    **{
        f"stocks {year}": lambda quick, year=year: stocks(year, quick)
        for year in (2008, 2014, 2016, 2017)
    },
}  # fmt: skip
INVENTED = list(SETS)[:7]
QUICK = ("promotions", "first weeks", "level shift")
QUICK_REAL = ("NN3", "car parts", "M1 quarterly", "fuel_es", "wiki_daily", "stocks 2016")


def measured(name: str, size: str) -> dict[str, object]:
    """Score a set, in a process of its own."""
    warnings.simplefilter("ignore")
    os.environ["FORECASTER_CACHE"] = "off"  # so that each run compiles
    task = SETS[name](size == "quick")
    began = time.process_time()
    frame = fc.cross_validation(
        task.panel, fc.Config(horizon=task.horizon), task.n_windows, task.step_size,
        refit=task.refit, level=LEVELS, ends="common",
    )  # fmt: skip
    cost = {"seconds": round(time.process_time() - began, 1)}
    # getrusage of a new process includes its parent's memory.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    cost["memory"] = round(int(peak) / 1024)
    return {"set": name, "size": size, **scored(frame, task), **cost}


def scored(frame: pd.DataFrame, task: Task) -> dict[str, object]:
    """Return the scores of a cross-validation, means over series."""
    if task.rivals is not None:
        keys = [key for key in ("unique_id", "ds", "cutoff") if key in task.rivals]
        frame = frame.merge(task.rivals, on=keys, validate="many_to_one")
    table = fc.evaluate(frame).set_index("unique_id")
    own = table[table["model"] == "LSTM"]
    # Percent of the price; elsewhere the change over a season that MASE is relative to.
    change = changes(task, frame["cutoff"].min()).reindex(own.index)
    unit = change if task.panel.target == "y" else own["size"] / 100
    thirds = table[["pinball-0.1", "pinball-0.5", "pinball-0.9"]].mean(axis=1, skipna=False)
    losses = (thirds / unit.reindex(table.index)).groupby(table["model"].to_numpy()).mean()
    rivals = losses.drop(["LSTM", "Naive"]).dropna()
    best = rivals.idxmin() if len(rivals) else ""
    return {
        "series": int(unit.notna().sum()),
        "forecasts": len(frame),
        "crps": round(float((2 * own[PERCENTS].mean(axis=1) / unit).mean()), 5),
        "mase": round(float((own["mae"] / change).mean()), 4),
        "quantile_loss": round(float(losses["LSTM"]), 5),
        "loss_1": round(float((own["pinball-0.01"] / unit).mean()), 5),
        **{name: round(float(own[name.replace("_", "-")].mean()), 4) for name in SHARES},
        "rival": best,
        "of_rival": round(float(losses["LSTM"] / rivals[best]), 4) if best else np.nan,
    }


def changes(task: Task, cutoff: object) -> pd.Series:
    """Return the mean absolute change over a season up to a cutoff, of series that changed.

    That of :func:`forecaster.evaluate` cannot be had where a forecast has no error.
    """
    known, out = task.panel.times <= np.asarray(cutoff, task.panel.times.dtype), {}
    for row, name in enumerate(task.panel.ids):
        y = np.where(task.panel.mask[row], task.panel.channel(task.panel.target)[row], np.nan)[
            known
        ]
        moved = np.abs(y[task.season :] - y[: -task.season])  # also across rows that are missing
        out[name] = moved[np.isfinite(moved)]
    return pd.Series({name: part.mean() for name, part in out.items() if part.any()})


def difference(last: dict[str, object] | None, row: dict[str, object]) -> str:
    """Return a line about a row: its measures, and how they changed since the last table."""
    parts = [f"{row['set']} ({row['size']}, {row['series']} series, {row['seconds']} s)"]
    for name in [*LOSSES, *SHARES]:
        new = float(str(row[name]))
        parts.append(f"{name} {new:.4g}")
        if last is not None:
            old = float(str(last[name]))
            points = name in SHARES
            change = f"{100 * (new - old):+.2f}" if points else f"{100 * (new / old - 1):+.2f} %"
            parts[-1] += f" ({change})"
    if row["rival"]:
        parts.append(f"quantile loss, {row['rival']} = 1: {row['of_rival']}")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="SET", choices=SETS, help=", ".join(SETS))
    parser.add_argument("--quick", action="store_true", help="five minutes: fewer and smaller sets")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    with_data = "FORECASTER_TEST_DATA" in os.environ
    names = list(SETS) if with_data else INVENTED
    if options.quick:
        names = [*QUICK, *(QUICK_REAL if with_data else ())]
    size = "quick" if options.quick else "full"
    rows: dict[tuple[str, str], dict] = {}
    if options.output.exists():
        kept = pd.read_csv(options.output).to_dict("records")
        rows = {(str(row["size"]), str(row["set"])): row for row in kept}
    context = multiprocessing.get_context("spawn")  # JAX's threads forbid a fork
    for name in options.only or names:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            row = pool.submit(measured, name, size).result()
        print(difference(rows.get((size, name)), row), flush=True)
        rows[size, name] = row
        order = [(one, each) for one in ("full", "quick") for each in SETS if (one, each) in rows]
        pd.DataFrame([rows[key] for key in order]).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
