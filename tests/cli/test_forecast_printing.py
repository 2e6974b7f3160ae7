"""The table of risk of ``predict --paths``, by numbers that can be checked by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.cli.forecasts import print_paths


def test_the_expected_shortfall_is_the_mean_of_the_worst_twentieth_of_the_returns(capsys):
    days = pd.bdate_range("2024-01-01", periods=3)
    prices = pd.DataFrame({"ticker": "A", "date": days, "close": [90.0, 95.0, 50.0]})
    # Of 21 sorted returns, the second is the quantile of 5 %, and the third that of 10 %.
    returns = np.array([-0.5, -0.3, -0.1, *np.zeros(16), 0.1, 0.2])
    paths = pd.DataFrame(
        {"unique_id": "A", "sample_id": range(21), "ds": 1, "LSTM": 100 * (1 + returns)}
    )
    result: Any = SimpleNamespace(
        panel=fc.load_panel(prices), frame=paths, factors={"A": 2.0},  # since split, say
        model=SimpleNamespace(config=fc.Config(horizon=1)),
    )  # fmt: skip
    print_paths(result)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("│"))
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells == ["A", "+0.0%", "-10.0% to +0.0%", "30.0%", "40.0%"]
