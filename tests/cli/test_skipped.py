"""Lines that name the skipped series."""

import re

import pandas as pd

from forecaster.cli.shared import lines_of
from forecaster.files import Home
from tests.conftest import error, prices


def test_a_reason_is_a_line_and_many_are_cut():
    reasons = {f"S{n}": "not found" for n in range(10)} | {"odd": "no rows"}
    assert lines_of(reasons) == [
        "S0, S1, S2, S3, S4, S5, S6, S7 and 2 more: not found", "odd: no rows",
    ]  # fmt: skip
    each = lines_of({f"S{n}": f"{n} rows; 120 needed" for n in range(12)})
    assert each[0] == "S0: 0 rows; 120 needed" and each[8:] == ["and 4 more series"]


def test_a_refused_fit_says_how_many_rows_are_needed_and_leaves_nothing(tmp_path, settings):
    file, home = tmp_path / "p.csv", tmp_path / "home"
    pd.concat([prices(name, 60) for name in ("A", "B", "C", "D")]).to_csv(file, index=False)
    for command in (["fit"], ["evaluate", "--windows", 3]):
        said = error(*command, "--source", f"files:{file}", "--config", settings, "--home", home,
                     code=1)  # fmt: skip
        assert re.search(r"no series can be used:\n  A, B, C, D: \d\d rows; 133 needed", said)
    assert not Home(home).unfinished.exists()  # nothing for a later fit to report
