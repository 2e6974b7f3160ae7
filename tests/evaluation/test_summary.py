"""Summaries of evaluations, and the file that holds them."""

import dataclasses
import json

import numpy as np
import pytest

from forecaster.evaluation import Summary
from tests.evaluation.handmade import SUMMARY
from tests.messages import refuses


def test_a_file_of_every_entry_is_read_and_written_as_it_was(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY, indent=1))
    summary = Summary.read(path)
    summary.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


def test_numbers_of_numpy_are_read_as_the_numbers_that_they_are(tmp_path):
    given = dataclasses.replace(Summary.from_dict(SUMMARY), seed=np.int64(3), refit=np.int64(2))
    given.write(tmp_path / "summary.json")
    read = Summary.read(tmp_path / "summary.json")
    assert (read.seed, read.refit) == (3, 2)


def test_entries_of_other_versions_are_passed_over():
    older = {name: value for name, value in SUMMARY.items() if name != "membership"}
    older["config"] = SUMMARY["config"] | {"dropout": 0.1}
    assert Summary.from_dict(older | {"weather": "fair"}).membership is False


@pytest.mark.parametrize(
    "changes",
    [
        {"models": ["LSTM", 3]},
        {"models": ["Naive"]},
        {"horizon": 0},
        {"cutoffs": 10**60},
        {"levels": ["x"]},
        {"forecast_by": {"magic": 1}},
        {"forecast_by": {"combination": 10**12}},
        {"levels": ["100"]},
        {"skipped": []},
        {"skipped": {"a": 3}},
        {"seconds": SUMMARY["seconds"] | {"all": "long"}},
        {"seconds": SUMMARY["seconds"] | {"all": float("nan")}},
        {"config": SUMMARY["config"] | {"hidden": "x"}},
        {"source": 3},
    ],
)
def test_an_entry_that_is_wrong_is_named(changes, tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY | changes))
    with refuses(ValueError):
        Summary.read(path)
