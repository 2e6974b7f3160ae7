"""The long set has all scripts, in five parts."""

import collections
from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "long_set.py"
# Imported by other scripts, or the commands that run all others.
NOT_RUN = {
    "accuracy/m4.py",
    "benchmarks/rival_networks.py", "benchmarks/rival_sides.py", "benchmarks/rival_work.py",
    "first_hour.sh",  # by the slow tests
    "docs_commands.py", "docs_roles.py", "experiments/harness.py", "experiments/torch_mlp.py",
    "long_set.py",
    "production/clock.py", "production/events.py", "production/market.py", "production/year.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def script():
    return conftest.script(SCRIPT.name)


def test_each_script_is_in_it(script):
    words = {word for part in script.PARTS for word in part.command}
    for path in (ROOT / "scripts").rglob("*.*"):
        name = path.relative_to(ROOT / "scripts").as_posix()
        if path.suffix in (".py", ".sh"):
            assert (f"scripts/{name}" in words) != (name in NOT_RUN), name
    assert all((ROOT / word).exists() for word in words if word.startswith(("scripts/", "tests/")))


def test_each_part_is_in_one_fifth(script):
    names = [part.name for fifth in range(1, 6) for part in script.chosen(script.PARTS, fifth, ())]
    assert collections.Counter(names) == {part.name: 1 for part in script.PARTS}
    assert script.fifth_of_commit() in range(1, 6)
    assert [part.name for part in script.chosen(script.PARTS, None, ("matrix",))] == ["matrix"]
