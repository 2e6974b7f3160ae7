"""Commands on streams that are closed or full, and stopped by signals."""

import ast
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import forecaster as fc
from forecaster.cli import main
from forecaster.cli.running import Stopped, exit_code, quiet_libraries, stoppable
from forecaster.errors import ForecasterWarning
from forecaster.files import Home
from forecaster.storage import unfinished_fits
from forecaster.swarm.execution.schedule import Schedule
from tests.conftest import error, prices, run

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a shell and signals of POSIX")
SENTENCE = "standard output is closed, so the output is lost"
ROOT = Path(__file__).parents[2]


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


@POSIX
def test_only_the_first_signal_counts_and_ignored_ones_stay_ignored():
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with pytest.raises(Stopped) as stopped, stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGTERM)  # while the state is kept
                raise
        assert stopped.value.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@POSIX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_arrives_while_garbage_is_collected_is_not_lost(number):
    """Python drops exceptions raised there, and JAX runs Python code there."""

    class Garbage:
        def __del__(self):
            os.kill(os.getpid(), number)
            sum(range(10))  # the signal handler runs here

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as stopped, stoppable():
            garbage = Garbage()
            del garbage
            time.sleep(10)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert exit_code(stopped.value) == 128 + number


def models(home: Path) -> set[bytes]:
    return {(path / "model.safetensors").read_bytes() for path in Home(home).runs()}


@POSIX
def test_two_fits_in_one_home_are_both_gone_on_with(monkeypatch, tmp_path, settings):
    """After SIGTERM (sent twice, as by batch systems) and Ctrl-C both end with the same bits."""
    (tmp_path / "t.txt").write_text("AAPL\nKO\nIBM")
    arguments = (
        "fit", "--tickers", tmp_path / "t.txt", "--source", "simulated", "--start", "2024-01-01",
        "--config", settings, "--epochs", 15,
    )  # fmt: skip
    for seed in (1, 2):
        whole = run(*arguments, "--seed", seed, "--home", tmp_path / "whole")
        assert whole.exit_code == 0, whole.output

    advance, save = Schedule.advance, Schedule.save
    terminated = True

    def interrupted(self):
        if self.state.epoch.max() >= 5:
            if not terminated:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)
        advance(self)

    def told_again(self, *args):
        if terminated:
            os.kill(os.getpid(), signal.SIGTERM)
        save(self, *args)

    home = tmp_path / "home"
    with monkeypatch.context() as patch:
        patch.setattr(Schedule, "advance", interrupted)
        patch.setattr(Schedule, "save", told_again)
        said = error(*arguments, "--seed", 1, "--home", home, code=143)
        assert said == "Stopped by SIGTERM. Continue with `forecaster fit --resume`.\n"
        (first,) = unfinished_fits(Home(home))
        terminated = False
        said = error(*arguments, "--seed", 2, "--home", home, code=130)
    second = unfinished_fits(Home(home))[-1]
    assert f"Kept an interrupted fit, {first.name}: 3 series of simulated, LSTM 4, progr" in said
    assert f"Continue with `forecaster fit --resume {second.name}`" in said

    shown = run("status", "--home", home).stdout
    assert "Unfinished fits" in shown and first.name in shown and second.name in shown
    assert shown.count("interrupted │") == 2 and "`forecaster fit --resume NAME`" in shown
    said = error("fit", "--resume", "--home", home, code=2)
    assert "2 unfinished fits" in said and first.name in said and second.name in said
    assert "leave out --seed" in error("fit", "--discard", "x", "--seed", 3, "--home", home, code=2)
    assert run("fit", "--resume", first.name, "--home", home).exit_code == 0
    assert run("fit", "--resume", "--home", home).exit_code == 0  # now there is only one
    assert models(home) == models(tmp_path / "whole") and len(models(home)) == 2
    assert not (home / "unfinished").exists()
    assert "Unfinished" not in run("status", "--home", home).stdout


def stop_once_it_trains(command: list) -> tuple[int, str]:
    """Send SIGTERM once the progress bar shows epochs; return exit code and output."""
    import pty  # Windows lacks it

    reading, writing = pty.openpty()
    running = subprocess.Popen(
        list(map(str, command)), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=writing,
        env=os.environ | {"COLUMNS": "200", "TERM": "xterm"},
    )  # fmt: skip
    os.close(writing)
    said = b""
    with contextlib.suppress(OSError):  # Linux raises an error at the end of a terminal
        while part := os.read(reading, 1 << 16):
            trains = re.search(rb"epoch [1-9]", said)
            said += part
            if not trains and re.search(rb"epoch [1-9]", said):
                running.terminate()
    os.close(reading)
    return running.wait(timeout=60), said.decode(errors="replace")


@POSIX
def test_a_real_process_that_trains_is_stopped_and_resumed(tmp_path, settings):
    """The signal comes from outside, as from a batch system, at any operation."""
    (tmp_path / "t.txt").write_text("AAPL\nKO\nIBM")
    longer = tmp_path / "long.toml"
    longer.write_text(
        Path(settings).read_text().replace("epochs = 4", "epochs = 120\npatience = 120")
    )
    fit = ["fit", "--tickers", tmp_path / "t.txt", "--source", "simulated",
           "--start", "2024-06-01", "--config", longer, "--home"]  # fmt: skip
    home, whole = tmp_path / "home", tmp_path / "whole"
    code, said = stop_once_it_trains([sys.executable, "-m", "forecaster", *fit, home])
    assert code == 143, said
    assert "Stopped by SIGTERM. Continue with `forecaster fit --resume`" in said
    assert not (home / "models").exists()
    (kept,) = unfinished_fits(Home(home))
    assert "kept at" in kept.progress
    assert run("fit", "--resume", "--home", home).exit_code == 0
    assert run(*fit, whole).exit_code == 0
    assert models(home) == models(whole)
    fc.load(Home(home).latest_run())
