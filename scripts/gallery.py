"""Draw the figures of the gallery again: run its scripts in their folder, and shrink the files.

    python scripts/gallery.py [NAME ...] [--quick]

Drawing all takes ten minutes on two cores. Each figure is reduced to 64 colours, without visible
loss.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a try of one, in a temporary folder")
    options, folder, names = (
        parser.parse_args(),
        FOLDER,
        sorted(p.stem for p in FOLDER.glob("*.py")),
    )
    if options.quick:
        folder, names = Path(tempfile.mkdtemp()) / "gallery", names[:1]
        shutil.copytree(FOLDER, folder)
    for name in options.names or names:
        print(f"{name}:")
        environment = os.environ | {"MPLBACKEND": "agg"}  # matplotlibrc is in that folder
        command = [sys.executable, f"{name}.py", *["--quick"] * options.quick]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        shrink(folder / f"{name}.png")


def shrink(path: Path) -> None:
    image = Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


if __name__ == "__main__":
    main()
