"""Small simulated data and a model fitted on them once, shared by the tests."""

import os
from pathlib import Path

import pandas as pd
import pytest

import forecaster as fc
from forecaster import swarm

TICKERS = ["AAPL", "MSFT", "KO", "IBM", "XOM"]


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory):
    """Programs compiled by one test serve the others, and commands in processes of their own."""
    folder = tmp_path_factory.getbasetemp() / "compiled"
    if "PYTEST_XDIST_WORKER" in os.environ:  # shared by all workers
        folder = folder.parent.parent / "compiled"
    swarm.keep_compiled(folder)


@pytest.fixture(scope="session")
def panel() -> fc.Panel:
    """Five tickers of about 750 simulated sessions."""
    return fc.load_panel("simulated", TICKERS, start="2023-01-01")


@pytest.fixture(scope="session")
def config() -> fc.Config:
    """Small enough to train in a second."""
    return fc.Config(
        hidden=4, lookback=30, burn_in=10, horizon=3, validation=100, epochs=4, patience=4,
        learning_rate=1e-2,
    )  # fmt: skip


@pytest.fixture(scope="session")
def model(panel, config) -> fc.Model:
    return fc.fit(panel, config, seed=1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; tests that need it are skipped without."""
    folder = os.environ.get("FORECASTER_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FORECASTER_TEST_DATA names no folder with real data")
    return Path(folder)


def prices(
    name: str = "AAA", rows: int = 400, start: str = "2020-01-01", **columns
) -> pd.DataFrame:
    """A plain table of one ticker in the prices layout, for tests of readers."""
    import numpy as np

    random = np.random.default_rng([len(name), *name.encode(), rows])
    close = 100 * np.exp(np.cumsum(random.normal(0, 0.01, rows)))
    table = pd.DataFrame(
        {
            "ticker": name,
            "date": pd.bdate_range(start, periods=rows).strftime("%Y-%m-%d"),
            "open": close * 0.999,
            "high": close * 1.01,
            "low": close * 0.99,
            "close": close,
            "volume": random.integers(1_000, 9_000, rows),
        }
    )
    return table.assign(**columns)
