"""Forecasts as objects of a store: of memory always, of S3 where moto and s3fs are installed."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest

from forecaster.errors import UsageError, WriteError
from forecaster.files import check_output
from forecaster.pipeline import RemoteOutput, check_forecast_output
from tests.conftest import error, run
from tests.s3 import Bucket, s3, s3_server, said

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
__all__ = ["s3", "s3_server"]  # fixtures
TABLE = pd.DataFrame({"unique_id": ["AAA", "=B"], "ds": pd.to_datetime(["2024-01-02"] * 2),
                      "LSTM": [1 / 3, 1e300]})  # fmt: skip


def checked(*name: str, **options: Any) -> RemoteOutput:
    output = check_forecast_output(*name, **options)
    assert isinstance(output, RemoteOutput)
    return output


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.parametrize("name", ["f.csv", "f.json", "f.parquet", "a/b/f.pq", "f.xlsx"])
def test_an_object_has_the_format_of_its_ending(tmp_path, bucket, name):
    if name.endswith(".xlsx"):
        pytest.importorskip("xlsxwriter")
    output = checked(f"{bucket.url}/{name}")
    assert not bucket.names, "the check writes nothing"
    output.write_table(TABLE)
    assert bucket.names == [name]
    here = check_output(tmp_path / Path(name).name)
    here.write_table(TABLE)
    if name.endswith(".xlsx"):  # it holds the time at which it was made
        assert bucket.read(name)[:4] == here.path.read_bytes()[:4] == b"PK\x03\x04"
    else:
        assert bucket.read(name) == here.path.read_bytes()


def test_an_object_is_replaced_only_on_request(bucket):
    url = f"{bucket.url}/f.csv"
    checked(url).write_table(TABLE)
    assert f"--output {url} exists" in said(UsageError, lambda: checked(url))
    checked(url, overwrite=True).write_table(TABLE.head(1))
    assert bucket.read("f.csv").count(b"\n") == 2


def test_a_failure_leaves_the_object_as_it_was(bucket, monkeypatch):
    output = checked(f"{bucket.url}/f.csv")
    output.write_table(TABLE)
    before = bucket.read("f.csv")

    def half(path: Path):
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    assert "no space left" in said(WriteError, lambda: output.write(half))
    failing = Mock(side_effect=ConnectionError("reset by peer"))
    monkeypatch.setattr(type(output.system), "put_file", failing)
    text = said(WriteError, lambda: output.write_table(TABLE.head(1)))
    assert text == f"{bucket.url}/f.csv: cannot be written: reset by peer"
    assert bucket.read("f.csv") == before and bucket.names == ["f.csv"]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("memory://f.csv", "names no object in a bucket"),
        ("memory://desk/f", "a file without an ending"),
        ("memory://desk/f.html", "cannot write '.html'"),
        ("memory://desk/f.txt", "cannot write '.txt'; expected .csv, .json, .parquet, .xlsx"),
        ("memory://desk/*.csv", "is a pattern"),
        ("memory://desk/${NOT_SET_HERE}.csv", "${NOT_SET_HERE}, which is not set"),
        ("s3://me:geheim@forecasts/f.csv", "holds no user, password or query"),
        ("s3://me:geheim/a/b@forecasts/f.csv", "holds no user, password or query"),
        ("abfss://me:geheim@mine.dfs.core.windows.net/f.csv", "give the account, credentials"),
        ("file:///geheim/f.csv", "expected the path of a file, or s3://BUCKET/FILE.csv"),
        ("https://me:geheim@forecasts/f.csv?key=geheim", "web servers are only read from"),
    ],
)
def test_a_bad_name_is_a_clear_error_without_secrets(url, what):
    assert what in said(UsageError, lambda: checked(url))


def test_what_the_environment_holds_is_not_shown(bucket, monkeypatch):
    monkeypatch.setenv("DESK", f"{bucket.folder.strip('/')}/geheim")
    output = checked("memory://${DESK}/f.csv")
    output.write_table(TABLE)
    assert output.shown == "memory://${DESK}/f.csv" and bucket.names == ["geheim/f.csv"]
    for name, what in (("${DESK}/f.csv", "memory://${DESK}/f.csv exists"),
                       ("${DESK}/f", "memory://${DESK}/f"), ("${DESK}/f.x", "cannot write '.x'"),
                       ("${DESK}/*.csv", "memory://${DESK}/*.csv: is a pattern")):  # fmt: skip
        text = said(UsageError, lambda name=name: checked(f"memory://{name}"))
        assert what in text
    failing = Mock(side_effect=OSError(f"no room for {bucket.folder}/geheim/f.csv"))
    monkeypatch.setattr(type(output.system), "put_file", failing)
    said(WriteError, lambda: output.write_table(TABLE))


def test_predict_writes_what_it_writes_here(home, bucket, tmp_path, monkeypatch):
    url, here = f"{bucket.url}/f.csv", tmp_path / "f.csv"
    done = run("predict", "--all", "--output", url, "--home", home)
    assert done.exit_code == 0 and f"Wrote {url}" in done.stderr, done.output
    assert run("predict", "--all", "--output", here, "--home", home).exit_code == 0
    assert bucket.read("f.csv") == here.read_bytes()
    paths = f"{bucket.url}/p.parquet"
    done = run("predict", "--all", "--paths", 3, "--output", paths, "--home", home)
    assert done.exit_code == 0 and "p.parquet" in bucket.names
    monkeypatch.setattr("forecaster.pipeline.predict_from_home", Mock(side_effect=AssertionError))
    assert "exists" in error("predict", "--all", "--output", url, "--home", home, code=2)


def test_s3(s3, home):
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    system.mkdir("forecasts")
    output = checked("s3://forecasts/a/f.parquet")
    uploads = lambda: system.call_s3("list_multipart_uploads", Bucket="forecasts")  # noqa: E731
    assert not system.find("forecasts") and not uploads().get("Uploads"), "a check leaves nothing"
    output.write_table(TABLE)
    pd.testing.assert_frame_equal(pd.read_parquet(system.open("forecasts/a/f.parquet")), TABLE)
    text = said(UsageError, lambda: checked("s3://forecasts/a/f.parquet"))
    assert "exists" in text
    nowhere = checked("s3://no/f.csv", overwrite=True)
    assert "s3://no/f.csv: cannot" in said(WriteError, lambda: nowhere.write_table(TABLE))
    done = run("predict", "--all", "--output", "s3://forecasts/f.csv", "--home", home)
    assert done.exit_code == 0 and len(pd.read_csv(system.open("forecasts/f.csv")))
