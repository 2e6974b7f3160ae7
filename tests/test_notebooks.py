"""The committed notebooks contain their pictures, and no error or warning."""

import base64
import io
import re
from pathlib import Path

import matplotlib.image
import nbformat
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
PICTURES = {
    "01_better_than_garch": 2,
    "02_demand_with_promotions": 2,
    "03_risk_bands": 2,
    "04_swarm_engine": 2,
    "05_every_morning": 1,
    "06_why_did_this_band_move": 1,
    "07_the_risk_of_a_book": 1,
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
