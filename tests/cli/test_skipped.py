"""Series that were left out: reasons together, and the option that would admit them."""

import dataclasses
import re

import pandas as pd
import pytest

from forecaster import Config
from forecaster.cli.skipped import lines_of
from forecaster.home import Home
from tests.conftest import error, prices


def too_short(config: Config, rows: dict[str, int]) -> dict[str, str]:
    """As a fit says it."""
    why = f"{config.rows_to_fit} needed ({config.why_rows})"
    return {name: f"{count} rows; {why}" for name, count in rows.items()}


def test_many_series_with_one_reason_are_a_line():
    config = Config(lookback=60, horizon=5, validation=55)
    short = too_short(config, {f"S{n:02}": 85 + n % 3 for n in range(73)})
    lines = lines_of({**short, "GONE": "not found", "LOST": "not found"}, config)
    assert lines == [
        "73 series: 85 to 87 rows; 120 needed (lookback 60 + horizon 5 + validation 55); "
        "--validation 20 would admit them: S00, S01, S02, S03, S04, S05, S06, S07 and 65 more",
        "GONE: not found",
        "LOST: not found",
    ]
    assert lines_of(dict.fromkeys("abcd", "not found")) == ["4 series: not found: a, b, c, d"]


def test_what_cannot_be_admitted_does_not_decide_the_advice():
    config = Config(lookback=60, horizon=5, validation=55)
    (line,) = lines_of(too_short(config, dict(zip("abcd", (9, 85, 86, 87), strict=True))), config)
    assert "9 to 87 rows" in line and "--validation 20 would admit 3 of them: a, b, c, d" in line
    (line,) = lines_of(too_short(config, {"a": 9}), config)
    assert line.startswith("a: 9 rows; 120 needed") and "admit" not in line


@pytest.mark.parametrize("rows", range(10, 140, 7))
@pytest.mark.parametrize(
    "config",
    [
        Config(horizon=12),
        Config(horizon=24),
        Config(horizon=5, validation=14, lookback=80),
        Config(horizon=3, validation=100, lookback=30, burn_in=10),
    ],
)
def test_the_option_does_admit_and_no_larger_one_would(config, rows):
    option = config.option_for(rows)
    if option is None:
        return
    name, value = option.removeprefix("--").split()[0], option.split()[-1]
    if not value.isdigit():
        assert option == "no --validation of your own"
        assert dataclasses.replace(config, validation=None).rows_to_fit <= rows
        return
    assert dataclasses.replace(config, **{name: int(value)}).rows_to_fit <= rows
    assert dataclasses.replace(config, **{name: int(value) + 1}).rows_to_fit > rows


def test_a_refused_fit_says_what_would_admit_its_series_and_leaves_nothing(tmp_path, settings):
    file, home = tmp_path / "p.csv", tmp_path / "home"
    pd.concat([prices(name, 60) for name in ("A", "B", "C", "D")]).to_csv(file, index=False)
    for command in (["fit"], ["evaluate", "--windows", 3]):
        said = error(*command, "--source", f"files:{file}", "--config", settings, "--home", home,
                     code=1)  # fmt: skip
        assert re.search(r"no series can be used:\n  4 series: \d\d rows; 133 needed", said)
        assert re.search(r"--validation 2\d would admit them: A, B, C, D", said)
    assert not Home(home).unfinished.exists()  # of which a later fit would have to speak
