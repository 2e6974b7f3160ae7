"""Latest rows that may be errors, and series that may be closed."""

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.series import say_findings
from forecaster.series.findings import latest
from tests.conftest import run
from tests.slow import rest_slow

ROWS = 48
MONTHS = pd.date_range("2020-01-01", periods=ROWS, freq="MS")
LAST = pd.Timestamp("2023-12-01")


def department(seed: int, amplitude: float = 0.15) -> np.ndarray:
    rng, step = np.random.default_rng(seed), np.arange(ROWS)
    season = 1 + amplitude * np.sin(2 * np.pi * (step + seed) / 12)
    return (
        10 ** rng.uniform(3, 6) * (1 + 0.004 * step) * season * np.exp(0.05 * rng.normal(size=ROWS))
    )


def frame_of(series, times: Any = MONTHS) -> pd.DataFrame:
    return pd.concat(
        pd.DataFrame({"unique_id": name, "ds": times[-len(values) :], "y": values})
        for name, values in series.items()
    )


def found(values, times: Any = MONTHS) -> dict[str, str]:
    """Return what is said of the latest rows of a series, by the kind of finding."""
    panel = fc.Panel.from_frame(frame_of({"a": values}, times))
    return {one.kind: one.said for one in latest(panel)}


def number(said: str, before: str) -> float:
    """Return the number behind some words."""
    return float(re.split(f"{before} ", said)[1].split(" ")[0].strip(",").replace(",", ""))


def say(series) -> None:
    panel = fc.Panel.from_frame(frame_of(series))
    say_findings([*latest(panel)], len(panel.ids))


def with_last(values: np.ndarray, *last: float) -> np.ndarray:
    return np.concatenate([values[: -len(last)], last])


@pytest.mark.parametrize("factor", [3, 1 / 3, 0])
@pytest.mark.parametrize("amplitude", [0, 0.15, 0.3])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", range(3))
def test_a_latest_row_far_from_all_before_is_found(factor, amplitude, sign, seed):
    values = sign * department(seed, amplitude)
    assert found(values) == {}
    wrong = with_last(values, factor * values[-1])
    said = found(wrong)["far"]
    assert said.startswith(f"{LAST:%Y-%m-%d}: ")
    assert number(said, "12-01:") == pytest.approx(wrong[-1], rel=1e-3, abs=0.5)
    assert number(said, "about") == pytest.approx(values[-1], rel=0.3)


def test_a_move_that_the_series_has_shown_before_is_not_named():
    values = department(0)
    values[20] *= 3
    assert "far" not in found(with_last(values, 3 * values[-1]))


def test_a_peak_of_every_year_is_expected():
    values = department(1, amplitude=0)
    values[11::12] *= 3  # Decembers, the latest row among them
    assert "far" not in found(values)
    assert "far" in found(with_last(values, values[-1] / 3))


def test_after_the_wrong_row_nothing_is_named():
    values = department(0)
    values[-2] *= 3
    assert "far" in found(values[:-1], MONTHS[:-1])
    assert "far" not in found(values)


def test_rates_that_rarely_change_may_change_a_little():
    rate = np.full(ROWS, 5.0)
    assert "far" not in found(with_last(rate, 5.25))
    assert "far" in found(with_last(rate, 50.0))


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_the_unit_makes_no_difference(scale):
    values = department(0)
    values /= values.mean()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "far" in found(scale * with_last(values, 3 * values[-1]))
        assert "far" not in found(scale * values)
        assert "far" not in found(-scale * values)


def clean(kind: str, rng: np.random.Generator) -> np.ndarray:
    return {
        "random walk": lambda: 100 + np.cumsum(rng.normal(size=120)),
        "of heavy tails": lambda: 100 + np.cumsum(rng.standard_t(3, 120)),
        "noise of heavy tails": lambda: 100 + 5 * rng.standard_t(3, 120),
        "steps": lambda: 5 + np.cumsum((rng.random(120) < 0.15) * rng.choice([-0.25, 0.25], 120)),
    }[kind]()


