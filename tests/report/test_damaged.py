"""A damaged evaluation folder is one clear error, which a fuzz has found for each of these."""

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forecaster.errors import DataError
from forecaster.evaluation import Evaluation
from forecaster.report import build_report
from tests.conftest import error
from tests.messages import refuses
from tests.report.synthetic import synthetic
from tests.slow import rest_slow

TABLES = ["scores", "tests", "daily", "forecasts"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The files of a small evaluation, with groups and skipped series."""
    folder = tmp_path_factory.mktemp("evaluation")
    skipped = {"ZZZ": {"kind": "other", "detail": "too short", "reason": "too short"}}
    made = synthetic(
        folder, 3, 30, 2, groups={"S000": "left", "S001": "right"}, skipped=skipped,
        failed={"garch": {"a": "no convergence"}},
    )  # fmt: skip
    made.write()
    return folder


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("daily", lambda f: f.assign(model="Naive")),
        ("daily", lambda f: f.drop(columns="model")),
        ("daily", lambda f: f.assign(crps="x")),
        ("daily", lambda f: f[f["model"] == "LSTM"]),
        ("tests", lambda f: f.assign(unique_id=7)),
        ("tests", lambda f: f.assign(test=None)),
        ("tests", lambda f: f.drop(columns="p_value")),
        ("tests", lambda f: f.drop(columns="degrees")),
        ("scores", lambda f: f[f["model"] != "Naive"]),
        ("scores", lambda f: f.assign(horizon=0.5)),
        ("scores", lambda f: f.assign(model="x")),
        ("scores", lambda f: f[:0]),
        ("forecasts", lambda f: f[:0]),
        ("forecasts", lambda f: f.assign(LSTM="x")),
        ("forecasts", lambda f: f.assign(LSTM=np.inf)),
        ("forecasts", lambda f: f.drop(columns="y")),
        ("forecasts", lambda f: f.assign(cutoff=-7)),
        ("forecasts", lambda f: f.replace({"S002": "X"})),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_named(table, change, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    change(pd.read_parquet(folder / f"{table}.parquet")).to_parquet(
        folder / f"{table}.parquet", index=False
    )
    with refuses(DataError):
        build_report(Evaluation.read(folder), folder / "report.html")


@pytest.mark.parametrize("note", [b"index_columns", b"pandas_type"])
@pytest.mark.parametrize("name", rest_slow(["forecasts", "daily", "scores", "tests"]))
def test_what_pandas_noted_of_a_table_may_be_damaged(name, note, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    path = folder / f"{name}.parquet"
    table = pq.read_table(path)
    frame = table.to_pandas(ignore_metadata=True)
    noted = pa.Schema.from_pandas(frame, preserve_index=False).metadata[b"pandas"]
    noted = noted.replace(note, b"x" + note[1:])
    pq.write_table(table.replace_schema_metadata({b"pandas": noted}), path)
    build_report(Evaluation.read(folder), folder / "report.html")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"model": "LSTM"}', "[" * 100_000, r'{"model": "\ud800"}', '{"a": NaN}']
)
def test_the_command_names_a_summary_that_is_none(text, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    (folder / "summary.json").write_text(text)
    said = error("report", folder, code=1)
    assert "the evaluation cannot be read: summary.json is not a summary: " in said


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("horizon", 10**9),
        ("models", ["LSTM", "Naive", "<b>"]),
    ],
)
def test_a_summary_of_other_scores_is_named(entry, value, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    summary = json.loads((folder / "summary.json").read_text())
    value = [*summary["models"], "<b>"] if entry == "models" else value
    (folder / "summary.json").write_text(json.dumps(summary | {entry: value}))
    with refuses(DataError):
        build_report(Evaluation.read(folder))
