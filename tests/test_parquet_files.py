"""Parquet files that were made to do harm: what a small one stands for is never unpacked."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forecaster as fc
from forecaster.errors import DataError
from forecaster.files import parquet_groups, read_footer, read_parquet_file, unpacked_bytes
from tests.limits import fresh_peak, peak_memory

LONG = "x" * 100_000


def written(folder: Path, columns, **options) -> Path:
    pq.write_table(pa.table(columns), folder / "t.parquet", compression="zstd", **options)
    return folder / "t.parquet"


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


BOMBS = {
    "rows": (
        lambda: {"y": np.zeros(3_000_000)},
        r"3,000,000 rows in [\d,]+ bytes; expected 2,000,000 at most",
    ),
    "cells": (lambda: {f"y{n}": np.zeros(10_000) for n in range(900)}, "9,000,000 cells in"),
    "lists": (lambda: {"y": pa.array([[0] * 100_000] * 30)}, "3,000,000 rows in"),
    "packed": (
        lambda: {"y": pa.array([str(n) * 50_000 for n in range(100, 1000)])},
        "bytes when unpacked; expected 134,217,728 at most",
    ),
    "text": (lambda: {"y": repeated(LONG, 20_000)}, "'y': 2,000,000,000 bytes of text; expected"),
}


@pytest.mark.parametrize("stored", [True, False], ids=["", "no schema"])
@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_that_swells_is_refused_before_it_does(kind, stored, tmp_path):
    resource = pytest.importorskip("resource")
    columns, message = BOMBS[kind]
    path = written(tmp_path, columns(), store_schema=stored)
    assert path.stat().st_size < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for source in (path, path.read_bytes()):
        with pytest.raises(ValueError, match=message):
            read_parquet_file(source)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def varint(number: int, length: int = 0) -> bytes:
    """Return a positive number as Thrift writes it, in at least ``length`` bytes."""
    number, out = 2 * number, bytearray()
    while number > 127 or len(out) + 1 < length:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def told_smaller(raw: bytes, *, pages: bool) -> bytes:
    """Return a file of one column with a lie about its size, in the footer or in its pages."""
    chunk = pq.ParquetFile(pa.BufferReader(raw)).metadata.row_group(0).column(0)
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    if pages:
        start, sizes = raw[:footer], [chunk.total_uncompressed_size - n for n in range(10, 60)]
        true = next(varint(size) for size in sizes if varint(size) in start)
        return start.replace(true, varint(1000, len(true))) + raw[footer:]
    true = varint(chunk.total_uncompressed_size)
    assert true in raw[footer:]
    return raw[:footer] + raw[footer:].replace(true, varint(1000, len(true)))


@pytest.mark.parametrize("pages", [False, True], ids=["footer", "pages"])
def test_a_file_that_lies_about_its_size_is_refused_before_it_is_unpacked(pages, tmp_path):
    options = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    path = written(tmp_path, {"y": ["x" * 500_000_000]}, **options)
    raw = told_smaller(path.read_bytes(), pages=pages)
    assert len(raw) < 50_000
    if pages:  # then the footer shows it
        raw = told_smaller(raw, pages=False)
    path.write_bytes(raw)
    before = fresh_peak()
    message = (
        "(?i)decompress|corrupt|zstd" if pages else "500,000,0.. bytes when unpacked; expected"
    )
    for source in (path, raw):
        with pytest.raises((OSError, ValueError), match=message):
            read_parquet_file(source)
    with pytest.raises(DataError, match=message):
        fc.load_panel(f"files:{path}")
    assert peak_memory() - before < 300_000_000


@pytest.mark.parametrize(
    ("header", "message"),
    [(b"\x00", "has no size"), (b"\xff" * 90, "kind 15|too many bytes"), (b"\x1c" * 90, "kind")],
)
def test_a_page_without_a_sound_header_is_named(header, message, tmp_path):
    path = written(tmp_path, {"y": np.arange(1000.0)})
    raw = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        read_parquet_file(raw[:4] + header + raw[4 + len(header) :])


def test_pages_are_added_up_as_the_footer_has_them(tmp_path):
    columns = {"y": np.arange(200_000.0), "name": [f"s{n % 90}" for n in range(200_000)]}
    for options in ({}, {"data_page_version": "2.0"}, {"write_page_checksum": True}):
        path = written(tmp_path, columns, row_group_size=70_000, data_page_size=5000, **options)
        with pa.OSFile(str(path)) as opened:
            metadata = pq.ParquetFile(opened).metadata
            groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
            footer = sum(g.column(n).total_uncompressed_size for g in groups for n in (0, 1))
            pages = unpacked_bytes(opened, read_footer(opened).chunks, 1 << 40)
        assert 0.9 * footer < pages <= footer  # which counts the headers too


def test_a_sound_file_is_read_as_by_pandas(tmp_path):
    frame = pd.DataFrame(
        {
            "name": ["b", None, "ä", ""], "kind": pd.Categorical(["x", "y", "x", "x"]),
            "ds": pd.date_range("2024-01-01", periods=4), "y": [1.0, np.nan, 3.0, 4.0],
        }
    )  # fmt: skip
    path = tmp_path / "t.parquet"
    frame.to_parquet(path, index=False, row_group_size=3)
    pd.testing.assert_frame_equal(read_parquet_file(path).to_pandas(), pd.read_parquet(path))
    two = read_parquet_file(path.read_bytes(), ["y", "name"], checksums=True)
    pd.testing.assert_frame_equal(two.to_pandas(), pd.read_parquet(path, columns=["y", "name"]))
    assert [len(group) for group in parquet_groups(path)] == [3, 1]
    frame[:0].to_parquet(path, index=False)
    assert read_parquet_file(path).to_pandas().equals(pd.read_parquet(path))


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"PAR1" * 9])
def test_what_is_no_parquet_file_is_a_value_error(raw):
    with pytest.raises(ValueError, match="Parquet"):
        read_parquet_file(raw)


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(ValueError, match="no column b"):
        read_parquet_file(written(tmp_path, {"a": [1]}), ["b"])


def test_columns_that_lie_over_each_other_are_refused(tmp_path):
    """Or the few bytes that many columns share would be walked and unpacked for each of them."""
    numbers = {name: np.arange(200.0) for name in "abc"}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(numbers), path, compression="none", use_dictionary=False)
    raw = path.read_bytes()
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    chunks = [pq.read_metadata(path).row_group(0).column(n) for n in range(3)]
    pages, listed = raw[:footer], raw[footer:]
    for chunk in chunks:  # each begins at the first page and ends after the last
        begin = varint(chunk.data_page_offset)
        listed = listed.replace(begin, varint(4, len(begin)))
        size = varint(chunk.total_compressed_size)
        listed = listed.replace(size, varint(3 * chunk.total_compressed_size, len(size)))
    assert len(listed) + len(pages) == len(raw)
    with pytest.raises(ValueError, match=r"its columns take [\d,]+ bytes, more than it has"):
        read_parquet_file(pages + listed)


def test_a_footer_that_would_end_the_process_is_a_value_error(tmp_path):
    """For a column that has become required, pyarrow's metadata abort: a histogram is too long."""
    raw = written(tmp_path, {"y": [1.0, None]}).read_bytes()
    optional, required = b"\x25\x02\x18\x01y", b"\x25\x00\x18\x01y"
    assert raw.count(optional) == 1
    for source in (raw.replace(optional, required), raw):
        with contextlib.suppress(ValueError, OSError):
            read_parquet_file(source)
    code = "import sys, pyarrow.parquet as pq; pq.read_metadata(sys.argv[1]).row_group(0).column(0)"
    (tmp_path / "forged.parquet").write_bytes(raw.replace(optional, required))
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "forged.parquet"], capture_output=True, check=False
    )
    if done.returncode == 0:
        pytest.skip("this pyarrow does not abort")
    assert b"histogram size mismatch" in done.stderr


