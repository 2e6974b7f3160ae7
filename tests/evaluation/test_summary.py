"""Summaries of evaluations, and the file that holds them."""

import json

import pytest

from forecaster.evaluation import Summary
from tests.evaluation.handmade import SUMMARY


def test_a_file_of_every_entry_is_read_and_written_as_it_was(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY, indent=1))
    summary = Summary.read(path)
    summary.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


def test_entries_of_other_versions_are_passed_over():
    older = {name: value for name, value in SUMMARY.items() if name != "membership"}
    older["config"] = SUMMARY["config"] | {"dropout": 0.1}
    assert Summary.from_dict(older | {"weather": "fair"}).membership is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["LSTM", 3]}, r"Expected `str`, got `int` - at `\$.models\[1\]`"),
        ({"models": ["Naive"]}, "model: 'LSTM' is none of the models"),
        ({"horizon": 0}, r"Expected `int` >= 1 - at `\$.horizon`"),
        ({"cutoffs": 10**60}, "at `\\$.cutoffs`"),
        ({"levels": ["x"]}, "could not convert"),
        ({"forecast_by": {"magic": 1}}, "Invalid enum value 'magic'"),
        ({"forecast_by": {"combination": 10**12}}, "at `\\$.forecast_by"),
        ({"levels": ["100"]}, "levels: expected percent, below 100"),
        ({"skipped": []}, r"Expected `object`, got `array` - at `\$.skipped`"),
        ({"skipped": {"a": 3}}, "skipped: 'a'"),
        (
            {"seconds": SUMMARY["seconds"] | {"all": "long"}},
            r"Expected `float`, got `str` - at `\$.seconds.all`",
        ),
        ({"seconds": SUMMARY["seconds"] | {"all": float("nan")}}, "NaN is not JSON"),
        (
            {"config": SUMMARY["config"] | {"hidden": "x"}},
            r"Expected `int`, got `str` - at `\$.config.hidden`",
        ),
        ({"source": 3}, r"Expected `str \| null`, got `int` - at `\$.*source`"),
    ],
)
def test_an_entry_that_is_wrong_is_named(changes, message, tmp_path):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(SUMMARY | changes))
    with pytest.raises(ValueError, match=f"summary.json is not a summary: .*{message}"):
        Summary.read(path)
