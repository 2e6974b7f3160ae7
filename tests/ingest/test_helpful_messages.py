"""Files as they come from meters and spreadsheets: 24:00, the hour that repeats, Excel, zeros."""

import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, UsageError, near
from forecaster.ingest.tickers.groups import read_groups
from tests.messages import refuses


def load(times, tmp_path, **options):
    frame = pd.DataFrame({"unique_id": "0001", "ds": times, "y": range(len(times))})
    frame.to_csv(tmp_path / "x.csv", index=False)
    return fc.load_panel(f"files:{tmp_path / 'x.csv'}", **options)


@pytest.mark.parametrize(
    ("hour", "repeats"),
    [("2025-10-26 02:00", True), ("2025-11-02 01:30", True), ("2025-10-26 05:00", False),
     ("2025-10-19 02:00", False)],
)  # fmt: skip
def test_the_hour_that_repeats_in_autumn_is_named(hour, repeats, tmp_path):
    with refuses(DataError) as error:
        load(["2025-10-01 00:00", hour, hour], tmp_path)
    assert ("--date-format utc" in str(error.value)) is repeats
    assert "equal" not in str(error.value)  # their values differ


def test_rows_that_are_equal_are_called_so(tmp_path):
    rows = pd.DataFrame({"unique_id": "A", "ds": ["2026-01-01", "2026-01-02"], "y": [1.0, 2.0]})
    pd.concat([rows, rows.tail(1)]).to_csv(tmp_path / "x.csv", index=False)
    with refuses(DataError):
        fc.load_panel(f"files:{tmp_path / 'x.csv'}")


@pytest.mark.parametrize("name", ["x.xlsx", "x.xls"])
def test_excel_is_refused_with_the_way_out(name, tmp_path):
    (tmp_path / name).write_bytes(b"PK")
    with refuses(DataError):
        fc.load_panel(f"files:{tmp_path / name}")


def test_leading_zeros_are_hinted_at(tmp_path):
    assert near(["0001", "11", "10"], "1") == ["0001"]
    load(["2026-01-01", "2026-01-02"], tmp_path)
    panel = fc.load_panel(f"files:{tmp_path / 'x.csv'}", ["0001", "1"])
    assert "write '0001' with its leading zeros" in str(panel.skipped["1"])
    (tmp_path / "g.csv").write_text("ticker,group\n1,a\n")
    with refuses(UsageError):
        read_groups(tmp_path / "g.csv").of(["0001"])
