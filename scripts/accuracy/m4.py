"""Score M4's hourly and weekly series as the competition did, at their latest horizons.

This is a part of ``accuracy.py``. The last rows of the training files are withheld, 48 hours and 13
weeks: origin 0 is one horizon before a series' end, origin 1 two horizons. The horizon is the only
setting of our networks. ETS and Theta forecast some of the series; rows of ``AutoETS`` and
``AutoTheta`` were measured with the library statsforecast. OWA is the mean of sMAPE and MASE, each
relative to Naive2, the last value of the deseasonalised series (Makridakis, Spiliotis &
Assimakopoulos 2020, International Journal of Forecasting 36). A series without a forecast counts as
Naive2.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.evaluation import BacktestOptions, evaluate_to_folder

SIMPLE, STATISTICAL = ("naive", "seasonal_naive"), ("naive", "seasonal_naive", "ets", "theta")


class Kind(NamedTuple):
    """A kind of series: the horizon, and the number of steps in a season for MASE."""

    horizon: int
    season: int


KINDS = {"hourly": Kind(48, 24), "weekly": Kind(13, 1)}


def m4(
    config: fc.Config, *, origins: int = 2, every: int = 1, rivals: tuple[str, ...] = SIMPLE
) -> Iterator[dict[str, object]]:
    """Yield a row per kind, origin and model, for every ``every``-th series."""
    for kind, (horizon, season) in KINDS.items():
        frame = pd.read_parquet(
            Path(os.environ["FORECASTER_TEST_DATA"]) / f"m4_{kind}_train.parquet"
        ).set_axis(["unique_id", "ds", "y"], axis=1)
        # As text, because unused categories would come back as empty series.
        frame["unique_id"] = frame["unique_id"].astype(str)
        frame = frame[frame["unique_id"].isin(frame["unique_id"].unique()[::every])]
        for origin in range(origins):
            back = frame.groupby("unique_id").cumcount(ascending=False)
            known = frame[back >= origin * horizon]
            made = forecasts(known, fc.Config(horizon=horizon, epochs=config.epochs), rivals)
            series = {
                str(name): part.to_numpy(float) for name, part in known.groupby("unique_id")["y"]
            }
            for row in scored(made, series, horizon, season):
                panel = kind if every == 1 else f"{kind}, one in {every}"
                yield {"panel": panel, "origin": origin, **row}


def forecasts(known: pd.DataFrame, config: fc.Config, rivals: tuple[str, ...]) -> pd.DataFrame:
    """Return all models' forecasts of the last horizon of each series."""
    with tempfile.TemporaryDirectory() as folder:
        options = BacktestOptions(1, baselines=rivals)
        result = Path(folder) / "m4"
        evaluate_to_folder(result, fc.load_panel(known), config, options)
        return pd.read_parquet(result / "forecasts.parquet")


def scored(
    made: pd.DataFrame, series: Mapping[str, np.ndarray], horizon: int, season: int
) -> Iterator[dict[str, object]]:
    """Yield a row per model, from its forecasts and the series with the withheld rows."""
    of_series = dict(list(made.groupby("unique_id")))
    models = [column.removesuffix("-lo-80") for column in made if column.endswith("-lo-80")]
    errors = {model: [] for model in ("Naive2", *models)}
    for name, y in series.items():
        past, came = y[:-horizon], y[-horizon:]
        simple = naive2(past, horizon, season)
        errors["Naive2"].append(both_errors(past, came, simple, season))
        for model in models:
            one = of_series[name][model].to_numpy() if name in of_series else simple
            one = simple if np.isnan(one).any() else one
            errors[model].append(both_errors(past, came, one, season))
    unit = np.mean(errors["Naive2"], axis=0)
    for model, pairs in errors.items():
        smape, mase = np.mean(pairs, axis=0)
        row = {"model": model, "smape": smape, "mase": mase}
        row["owa"] = ((smape, mase) / unit).mean()
        if model in models:
            held = made["y"].between(made[f"{model}-lo-80"], made[f"{model}-hi-80"])
            row["inside_80"] = held[made[model].notna()].mean()
        yield {**row, "series": len(series), "missing": len(series) - len(of_series)}


def both_errors(
    past: np.ndarray, came: np.ndarray, forecast: np.ndarray, season: int
) -> tuple[float, float]:
    """Return sMAPE in percent, and MASE."""
    missed = np.abs(came - forecast)
    scale = np.abs(past[season:] - past[:-season]).mean()
    smape = 200 * (missed / (np.abs(came) + np.abs(forecast))).mean()
    return float(smape), float(missed.mean() / scale)


def naive2(past: np.ndarray, horizon: int, season: int) -> np.ndarray:
    """Forecast the last value, with the season of a classical decomposition if there is one."""
    if season == 1 or not is_seasonal(past, season):
        return np.full(horizon, past[-1])
    smooth = pd.Series(past).rolling(season).mean()
    if season % 2 == 0:
        smooth = smooth.rolling(2).mean()
    ratio = past / smooth.shift(-(season // 2)).to_numpy()
    factors = np.array([np.nanmean(ratio[part::season]) for part in range(season)])
    factors /= factors.mean()
    ahead = (len(past) + np.arange(horizon)) % season
    return past[-1] / factors[(len(past) - 1) % season] * factors[ahead]


def is_seasonal(past: np.ndarray, season: int) -> bool:
    """Return whether the autocorrelation at the lag of a season is significant at 10 %."""
    if len(past) < 3 * season:
        return False
    x = past - past.mean()
    lags = np.array([(x[lag:] * x[: len(x) - lag]).sum() for lag in range(season + 1)])
    lags /= lags[0]
    limit = 1.645 * np.sqrt((1 + 2 * (lags[1:season] ** 2).sum()) / len(x))
    return bool(abs(lags[season]) > limit)
