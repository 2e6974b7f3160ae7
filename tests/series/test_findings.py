"""What a user should know of series is found, and said once by fits and forecasts."""

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning
from forecaster.series import Frequency, findings_of, infer_frequency, say_findings
from forecaster.series.findings import Finding, latest, of_dates, placeholders, running, unmatched
from tests.conftest import run
from tests.frames import long
from tests.messages import refuses, warns

ROWS = 48
MONTHS = pd.date_range("2020-01-01", periods=ROWS, freq="MS")
DAYS = pd.date_range("2022-01-03", periods=600)
HOURS = pd.date_range("2026-01-01", periods=300, freq="h")
NOW = pd.Timestamp("2026-11-26 19:00")  # a Thursday


def department(seed: int, amplitude: float = 0.15) -> np.ndarray:
    rng, step = np.random.default_rng(seed), np.arange(ROWS)
    season = 1 + amplitude * np.sin(2 * np.pi * (step + seed) / 12)
    level = 10 ** rng.uniform(3, 6) * (1 + 0.004 * step)
    return level * season * np.exp(0.05 * rng.normal(size=ROWS))


def panel_of(series: dict[str, Any], times: Any = MONTHS) -> fc.Panel:
    return fc.Panel.from_frame(long(series, times))


def found(values, times: Any = MONTHS) -> dict[str, str]:
    """Return what is said of the latest rows of a series, by the kind of finding."""
    return {one.kind: one.said for one in latest(panel_of({"a": values}, times))}


def number(said: str, before: str) -> float:
    return float(re.split(f"{before} ", said)[1].split(" ")[0].strip(",").replace(",", ""))


def with_last(values: np.ndarray, *last: float) -> np.ndarray:
    return np.concatenate([values[: -len(last)], last])


@pytest.mark.parametrize("factor", [3, 1 / 3, 0])
@pytest.mark.parametrize("amplitude", [0, 0.3])
@pytest.mark.parametrize("scale", [1, -1, 1e-300, 1e300])
def test_a_latest_row_far_from_all_before_is_found(factor, amplitude, scale):
    values = scale * (department(0, amplitude) / 1e3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found(values) == {}
        said = found(with_last(values, factor * values[-1]))["far"]
    assert said.startswith("2023-12-01: ")
    assert number(said, "about") == pytest.approx(values[-1], rel=0.3)


def tripled(*rows: int) -> np.ndarray:
    """Return the sales of a department with some rows times three."""
    values = department(0)
    values[list(rows)] *= 3
    return values


def in_decembers(last: float = 1.0) -> np.ndarray:
    """Return sales of which those of December, the latest row among them, are times three."""
    values = department(1, amplitude=0)
    values[11::12] *= 3
    return with_last(values, last * values[-1])


STEP = np.arange(120)  # rows that are counted have seasons of their own
COUNTED = 1000 * (1 + 0.8 * np.sin(2 * np.pi * STEP / 12)) + 300
COUNTS = np.random.default_rng(0).poisson(3, ROWS) + 1.0
SPARSE = np.where(np.random.default_rng(0).random(ROWS) < 0.3, 1000.0 + STEP[:ROWS], 0)
BLOCK = np.where(STEP[:ROWS] // 10 == 2, 1000, 1)
RATE = np.full(ROWS, 5.0)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (tripled(20, -1), ""), (tripled(-2), ""), (tripled(-2)[:-1], "far"),  # shown before
        (in_decembers(), ""), (in_decembers(1 / 3), "far"),
        (with_last(RATE, 5.25), ""), (with_last(RATE, 50.0), "far"),
        (COUNTED, ""), (with_last(COUNTED, 3 * COUNTED[-1]), "far"),
        (tripled(-1)[-12:], ""), (tripled(-1)[-13:], "far"),  # too few rows to tell
        (with_last(COUNTS, 0, 0), ""), (with_last(np.where(STEP[:ROWS] == 3, 0, COUNTS), 90), ""),
        (with_last(SPARSE, 1e6), ""),
        (with_last(department(0), 0, 0), "zeros"), (with_last(department(0), *[0] * 9), "zeros"),
        (with_last(np.where(STEP[:ROWS] == 10, 0, department(0)), 0, 0), ""),  # zeros before
        (-with_last(department(0), 0, 0), ""), (with_last(department(0), *[0] * 30), ""),
        (department(0) * BLOCK, ""),  # a jump, and back
    ],
)  # fmt: skip
def test_the_latest_rows_are_named_where_no_row_before_was_like_them(values, kind):
    times = STEP if len(values) == len(STEP) else MONTHS[: len(values)]
    said = found(values, times)
    assert [*said] == [kind] * bool(kind)
    if kind == "zeros":
        zeros = int((values == 0).sum())
        assert said["zeros"] == f"{zeros} since {MONTHS[-zeros]:%Y-%m-%d}"
    assert not findings_of(fc.Panel.from_frame(long({"a": values}, times, "close")))


