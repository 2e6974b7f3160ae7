"""Control characters in text from outside are shown, not obeyed by the terminal."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import DataError, listed, name_reasons, printable
from tests.conftest import error, run

EVIL = "A\x1b[31m\x1b]0;owned\x07\u202eB\u2028C\x9b1mD"


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
