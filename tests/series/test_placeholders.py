"""Numbers such as -999 that stand for missing ones are named."""

import re

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.series.findings import Finding, placeholders
from tests.conftest import run

DAYS = pd.date_range("2024-01-01", periods=40)


def frame(**series: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(series, index=DAYS)


def test_a_code_below_all_other_numbers_is_found():
    sales = np.arange(40.0)
    sales[[3, 9]] = -999
    temperatures = np.linspace(-30, 20, 40)
    temperatures[5] = -99  # beside other numbers below zero, it may be one of them
    every = frame(sales=sales, temperatures=temperatures, debt=np.full(40, -99.0), ok=sales.clip(0))
    (found,) = placeholders(fc.load_panel(every))
    assert found == Finding("placeholder", "sales", "-999: 2", 2)
    whole = every.assign(sales=sales.clip(0), debt=1.0)
    assert not list(placeholders(fc.load_panel(whole)))


@pytest.mark.parametrize("sharded", [False, True])
def test_a_fit_names_them_once(tmp_path, sharded):
    sales = np.random.default_rng(1).poisson(9, 40) + 1.0
    many = frame(**{f"s{n}": sales + n for n in range(4)})
    many.loc[DAYS[7], "s2"] = -9999
    said = r"may stand for missing ones, as no other is below zero: 1 series: s2 \(-9999: 1\)"
    if not sharded:
        with pytest.warns(ForecasterWarning, match=said):
            fc.fit(many, fc.Config(horizon=2, model="theta"))
    many.to_csv(tmp_path / "m.csv", index_label="date")
    options = ("--memory", "1GB") if sharded else ()
    result = run(
        "fit", "--source", f"files:{tmp_path / 'm.csv'}", "--home", tmp_path, "--model", "theta",
        "--horizon", 2, *options,
    )  # fmt: skip
    assert result.exit_code == 0
    assert result.stderr.count("may stand for missing ones") == 1
    (saved,) = (tmp_path / "models").iterdir()
    (stored,) = fc.load(saved).provenance["findings"]
    assert re.search(said, stored)
