"""A damaged evaluation folder is one clear error."""

import json
import shutil

import pandas as pd
import pytest

from forecaster.errors import DataError, UsageError
from forecaster.evaluation import Evaluation
from forecaster.report import build_report
from tests.conftest import error
from tests.messages import refuses
from tests.report.synthetic import synthetic

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


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("change", ["cut", "edited", "gone"])
def test_a_table_that_is_wrong_is_named(name, change, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "mutant")
    path = folder / f"{name}.parquet"
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif change == "edited":
        pd.read_parquet(path)[:-1].to_parquet(path)
    else:
        path.unlink()
    with refuses(UsageError if change == "gone" else DataError):
        Evaluation.read(folder)


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
