"""The house: imports only go down and through doors, and what should be light is light."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forecaster

PACKAGE = Path(forecaster.__file__).parent
# The floors, from the ground up. A module imports from its own floor or from below.
FLOORS: list[set[str]] = [
    {"errors", "files", "machine"},
    {"swarm", "series", "classical"},
    {"ingest", "forecasting", "portfolio", "plotting", "benchmark", "distributed"},
    {"storage", "evaluation", "record"},
    {"pipeline", "report", "daily"},
    {"cli", "__main__"},
]
HEIGHT = {name: floor for floor, names in enumerate(FLOORS) for name in names}
# The rooms of each package, from the ground up: a room imports only from those listed before it.
# A file beside the rooms is a room of its own.
ROOMS: dict[str, list[str]] = {
    "swarm": [
        "task", "checks", "arrays", "native", "devices", "recurrence", "adapters",
        "training", "checkpoints", "execution", "estimators",
    ],
    "series": [
        "limits", "showing", "calendar", "causal", "parts", "panel", "combination", "effects",
        "known_rows", "price_features", "common_volatility", "transforms", "any_series",
        "transform_by_name", "findings", "late",
    ],
    "ingest": [
        "universe", "groups", "store", "tables", "sources", "covariate_files", "review", "loading",
        "refreshing",
    ],
    "forecasting": [
        "config", "methods", "columns", "bands", "windows", "flax_networks", "networks", "model",
        "network_task", "explanation", "predicting", "explaining", "fitting",
    ],
    "evaluation": [
        "cutoffs", "rolling_origin", "scores", "baselines", "evaluation", "backtest", "comparing",
    ],
    "storage": [
        "encoding", "checking", "saving", "run", "runs", "prices", "parts", "unfinished",
    ],
}  # fmt: skip


def imports(path: Path) -> list[tuple[str, str]]:
    """Module and name of every import from ``forecaster`` in a file, inside functions too."""
    pairs = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            pairs += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            pairs += [(node.module, alias.name) for alias in node.names]
    return [(module, name) for module, name in pairs if module.split(".")[0] == "forecaster"]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def reached(module: str, name: str) -> str:
    """The room that an import reaches; "" for the package itself."""
    first = [*module.split("."), name][1]
    return first if first in HEIGHT else ""


def files() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def upward(path: Path, room: str) -> list[str]:
    return [
        f"{path} imports {module} {name}"
        for module, name in imports(path)
        if HEIGHT.get(reached(module, name), 0) > HEIGHT[room]
    ]


def past_the_door(path: Path, room: str) -> list[str]:
    """Imports of another room that are not in a door's list, which is its ``__init__.pyi``."""
    return [
        f"{path} imports {module} {name}"
        for module, name in imports(path)
        if reached(module, name) not in ("", room) and not exported(module, name)
    ]


def exported(module: str, name: str) -> bool:
    place = PACKAGE.joinpath(*module.split(".")[1:])
    if place == PACKAGE or (place.with_suffix(".py").parent == PACKAGE and not place.is_dir()):
        return not name.startswith("_")  # a module at the root has no door
    door = place / "__init__.pyi"
    if door.exists():
        return bool(re.search(rf" as {name}$", door.read_text(), re.M))
    return place == PACKAGE / "cli" and name == "main"


def test_every_room_has_a_floor():
    assert {room_of(path) for path in files()} <= HEIGHT.keys()


def test_imports_only_go_down():
    assert not [line for path in files() for line in upward(path, room_of(path))]


def test_rooms_are_entered_by_their_doors():
    assert not [line for path in files() for line in past_the_door(path, room_of(path))]


def target(module: str, name: str) -> Path:
    """The file or folder that an import reaches, through the door of a room where it has one."""
    folder = PACKAGE.joinpath(*module.split(".")[1:])
    door = folder / "__init__.pyi"
    listed = rf"^from \.([\w.]*) import {name} as"
    if door.exists() and (found := re.search(listed, door.read_text(), re.M)):
        folder = folder.joinpath(*found[1].split(".")) if found[1] else folder / name
    elif (folder / name).exists() or (folder / f"{name}.py").exists():
        folder = folder / name
    return folder if folder.is_dir() else folder.with_suffix(".py")


