"""Tests of names that are written in two ways."""

import pytest

from forecaster.errors import near, spelled, spellings


@pytest.mark.parametrize("written", ["BRK-B", "BRK.B", "brk.b", " brk-b "])
def test_a_share_class_is_found_however_it_is_written(written):
    assert spelled(spellings(["BRK-A", "BRK-B"]), written) == "BRK-B"


def test_a_name_as_it_stands_comes_before_one_that_differs_in_spelling():
    known = spellings(["a.b", "A-B"])
    assert [spelled(known, name) for name in ("a.b", "A-B", "c")] == ["a.b", "A-B", None]


def test_near_names_are_named():
    assert near(["AAPL", "MSFT"], "APPL") == ["AAPL"] and near(["0001", "x"], "1") == ["0001"]
