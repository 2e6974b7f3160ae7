"""Parquet files that were made to do harm: what a small one stands for is never unpacked."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forecaster.files import parquet_groups, read_parquet_file
from tests.messages import refuses

LONG = "x" * 100_000


def written(folder: Path, columns, **options) -> Path:
    pq.write_table(pa.table(columns), folder / "t.parquet", compression="zstd", **options)
    return folder / "t.parquet"


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


BOMBS = {
    "rows": (
        lambda: {"y": np.zeros(9_000_000)},
        r"9,000,000 cells in [\d,]+ bytes; expected 8,000,000 at most",
    ),
    "cells": (lambda: {f"y{n}": np.zeros(10_000) for n in range(900)}, "9,000,000 cells in"),
    "lists": (lambda: {"y": pa.array([[0] * 100_000] * 30)}, "'y': expected numbers, .* got list"),
    "packed": (
        lambda: {"y": pa.array([str(n) * 50_000 for n in range(100, 1000)])},
        r"unpacked bytes in [\d,]+ bytes; expected 134,217,728 at most",
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
    two = read_parquet_file(path.read_bytes(), ["y", "name"])
    pd.testing.assert_frame_equal(two.to_pandas(), pd.read_parquet(path, columns=["y", "name"]))
    assert [len(group) for group in parquet_groups(path)] == [3, 1]
    frame[:0].to_parquet(path, index=False)
    assert read_parquet_file(path).to_pandas().equals(pd.read_parquet(path))


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"PAR1" * 9])
def test_what_is_no_parquet_file_is_a_value_error(raw):
    with pytest.raises(ValueError, match="Parquet"):
        read_parquet_file(raw)


def test_a_missing_column_is_named(tmp_path):
    with refuses(ValueError):
        read_parquet_file(written(tmp_path, {"a": [1]}), ["b"])


def test_text_that_is_no_utf8_is_an_error_where_it_is_read(tmp_path):
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"name": ["abcd", "efgh"]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"efgh", b"\xff\xfegh"))
    with pytest.raises(ValueError, match="UTF8"):
        read_parquet_file(path)
