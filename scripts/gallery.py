"""Draws the figures of the gallery again: runs its scripts in their folder, makes the files small.

    python scripts/gallery.py [NAME ...]

Ten minutes on two cores for all of them. A figure keeps 64 colours, which nobody misses.
"""

import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"


def main() -> None:
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py")):
        print(f"{name}:")
        environment = os.environ | {"MPLBACKEND": "agg"}  # matplotlibrc lies in the folder
        subprocess.run([sys.executable, f"{name}.py"], cwd=FOLDER, env=environment, check=True)
        shrink(FOLDER / f"{name}.png")


def shrink(path: Path) -> None:
    image = Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


if __name__ == "__main__":
    main()
