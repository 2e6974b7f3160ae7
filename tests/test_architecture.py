"""The house: imports only go down, and the command is light."""

import ast
import subprocess
import sys
from pathlib import Path

import forecaster

PACKAGE = Path(forecaster.__file__).parent
# Modules and packages of each floor; a module imports from its own floor or from below.
FLOORS = [
    {"__init__", "errors", "atomic", "swarm"},
    {"ingest", "series", "config"},
    {"forecasting"},
    {"evaluation", "storage", "pipeline", "benchmark"},
    {"plotting", "report"},
    {"cli", "__main__"},
]
HEIGHT = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def imported(path: Path) -> set[str]:
    """First-level names under ``forecaster`` that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            first, *rest = name.split(".")
            if first == "forecaster" and rest and rest[0] in HEIGHT:
                found.add(rest[0])
    return found


def files() -> list[tuple[str, Path]]:
    paths = [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]
    return [(p.relative_to(PACKAGE).parts[0].removesuffix(".py"), p) for p in paths]


def test_every_module_has_a_floor():
    assert {name for name, _ in files()} <= HEIGHT.keys()


def test_imports_only_go_down():
    upward = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for name, path in files()
        for other in imported(path)
        if HEIGHT[other] > HEIGHT[name]
    ]
    assert not upward


def test_the_swarm_knows_nothing_of_forecasting():
    for name, path in files():
        if name == "swarm":
            assert imported(path) <= {"swarm", "atomic"}, path


def test_the_check_of_imports_can_fail(tmp_path):
    file = tmp_path / "pipeline.py"
    file.write_text("def f():\n    from forecaster.cli import main\n")
    assert imported(file) == {"cli"}


def test_files_stay_readable():
    long = {str(p): n for _, p in files() if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from click.testing import CliRunner; from forecaster.cli import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(main, ['fit', '--help']).exit_code == 0\n"
        "print([m for m in ('jax', 'flax', 'pandas', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
