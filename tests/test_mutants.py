"""The changes that scripts/mutants.py makes can still be made, and are spread over all rooms."""

import collections
from pathlib import Path
from types import ModuleType

import pytest

from tests import conftest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return conftest.script("mutants.py")


def test_each_line_that_is_changed_is_there_once(script):
    assert script.misfits(script.read_mutants()) == []


def test_forty_changes_lie_in_all_rooms_and_each_says_what_becomes_wrong(script):
    mutants = script.read_mutants()
    assert len({mutant.name for mutant in mutants}) == len(mutants) >= 40
    assert all(mutant.old != mutant.new and mutant.wrong.endswith(".") for mutant in mutants)
    rooms = collections.Counter(mutant.file.partition("/")[0] for mutant in mutants)
    package = {path.parent.name for path in ROOT.glob("forecaster/*/__init__.py")}
    assert set(rooms) == package | {"machine.py"} and min(rooms.values()) >= 2


def test_turns_share_the_changes(script):
    mutants = script.read_mutants()
    turns = [script.of_turn(mutants, number) for number in range(4)]
    sizes = [len(turn) for turn in turns]
    assert max(sizes) - min(sizes) <= 1 and sum(sizes) == len(mutants)
    assert {mutant.name for turn in turns for mutant in turn} == {m.name for m in mutants}
    assert script.of_turn(mutants, 7) == turns[3]
