"""Test two networks against each other on the same cutoffs."""

import forecaster as fc
from forecaster.evaluation import LEVELS
from forecaster.evaluation.scores.tables import Tables, diebold_mariano, false_discovery

panel = fc.load_panel("simulated", tickers=["AAPL", "IBM", "KO", "MSFT", "XOM"], start="2021-01-01")


def forecasts(seed=0, **settings):
    config = fc.Config(horizon=5, **settings)
    return fc.cross_validation(panel, config, n_windows=120, level=LEVELS, seed=seed)


large = forecasts(hidden=32).rename(columns=lambda name: name.replace("LSTM", "Large"))
large = large.drop(columns=["y", "Naive", "forecast_by"], errors="ignore")
frame = forecasts(hidden=16).merge(large, on=["unique_id", "ds", "cutoff"], validate="1:1")
scores = fc.evaluate(frame)  # a row per series and network

tables = Tables.of_batch(frame, panel, "LSTM", step_size=1)
tests = tables.tests.query("test == 'crps_against' and model == 'Large' and horizon == 0")
tests = tests.assign(p_adjusted=false_discovery(tests["p_value"]))  # a row per series

sums = tables.daily.set_index(["cutoff", "model"])
daily = sums["crps"].div(sums["series"]).unstack()  # a row per cutoff, a column per network
whole = diebold_mariano(daily["LSTM"], daily["Large"], lags=4)  # horizon - 1
