"""Tests of README and site: they build, their links lead somewhere, and their commands work."""

import importlib
import inspect
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import click
import matplotlib
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.cli import main
from forecaster.evaluation import BacktestOptions, evaluate_to_folder
from forecaster.forecasting.config import NETWORKS
from tests.conftest import blocks, script
from tests.frames import long
from tests.test_architecture import FLOORS, PACKAGE, ROOMS

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY, SITE = PROJECT["urls"]["Repository"], PROJECT["urls"]["Documentation"]
SOURCES = ("docs", "forecaster", "scripts/docs_roles.py", "zensical.toml", "CHANGELOG.md")


def tool(name: str) -> str:
    """Find a program in this environment, or on the path; skip the test if there is none."""
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    return beside or shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, folder / name)
    command = [tool("zensical"), "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    assert not re.search("warning|error", said, re.IGNORECASE), said
    return folder / "site"


def test_the_site_builds_without_a_warning(site):
    html = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    assert len(html) == len(list(DOCS.rglob("*.md"))) + 1  # 404.html
    # A link to a name without an entry gives no warning, but stays unresolved.
    assert not [name for name, text in html.items() if re.search(r"\]\[forecaster[.\w]*\]", text)]
    assert not [name for name, text in html.items() if re.search(r":(class|func|mod|meth):", text)]


def test_the_tables_of_what_to_expect_are_those_of_their_files():
    """The stocks of the README and of the evaluation, and the panels of the latter."""
    page, accuracy = (DOCS / "evaluation.md").read_text(), ROOT / "scripts" / "accuracy"
    stocks = pd.read_csv(accuracy / "stocks.csv")
    for words, model in {"the default": "LSTM pooled", "GJR-t": "GJR", "EWMA": "EWMA"}.items():
        cells = [words]
        for ahead in (1, 5):
            rows = stocks[(stocks["model"] == model) & (stocks["ahead"] == ahead)]
            crps, inside = rows["crps"], 100 * rows["inside_80"]
            cells += [
                f"{crps.mean():.3f} ({crps.min():.3f} to {crps.max():.3f})",
                f"{100 * rows['better'].mean():.0f} %",
                f"{inside.min():.0f} to {inside.max():.0f} %",
            ]
        line = f"| {' | '.join(cells)} |"
        assert line in page and line in README.read_text()
    board = pd.read_csv(accuracy / "scoreboard.csv").query("size == 'full'")
    ours = {row["set"]: row for row in board.to_dict("records")}
    others = pd.read_csv(accuracy / "panels.csv").set_index(["panel", "model"])["mase"]
    rivals = ("AutoETS", "DynamicOptimizedTheta", "AutoCES", "SeasonalNaive")
    for name in ("M1 yearly", "M1 quarterly", "M1 monthly", "NN3", "NN5", "M4 weekly", "M4 hourly"):
        mase = [ours[name]["mase"], *(others[name, rival] for rival in rivals)]
        numbers = " | ".join(f"{value:.2f}" for value in mase)
        row = f"| {name} | {ours[name]['series']} | {numbers} | "
        assert row + f"{100 * ours[name]['coverage_80']:.0f} % |" in page


@pytest.mark.parametrize(
    ("package", "page"),
    [
        ("forecaster", "forecaster"),
        ("forecaster.swarm", "swarm"),
    ],
)
def test_every_public_name_has_an_entry(site, package, page):
    module = importlib.import_module(package)
    text = (site / "reference" / page / "index.html").read_text()
    entries = {name.split(".")[-1] for name in re.findall(r'id="(forecaster[\w.]*)"', text)}
    values = {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}
    wanted = {n for n, v in values.items() if inspect.isclass(v) or inspect.isfunction(v)}
    missing = wanted - entries
    assert not missing


def test_paths_and_tests_that_are_named_exist():
    missing = []
    for page in PAGES:
        for path, test in re.findall(
            r"`((?:forecaster|tests|scripts|notebooks|docs|data)/[\w/.]+)(?:::(\w+))?`",
            page.read_text(),
        ):
            file = ROOT / path
            if not file.exists() or (test and f"def {test}(" not in file.read_text()):
                missing.append(f"{page.name}: {path} {test}")
    assert not missing


def test_names_of_the_package_exist():
    missing = []
    for page in (DOCS / "architecture.md", *(DOCS / "guide").glob("*.md"), DOCS / "evaluation.md"):
        for name in set(re.findall(r"`(forecaster(?:\.\w+)+)`", page.read_text())):
            if not exists(name):
                missing.append(f"{page.name}: {name}")
    assert not missing


def test_the_rooms_of_the_architecture_are_those_of_the_house():
    def there(names: list[str], room: str = "") -> list[str]:
        inside = PACKAGE / room
        return [n for n in names if (inside / n).is_dir() or (inside / f"{n}.py").exists()]

    rows = re.findall(r"^\| `?(\w+)`? \| (`.+?`) \|", (DOCS / "architecture.md").read_text(), re.M)
    said = {name: re.findall(r"`(\w+)`", rooms) for name, rooms in rows}
    for floor, names in enumerate(FLOORS, 1):
        assert sorted(said[str(floor)]) == there(sorted(names - {"__main__"}))
    for package, rooms in ROOMS.items():
        assert said[package] == there(rooms[::-1], package)


def exists(name: str) -> bool:
    parent, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(parent), last)
    except ImportError:
        return False


