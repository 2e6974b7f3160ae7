"""Measure how good forecasts are: stocks beside other methods, baskets, simulated markets, M4.

    python scripts/accuracy/accuracy.py [stocks statistical rivals month market baskets simulated
        m4] [--every 4] [--years 2011 2013 2015] [--output DIR] [--quick]

``FORECASTER_TEST_DATA`` names the folder with ``us_stocks_2000_2015.parquet`` and M4's training
files; the other methods need ``pip install -e ".[garch]"``. Each part writes a CSV beside this
script. Nothing is refitted within a year. Settings are the defaults, but for the networks without
the common volatility (``LSTM alone``) and the independent ones:

- ``stocks.csv``: every fourth stock, trained on the ten years before (data begin in 2000), then
  forecast on each day of a year. A row per year, model and days ahead: ``crps``, the mean over
  stocks of its CRPS (19 quantiles) relative to that of GARCH(1,1)-t; ``better``, the share of
  stocks whose CRPS is lower than with GARCH(1,1)-t; ``driftless``, ``crps`` with every median moved
  to the latest price; ``mae``, the absolute error relative to that of the latest price; the shares
  of outcomes inside the 80 and 95 % bands, below the 5 % and above the 95 % quantile; and the share
  inside the 80 % band on the tenth of days with the widest bands (``calm``: with the narrowest)
- ``statistical.csv``: the same with ETS and Theta, on a tenth of these stocks, every fifth day;
  rows of ``AutoETS`` and ``AutoTheta`` were measured with the library statsforecast
- ``rivals.csv``: the default beside the baselines that forecast volatilities, including baselines
  with our inputs. A row per year, model and days ahead: ``crps``, ``better`` as above; the scores
  of log returns minus those of GARCH(1,1)-t, as means over stocks
- ``month.csv``: as ``stocks.csv``, 21 days ahead, for every second of these stocks
- ``market.csv``: CRPS of the default with a declared index relative to that without one, for sets
  of five of these stocks and for all of them; ``better``: the share of stocks whose CRPS falls. The
  index is the mean return of the other stocks, none of which is forecast
- ``baskets.csv``: how often the five-day return of equally weighted baskets lies inside the 80 %
  band of sample paths, for a basket of all these stocks and for a hundred random baskets of ten.
  Also the energy and the variogram score of the joint five-day log returns of all stocks, relative
  to the scores of the same paths drawn for each stock by itself (``energy``, ``variogram``)
- ``simulated.csv``: CRPS relative to that of the true distribution, 200 series each: random walks
  one and five steps ahead, GARCH(1,1) with Student-t errors one step ahead, and a market whose
  variance is that of one common factor, with the default and with its networks alone
- ``m4.csv``: M4's hourly and weekly series, and every twentieth with ETS and Theta, see ``m4.py``
"""

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from m4 import STATISTICAL as STATISTICAL_M4
from m4 import m4
from scipy import stats
from scipy.spatial import distance

import forecaster as fc
from forecaster.evaluation import (
    RETURN_SCORES,
    BacktestOptions,
    evaluate_to_folder,
)

HERE = Path(__file__).parent
YEARS = (2011, 2013, 2015)
ALL_YEARS = (2002, 2008, 2009, 2011, 2012, 2013, 2015)  # of stocks.csv
SHARES = np.arange(1, 20) / 20
LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90)
VOLATILITIES = ("naive", "ewma", "har", "garch", "gjr", "log_har", "range_garch")
RIVALS = ("naive", "empirical", "ewma", "har", "garch", "gjr")
DEFAULT = "LSTM pooled"
OURS = {
    DEFAULT: {},
    "LSTM alone": {"common_volatility": False},
    "LSTM independent": {"start": "independent"},
}
STATISTICAL = ("naive", "garch", "ets", "theta")
MOST_DAYS = 400  # of a year
PARTS = ("stocks", "statistical", "rivals", "month", "market", "baskets", "simulated", "m4")
FIVES = {
    0: (2009, 2011, 2013, 2015),
    1: (2012,),
    2: (2009, 2011, 2013, 2015),
    3: (2010, 2012, 2014),
}
"""Years of each set of five stocks in ``market.csv``."""