CLEAN = {
    "random walk": lambda rng: 100 + np.cumsum(rng.normal(size=120)),
    "of heavy tails": lambda rng: 100 + np.cumsum(rng.standard_t(3, 120)),
    "noise of heavy tails": lambda rng: 100 + 5 * rng.standard_t(3, 120),
    "steps": lambda rng: 5 + np.cumsum((rng.random(120) < 0.15) * rng.choice([-1, 1], 120)) / 4,
}


@pytest.mark.parametrize("kind", CLEAN)
def test_few_sound_series_are_named(kind):
    rng, named = np.random.default_rng(3), 0
    times = pd.date_range("2010-01-01", periods=120, freq="MS")
    series = {f"s{number}": CLEAN[kind](rng) for number in range(200)}
    for rows in (60, 90, 120):
        part = {name: values[:rows] for name, values in series.items()}
        named += sum(one.kind == "far" for one in latest(panel_of(part, times[:rows])))
    assert named < 0.01 * 600


@pytest.mark.parametrize("factor", [1000, 1 / 1000, 1 / 60])
@pytest.mark.parametrize("rows", [2, 20])
def test_a_jump_of_all_latest_rows_is_found_until_they_are_half_of_all(factor, rows):
    values = department(1, 0.3)
    values[-rows:] *= factor
    said = found(values)["resized"].replace("about 1/", "about 1 / ")
    assert said.startswith(f"since {MONTHS[-rows]:%Y-%m-%d} about ")
    ratio = 1 / number(said, "1 /") if factor < 1 else number(said, "about")
    assert ratio == pytest.approx(factor, rel=0.3)
    values[: rows - ROWS] *= factor  # corrected in the source
    assert found(values) == {}


@pytest.mark.parametrize("seed", range(3))
def test_growth_and_moves_of_a_usual_size_are_no_jump(seed):
    rng = np.random.default_rng(seed)
    grown = 10 * np.exp(0.15 * np.arange(ROWS) + 0.1 * rng.normal(size=ROWS))
    walk = 10 * np.exp(0.3 * rng.normal(size=ROWS).cumsum())
    peaks = with_last(department(seed), *(3 * department(seed)[-5:]))
    assert not any("resized" in found(values) for values in (grown, walk, peaks))


def some_days(seed: int, share: float, days: pd.DatetimeIndex = DAYS) -> np.ndarray:
    """Return a random share of some dates, the first and the last among them."""
    kept = np.random.default_rng(seed).random(len(days)) < share
    kept[[0, -1]] = True
    return days[kept].to_numpy("datetime64[ns]")


