"""The committed notebooks contain their pictures, and no error or warning."""

import ast
import base64
import contextlib
import importlib
import io
import re
from pathlib import Path

import matplotlib.image
import nbformat
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
PICTURES = {
    "01_quickstart": 3,
    "02_error_distributions": 1,
    "03_risk_bands": 2,
    "04_swarm_engine": 2,
    "05_any_panel": 3,
}
MOST_BYTES = 700_000  # per notebook, so that a clone stays small


def outputs_of(name: str) -> list:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    return [output for cell in code for output in cell["outputs"]]


def test_every_notebook_is_looked_at():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == PICTURES.keys()


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_is_read_with_its_pictures(name):
    outputs = outputs_of(name)
    images = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    assert len(images) == PICTURES[name]
    for image in images:
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(image)))
        assert min(picture.shape[:2]) > 200 and picture[..., :3].std() > 0.02
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_BYTES


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_shows_no_error_and_no_warning(name):
    for output in outputs_of(name):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", output["text"]
        assert "Warning" not in str(output.get("text", ""))


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_shows_no_path_of_the_machine_that_made_it(name):
    shown = " ".join(str(output.get("text", output.get("data", ""))) for output in outputs_of(name))
    assert not re.search(r"(?<![\w.:/])/(?:[\w.-]+/){2,}\w", re.sub(r"[\w+/=\\]{200,}", "", shown))


@pytest.mark.parametrize("name", PICTURES)
def test_names_of_the_package_that_a_notebook_uses_exist(name):
    """Most notebooks run nightly only; a name that has moved is found at once."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert not missing_names(code)


def test_a_name_that_has_moved_is_found():
    code = """
import forecaster as fc
from forecaster.evaluation import BacktestOptions, moved
fc.fit(fc.gone)
"""
    assert missing_names(code) == ["forecaster.evaluation.moved", "forecaster.gone"]


def missing_names(code: str) -> list[str]:
    """Return the names that code imports from the package, or from its modules, in vain."""
    tree, modules, used = ast.parse(code), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname: one.name for one in node.names if one.name == "forecaster"}
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forecaster"):
            used += [(node.module, one.name) for one in node.names]
            modules |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used += [(modules[node.value.id], node.attr)] if node.value.id in modules else []
    return [f"{owner}.{name}" for owner, name in used if not exists(owner, name)]


def exists(owner: str, name: str) -> bool:
    """Return whether a module, or a class or function of one, has a name."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(f"{owner}.{name}")
        return True
    try:
        found = importlib.import_module(owner)
    except ModuleNotFoundError:
        module, _, last = owner.rpartition(".")
        found = getattr(importlib.import_module(module), last, None)
        return found is None or hasattr(found, name)  # None: its import is listed already
    return hasattr(found, name)
