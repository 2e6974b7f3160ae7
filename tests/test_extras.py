"""Messages about missing libraries name this distribution, never another project."""

import re
import tomllib
from pathlib import Path

from forecaster.errors import DISTRIBUTION, UsageError, pip_command, require
from tests.messages import refuses

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_OURS = re.compile(r"pip install (?:-\S+ )*['\"]?forecaster(?![\w-])")


def test_a_missing_library_is_named_with_what_installs_it():
    with refuses(UsageError):
        require("nowhere", "ray", "trees")
    assert pip_command("torch") == (
        '`pip install "forecaster-swarm[torch]"` (in a clone: `pip install -e ".[torch]"`)'
    )


def test_the_name_and_the_extras_are_those_of_the_project():
    assert PROJECT["name"] == DISTRIBUTION
    extras = PROJECT["optional-dependencies"]
    needed = [name for each in extras.values() for name in each if name.startswith("forecaster")]
    assert needed and all(name.startswith(f"{DISTRIBUTION}[") for name in needed)
    named = {
        extra
        for path in files()
        for found in re.findall(
            r"(?:\bpip install |forecaster-swarm).*?\[([\w,]+)\]", path.read_text(encoding="utf-8")
        )
        for extra in found.split(",")
    }
    assert {"torch", "garch", "ray", "excel"} <= named <= set(extras) | {"cuda13"}


def test_nobody_is_told_to_install_the_project_that_has_our_name_on_pypi():
    assert NOT_OURS.search("python -m pip install --quiet 'forecaster[ray]'")
    assert not NOT_OURS.search("pip install 'forecaster-swarm[ray] @ git+https://github.com/x/y'")
    said = {str(path): NOT_OURS.findall(path.read_text(encoding="utf-8")) for path in files()}
    assert not {path: found for path, found in said.items() if found} and len(said) > 100


def files() -> list[Path]:
    """Return the texts and programs that tell users what to install."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("forecaster", "docs", "notebooks", "scripts"):
        found += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".md", ".yaml", ".ipynb")
        ]
    return found
