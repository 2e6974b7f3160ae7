"""Errors are readable and safe to show: messages, missing libraries, skipped series, spellings."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import (
    DISTRIBUTION,
    DataError,
    Kind,
    Skipped,
    UsageError,
    listed,
    name_reasons,
    near,
    pip_command,
    printable,
    require,
    skipped_from_json,
    skipped_to_json,
    spelled,
    spellings,
)
from tests.conftest import error, run
from tests.messages import refuses

EVIL = "A\x1b[31m\x1b]0;owned\x07\u202eB\u2028C\x9b1mD"
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_OURS = re.compile(r"pip install (?:-\S+ )*['\"]?forecaster(?![\w-])")
FIELDS = {
    "rows": 30, "needed": 34, "column": "close", "value": -1.5, "market": "SPY",
    "first": "2024-01-02", "last": "2024-03-01", "detail": "a text",
}  # fmt: skip


@given(st.text())
def test_a_text_is_shown_without_anything_that_a_terminal_obeys(text):
    assert printable(text, lines=False).isprintable()
    assert printable(text).replace("\n", "").isprintable()
    assert printable(text).count("\n") == text.count("\n")
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize(
    "text", ["BRK.B", "\u00c4pfel & S\u00f6hne", "\u65e5\u672c", "a b\nc", "\U0001f4c8"]
)
def test_what_is_harmless_stays(text):
    assert printable(text) == text


def test_it_is_written_as_in_python():
    assert printable(EVIL, lines=False) == ("A\\x1b[31m\\x1b]0;owned\\x07\\u202eB\\u2028C\\x9b1mD")
    assert ast.literal_eval(f"'{printable(EVIL)}'") == EVIL
    assert printable("a\nb\udcff", lines=False) == "a\\nb\\udcff"


def test_errors_and_lists_are_shown_so():
    assert str(DataError(f"{EVIL}\nnext")) == printable(EVIL) + "\nnext"
    assert "\n" not in name_reasons({"A\nError: all is lost": "why"})
    assert len(listed(["x" * 100] * 1000)) == 300 and listed(["a", "b\n"]) == "a, b\\n"


def is_safe(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def test_headers_and_file_names_in_errors(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(f"d{EVIL}ate,close\nsoon,1\n", encoding="utf-8")
    message = error("ingest", "--source", f"files:{path}", "--home", tmp_path / "home", code=1)
    assert is_safe(message) and "\\x1b[31m" in message
    path.write_text(f"ticker,date,close\n{EVIL},2024-01-02,1\n", encoding="utf-8")
    message = error("ingest", "--source", f"files:{path}", "--home", tmp_path / "home", code=1)
    assert is_safe(message) and "control character" in message
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / f"{EVIL}\nError: x.csv").write_text("date,close\n2024-01-02,x\n")
    (folder / "FINE.csv").write_text("date,close\n2024-01-02,1\n")
    result = run("ingest", "--source", f"files:{folder}", "--home", tmp_path / "home")
    assert result.exit_code == 3 and is_safe(result.stderr)
    assert not [line for line in result.stderr.splitlines() if line.startswith("Error")]


def test_names_in_tables(tmp_path):
    home = tmp_path / f"home{EVIL}"
    run_folder = home / "models" / f"0-{EVIL}"
    run_folder.mkdir(parents=True)
    (run_folder / "model.json").write_text("{")
    result = run("status", "--home", home)
    assert result.exit_code == 0 and is_safe(result.stdout) and is_safe(result.stderr)
    assert "\\x1b[31m" in result.stdout and "damaged" in result.stdout


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


def test_every_kind_is_a_sentence_with_its_fields_and_is_the_same_on_disk():
    skipped: dict[str, Skipped] = {
        kind: Skipped(kind, **{name: FIELDS[name] for name in kind.parts}) for kind in Kind
    }
    assert str(skipped[Kind.TOO_SHORT]) == "30 rows; 34 needed (a text)"
    assert str(skipped[Kind.INFINITE]).startswith("close is -1.5 on 2024-01-02; expected a finite")
    stored = json.loads(json.dumps(skipped_to_json(skipped)))
    for kind, reason in skipped.items():
        assert all(str(FIELDS[name]) in str(reason) for name in Kind(kind).parts)
        assert stored[kind].pop("reason") == str(reason)
    assert skipped_from_json(stored) == skipped


@pytest.mark.parametrize(
    "stored",
    [
        None, 5, [], {}, "text", {"kind": "too_short"}, {"kind": ["too_short"]}, {"kind": "sunk"},
        {"kind": "too_short", "rows": "30", "needed": 34, "detail": ""},
        {"kind": "too_short", "rows": True, "needed": 34, "detail": ""},
        {"kind": "other", "reason": 5},
    ],
)  # fmt: skip
def test_what_is_no_reason_is_refused_by_name(stored):
    with refuses(ValueError):
        skipped_from_json({"A": stored})


def test_a_reason_is_a_line_and_many_are_cut():
    reasons = {f"S{n}": "not found" for n in range(10)} | {"odd": "no rows"}
    assert name_reasons(reasons).splitlines() == [
        "  S0, S1, S2, S3, S4, S5, S6, S7 and 2 more: not found", "  odd: no rows",
    ]  # fmt: skip
    each = name_reasons({f"S{n}": f"{n} rows; 120 needed" for n in range(12)}).splitlines()
    assert each[0] == "  S0: 0 rows; 120 needed" and each[8:] == ["  and 4 more series"]


@pytest.mark.parametrize("written", ["BRK-B", "BRK.B", "brk.b", " brk-b "])
def test_a_share_class_is_found_however_it_is_written(written):
    assert spelled(spellings(["BRK-A", "BRK-B"]), written) == "BRK-B"


def test_a_name_as_it_stands_comes_before_one_that_differs_in_spelling():
    known = spellings(["a.b", "A-B"])
    assert [spelled(known, name) for name in ("a.b", "A-B", "c")] == ["a.b", "A-B", None]


def test_near_names_are_named():
    assert near(["AAPL", "MSFT"], "APPL") == ["AAPL"] and near(["0001", "x"], "1") == ["0001"]