@pytest.mark.parametrize("kind", ["random walk", "of heavy tails", "noise of heavy tails", "steps"])
def test_few_sound_series_are_named(kind):
    rng, named, count = np.random.default_rng(3), 0, 0
    times = pd.date_range("2010-01-01", periods=120, freq="MS")
    series = {f"s{number}": clean(kind, rng) for number in range(200)}
    for rows in (60, 90, 120):
        part = {name: values[:rows] for name, values in series.items()}
        panel = fc.Panel.from_frame(frame_of(part, times[:rows]))
        named += sum(one.kind == "far" for one in latest(panel))
        count += len(panel.ids)
    assert count == 600 and named < 0.01 * count


@pytest.mark.parametrize("zeros", [2, 3, 9])
def test_zeros_at_the_end_of_a_series_without_any_are_found(zeros):
    said = {"zeros": f"{zeros} since {MONTHS[-zeros]:%Y-%m-%d}"}
    assert found(with_last(department(0), *[0.0] * zeros)) == said


@pytest.mark.parametrize("factor", [1000, 1 / 1000, 100, 1 / 60])
@pytest.mark.parametrize("amplitude", [0, 0.3])
@pytest.mark.parametrize("rows", [2, 8, 20])
def test_a_jump_of_all_latest_rows_is_found_until_they_are_half_of_all(factor, amplitude, rows):
    values = department(1, amplitude)
    values[-rows:] *= factor
    said = found(values)["resized"].replace("about 1/", "about 1 / ")
    assert said.startswith(f"since {MONTHS[-rows]:%Y-%m-%d} about ")
    ratio = 1 / number(said, "1 /") if factor < 1 else number(said, "about")
    assert ratio == pytest.approx(factor, rel=0.3)
    values[: rows - ROWS] *= factor  # corrected in the source
    assert found(values) == {}


@pytest.mark.parametrize("seed", range(10))
def test_growth_peaks_and_moves_of_a_usual_size_are_no_jump(seed):
    rng = np.random.default_rng(seed)
    grown = 10 * np.exp(0.15 * np.arange(ROWS) + 0.1 * rng.normal(size=ROWS))
    walk = 10 * np.exp(0.3 * rng.normal(size=ROWS).cumsum())
    tripled = with_last(department(seed), *(3 * department(seed)[-5:]))
    back = department(seed)
    back[20:30] *= 1000
    for values in (grown, walk, tripled, back):
        assert "resized" not in found(values)


def test_other_zeros_are_not_named():
    values = with_last(department(0), 0, 0)
    values[10] = 0  # there were zeros before
    assert "zeros" not in found(values)
    assert "zeros" not in found(with_last(-department(0), 0, 0))  # a balance
    assert "zeros" not in found(with_last(department(0), *[0] * 30))  # zero for most rows


def test_counts_sparse_series_prices_and_short_ones_are_left_out():
    rng = np.random.default_rng(0)
    counts = rng.poisson(3, ROWS) + 1.0
    assert found(with_last(counts, 0, 0)) == {}  # small whole numbers
    counts[3] = 0
    assert "far" not in found(with_last(counts, 90))
    sparse = np.where(rng.random(ROWS) < 0.3, rng.normal(1000, 10, ROWS), 0)
    assert "far" not in found(with_last(sparse, 1e6))
    wrong = with_last(department(0), 1e9)
    assert "far" not in found(wrong[-12:]) and "far" in found(wrong[-13:])
    prices = frame_of({"a": wrong}).rename(columns={"y": "close"})
    assert not list(latest(fc.Panel.from_frame(prices)))


def test_rows_that_are_counted_have_seasons_of_their_own():
    step = np.arange(120)
    values = 1000 * (1 + 0.8 * np.sin(2 * np.pi * step / 12)) + 300
    assert "far" not in found(values, step)
    said = found(with_last(values, 3 * values[-1]), step)["far"]
    assert said.startswith("119: ") and number(said, "about") == pytest.approx(values[-1], rel=0.05)


