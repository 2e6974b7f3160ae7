"""Parquet files: those too large for memory are refused, and dates as text are read as dates."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forecaster.errors import DataError
from forecaster.ingest import open_source
from tests.messages import refuses


@pytest.mark.parametrize("column", ["unique_id", "ds"])
def test_bytes_are_read_as_text_and_refused_in_one_line_if_they_are_none(tmp_path, column):
    days = [day.encode() for day in pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")]
    columns = {"unique_id": [b"a"] * 60, "ds": days, "y": [1.5] * 60}
    path = tmp_path / "bytes.parquet"
    pq.write_table(pa.table(columns), path)
    assert open_source(f"files:{path}").tickers() == ["a"]
    pq.write_table(pa.table(columns | {column: [b"\xff"] * 60}), path)
    with refuses(DataError):
        open_source(f"files:{path}").tickers()


def test_a_footer_that_ends_pyarrows_process_does_not_end_ours(tmp_path):
    """Of a column that has become required, pyarrow's metadata abort."""
    days = np.arange(3).astype("datetime64[D]")
    table = pa.table({"unique_id": ["a"] * 3, "ds": days, "y": [1.0, 2.0, None]})
    pq.write_table(table, tmp_path / "forged.parquet")
    raw = (tmp_path / "forged.parquet").read_bytes()
    optional, required = b"\x25\x02\x18\x01y", b"\x25\x00\x18\x01y"
    assert raw.count(optional) == 1
    (tmp_path / "forged.parquet").write_bytes(raw.replace(optional, required))
    code = "import sys, forecaster as fc; fc.load_panel(f'files:{sys.argv[1]}')"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "forged.parquet"],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "DataError" in done.stderr, done.stderr
