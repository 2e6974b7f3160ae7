"""Faults of the disk lose nothing, and half-written files are never taken for whole."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forecaster.files import Home
from tests.ingest.older import as_version
from tests.slow import SHARE

ROOT = Path(__file__).parents[2]
WRITING = ["fit", "shards", "predict", "picture", "export", "parquet", "evaluate", "ingest", "move"]
KINDS = ["kill", "ENOSPC", "EIO"]


@pytest.fixture(scope="session")
def disk(tmp_path_factory) -> Path:
    """Compile the library that makes the disk fail."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux: LD_PRELOAD and /proc")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("disk") / "disk.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, Path(__file__).with_name("disk.c"),
         "-ldl"],
        check=True,
    )  # fmt: skip
    return library


def faults(disk: Path, folder: Path, command: str, kind: str, first: int, step: int) -> int:
    """Run a command with a fault at every ``step``-th operation; return the number of faults."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.faulty", disk, folder, command, kind, f"{first}",
         f"{step}"],
        cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"LD_PRELOAD": str(disk), "FORECASTER_TEST_TYPES": "off"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


@pytest.mark.parametrize(
    ("command", "kind"),
    [("ingest", "kill"), pytest.param("export", "ENOSPC", marks=pytest.mark.slow)],
)
def test_a_fault_at_some_writes_leaves_the_old_state_or_the_new(disk, tmp_path, command, kind):
    """Test a sample, also where only a share of the faults below is made."""
    assert faults(disk, tmp_path, command, kind, 2, 9) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", WRITING)
def test_a_fault_at_any_write_leaves_the_old_state_or_the_new(disk, tmp_path, command, kind):
    step = SHARE * (60 if command == "evaluate" else 1)  # most of its files are written alike
    first = random.randint(1, SHARE)
    assert faults(disk, tmp_path, command, kind, first, step) >= (5 if SHARE == 1 else 0), first


ALONE = ["unshare", "-m"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-rm"]


@pytest.fixture
def mounted(tmp_path):
    """Run a shell script that may mount private file systems; return its output."""

    def go(script: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = f'f() {{ {sys.executable} -m forecaster "$@" 2>&1; echo "-> $?"; }}'
        done = subprocess.run(
            [*ALONE, "bash", "-c", f"{command}; {script}"],
            cwd=tmp_path, capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        go("mkdir -p probe && mount -t tmpfs -o size=64k tmpfs probe")
    except (OSError, AssertionError):
        pytest.skip("needs unshare, and leave to mount a file system")
    return go


@pytest.mark.parametrize("version", [pytest.param(4, marks=pytest.mark.slow), None])
def test_a_home_that_may_only_be_read_is_read(mounted, home, tmp_path, version):
    """Forecasts, status and exports work; commands that write say once why they cannot."""
    shutil.copytree(home, tmp_path / "home")
    if version is not None:  # of the store, the present one if None
        as_version(version, Home(tmp_path / "home").stores()[0])
    run, again = (part.split("\n-> ") for part in mounted("""
        mount --bind home home && mount -o remount,ro,bind home
        f export AAPL --output a.csv --home home
        echo "===="
        f fit --resume --home home
    """).split("====\n"))  # fmt: skip
    assert run[-1].strip() == "0" and "Wrote" in run[0]
    assert (tmp_path / "a.csv").read_text().count("\n") > 100
    assert again[-1].strip() == "2" and "no unfinished fit" in again[0]


@pytest.mark.slow
def test_every_command_in_a_home_that_may_only_be_read(mounted, home, tmp_path):
    shutil.copytree(home, tmp_path / "home")
    said = mounted("""
        mount --bind home home && mount -o remount,ro,bind home
        f predict AAPL --home home; f status --home home
        f predict AAPL --output home/f.csv --home home
        f ingest --source simulated --tickers dow30.txt --home home
        f fit --source simulated --tickers dow30.txt --home home
        f evaluate --source simulated --tickers dow30.txt --home home
    """)
    codes = [line[3:] for line in said.splitlines() if line.startswith("-> ")]
    assert codes == ["0", "0", "1", "1", "1", "1"], said
    assert said.count("Error: ") == 4 and said.count("Warning: not in the record") == 2
    assert said.count("Read-only file system") == 4 + 2
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_disk_that_is_full_loses_nothing(mounted, home, settings, tmp_path):
    """On a full file system each command says so; with room again, all of them work."""
    shutil.copytree(home / "prices", tmp_path / "prices")
    shutil.copytree(home / "models", tmp_path / "models")
    (tmp_path / "t.txt").write_text("AAPL\nMSFT\nKO\nIBM\nXOM")
    fit = (
        f"f fit --tickers t.txt --source simulated --start 2023-01-01 --config {settings} "
        "--seed 1 --home full/home"
    )
    said = mounted(f"""
        mkdir full && mount -t tmpfs -o size=6m tmpfs full
        mkdir full/home && cp -r prices models full/home
        echo old > full/out.csv
        head -c 6m /dev/zero > full/fill
        f predict AAPL --home full/home
        f predict AAPL --output full/out.csv --overwrite --home full/home
        f export --output full/out.csv --overwrite --home full/home
        {fit}
        cat full/out.csv; ls -A full full/home/models
        rm full/fill
        echo ====
        {fit} && f export --output full/out.csv --overwrite --home full/home
        f status --verify --home full/home
    """)
    before, after = said.split("====\n")
    codes = [line[3:] for line in before.splitlines() if line.startswith("-> ")]
    assert codes == ["0", "1", "1", "1"], before
    assert before.count("Error: ") == 3 and before.count("No space left on device") >= 3
    assert "Traceback" not in said and "\nold\n" in before and ".tmp-" not in before
    codes = [line[3:] for line in after.splitlines() if line.startswith("-> ")]
    assert codes == ["0", "0", "0"], after
