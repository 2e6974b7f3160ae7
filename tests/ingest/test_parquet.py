"""Parquet files: those too large for memory are refused, and dates as text are read as dates."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forecaster as fc
from forecaster.errors import DataError
from forecaster.ingest import open_source
from forecaster.ingest.sources.files import Files
from tests.conftest import prices


def bombs():
    """Return tables that are small in a file and large in memory, or that hold no prices."""
    rows, long = 20_000, "x" * 100_000
    again, days = np.zeros(rows, np.int32), np.arange(rows).astype("datetime64[D]")
    repeated = pa.DictionaryArray.from_arrays(pa.array(again), pa.array([long]))
    one, name = pa.array(np.ones(rows)), pa.array(["a"] * rows)
    return {
        "a name": ({"unique_id": repeated, "ds": days, "y": one}, "'unique_id': a text of more"),
        "dates": (
            {"unique_id": name, "ds": repeated, "y": one},
            "'ds': 2,000,000,000 bytes of text; expected",
        ),
        "names": (
            {"unique_id": [f"{long}{i}" for i in range(500)], "ds": days[:500], "y": one[:500]},
            "'unique_id': a text of more than 1,000 characters; expected names",
        ),
        "names of bytes": (
            {
                "unique_id": pa.array([long.encode()] * 500, pa.binary(len(long))),
                "ds": days[:500],
                "y": one[:500],
            },
            "'unique_id': expected numbers, dates or text; got fixed_size_binary",
        ),
        "lists": (
            {"unique_id": name, "ds": days, "y": pa.array([[1.0] * 100] * rows)},
            "'y': expected numbers, dates or text; got list",
        ),
    }


@pytest.mark.parametrize("kind", ["a name", "dates", "names", "names of bytes", "lists"])
def test_a_parquet_file_that_swells_is_refused_before_it_does(kind, tmp_path):
    resource = pytest.importorskip("resource")
    columns, message = bombs()[kind]
    pq.write_table(pa.table(columns), tmp_path / "bomb.parquet", compression="zstd")
    del columns
    assert (tmp_path / "bomb.parquet").stat().st_size < 2_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=message):
        open_source(f"files:{tmp_path / 'bomb.parquet'}").tickers()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


@pytest.mark.parametrize("column", ["unique_id", "ds"])
def test_bytes_are_read_as_text_and_refused_in_one_line_if_they_are_none(tmp_path, column):
    days = [day.encode() for day in pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")]
    columns = {"unique_id": [b"a"] * 60, "ds": days, "y": [1.5] * 60}
    path = tmp_path / "bytes.parquet"
    pq.write_table(pa.table(columns), path)
    assert open_source(f"files:{path}").tickers() == ["a"]
    pq.write_table(pa.table(columns | {column: [b"\xff"] * 60}), path)
    with pytest.raises(DataError, match=rf"bytes\.parquet: .*'{column}': bytes that are not UTF-8"):
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


def test_dates_as_texts_are_read_from_parquet_as_before(tmp_path):
    table = prices("AAA", 40)
    table.to_parquet(tmp_path / "texts.parquet")
    table.assign(date=pd.to_datetime(table["date"])).to_parquet(tmp_path / "dates.parquet")
    read = [
        next(open_source(f"files:{tmp_path / name}.parquet").fetch(["AAA"])).frame
        for name in ("texts", "dates")
    ]
    assert read[0] is not None and read[1] is not None
    pd.testing.assert_frame_equal(read[0], read[1])


def blocks_of(path):
    source = open_source(f"files:{path}")
    assert isinstance(source, Files)
    return source._blocks


def test_a_large_file_is_read_in_blocks_and_gives_the_same(tmp_path, monkeypatch):
    """Read series that span blocks, and names with another spelling."""
    from forecaster.ingest.tables import blocks

    path = tmp_path / "p.parquet"
    frame = pd.concat([prices(name, 50) for name in ("AAA", "BBB", "CCC", "brk.b")])
    frame["date"] = pd.to_datetime(frame["date"])
    frame.to_parquet(path, row_group_size=30, index=False)
    whole = fc.load_panel(f"files:{path}")
    assert blocks_of(path) is None  # small
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    monkeypatch.setattr(blocks, "_BLOCK", 60)
    source = open_source(f"files:{path}")
    assert (in_blocks := blocks_of(path)) and len(in_blocks.groups) == 4
    assert source.tickers() == list(whole.ids)
    in_blocks = fc.load_panel(f"files:{path}")
    np.testing.assert_array_equal(in_blocks.values, whole.values)
    assert in_blocks.ids == whole.ids and (in_blocks.times == whole.times).all()
    some = fc.load_panel(f"files:{path}", ["BRK-B", "BBB", "XYZ"])
    assert set(some.ids) == {"BBB", "BRK-B"} and "not in" in str(some.skipped["XYZ"])
    np.testing.assert_array_equal(some.only(["BBB"]).values, whole.only(["BBB"]).values)


@pytest.mark.parametrize("why", ["unsorted", "text", "integers", "damaged"])
def test_a_large_file_that_could_be_misread_in_blocks_is_read_whole(tmp_path, monkeypatch, why):
    from forecaster.ingest.tables import blocks

    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    path = tmp_path / "p.parquet"
    frame = pd.concat([prices(name, 50) for name in ("AAA", "BBB", "CCC")])
    frame["date"] = pd.to_datetime(frame["date"])
    if why == "unsorted":
        frame = frame.sort_values("date", kind="stable")
    if why == "text":
        frame["close"] = frame["close"].astype(str)
    if why == "integers":
        frame["date"] = np.tile(np.arange(50), 3)
    frame.to_parquet(path, row_group_size=30, index=False)
    if why == "damaged":
        raw = bytearray(path.read_bytes())
        raw[200:300] = bytes(100)
        path.write_bytes(raw)
        with pytest.raises(DataError):
            fc.load_panel(f"files:{path}")
        return
    assert blocks_of(path) is None
    assert len(fc.load_panel(f"files:{path}").ids) == 3


def test_names_of_bytes_are_text_in_a_file_that_is_read_in_blocks(tmp_path, monkeypatch):
    from forecaster.ingest.tables import blocks

    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    path = tmp_path / "p.parquet"
    days = np.tile(np.arange(60).astype("datetime64[D]"), 2)
    names = pa.array([b"A"] * 60 + [b"B"] * 60, pa.binary())
    pq.write_table(pa.table({"unique_id": names, "ds": days, "y": np.ones(120)}), path)
    assert blocks_of(path) is not None
    assert open_source(f"files:{path}").tickers() == ["A", "B"]
    assert fc.load_panel(f"files:{path}").ids == ("A", "B")
