"""What is said to be installed is what the program declares, and never somebody else's project."""

import importlib.metadata
import re
from pathlib import Path

import pytest

from forecaster.errors import UsageError
from forecaster.extras import pip_command, require

ROOT = Path(__file__).parents[1]
NOT_OURS = re.compile(r"pip install (?:-\S+ )*['\"]?forecaster(?![\w-])(?!\[[\w,]+\] @ )")


def test_a_missing_library_is_named_with_what_installs_it():
    with pytest.raises(UsageError, match=r"trees needs nowhere, which .* pip install 'ray>=2\.60'"):
        require("nowhere", "ray", "trees")
    assert pip_command("torch") == "pip install 'torch<2.14,>=2.6'"
    assert pip_command("adapters") == "pip install 'equinox>=0.13' 'keras>=3.9'"


def test_without_being_installed_the_clone_is_named(monkeypatch):
    def missing(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert pip_command("ray") == "pip install '.[ray]' in a clone of its repository"


def test_nobody_is_told_to_install_the_project_that_has_our_name_on_pypi():
    assert NOT_OURS.search("python -m pip install --quiet 'forecaster[ray]'")
    assert not NOT_OURS.search("pip install 'forecaster[ray] @ git+https://github.com/x/y'")
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("forecaster", "docs", "notebooks", "scripts"):
        files += [
            p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md", ".yaml", ".ipynb")
        ]
    said = {str(p): NOT_OURS.findall(p.read_text(encoding="utf-8")) for p in files}
    assert not {path: found for path, found in said.items() if found} and len(files) > 100