def commands() -> list[str]:
    """Return every line of a code block that calls the program."""
    lines = []
    for page in PAGES:
        for block in re.findall(r"^```(?:bash)?\n(.*?)^```", page.read_text(), re.DOTALL | re.M):
            lines += re.findall(r"^forecaster .*", block, re.MULTILINE)
    return sorted({line.split("  #")[0].strip() for line in lines})


@pytest.mark.parametrize("line", commands())
def test_commands_that_are_shown_are_understood(line):
    _, name, *arguments = shlex.split(line, comments=True)
    command = main.commands[name]
    if isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
        command = command.commands[arguments[0]]
    known = {text for option in command.params for text in option.opts + option.secondary_opts}
    for argument in arguments:
        assert not argument.startswith("-") or argument in known, f"{name} has no {argument}"


def test_the_page_of_commands_is_made_from_their_help():
    commands = script("docs_commands.py")
    made, page = commands.page(), commands.PAGE.read_text()
    assert made == page, "run python scripts/docs_commands.py"
    assert set(main.commands) <= set(re.findall(r"^## (\w+)$", page, re.MULTILINE))


TEXTS = [*PAGES, *(ROOT / name / "README.md" for name in ("data", "scripts", "forecaster/swarm"))]
TEXTS += sorted((ROOT / "research").glob("*.md"))


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_into_the_tree_leads_somewhere(page):
    assert not dead_links(page, whole(page))


def test_a_clone_can_be_read_without_the_site():
    links = [link for page in PAGES[:3] for link in links_of(page.read_text())]
    assert len(links) > 20 and not [link for link in links if link.startswith((SITE, REPOSITORY))]


def test_links_of_the_readme_are_absolute_on_the_package_index():
    """Applies the build's substitutions; scripts/check_build.py checks the built wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = README.read_text()
    for each in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = links_of(text)
    assert len(links) == len(links_of(README.read_text())) > 20
    assert all(link.startswith((f"{REPOSITORY}/", SITE)) for link in links)
    assert not dead_links(README, text)
    assert f"]({REPOSITORY}/raw/main/docs/assets/forecast.png)" in text


def dead_links(page: Path, text: str) -> list[str]:
    """Return the dead links into the tree, relative ones or by an address of this project."""
    return [link for link in links_of(text) if not leads_somewhere(page, text, link)]


def links_of(text: str) -> list[str]:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "code", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)[^)]*\)", prose)


def leads_somewhere(page: Path, text: str, link: str) -> bool:
    address, _, anchor = link.partition("#")
    if address.startswith(SITE):
        name = address.removeprefix(SITE).strip("/") or "index"
        folder = DOCS / name / "index.md"
        target = folder if folder.exists() else DOCS / f"{name}.md"
    elif address.startswith(f"{REPOSITORY}/"):
        kind, _, path = address.removeprefix(f"{REPOSITORY}/").partition("/")
        if kind not in ("blob", "tree", "raw"):
            return kind in ("issues", "security", "releases")
        branch, _, path = path.partition("/")
        if branch != "main":
            return False
        target = ROOT / path
    elif re.match(r"\w+:", address):
        return True  # another project's address
    else:
        target = page.parent / address if address else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(text if target == page else whole(target))


def whole(page: Path) -> str:
    """Return a page with the files that it includes."""
    return re.sub(
        r'^--8<-- "(.+)"$',
        lambda found: (ROOT / found[1]).read_text(),
        page.read_text(),
        flags=re.M,
    )


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, which are the same in a clone and on the site."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in plain}


def test_the_address_is_the_same_everywhere():
    config = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert config["repo_url"] == REPOSITORY and config["site_url"] == SITE
    for page in PAGES:
        links = re.findall(r"https://github.com/[\w-]*forecaster[\w-]*/[\w-]+", page.read_text())
        assert set(links) <= {REPOSITORY}, page
    urls = PROJECT["urls"].values()
    assert all(url.startswith((REPOSITORY, SITE)) for url in urls)


@pytest.fixture
def prices_here(panel, tmp_path, monkeypatch):
    """Work in a folder with the simulated market as the reader's own prices."""
    monkeypatch.chdir(tmp_path)
    frame = panel.to_frame().rename(columns={"unique_id": "ticker", "ds": "date"})
    frame.to_parquet("prices.parquet")


@pytest.mark.slow
def test_the_notebook_section_works(prices_here):
    matplotlib.use("agg")
    section, _, _, baselines = blocks(DOCS / "guide" / "notebooks.md", "python")
    assert blocks(README, "python") == [section]
    names: dict = {}
    exec(compile(section + "\n" + baselines, "In a notebook", "exec"), names)
    assert {"LSTM", "LSTM-lo-80", "LSTM-hi-95"} <= set(names["forecast"])
    assert names["frame"]["cutoff"].nunique() == 250 and Path("my-model").is_dir()
    scores = fc.evaluate(names["frame"])
    assert {"mae", "crps", "coverage-80", "mae_relative_to_naive"} <= set(scores)
    assert len(names["ewma"]) == len(names["frame"])


