"""Lines that name the skipped series, and the option that would admit them."""

import contextlib
import dataclasses
import re

import pandas as pd
import pytest

from forecaster import Config
from forecaster.cli.skipped import lines_of
from forecaster.errors import UsageError
from forecaster.home import Home
from forecaster.skipped import Kind, Skipped
from tests.conftest import error, prices

NOT_FOUND = Skipped(Kind.NOT_LOADED, detail="not found")


def too_short(config: Config, rows: dict[str, int]) -> dict[str, Skipped]:
    """Return the reasons of a fit."""
    needed, why = config.rows_to_fit, config.why_rows
    return {name: Skipped(Kind.TOO_SHORT, n, needed, detail=why) for name, n in rows.items()}


def test_a_sign_in_place_of_a_number_is_another_reason():
    reasons = {name: f"{value!r} is no number" for name, value in zip("abcd", "5#67", strict=True)}
    assert lines_of(reasons) == ["a: '5' is no number", "c: '6' is no number",
                                 "d: '7' is no number", "b: '#' is no number"]  # fmt: skip


def test_many_series_with_one_reason_are_a_line():
    config = Config(lookback=60, horizon=5, validation=55)
    short = too_short(config, {f"S{n:02}": 85 + n % 3 for n in range(73)})
    lines = lines_of({**short, "GONE": NOT_FOUND, "LOST": NOT_FOUND}, config)
    assert lines == [
        "73 series: 85 to 87 rows; 120 needed (lookback 60 + horizon 5 + validation 55); "
        "--validation 20 would admit them: S00, S01, S02, S03, S04, S05, S06, S07 and 65 more",
        "GONE, LOST: not found",
    ]
    assert lines_of(dict.fromkeys("abcd", NOT_FOUND)) == ["4 series: not found: a, b, c, d"]


def test_what_cannot_be_admitted_does_not_decide_the_advice():
    config = Config(lookback=60, horizon=5, validation=55)
    (line,) = lines_of(too_short(config, dict(zip("abcd", (9, 85, 86, 87), strict=True))), config)
    assert "9 to 87 rows" in line and "--validation 20 would admit 3 of them: a, b, c, d" in line
    (line,) = lines_of(too_short(config, {"a": 9}), config)
    assert line.startswith("a: 9 rows; 120 needed") and "admit" not in line


def largest_that_admits(config: Config, rows: int, name: str, fewest: int = 1) -> int | None:
    """Try every smaller value of a setting, the largest first; None: none admits these rows."""
    for value in range(getattr(config, name) - 1, fewest - 1, -1):
        with contextlib.suppress(UsageError):  # which a Config may not have
            if dataclasses.replace(config, **{name: value}).rows_to_fit <= rows:
                return value
    return None


def best_option(config: Config, rows: int) -> str | None:
    """Return the option that :meth:`Config.option_for` has to find, by trial."""
    if rows >= config.rows_to_fit:
        return None
    if config.validation is None:
        horizon = largest_that_admits(config, rows, "horizon")
        return None if horizon is None else f"--horizon {horizon}"
    for name, fewest in (("validation", 1), ("lookback", 20)):
        if (value := largest_that_admits(config, rows, name, fewest)) is not None:
            return f"--{name} {value}"
    without = dataclasses.replace(config, validation=None)
    return "leaving out --validation" if without.rows_to_fit <= rows else None


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (Config(horizon=12), {"--horizon"}),
        (Config(horizon=24), {"--horizon"}),
        (Config(horizon=5, validation=14, lookback=80), {"--lookback", "leaving"}),
        (Config(horizon=3, validation=100, lookback=30, burn_in=10), {"--validation", "leaving"}),
        (Config(horizon=3, validation=40, lookback=60), {"--validation", "--lookback", "leaving"}),
    ],
)
def test_the_option_is_the_smallest_change_that_admits(config, kinds):
    found = {rows: config.option_for(rows) for rows in range(1, 160)}
    assert found == {rows: best_option(config, rows) for rows in found}
    assert {option.split()[0] for option in found.values() if option} == kinds
    assert found[1] is None and found[159] is None


def test_a_refused_fit_says_what_would_admit_its_series_and_leaves_nothing(tmp_path, settings):
    file, home = tmp_path / "p.csv", tmp_path / "home"
    pd.concat([prices(name, 60) for name in ("A", "B", "C", "D")]).to_csv(file, index=False)
    for command in (["fit"], ["evaluate", "--windows", 3]):
        said = error(*command, "--source", f"files:{file}", "--config", settings, "--home", home,
                     code=1)  # fmt: skip
        assert re.search(r"no series can be used:\n  4 series: \d\d rows; 133 needed", said)
        assert re.search(r"--validation 2\d would admit them: A, B, C, D", said)
    assert not Home(home).unfinished.exists()  # nothing for a later fit to report


def test_failures_that_differ_in_numbers_alone_are_one_line():
    failed = {
        f"s{n}": f"ValueError: {n} changes before the cutoff; expected 1,000" for n in range(12)
    }
    failed |= {"odd": "ValueError: nothing changes"}
    assert lines_of(failed) == [
        "12 series: ValueError: 0 to 11 changes before the cutoff; expected 1,000: "
        "s0, s1, s2, s3, s4, s5, s6, s7 and 4 more",
        "odd: ValueError: nothing changes",
    ]
    same = dict.fromkeys("abcd", "no forecasts from 1 of 2 cutoffs")
    assert lines_of(same) == ["4 series: no forecasts from 1 of 2 cutoffs: a, b, c, d"]
    days = {f"s{n}": f"close is {-n / 2} on 2024-01-{9 + n:02}, 10:00" for n in range(1, 5)}
    assert lines_of(days) == [
        "4 series: close is -2.0 to -0.5 on 2024-01-10 to 2024-01-13, 10:00: s1, s2, s3, s4"
    ]
    few = dict(list(failed.items())[:3])
    assert lines_of(few) == [f"{name}: {why}" for name, why in few.items()]
