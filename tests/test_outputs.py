"""Output files: the ending gives the format, and nothing is replaced without --overwrite."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from forecaster.errors import UsageError
from forecaster.files import check_output, outputs
from tests.messages import refuses

TABLE = pd.DataFrame(
    {
        "unique_id": ["A", "=1+1", "c\x07"],
        "ds": pd.DatetimeIndex(["2026-01-02", "2026-01-05", pd.NaT]),
        "LSTM": [1.5, np.nan, np.inf],
        "n": [1, 2, 3],
    }
)


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.CSV", "csv"), ("a.json", "json"), ("a.pq", "parquet"),
     ("a.xlsx", "excel")],
)  # fmt: skip
def test_the_ending_says_the_format(tmp_path, name, form):
    assert check_output(tmp_path / name).form == form
    assert check_output(tmp_path / name, form=form).form == form
    assert check_output(tmp_path / "a.data", form=form).form == form
    with refuses(UsageError):
        check_output(tmp_path / name, form="other")


def test_a_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("mine")
    with refuses(UsageError):
        check_output(path)
    check_output(path, overwrite=True).write_table(TABLE)
    assert path.read_text().startswith("unique_id,ds,LSTM,n\n")


def test_excel_without_its_library_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refuses(UsageError):
        check_output(tmp_path / "a.xlsx")


@pytest.mark.parametrize("parts", [1, 3])
def test_every_format_holds_the_table(tmp_path, parts):
    each = [TABLE.iloc[n::parts] for n in range(parts)]
    expected = pd.concat(each, ignore_index=True)
    for name in ("a.csv", "a.json", "a.parquet", "a.xlsx"):
        check_output(tmp_path / name).write_parts(each)
    read = pd.read_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read, expected, check_dtype=False)
    rows = json.loads((tmp_path / "a.json").read_text())
    assert [row["unique_id"] for row in rows] == expected["unique_id"].tolist()
    assert rows[0]["ds"].startswith("2026-01-02") and rows[0]["LSTM"] == 1.5
    assert pd.read_csv(tmp_path / "a.csv")["n"].tolist() == expected["n"].tolist()
    assert pd.read_excel(tmp_path / "a.xlsx")["n"].tolist() == expected["n"].tolist()


def test_every_cell_of_a_workbook_has_the_type_of_its_value(tmp_path):
    texts = ["=1+1", "+1", "-1", "@A1", "http://a.b", "mailto:a@b.c", "007", "1e5", " padded "]
    values: list[Any] = [
        *texts, True, np.bool_(False), np.int64(7), 2.5, -0.1, 10**15 - 1, 10**15, -(10**400),
        1e300, np.inf, -np.inf, np.nan, None, pd.NaT, pd.Timestamp("2026-01-02 03:04:05"),
        pd.Timestamp("1900-01-01"), pd.Timestamp("2026-01-02", tz="UTC"), "x" * 40_000,
    ]  # fmt: skip
    table = pd.DataFrame({"=heading": pd.Series(values, dtype=object), "n": 1})
    check_output(tmp_path / "a.xlsx").write_table(table)
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    assert book.sheetnames == ["forecaster"]
    cells = [row[0] for row in book.worksheets[0].iter_rows()]
    assert all(cell.data_type != "f" and cell.hyperlink is None for cell in cells)
    assert [(cell.value, cell.data_type) for cell in cells] == [
        ("=heading", "s"), *((text, "s") for text in texts), (True, "b"), (False, "b"), (7, "n"),
        (2.5, "n"), (-0.1, "n"), (10**15 - 1, "n"), (str(10**15), "s"), (str(-(10**400)), "s"),
        (1e300, "n"), ("inf", "s"), ("-inf", "s"), (None, "n"), (None, "n"), (None, "n"),
        ("2026-01-02 03:04:05", "s"), ("1900-01-01 00:00:00", "s"),
        ("2026-01-02 00:00:00+00:00", "s"), ("x" * 32_767, "s"),
    ]  # fmt: skip
    assert all(cell.quotePrefix for cell in cells if cell.data_type == "s")


def test_a_workbook_shows_the_clock_of_a_timezone_and_names_it(tmp_path):
    utc = pd.date_range("2026-03-28 23:30", periods=3, freq="h", tz="UTC")
    table = pd.DataFrame({"ds": utc.tz_convert("Europe/Berlin"), "old": pd.Timestamp("1850-01-01")})
    check_output(tmp_path / "a.xlsx").write_table(table)
    read = pd.read_excel(tmp_path / "a.xlsx")
    assert read.columns.tolist() == ["ds [Europe/Berlin]", "old"]
    assert read.iloc[:, 0].astype(str).tolist() == [
        "2026-03-29 00:30:00", "2026-03-29 01:30:00", "2026-03-29 03:30:00"
    ]  # fmt: skip
    assert read["old"][0] == "1850-01-01 00:00:00"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        outputs.write_excel(TABLE, Path("/dev/full"))
    assert list(tmp_path.iterdir()) == []


def test_more_rows_than_a_sheet_has_are_refused_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "_MOST_ROWS", 2)
    with refuses(UsageError):
        check_output(tmp_path / "a.xlsx").write_table(TABLE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["pipe", "pipe.xlsx", "pipe.parquet"])
def test_a_pipe_is_written_to_and_stays_one(tmp_path, name):
    pipe, read = tmp_path / name, []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    output = check_output(pipe)
    assert output.streamed
    output.write_table(TABLE)
    reader.join(10)
    assert read[0][:4] in (b"uniq", b"PK\x03\x04", b"PAR1") and pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs /dev/stdout")
def test_standard_output_that_is_a_file_is_written_to(tmp_path):
    with (tmp_path / "out.csv").open("w") as out:
        subprocess.run([sys.executable, "-c", """
from pathlib import Path
import pandas as pd
from forecaster.files import check_output
check_output(Path("/dev/stdout")).write_table(pd.DataFrame({"a": [1]}))
"""], stdout=out, check=True)  # fmt: skip
    assert (tmp_path / "out.csv").read_text() == "a\n1\n"
