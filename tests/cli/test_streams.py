"""Tests of output that is closed, full, an unread pipe, or in an encoding without its letters."""

import ast
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from forecaster.cli import main
from forecaster.cli.running import quiet_libraries
from forecaster.errors import ForecasterWarning
from tests.conftest import prices, run

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
ROOT = Path(__file__).parents[2]
SENTENCE = "standard output is closed, so the output is lost"


def shell(line: str, **environment) -> subprocess.CompletedProcess:
    """Run a command in a shell, in which ``forecaster`` is this program."""
    line = line.replace("forecaster ", f"'{sys.executable}' -m forecaster ", 1)
    return subprocess.run(
        ["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, errors="replace",
        env=os.environ | environment, timeout=120,
    )  # fmt: skip


@POSIX
@pytest.mark.parametrize("words", ["--help", "fit --help", "--version"])
def test_output_that_cannot_be_written_is_said_to_be_lost(words):
    closed = shell(f"forecaster {words} >&-")
    assert (closed.returncode, closed.stderr.count("\n")) == (1, 1) and SENTENCE in closed.stderr
    if Path("/dev/full").exists():
        full = shell(f"forecaster {words} >/dev/full")
        assert full.returncode == 1
        assert full.stderr == "Error: output: No space left on device, so the output is lost\n"


@POSIX
def test_a_prediction_into_nothing_is_not_a_success(home):
    done = shell(f"forecaster predict --all --format csv --home '{home}' >&-")
    assert done.returncode == 1 and SENTENCE in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@POSIX
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    """As with ``| head``, the reading end is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "forecaster", "status", "--home", tmp_path],
            cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.stderr == "" and done.returncode == 1


@POSIX
def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path):
    """Otherwise messages of libraries on standard error would land in that file."""
    script = (
        "import contextlib, sys, os; from forecaster.cli.running import prepare_streams\n"
        "with contextlib.suppress(Exception): prepare_streams()  # output is lost, which it says\n"
        "file = open(sys.argv[1], 'w'); file.write(str(file.fileno())); os.write(2, b'noise')"
    )
    subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{script}" "$0" <&- >&- 2>&-', tmp_path / "file"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    assert int((tmp_path / "file").read_text()) > 2


@pytest.fixture(scope="module")
def abroad(tmp_path_factory, settings):
    """Make a home with a series whose name is neither in ASCII nor in matplotlib's font."""
    folder = tmp_path_factory.mktemp("home")
    prices("KÖLN漢", 250).to_csv(folder / "p.csv", index=False)
    done = run("fit", "--source", f"files:{folder / 'p.csv'}", "--config", settings,
               "--home", folder / "hömé")  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder / "hömé"


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_name_that_the_encoding_lacks_is_no_traceback(abroad, form):
    ascii = CliRunner(charset="ascii")
    done = ascii.invoke(main, ["predict", "--all", "--format", form, "--home", str(abroad)])
    assert done.exit_code == 0, done.exception
    # A table is for people; CSV stays UTF-8, and JSON escapes the characters.
    shown = {"table": b"K\\xd6LN\\u6f22", "json": b"K\\u00d6LN\\u6f22"}
    assert shown.get(form, "KÖLN漢".encode()) in done.stdout_bytes


def test_commands_show_warnings_of_the_package_alone(capsys, monkeypatch):
    # As without pytest, whose root handler would keep records from standard error.
    monkeypatch.setattr(logging.getLogger("matplotlib"), "propagate", False)
    with quiet_libraries():
        warnings.warn("Glyph 28450 missing from font(s) DejaVu Sans.", UserWarning, stacklevel=1)
        warnings.warn("look here", ForecasterWarning, stacklevel=1)
        logging.getLogger("matplotlib.font_manager").warning("building the font cache")
    assert capsys.readouterr().err == "Warning: look here\n"


def test_every_warning_of_the_package_is_of_its_own_kind():
    """Commands show only these warnings."""
    calls = 0
    for path in sorted((ROOT / "forecaster").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
                calls += 1
                kinds = {ast.unparse(argument) for argument in node.args[1:]}
                own = {"ForecasterWarning", "SwarmWarning"}
                assert kinds & own, f"{path}:{node.lineno}"
    assert calls >= 4