@pytest.mark.parametrize("group", range(3))
def test_the_footer_says_what_pyarrow_says(group, tmp_path):
    columns = {
        "y": np.arange(2500.0), "name": [f"s{n % 9}" for n in range(2500)],
        "part": pa.array([{"a": n, "b": [n]} for n in range(2500)]),
    }  # fmt: skip
    path = written(tmp_path, columns, row_group_size=1000)
    with pa.OSFile(str(path)) as opened:
        rows, chunks = read_footer(opened)
    assert rows == 2500 and len(chunks) == 3 * 4
    theirs = pq.read_metadata(path).row_group(group)
    for number, chunk in enumerate(chunks[4 * group : 4 * group + 4]):
        their = theirs.column(number)
        assert chunk[:4] == (
            their.path_in_schema, their.num_values, their.total_uncompressed_size,
            their.total_compressed_size,
        )  # fmt: skip
        offsets = [their.data_page_offset, their.dictionary_page_offset or their.data_page_offset]
        assert chunk.begin == min(offsets) and chunk.group == group


@pytest.mark.parametrize(
    ("footer", "message"),
    [
        (b"", "damaged"),
        (b"\x19\xfc\xff\xff\xff\x7f", "damaged"),  # a list of more structs than there are bytes
        (b"\x16\x02\x06\x02\x02\x00", "twice"),
        (b"\x36\x02\x19\x1c\x19\x1c\x00\x00\x00", "column without metadata"),
        (b"\x48\x01a\x00", "no list"),
        (b"\x1c" * 99, "too deep"),
    ],
)
def test_a_footer_that_is_none_is_named(footer, message):
    raw = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(ValueError, match=message):
        read_footer(pa.BufferReader(raw))


def test_text_that_is_no_utf8_is_an_error_where_it_is_read(tmp_path):
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"name": ["abcd", "efgh"]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"efgh", b"\xff\xfegh"))
    with pytest.raises(ValueError, match="UTF8"):
        read_parquet_file(path)