def test_the_section_on_frames_is_true():
    _, section, _, _ = blocks(DOCS / "guide" / "notebooks.md", "python")
    days = pd.date_range("2024-01-01", periods=9, name="Date")
    closes = pd.DataFrame({"AAPL": range(9), "MSFT": range(9)}, days, dtype=float)
    sales = closes.reset_index().melt("Date").set_axis(["day", "store", "net"], axis=1)
    sales["item"] = "milk"
    downloaded = pd.concat({"Close": closes, "Open": closes}, axis=1)
    names = {"closes": closes, "sales": sales, "yf": Mock(download=Mock(return_value=downloaded))}
    for line in section.splitlines():  # make the panels that would be fitted
        panel = eval(line.replace("fc.fit", "fc.load_panel"), {"fc": fc}, names)
        end = "/milk" if "item" in line else ""
        assert panel.ids == (f"AAPL{end}", f"MSFT{end}") and panel.mask.sum() == 18


@pytest.mark.slow
def test_the_section_on_any_panel_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    days = pd.date_range("2024-01-01", periods=300)
    week = 20 + 5 * np.sin(np.arange(300) * 2 * np.pi / 7)
    noise = np.random.default_rng(0).normal(size=(2, 300))
    long({"north": week + noise[0], "south": week + noise[1]}, days).to_csv(
        "sales.csv", index=False
    )
    section, _, totals, clip = blocks(DOCS / "guide" / "panels.md", "python")
    names: dict = {}
    exec(compile(section, "Any panel", "exec"), names)
    assert names["model"].transform.name == "combined" and len(names["forecast"]) == 14
    exec(compile(totals, "Totals", "exec"), names)  # 7 days of about 20 each
    band = names["band"]
    assert list(band.index) == ["north", "south"] and (abs(band - 140) < 15).all(axis=None)
    assert (band[0.1] < band[0.5]).all() and (band[0.5] < band[0.9]).all()
    assert ((names["risk"] < 0.5) == (band[0.5] > 140)).all()
    assert len(names["whole"]) == 1000 and 0 < names["risk_of_all"] < 1
    forecast = names["forecast"] = 5 * names["forecast"].set_index(["unique_id", "ds"])
    exec(compile(clip, "Clip", "exec"), names)
    assert (forecast.filter(like="LSTM").max() == 100).all()


@pytest.mark.slow
def test_the_section_on_a_network_of_ones_own_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (section,) = blocks(DOCS / "guide" / "networks.md", "python")
    names: dict = {"__name__": "notebook"}
    exec(compile(section, "Networks", "exec"), names)
    assert names["model"].config.model == "notebook:Averages" and "Averages" in names["frame"]


@pytest.mark.slow
def test_the_section_on_two_networks_works_and_tests_as_an_evaluation_does(tmp_path):
    section = (DOCS / "assets" / "two_networks.py").read_text()
    quick = section.replace("horizon=5", "horizon=5, epochs=3")
    assert quick != section
    names: dict = {}
    exec(compile(quick, "Two networks", "exec"), names)
    panel, tests = names["panel"], names["tests"]
    assert sorted(names["scores"]["model"].unique()) == ["LSTM", "Large", "Naive"]
    assert sorted(tests["unique_id"]) == sorted(panel.ids)
    assert tests["p_adjusted"].between(tests["p_value"], 1).all()
    assert 0 < names["whole"].p_value < 1
    # The first network's tests against a baseline, made in the same way, are those of `evaluate`.
    made = evaluate_to_folder(
        tmp_path / "e", panel, fc.Config(horizon=5, epochs=3, hidden=16),
        BacktestOptions(n_windows=120, baselines=("naive",)),
    )  # fmt: skip
    same = ["unique_id", "horizon", "test", "model"]
    theirs = made.tests.query("test == 'mae_against' and model == 'Naive'").set_index(same)
    ours = names["tables"].tests.set_index(same).loc[theirs.index]
    for column in ("statistic", "p_value", "difference"):
        np.testing.assert_allclose(ours[column], theirs[column], rtol=1e-9)


def test_every_network_is_described():
    text = (DOCS / "guide" / "networks.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.M) == [*NETWORKS]


def test_settings_that_are_shown_are_settings():
    for page in PAGES:
        for block in blocks(page, "toml"):
            fc.Config.from_dict(tomllib.loads(block))


def test_the_pictures_are_those_of_the_script():
    names = set(re.findall(r'"(\w+\.png)"', (ROOT / "scripts" / "pictures.py").read_text()))
    assert names == {path.name for path in (DOCS / "assets").glob("*.png")}
    assert all((DOCS / "assets" / name).stat().st_size > 20_000 for name in names)
