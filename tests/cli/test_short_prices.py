"""Prices that are too short for networks, from a file to forecasts, also in shards."""

import pandas as pd
import pytest

import forecaster as fc
from forecaster.files import Home
from tests.conftest import prices, run

pytestmark = pytest.mark.usefixtures("quick_collections")
ROWS = {"AAA": 25, "BBB": 3, "CCC": 1, "DDD": 33, "EEE": 12}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("short") / "p.csv"
    pd.concat(prices(name, rows) for name, rows in ROWS.items()).to_csv(path, index=False)
    return f"files:{path}"


def test_shards_of_short_prices_are_the_fit_in_one_piece(source, tmp_path, monkeypatch):
    assert run("fit", "--source", source, "--home", tmp_path / "one").exit_code == 0
    monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", 2)
    done = run("fit", "--source", source, "--home", tmp_path / "parts")
    assert done.exit_code == 0 and "Shards" in done.stdout
    assert "On the rows held back" in done.stdout
    assert done.stderr.count("Each is forecast by its last value") == 1
    one, parts = (fc.load(Home(tmp_path / name).latest_run()) for name in ("one", "parts"))
    assert one.ids == parts.ids and one.config == parts.config
    assert one.transform.to_dict() == parts.transform.to_dict()
    pd.testing.assert_frame_equal(one.report, parts.report, check_exact=True)
