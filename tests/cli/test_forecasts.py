"""The tables of ``predict``: of sample paths, and by numbers that can be checked by hand."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.cli.forecasts import print_paths
from forecaster.files import Home
from forecaster.ingest.store.store import Store
from tests.conftest import prices, run

ODD = os.fsdecode(b"k\xf6ln")
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def folder(tmp_path):
    try:
        (tmp_path / ODD).mkdir()
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    return tmp_path / ODD


def test_prices_from_such_files_are_stored_and_come_out(folder):
    table = prices("AAA", 60)
    for ending, write in (("csv", table.to_csv), ("parquet", table.to_parquet)):
        written = io.BytesIO()  # pandas 2 opens a file again by its name
        write(written, index=False)
        (folder / f"{ODD}.{ending}").write_bytes(written.getbuffer())
    (folder / "each").mkdir()
    with open(os.fsencode(folder / "each" / f"{ODD}.csv"), "wb") as file:
        table.drop(columns="ticker").to_csv(file, index=False)
    for source in (f"{ODD}.csv", f"{ODD}.parquet", "each"):
        stored = run("ingest", "--source", f"files:{folder / source}", "--home", folder / "home")
        assert stored.exit_code == 0 and "k\\udcf6ln" in stored.output, stored.output
        for ending in ("csv", "parquet"):
            output = folder / f"{source}.{ending}"
            done = run("export", "--source", f"files:{folder / source}", "--home", folder / "home",
                       "--output", output)  # fmt: skip
            assert done.exit_code == 0, done.output
            with open(os.fsencode(output), "rb") as file:
                out = pd.read_csv(file) if ending == "csv" else pd.read_parquet(file)
            assert len(out) == 60
            assert set(out["unique_id"]) == {"k\\xf6ln" if source == "each" else "AAA"}
    assert run("status", "--verify", "--home", folder / "home").exit_code == 0


def test_forecasts_from_a_home_and_into_a_file_of_such_names(home, folder):
    shutil.copytree(home, folder / "home", ignore=shutil.ignore_patterns("cache"))
    for name in ("out.parquet", "out.csv", "out.json"):
        done = run("predict", "--all", "--home", folder / "home", "--output", folder / name)
        assert done.exit_code == 0, done.output
    with open(os.fsencode(folder / "out.parquet"), "rb") as file:
        assert set(pd.read_parquet(file)["unique_id"]) >= {"AAPL", "KO"}


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX locale")
def test_stores_are_the_same_in_the_plain_locale(tmp_path):
    """In that locale names with umlauts are not valid text."""
    home, source = tmp_path / "hömé", tmp_path / "kurs ö.parquet"
    prices("AAA", 60).to_parquet(source)
    assert run("ingest", "--source", f"files:{source}", "--home", home).exit_code == 0
    for words in (
        ["ingest", "--source", f"files:{source}"],
        ["export", "--source", f"files:{source}", "--output", tmp_path / "ö.parquet"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "forecaster", *map(str, words), "--home", str(home)],
            cwd=Path(__file__).parents[2], capture_output=True, env=os.environ | PLAIN, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    stores = list(Store.all_of(Home(home)))
    assert [store.source for store in stores] == [f"files:{source}"]
    assert len(pd.read_parquet(tmp_path / "ö.parquet")) == 60


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