def main() -> None:
    options = arguments()
    parts = {
        "stocks": stocks,
        "statistical": statistical,
        "rivals": rivals,
        "month": month,
        "market": market,
        "baskets": baskets,
        "simulated": simulated,
        "m4": competition,
    }
    for name in options.parts or PARTS:
        table = pd.DataFrame(parts[name](options))
        print(table.round(4).to_string(index=False), flush=True)
        table.to_csv(options.output / f"{name}.csv", index=False, float_format="%.5f")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--every", type=int, default=4, help="of the stocks, by name")
    parser.add_argument(
        "--years",
        type=int,
        nargs="+",
        choices=ALL_YEARS,
        help="by default 2002 to 2015 for stocks, and 2011, 2013 and 2015 for the others",
    )
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the tables")
    parser.add_argument("--quick", action="store_true", help="a try; writes to a temporary folder")
    options = parser.parse_args()
    options.output = Path(tempfile.mkdtemp()) if options.quick else options.output
    global MOST_DAYS
    MOST_DAYS = 30 if options.quick else MOST_DAYS
    options.years = [2011] if options.quick else options.years
    options.config = fc.Config(epochs=1, members=1) if options.quick else fc.Config()
    options.series = 5 if options.quick else 200
    if options.quick:
        options.every = 100
    return options