def inner_room(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def upward_inside(package: Path, rooms: list[str], files: list[Path]) -> list[str]:
    """Imports between the rooms of one package that do not go down."""
    return [
        f"{path} imports {module} {name}"
        for path in files
        for module, name in imports(path)
        if package in (reached := target(module, name)).parents
        and rooms.index(inner_room(reached, package)) > rooms.index(inner_room(path, package))
    ]


@pytest.mark.parametrize("name", ROOMS)
def test_imports_go_down_inside_a_package(name):
    package = PACKAGE / name
    inside = [path for path in files() if package in path.parents and path.parent != package]
    inside += [path for path in package.glob("*.py") if path.name != "__init__.py"]
    assert {inner_room(path, package) for path in inside} == set(ROOMS[name])
    assert not upward_inside(package, ROOMS[name], inside)


def test_the_check_inside_a_package_can_fail():
    turned = ROOMS["swarm"][::-1]
    assert upward_inside(PACKAGE / "swarm", turned, [PACKAGE / "swarm/training/loop.py"])


# ``model.plot(...)`` of a notebook calls the room above its own.
CALLS_UP = (PACKAGE / "forecasting" / "model.py", PACKAGE / "plotting.py")


def needs(paths: list[Path]) -> dict[Path, set[Path]]:
    """The files that each of some files imports."""
    found = {path: {target(*pair) for pair in imports(path)} - {path} for path in paths}
    method, drawing = CALLS_UP
    found[method].remove(drawing)
    return found


def test_no_circle_between_files():
    graphlib.TopologicalSorter(needs(files())).prepare()


def test_a_circle_would_be_found():
    one, other = PACKAGE / "plotting.py", PACKAGE / "__main__.py"
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({one: {other}, other: {one}}).prepare()


def test_rooms_say_what_they_must_not_know():
    for name, rooms in ROOMS.items():
        for room in rooms:
            door = PACKAGE / name / room / "__init__.py"
            if door.exists():
                text = ast.get_docstring(ast.parse(door.read_text())) or ""
                assert re.search("[Kk]nows? ", text), door


def test_the_swarm_knows_nothing_of_forecasting():
    for path in files():
        if room_of(path) == "swarm":
            others = {
                (module, name)
                for module, name in imports(path)
                if reached(module, name) not in ("", "swarm")
            }
            assert not others, path


def test_compiled_code_knows_nothing_of_the_engine():
    native = "forecaster.swarm.native"
    for path in (PACKAGE / "swarm" / "native").glob("*.py"):
        others = {module for module, _ in imports(path) if not module.startswith(native)}
        assert others <= {"forecaster.swarm.checks"}, path


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("from forecaster.cli import main", upward),
        ("from forecaster import pipeline", upward),
        ("from forecaster.series.panel.panel import Panel", past_the_door),
        ("from forecaster.series import panel", past_the_door),
        ("from forecaster.series import _hidden", past_the_door),
        ("import forecaster.swarm.devices.lanes", past_the_door),
    ],
)
def test_the_checks_of_imports_can_fail(tmp_path, line, check):
    file = tmp_path / "fitting.py"
    file.write_text(f"def f():\n    {line}\n")
    assert check(file, "forecasting")


def test_csv_has_one_writer():
    calls = [
        str(path.relative_to(PACKAGE))
        for path in files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("to_csv", "writerow", "writerows")
    ]
    # What is digested for a fit to be resumed is not written.
    assert sorted(calls) == ["files/outputs.py", "storage/unfinished.py"]


HEAVY = (
    "jax",
    "flax",
    "optax",
    "pandas",
    "numpy",
    "scipy",
    "matplotlib",
    "pyarrow",
    "torch",
    "sqlalchemy",
)


def loaded_by(code: str) -> list[str]:
    """Heavy libraries that a new process has loaded after some code."""
    code += f"\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return out.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import forecaster",
        "import forecaster.swarm, forecaster.series, forecaster.forecasting, forecaster.ingest",
        "import forecaster.storage, forecaster.evaluation, forecaster.report, forecaster.benchmark",
        "import forecaster.record",
        "from click.testing import CliRunner; from forecaster.cli import main\n"
        "for words in (['--help'], ['fit', '--help'], ['evaluate', '--help']):\n"
        "    assert CliRunner().invoke(main, words).exit_code == 0",
    ],
)
def test_doors_and_help_load_nothing_heavy(code):
    assert not loaded_by(code)


def test_scores_can_be_had_without_jax():
    assert not {"jax", "flax", "torch"} & set(
        loaded_by("import forecaster.evaluation.scores.metrics")
    )


def test_a_daily_run_reads_prices_before_it_loads_jax():
    # JAX and SciPy would add 110 MB to the peak of reading and reviewing prices.
    code = "import forecaster.daily.day; from forecaster.pipeline import check_forecast_output"
    assert not {"jax", "scipy", "torch"} & set(loaded_by(code))


def test_every_name_of_every_door_is_there():
    import importlib

    for stub in PACKAGE.rglob("__init__.pyi"):
        name = ".".join(["forecaster", *stub.parent.relative_to(PACKAGE).parts])
        door = importlib.import_module(name)
        for exported in door.__all__:
            assert getattr(door, exported) is not None
