"""A stopped command keeps its progress, releases its locks, and exits with the right code."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forecaster as fc
from forecaster.cli.running import Stopped, exit_code, stoppable
from forecaster.files import Home
from forecaster.storage import unfinished_fits
from forecaster.swarm.execution.schedule import Schedule
from tests.conftest import error, run

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


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
