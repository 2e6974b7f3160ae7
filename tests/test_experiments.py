"""The results of the experiments are beside their scripts, which the long set runs."""

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts" / "experiments"
NAMES = [
    path.stem for path in sorted(SCRIPTS.glob("*.py")) if path.stem not in ("harness", "torch_mlp")
]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_beside_their_script(name):
    assert (SCRIPTS / f"{name}.csv").exists() and (SCRIPTS / f"{name}.png").exists()
    assert f"`{name}.py`" in (SCRIPTS.parent / "README.md").read_text()
