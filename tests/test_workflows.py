"""Workflows are valid, have few rights, and agree with README and pyproject."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# actionlint if installed; otherwise jactionlint, of the extra `test`, with the same checks.
CHECKERS = {"actionlint": [], "jactionlint": ["--profile", "correctness"]}


def check(file: Path) -> subprocess.CompletedProcess[str]:
    for name, options in CHECKERS.items():
        program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if program:
            command = [program, *options, str(file)]
            return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    pytest.skip(f"workflows are unchecked: none of {', '.join(CHECKERS)} is installed")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_sound(file):
    done = check(file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
def test_rights_are_few_and_actions_are_of_a_major_version(file):
    text = file.read_text()
    assert "\npermissions:\n  contents: read\n\n" in text  # more only in jobs that need it
    used = re.findall(r"uses: (\S+)", text)
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", name) for name in used)
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_they_run_what_the_readme_says_on_the_pythons_that_are_declared():
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    block = (ROOT / "README.md").read_text().partition("## Tests")[2].split("```")[1]
    install = next(line for line in block.splitlines() if "pip install" in line)
    assert install in text
    matrix = re.search(r"python: \[(.*)\]", text)
    assert matrix and re.findall(r"3\.\d+", matrix[1]) == declared()
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    assert sorted(re.findall(r'"(3\.\d+)"', nightly)) == declared()


def declared() -> list[str]:
    """Return the versions of Python in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
