"""Lines that name the skipped series."""

import re

import pandas as pd

from forecaster.files import Home
from tests.conftest import error, prices


def test_a_refused_fit_says_how_many_rows_are_needed_and_leaves_nothing(tmp_path, settings):
    file, home = tmp_path / "p.csv", tmp_path / "home"
    pd.concat([prices(name, 60) for name in ("A", "B", "C", "D")]).to_csv(file, index=False)
    for command in (["fit"], ["evaluate", "--windows", 3]):
        said = error(*command, "--source", f"files:{file}", "--config", settings, "--home", home,
                     code=1)  # fmt: skip
        assert re.search(r"no series can be used:\n  A, B, C, D: \d\d rows; 133 needed", said)
    assert not Home(home).unfinished.exists()  # nothing for a later fit to report
