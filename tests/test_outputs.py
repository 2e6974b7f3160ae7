"""Files that a user asks for, in each format."""

import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import UsageError
from forecaster.files import check_output, outputs, write_csv
from tests.messages import refuses

TABLE = pd.DataFrame(
    {
        "unique_id": ["A", "=1+1", "c\x07"],
        "ds": pd.DatetimeIndex(["2026-01-02", "2026-01-05", pd.NaT]),
        "LSTM": [1.5, np.nan, np.inf],
        "n": [1, 2, 3],
    }
)
UNSEEN = [
    char
    for char in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp")
    and not unicodedata.name(char, "").startswith(("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN"))
]  # the others are drawn at random
SIGNS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


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


@given(st.lists(st.text(alphabet=[*SIGNS, *"A1!(), ;|\"'", "\u00e9", *"\u200b\ufeff\xad"],
                        max_size=12), min_size=1),
       st.sampled_from([",", ";", "\t"]))  # fmt: skip
def test_no_cell_is_a_formula_wherever_a_program_parts_them(names, separator):
    table = pd.DataFrame({"unique_id": names, "=ds": 1, "y": -1.5})
    text = write_csv(table)
    back = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert len(back) == len(names) and set(back["y"]) == {"-1.5"}
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
        for cell in row:
            assert cell.lstrip("".join(UNSEEN))[:1] not in [*SIGNS] or cell.endswith("-1.5"), cell


@pytest.mark.parametrize("sign", SIGNS)
def test_nothing_unseen_hides_a_formula(sign):
    """Programs that strip invisible characters would run the formula behind them."""
    names = [f"{unseen}{sign}1" for unseen in [*UNSEEN, "\u200b \ufeff", "\u3164", "\ufe0f"]]
    text = write_csv(pd.DataFrame({"unique_id": names}))
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert len(rows) == len(names)
    for (cell,), name in zip(rows, names, strict=True):
        assert cell.startswith("'"), ascii(name)


def test_what_is_no_formula_stays_as_it_is():
    table = pd.DataFrame(
        {
            "unique_id": pd.Categorical(["A=X", "^GSPC", "BRK-B"]),
            "ds": pd.bdate_range("2024-01-01", periods=3),
            "note": ["a, b", None, "it's"],
            "y": [-1.0, np.nan, 3.25],
            "n": [1, 2, -3],
            "held": [True, False, True],
        }
    )
    assert write_csv(table) == table.to_csv(index=False)
    assert write_csv(table, header=False) == table.to_csv(index=False, header=False)
