"""Stored prices as tables for others."""

import functools

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import UsageError
from forecaster.files import Home
from forecaster.ingest import ingest, open_source
from forecaster.ingest.store.store import export_prices
from tests.messages import refuses


@pytest.fixture
def home(tmp_path):
    ingest(Home(tmp_path / "home"), open_source("simulated"), ["AAPL", "KO"])
    return Home(tmp_path / "home")


READ = {"csv": functools.partial(pd.read_csv, parse_dates=["ds"]), "parquet": pd.read_parquet}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_stored_comes_out(home, tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    rows = export_prices(home, path)
    table = READ[ending](path)
    assert len(table) == rows and list(dict.fromkeys(table["unique_id"])) == ["AAPL", "KO"]
    frames = [item.frame for item in open_source("simulated").fetch(["AAPL", "KO"])]
    expected = pd.concat([frame for frame in frames if frame is not None], ignore_index=True)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    # And in again.
    again = ingest(Home(tmp_path / "again"), open_source(f"files:{path}"), None)
    pd.testing.assert_frame_equal(again.store.read(["AAPL", "KO"]), expected, check_dtype=False)


def test_errors_say_what_to_do(home, tmp_path):
    with refuses(UsageError):
        export_prices(home, tmp_path / "out.xyz")
    with refuses(UsageError):
        export_prices(home, tmp_path / "out.csv", ["NOPE"])
    with refuses(UsageError):
        export_prices(Home(tmp_path / "nowhere"), tmp_path / "out.csv")
    (tmp_path / "there.csv").write_text("mine")
    with refuses(UsageError):
        export_prices(home, tmp_path / "there.csv")
    assert (tmp_path / "there.csv").read_text() == "mine"
    export_prices(home, tmp_path / "there.csv", ["KO"], overwrite=True)
    assert (tmp_path / "there.csv").read_text().startswith("unique_id,ds,")


def test_the_first_row_decides_whether_a_series_is_adjusted(tmp_path):
    days = pd.bdate_range("2024-01-01", periods=4)
    bars = {"open": 10.0, "high": 12.0, "low": 9.0, "close": 11.0, "volume": 5}
    adjusted = {"WITH": [5.5, None, 5.5, 5.5], "LATER": [None, 5.5, 5.5, 5.5], "NONE": [None] * 4}
    parts = [
        pd.DataFrame({"ticker": name, "date": days, **bars, "adj_close": values})
        for name, values in adjusted.items()
    ]
    pd.concat(parts).to_csv(tmp_path / "in.csv", index=False)
    ingest(Home(tmp_path / "home"), open_source(f"files:{tmp_path / 'in.csv'}"), None)
    export_prices(Home(tmp_path / "home"), tmp_path / "out.csv", adjusted=True)
    table = pd.read_csv(tmp_path / "out.csv")
    assert "adj_close" not in table
    close = {str(name): part["close"].tolist() for name, part in table.groupby("unique_id")}
    assert close["LATER"] == close["NONE"] == [11.0] * 4
    assert close["WITH"][0] == close["WITH"][2] == close["WITH"][3] == 5.5
    assert np.isnan(close["WITH"][1])  # no jump to 11 and back
    assert table["high"][table["unique_id"] == "WITH"].max() == 6.0