EACH = (
    DAYS,
    DAYS[::7],
    pd.date_range("2000-01-01", periods=200, freq="MS"),
    pd.date_range("2000-01-01", periods=600, freq="h"),
)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        *((some_days(0, 0.3, days), ["irregular"]) for days in EACH),
        *((some_days(3, 0.7, days), []) for days in EACH),
        (DAYS[DAYS.day_of_week < 2].to_numpy(), []),  # two days a week
        (pd.date_range("2000-01-31", periods=60, freq="BME").to_numpy(), []),
        (DAYS[[0, 1, 5, 60, 70]].to_numpy(), []),  # too few to tell
        (np.array([1, 2, 5, 9, 20, 21, 40, 48, 90]), []),
    ],
)
def test_rows_on_few_of_the_dates_are_irregular_and_those_on_most_are_not(times, said):
    assert [*of_dates(times, Frequency("B"), of_values=True)] == said


TEMPERATURE = pd.DataFrame({"ds": HOURS, "temp": np.arange(300.0), "price": 1.0})
LATE = HOURS[:240] + pd.Timedelta(seconds=7)


def loads(times=HOURS[:240]) -> fc.Panel:
    return panel_of(dict.fromkeys("AB", np.sin(np.arange(len(times)))), times)


@pytest.mark.parametrize("ids", [False, True])
def test_a_covariate_without_numbers_at_past_rows_is_named_with_its_share(ids, recwarn):
    coarse = TEMPERATURE.assign(temp=TEMPERATURE["temp"].where(HOURS.hour % 3 == 0))
    if ids:
        every = TEMPERATURE.assign(unique_id="A")
        coarse = pd.concat([every, coarse.assign(unique_id="B")])
    whole = [TEMPERATURE, TEMPERATURE.drop(index=range(50, 60)), TEMPERATURE[100:]]
    for frame in (*whole, pd.DataFrame({"ds": HOURS[::24]}), coarse):
        say_findings([*unmatched(loads().with_future(frame))], 2)
    (one,) = recwarn
    count, names = ("1 of 2", "B") if ids else ("2 of 2", "A, B")
    said = (
        f"no number at past rows of {count} series: {names} ('temp' at 67%, such as 2026-01-01 01"
    )
    assert said in str(one.message) and "price" not in str(one.message)


@pytest.mark.parametrize(("times", "rows"), [(LATE, 0), (HOURS[:240], 240)])
def test_times_that_never_match_are_an_error_of_a_fit_that_names_both(times, rows):
    panel = loads(times).with_future(TEMPERATURE[rows:])
    with refuses(DataError):
        fc.fit(panel, fc.Config(horizon=24, model="auto", epochs=1))


def test_a_code_below_all_other_numbers_is_found():
    sales = np.arange(40.0)
    sales[[3, 9]] = -999
    temperatures = np.linspace(-30, 20, 40)
    temperatures[5] = -99  # beside other numbers below zero, it may be one of them
    debt, ok = np.full(40, -99.0), sales.clip(0)
    every = panel_of({"sales": sales, "temperatures": temperatures, "debt": debt, "ok": ok})
    assert [*placeholders(every)] == [Finding("placeholder", "sales", "-999: 2", 2)]


@pytest.mark.parametrize(
    ("frequency", "last", "until"),
    [
        ("MS", "2026-11-01", "2026-12-01"),
        ("BMS", "2026-11-02", "2026-12-01"),
        ("QS", "2026-10-01", "2027-01-01"),
        ("YS", "2026-01-01", "2027-01-01"),
        ("W-MON", "2026-11-23", "2026-11-30"),
        ("W-SUN", "2026-11-29", "2026-11-29"),  # named by its end, which is to come
        ("ME", "2026-11-30", "2026-11-30"),
        ("YE", "2026-12-31", "2026-12-31"),
        # All is over.
        ("MS", "2026-10-01", None),
        ("QS", "2026-07-01", None),
        ("W-MON", "2026-11-16", None),
        ("W-FRI", "2026-11-20", None),
        ("BME", "2026-10-30", None),
        ("QE", "2026-09-30", None),
        # No periods, or invented data.
        ("B", "2026-11-26", None),
        ("h", "2026-11-26 19:00", None),
        ("MS", "2031-11-01", None),
    ],
)
@pytest.mark.parametrize("gap", [False, True])
def test_a_period_is_running_until_the_clock_says_that_it_is_over(
    frequency, last, until, gap, monkeypatch
):
    times = pd.date_range(end=last, periods=40, freq=frequency)
    times = times.delete(7) if gap else times
    monkeypatch.setattr(pd.Timestamp, "now", lambda: NOW)
    found = running(times.to_numpy(), infer_frequency(times.to_numpy()))
    if until is None:
        assert found is None
    else:
        assert found and found.startswith(f"dated {last}, not over before {until}; --end ")