def stocks(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows, year by year, of the default, of its networks alone, and of independent ones."""
    for year in options.years or ALL_YEARS:
        panel, days = prices(year, options.every)
        for kind, settings in OURS.items():
            config = dataclasses.replace(options.config, **settings)
            names = RIVALS if kind == DEFAULT else ("garch",)
            for row in compared(panel, config, BacktestOptions(days, baselines=names)):
                if kind == DEFAULT or row["model"] == "LSTM":
                    row["model"] = kind if row["model"] == "LSTM" else row["model"]
                    yield {"year": year, **row}


def statistical(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows, year by year, of the default, ETS and Theta."""
    for year in options.years or YEARS:
        panel, days = prices(year, 10 * options.every)
        step = 100 if options.quick else 5
        backtest = BacktestOptions(max(1, days // step), step, baselines=STATISTICAL)
        for row in compared(panel, options.config, backtest):
            yield {"year": year, **row}


def rivals(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows, year by year, of the default and of baselines that forecast volatilities."""
    with tempfile.TemporaryDirectory() as folder:
        for year in options.years or YEARS:
            panel, days = prices(year, options.every)
            backtest = BacktestOptions(days, baselines=VOLATILITIES)
            evaluation = evaluate_to_folder(
                Path(folder) / str(year), panel, options.config, backtest
            )
            scores = evaluation.scores.set_index(["horizon", "model", "unique_id"]).sort_index()
            for horizon in (1, 5):
                garch = scores.loc[horizon, "GARCH"]
                for model in evaluation.summary.models:
                    own = scores.loc[horizon, model]
                    ratio = (own["crps"] / garch["crps"]).dropna()
                    row = {"year": year, "stocks": len(ratio), "model": model, "ahead": horizon}
                    row |= {"crps": ratio.mean(), "better": (ratio < 1).mean()}
                    yield row | {n: (own[n] - garch[n]).mean() for n in RETURN_SCORES}


def month(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows, year by year, of the default and of GARCH(1,1)-t, 21 days ahead."""
    config = dataclasses.replace(options.config, horizon=21)
    for year in options.years or (2009, *YEARS):
        panel, days = prices(year, 2 * options.every)
        for row in compared(panel, config, BacktestOptions(days, baselines=("garch",)), (21,)):
            yield {"year": year, **row}


def market(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows, year by year, of sets of five stocks and of all, with an index and without."""
    for number, years in FIVES.items():
        for year in options.years or years:
            panel, index, days = beside_index(year, options.every)
            names = panel.ids[number :: max(len(panel.ids) // 5, 1)][:5]
            yield from helped(
                panel.only(names), index, days, {"year": year, "set": number}, options
            )
    for year in options.years or (2009, *YEARS):
        panel, index, days = beside_index(year, options.every)
        yield from helped(panel, index, days, {"year": year, "set": "all"}, options)


def helped(
    panel: fc.Panel,
    index: fc.Panel,
    days: int,
    facts: dict[str, object],
    options: argparse.Namespace,
) -> Iterator[dict[str, object]]:
    """Yield a row per horizon of the CRPS beside an index, relative to that without one."""
    crps = []
    for each in (panel, dataclasses.replace(panel, market=index)):
        with tempfile.TemporaryDirectory() as folder:
            made = evaluate_to_folder(
                Path(folder) / "r", each, options.config, BacktestOptions(days)
            )
            own = made.scores[made.scores["model"] == "LSTM"]
        crps.append(own.set_index(["horizon", "unique_id"])["crps"])
    ratio = crps[1] / crps[0]
    for horizon in (1, 5):
        of = ratio[horizon].dropna()
        yield {
            **facts,
            "stocks": len(of),
            "ahead": horizon,
            "crps": of.mean(),
            "better": (of < 1).mean(),
        }


def compared(
    panel: fc.Panel,
    config: fc.Config,
    backtest: BacktestOptions,
    horizons: tuple[int, ...] = (1, 5),
) -> Iterator[dict[str, object]]:
    """Yield the rows of all models."""
    with tempfile.TemporaryDirectory() as folder:
        evaluate_to_folder(Path(folder) / "result", panel, config, backtest)
        for row in scored(Path(folder) / "result", horizons):
            yield {"stocks": len(panel.ids), **row}


def prices(year: int, every: int) -> tuple[fc.Panel, int]:
    """Return the prices of ten years and the next year, and the number of days in the next year."""
    table = bars(year)
    names = sorted(table["ticker"].unique())[::every]
    panel = fc.load_panel(table[table["ticker"].isin(names)])
    days = int((panel.times >= np.datetime64(f"{year}-01-01")).sum())
    return panel, min(days, MOST_DAYS)


def beside_index(year: int, every: int) -> tuple[fc.Panel, fc.Panel, int]:
    """Return what :func:`prices` returns, and between them the mean return of the other stocks."""
    table = bars(year)
    panel, days = prices(year, every)
    close = table.pivot_table(index="date", columns="ticker", values="adj_close")
    moves = np.log(close.drop(columns=list(panel.ids))).diff().clip(-0.5, 0.5).mean(axis=1)
    level = 100 * np.exp(moves.fillna(0).cumsum())
    index = pd.DataFrame({"ticker": "INDEX", "date": level.index, "close": level.to_numpy()})
    index["adj_close"], index["volume"] = index["close"], 0.0
    index[["open", "high", "low"]] = np.nan
    return panel, fc.load_panel(index), days


def bars(year: int) -> pd.DataFrame:
    """Return the bars of ten years and the next year."""
    table = pd.read_parquet(
        Path(os.environ["FORECASTER_TEST_DATA"]) / "us_stocks_2000_2015.parquet"
    )
    date = pd.to_datetime(table["date"])
    return table[(date >= f"{year - 10}-01-01") & (date < f"{year + 1}-01-01")]


def scored(folder: Path, horizons: tuple[int, ...] = (1, 5)) -> Iterator[dict[str, object]]:
    scores = pd.read_parquet(folder / "scores.parquet")
    frame = pd.read_parquet(folder / "forecasts.parquet")
    ahead = frame.groupby(["unique_id", "cutoff"]).cumcount() + 1
    crps, driftless, mae = (
        scores.pivot_table(index="unique_id", columns=["model", "horizon"], values=name)
        for name in ("crps", "crps_driftless", "mae")
    )
    for model in scores["model"].unique():
        for horizon in horizons:
            ratio = (crps[model][horizon] / crps["GARCH"][horizon]).dropna()
            part = frame[ahead == horizon]
            y, lo, hi = (part[name] for name in ("y", f"{model}-lo-80", f"{model}-hi-80"))
            inside = (y >= lo) & (y <= hi)
            width = (np.log(hi / lo)).groupby(part["cutoff"]).transform("mean").rank(pct=True)
            yield {
                "model": model,
                "ahead": horizon,
                "crps": ratio.mean(),
                "median": ratio.median(),
                "better": (ratio < 1).mean(),
                "driftless": (driftless[model] / driftless["GARCH"])[horizon].mean(),
                "mae": (mae[model] / mae["Naive"])[horizon].mean(),
                "inside_80": inside.mean(),
                "inside_95": y.between(part[f"{model}-lo-95"], part[f"{model}-hi-95"]).mean(),
                "below_5": (y < part[f"{model}-lo-90"]).mean(),
                "above_95": (y > part[f"{model}-hi-90"]).mean(),
                "inside_80_volatile": inside[width > 0.9].mean(),
                "inside_80_calm": inside[width <= 0.1].mean(),
            }


def competition(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows of M4's hourly and weekly series, then of a part of them with ETS and Theta."""
    origins = 1 if options.quick else 2
    yield from m4(options.config, origins=origins, every=100 if options.quick else 1)
    every = 200 if options.quick else 20
    yield from m4(options.config, origins=origins, every=every, rivals=STATISTICAL_M4)


def baskets(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows, year by year: every fifth day, so that no two returns overlap."""
    for year in options.years or YEARS:
        panel, days = prices(year, options.every)
        end, horizon = len(panel.times) - 1, options.config.horizon
        first = end - horizon - (days - 1)
        model = fc.fit(panel.until(panel.times[first]), options.config)
        panel = panel.only([name for name in panel.ids if name in model.ids])
        members = members_of(len(panel.ids))
        random = np.random.default_rng(0)
        hits, joint = [], []
        for at in range(first, end - horizon + 1, horizon)[: 3 if options.quick else None]:
            drawn, came = returns_from(model, panel, at)
            joint.append(joint_scores(np.log1p(drawn), np.log1p(came), random))
            hits.append(bounds_and_outcomes(drawn, came, members))
        low, high, came = np.array(hits).transpose(1, 0, 2)
        inside = (came >= low) & (came <= high)
        (energy, alone), (variogram, alone_too) = np.mean(joint, axis=0)
        yield {
            "year": year,
            "stocks": len(panel.ids),
            "periods": len(hits),
            "inside_80_all": inside[:, 0].mean(),
            "inside_80_of_ten": inside[:, 1:].mean(),
            "below_10_of_ten": (came < low)[:, 1:].mean(),
            "energy": energy / alone,
            "variogram": variogram / alone_too,
        }


def members_of(stocks: int) -> list[np.ndarray]:
    """Return the stocks in each basket: all, then a hundred times ten."""
    random = np.random.default_rng(0)
    return [np.arange(stocks)] + [random.permutation(stocks)[:10] for _ in range(100)]


def returns_from(model: fc.Model, panel: fc.Panel, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the returns over the horizon that are drawn at a row, (path, stock), and that came."""
    table = fc.simulate(model, panel.until(panel.times[at]), 1000)
    ends = table.groupby(["unique_id", "sample_id"], sort=False)["LSTM"].last().unstack("unique_id")
    panel = panel.only(list(ends))
    moved = panel.channel(panel.target)
    drawn = ends.to_numpy() / panel.channel("close")[:, at] - 1  # paths are in units of the close
    return drawn, moved[:, at + model.config.horizon] / moved[:, at] - 1


def bounds_and_outcomes(
    drawn: np.ndarray, came: np.ndarray, members: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return the bounds of the 80 % bands of baskets, and the returns of these."""
    usable = [one[one < len(came)] for one in members]
    low, high = np.quantile([drawn[:, one].mean(1) for one in usable], [0.1, 0.9], axis=1)
    return low, high, [came[one].mean() for one in usable]


def joint_scores(
    drawn: np.ndarray, came: np.ndarray, random: np.random.Generator
) -> list[list[float]]:
    """Return energy and variogram score of the paths (path, stock), with and without dependence."""
    known = np.isfinite(came)
    paths, came = drawn[:, known], came[known]
    alone = random.permuted(paths, axis=0)
    scores = (energy_score, variogram_score)
    return [[score(came, paths), score(came, alone)] for score in scores]


def energy_score(actual: np.ndarray, draws: np.ndarray) -> float:
    """Return the energy score of a joint forecast, in its units; lower is better.

    It is the CRPS of several dimensions: the mean distance of the draws from the outcome, less half
    the mean distance between two draws.

    - ``actual`` (dimension,), ``draws`` (draw, dimension): two draws or more

    Gneiting & Raftery (2007), Journal of the American Statistical Association 102.
    """
    return float(np.linalg.norm(draws - actual, axis=1).mean() - distance.pdist(draws).mean() / 2)


def variogram_score(actual: np.ndarray, draws: np.ndarray, power: float = 0.5) -> float:
    """Return the variogram score of a joint forecast; lower is better.

    For each pair of dimensions, the distance of the two outcomes to this ``power`` is compared with
    its mean over the draws; the score is the mean squared difference over all pairs. So it depends
    on the correlations more than the energy score does, and not on a shift common to all
    dimensions.

    - ``actual`` (dimension,), ``draws`` (draw, dimension): two dimensions or more

    Scheuerer & Hamill (2015), Monthly Weather Review 143, with equal weights.
    """
    errors = [
        np.abs(actual[one] - actual[one + 1 :]) ** power
        - (np.abs(draws[:, [one]] - draws[:, one + 1 :]) ** power).mean(0)
        for one in range(len(actual) - 1)
    ]
    return float((np.concatenate(errors) ** 2).mean())


def simulated(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield rows of random walks and GARCH markets: three years to train on, one to forecast."""
    rows, days = 1010, min(250, MOST_DAYS)
    random = np.random.default_rng(0)
    shocks = 0.01 * random.normal(size=(options.series, rows))
    frame, last = validated(shocks, options, days)
    for h in (1, 5):
        part, of = frame[frame["ahead"] == h], last[frame["ahead"] == h]
        true = of[:, None] * np.exp(0.01 * np.sqrt(h) * stats.norm.ppf(SHARES))
        yield {"market": "random walk", "ahead": h, "crps": relative(part, true)}
    unit = stats.t.ppf(SHARES, 6) * np.sqrt(4 / 6)
    yield one_day("GARCH(1,1)-t", *garch(options.series, rows, random), unit, options, days)
    shocks, deviation = common_garch(options.series, rows, random)
    unit = stats.norm.ppf(SHARES)
    yield one_day("common GARCH(1,1)", shocks, deviation, unit, options, days)
    options.config = dataclasses.replace(options.config, common_volatility=False)
    name = "common GARCH(1,1), networks alone"
    yield one_day(name, shocks, deviation, unit, options, days)


def one_day(
    market: str,
    shocks: np.ndarray,
    deviation: np.ndarray,
    unit: np.ndarray,
    options: argparse.Namespace,
    days: int,
) -> dict[str, object]:
    """Return the row of a market, one day ahead; ``unit``: the quantiles of its shocks."""
    frame, last = validated(shocks, options, days)
    part, of = frame[frame["ahead"] == 1], last[frame["ahead"] == 1]
    series = part["unique_id"].str[1:].astype(int).to_numpy()
    known = pd.bdate_range("2010-01-01", periods=shocks.shape[1]).get_indexer(part["ds"])
    true = of[:, None] * np.exp(deviation[series, known][:, None] * unit)
    return {"market": market, "ahead": 1, "crps": relative(part, true)}


def common_garch(
    series: int, rows: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate returns (series, row) whose variance is that of one factor times their own level.

    A third of the variance of each is the factor's move, whose GARCH(1,1) process drives it. Also
    return their conditional deviations.
    """
    level = np.exp(random.normal(0, 0.3, series))
    variance = 0.012**2
    omega = variance * 0.03
    out, deviation = np.empty((2, series, rows))
    for row in range(rows):
        factor = random.normal()
        own = np.sqrt(1 / 3) * factor + np.sqrt(2 / 3) * random.normal(size=series)
        deviation[:, row] = level * np.sqrt(variance)
        out[:, row] = deviation[:, row] * own
        variance = omega + 0.15 * variance * factor**2 + 0.82 * variance
    return out, deviation


def garch(series: int, rows: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Simulate returns (series, row) of GARCH(1,1); return also their conditional deviations."""
    alpha = random.uniform(0.04, 0.12, series)
    beta = 0.98 - alpha
    variance = np.full(series, 0.015**2)
    omega = variance * (1 - alpha - beta)
    out, deviation = np.empty((2, series, rows))
    for row in range(rows):
        deviation[:, row] = np.sqrt(variance)
        out[:, row] = deviation[:, row] * random.standard_t(6, series) * np.sqrt(4 / 6)
        variance = omega + alpha * out[:, row] ** 2 + beta * variance
    return out, deviation


def validated(
    shocks: np.ndarray, options: argparse.Namespace, days: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return forecasts of each of the latest days, and the prices that they were made from."""
    dates = pd.bdate_range("2010-01-01", periods=shocks.shape[1])
    closes = 100 * np.exp(np.cumsum(shocks, axis=1))
    parts = [
        pd.DataFrame({"ticker": f"s{k}", "date": dates, "close": closes[k]})
        for k in range(len(closes))
    ]
    panel = fc.load_panel(pd.concat(parts))
    frame = fc.cross_validation(panel, options.config, days, level=LEVELS)
    frame["ahead"] = frame.groupby(["unique_id", "cutoff"]).cumcount() + 1
    series = frame["unique_id"].str[1:].astype(int).to_numpy()
    return frame, closes[series, dates.get_indexer(frame["cutoff"])]


def relative(part: pd.DataFrame, true: np.ndarray) -> float:
    """Return the mean CRPS relative to that of the true quantiles (forecast, 19)."""
    lower = [f"LSTM-lo-{level}" for level in LEVELS[::-1]]
    ours = part[[*lower, "LSTM", *(f"LSTM-hi-{level}" for level in LEVELS)]].to_numpy()
    y = part["y"].to_numpy()[:, None]

    def crps(quantiles: np.ndarray) -> float:
        return float(np.maximum(SHARES * (y - quantiles), (SHARES - 1) * (y - quantiles)).mean())

    return crps(ours) / crps(true)


if __name__ == "__main__":
    main()
