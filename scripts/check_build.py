"""Build the sdist, build the wheel from it, install the wheel, and check that it works.

    python scripts/check_build.py [--without-compiler] [--keep DIRECTORY]
        [--quick]

Needs `build`, of the extra `test`. Checks that the build fetches nothing of JAX, which would take
longer than to compile the kernel. Checks that the sdist holds the sources of the kernel and all
files that its tests read. Checks that the wheel has this project's name, only absolute links in its
README, and the compiled kernel (with ``--without-compiler``: that the kernel is left out and the
installation works all the same). Checks, unless ``--quick``, that the installed command trains and
predicts on simulated prices in an empty environment.
"""

import argparse
import email
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = "forecaster/swarm/native"
FOR_TESTS = (
    "tests/conftest.py", "docs/index.md", "zensical.toml", "scripts/docs_roles.py",
    ".github/workflows/tests.yml", "notebooks/01_better_than_garch.ipynb", "CONTRIBUTING.md",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--without-compiler", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave sdist and wheel there")
    parser.add_argument("--quick", action="store_true", help="build, but do not install")
    options = parser.parse_args()
    if options.keep:
        options.keep = options.keep.resolve()
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        os.chdir(room)  # so that the installed package is imported, not the sources
        built = options.keep or room / "built"
        environment = dict(os.environ)
        if options.without_compiler:
            environment["CXX"] = "no-such-compiler"
        check_requirements()
        run([sys.executable, "-m", "build", "--outdir", str(built), str(ROOT)], environment)
        sdist, wheel = newest(built, "*.tar.gz"), newest(built, "*.whl")
        check_sdist(sdist)
        check_wheel(wheel, kernel=not options.without_compiler)
        if not options.quick:
            try_installed(wheel, room, kernel=not options.without_compiler)
    say(f"Fine: {sdist.name}, {wheel.name}")


def check_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requires = project["build-system"]["requires"]
    if heavy := [each for each in requires if each.lower().startswith(("jax", "flax"))]:
        sys.exit(f"pyproject.toml: the build requires {', '.join(heavy)}; expected nothing of JAX")


def check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    sources = [path.relative_to(ROOT).as_posix() for path in (ROOT / NATIVE).glob("*.[hc]*")]
    needed = [*sources, "hatch_build.py", f"{NATIVE}/compiling.py", "LICENSE", *FOR_TESTS]
    if missing := [name for name in needed if name not in names]:
        sys.exit(f"{sdist.name} lacks {', '.join(missing)}")
    if built := [name for name in names if name.endswith((".so", "uplot.js"))]:
        sys.exit(f"{sdist.name} holds files that the build makes: {', '.join(built)}")


def check_wheel(wheel: Path, kernel: bool) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        described = email.message_from_bytes(archive.read(metadata))
    if described["Name"] != "forecaster-swarm":
        sys.exit(f"{wheel.name}: expected the name forecaster-swarm; got {described['Name']}")
    links = re.findall(r"\]\(([^)]+)\)", described.get_payload())
    if not links or (relative := [link for link in links if not link.startswith("https://")]):
        sys.exit(f"{wheel.name}: the README's links are not absolute: {relative if links else '-'}")
    if kernel != (f"{NATIVE}/_kernels.so" in names):
        sys.exit(f"{wheel.name}: expected {'a' if kernel else 'no'} compiled kernel")
    if kernel == wheel.name.endswith("-any.whl"):
        sys.exit(f"{wheel.name}: the tag does not say whether it is for one platform")
    for name in (
        "forecaster/universes/sp500.txt",
        "forecaster/py.typed",
        "forecaster/report/uplot.js",
    ):
        if name not in names:
            sys.exit(f"{wheel.name} lacks {name}")


def try_installed(wheel: Path, room: Path, kernel: bool) -> None:
    run([sys.executable, "-m", "venv", str(room / "venv")])
    run([str(room / "venv/bin/python"), "-m", "pip", "install", "-q", str(wheel)])
    command = str(room / "venv/bin/forecaster")
    environment = os.environ | {"FORECASTER_HOME": str(room / "home")}
    status = run([command, "status"], environment)
    say(next(line for line in status.splitlines() if line.startswith("Training")))
    if kernel != ("code compiled for this processor (" in status):
        sys.exit(f"`forecaster status` does not say that the kernel runs:\n{status}")
    tickers = room / "tickers.txt"
    tickers.write_text("AAPL\nMSFT\n")
    fit = ["fit", "--tickers", str(tickers), "--source", "simulated", "--epochs", "1"]
    run([command, *fit], environment)
    if "AAPL" not in run([command, "predict", "AAPL"], environment):
        sys.exit("`forecaster predict AAPL` does not name AAPL")


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime)


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    say("$ " + " ".join(Path(part).name if part.startswith("/") else part for part in command))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\nfailed with exit code {done.returncode}")
    return done.stdout


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
