"""Make stored prices, and forecasts of them, for the tests of the record."""

from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.files import Home
from forecaster.ingest import Store, panel_from_store
from forecaster.record import Made, keep
from tests.conftest import prices
from tests.conftest import run as command

DAYS = pd.bdate_range("2024-01-01", periods=120)
SPREADS = {"LSTM-lo-95": 0.94, "LSTM-lo-80": 0.97, "LSTM-hi-80": 1.03, "LSTM-hi-95": 1.06}


def table(rows: int = 120, **columns) -> pd.DataFrame:
    """Return prices of AAA and BRK-B."""
    both = [prices(name, rows, "2024-01-01", **columns) for name in ("AAA", "BRK-B")]
    return pd.concat(both, ignore_index=True)


def store(home: Home, frame: pd.DataFrame, *options: str, file: str = "prices.csv") -> str:
    """Store prices, with options of ``ingest``; return their source."""
    path = home.folder.parent / file
    frame.to_csv(path, index=False)
    done = command("ingest", "--source", f"files:{path}", "--home", home, *options)
    assert done.exit_code == 0, done.output
    return f"files:{path}"


def forecast(
    home: Home, source: str, until: int, *, growth: float = 1.0, horizon: int = 2,
    level: str = "", run: str = "20240101-000000-000-lstm",
) -> Path:  # fmt: skip
    """Record forecasts from the first ``until`` rows: ``growth`` times the latest close.

    ``level``: the band that they lack.
    """
    opened = Store.open(home, source)
    panel = panel_from_store(opened, opened.ids, end=str(DAYS[until - 1].date()))
    values = [panel.channel(panel.target)[row, panel.mask[row]][-1] for row in range(2)]
    if "close" in panel.channels:
        values = [panel.channel("close")[row, panel.mask[row]][-1] for row in range(2)]
    middle = np.repeat(np.array(values) * growth, horizon)
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(np.array(panel.ids, object), horizon),
            "ds": np.tile(DAYS[until : until + horizon], 2),
            "LSTM": middle,
            **{name: middle * share for name, share in SPREADS.items()},
            "probability_of_rise": 0.5,
        }
    )
    if level:
        frame = frame.drop(columns=[name for name in SPREADS if name.endswith(level)])
    return keep(home, Made(panel, frame, "LSTM", run, source))