def company() -> pd.DataFrame:
    """Monthly sales with wrong rows, a closed department, and a number that stands for none."""
    times = pd.date_range(end="2026-11-01", periods=ROWS, freq="MS")
    series = {f"d{number}": department(number) for number in range(8)}
    for number in range(4):
        series[f"d{number}"][-1] *= 3
    series["d7"][-3:] = 0
    series["d6"][7] = -9999
    series["y" * 60] = series.pop("d3")
    return long(series, times)


SAID = {
    "far": r"the latest row of 4 of 8 series is farther from what was expected than any row before:"
    r" d0 \(2026-11-01: [\d,]+, expected about [\d,]+\), d1 \(.*\), d2 \(.*\), and 1 more\. Fore",
    "zeros": r"the latest rows of 1 of 8 series are the first zeros: d7 \(3 since 2026-09-01\)\. ",
    "running": r"the latest row of 8 of 8 series is of a period that is not over: d0, d1, d2, d4, "
    r"d5, d6, d7, yyy.* \(dated 2026-11-01, not over before 2026-12-01; --end 2026-10-31 leaves",
}  # fmt: skip
OF_FIT = {
    "placeholder": r"may stand for missing ones, as no other is below zero: 1 series: d6 \(-9999",
}


@pytest.mark.parametrize("options", [[], ["--memory", "1GB"]])
def test_the_commands_say_each_once_and_keep_them_with_the_run(tmp_path, monkeypatch, options):
    monkeypatch.setattr(pd.Timestamp, "now", lambda zone=None: NOW.tz_localize(zone))
    monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", 4)
    path, home = tmp_path / "company.csv", ["--home", tmp_path / "home"]
    company().to_csv(path, index=False)
    fit = ["fit", "--source", f"files:{path}", "--horizon", 3, "--model", "ets", *options]
    done = run(*fit, *home)
    assert done.exit_code == 0, done.output
    for text in (SAID | OF_FIT).values():
        assert len(re.findall(text, done.stderr)) == 1, (text, done.stderr)
    (saved,) = (tmp_path / "home" / "models").iterdir()
    stored = "\n".join(fc.load(saved).provenance["findings"]) if not options else ""
    assert all(re.search(text, stored) for text in OF_FIT.values()) or options
    done = run("predict", "--all", *home)
    for text in SAID.values():
        assert len(re.findall(text, done.stderr)) == 1, (text, done.stderr)
    done = run("predict", "--all", "--end", "2026-08-31", *home)
    assert "latest row" not in done.stderr and "not over" not in done.stderr, done.stderr


def test_fits_and_forecasts_in_python_warn_of_them():
    rng = np.random.default_rng(4)
    each = {"a": some_days(5, 0.3), "b": some_days(6, 0.3)[3:], "c": DAYS.to_numpy()}
    sales = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": times, "y": rng.poisson(2, len(times)) + 1.0})
        for name, times in each.items()
    )
    with warns(ForecasterWarning):
        model = fc.fit(sales, fc.Config(horizon=5, model="ets"), seed=0)
    for forecast in (fc.predict, fc.simulate):
        with warns(ForecasterWarning) as caught:
            forecast(model, sales)
    recipe = next(str(one.message) for one in caught if "in pandas: " in str(one.message))
    names = {"frame": sales}
    exec(recipe.split("in pandas: ")[1], names)  # it is Python
    filled = names["filled"]
    assert filled["a"].sum() == sales.loc[sales["unique_id"] == "a", "y"].sum()
    assert filled["a"].notna().sum() == 600