def company(wrong: int = 5, closed: int = 2) -> pd.DataFrame:
    series = {f"d{number}": department(number) for number in range(12)}
    for number in range(wrong):
        series[f"d{number}"][-1] *= 3
    for number in range(12 - closed, 12):
        series[f"d{number}"][-3:] = 0
    return frame_of(series)


FAR = (
    r"the latest row of 5 of 12 series is farther from what was expected than any row before: "
    r"d0 \(2023-12-01: [\d,]+, expected about [\d,]+\), d1 \(.*\), d2 \(.*\), and 2 more\. "
    r"Forecasts take it as it is: if the value is an error, correct it in the source; if it is "
    r"meant, the next rows will confirm it$"
)
ZEROS = (
    r"the latest rows of 2 of 12 series are the first zeros: "
    r"d10, d11 \(3 since 2023-10-01\)\. Forecasts may rise again. "
    r"Closed\? Retire them \(`forecaster tickers retire`\);"
)


def test_fits_forecasts_and_paths_warn_of_them():
    frame, config = company(), fc.Config(horizon=3, model="ets")
    with pytest.warns(ForecasterWarning, match=FAR), pytest.warns(ForecasterWarning, match=ZEROS):
        model = fc.fit(frame, config, seed=0)
    with pytest.warns(ForecasterWarning, match=FAR), pytest.warns(ForecasterWarning, match=ZEROS):
        fc.predict(model, frame)
    with pytest.warns(ForecasterWarning, match=FAR), pytest.warns(ForecasterWarning, match=ZEROS):
        fc.simulate(model, frame, n_paths=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecasterWarning)
        fc.predict(model, company(0, 0))


def test_a_change_of_unit_is_said_on_every_day(recwarn):
    jumped = {f"d{n}": department(n) for n in range(5)}
    for name in ("d1", "d3"):
        jumped[name][-4:] /= 1000
    say(jumped)
    (said,) = recwarn
    words = (
        r"the latest rows of 2 of 5 series are of another size than all rows before: d1 \(since "
    )
    assert re.match(
        rf"{words}2023-09-01 about 1/(8|9|1,0|1,1)\d\d of before\), d3", str(said.message)
    )


def test_a_single_series_and_an_odd_name(recwarn):
    name = "x\n" + "y" * 60
    say({name: with_last(department(0), 0.123456)})
    (said,) = recwarn
    assert "\n" not in str(said.message) and "yyy... (2023-12-01: 0.1235, exp" in str(said.message)


@pytest.mark.parametrize("shards", rest_slow([3, 1]))
def test_the_commands_say_it_once_with_the_same_exit_code(tmp_path, shards, monkeypatch):
    path, home = tmp_path / "company.csv", ["--home", tmp_path / "home"]
    company().to_csv(path, index=False)
    if shards > 1:
        monkeypatch.setattr("forecaster.pipeline.memory.MOST_PER_SHARD", 4)
    done = run("fit", "--source", f"files:{path}", "--horizon", 3, "--model", "ets", *home)
    assert done.exit_code == 0 and ("Shards" in done.stdout) == (shards > 1), done.output
    said = ["latest row of 5 of 12", "latest rows of 2 of 12"]
    assert [done.stderr.count(text) for text in said] == [1, 1], done.stderr
    assert done.stderr.count("latest row") == 2
    for options in ([], ["--paths", 10]):
        done = run("predict", "--all", *options, *home)
        assert done.exit_code == 0 and done.stderr.count("latest row") == 2, done.stderr
        assert [done.stderr.count(text) for text in said] == [1, 1], done.stderr
    done = run("predict", "d0", "d11", *home)
    assert "latest row of 1 of 2 series" in done.stderr, done.stderr
    done = run("predict", "--all", "--end", "2023-08-31", *home)
    assert "latest row" not in done.stderr, done.stderr
