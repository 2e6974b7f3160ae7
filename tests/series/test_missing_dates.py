"""Series that have rows on less than half of their dates."""

import warnings

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.series.findings import missing_dates
from tests.conftest import run
from tests.slow import rest_slow

DAYS = pd.date_range("2022-01-03", periods=600)


def some_days(seed, share, days=DAYS):
    """Return a random share of some dates, the first and the last among them."""
    kept = np.random.default_rng(seed).random(len(days)) < share
    kept[[0, -1]] = True
    return days[kept].to_numpy("datetime64[ns]")


def test_series_with_rows_on_some_dates_lack_days_weeks_or_months():
    times = some_days(0, 0.3)
    assert missing_dates(times) == ("day", len(times), 600)
    weeks = some_days(1, 0.3, DAYS[::7])
    assert missing_dates(weeks) == ("week", len(weeks), 86)
    months = some_days(2, 0.3, pd.date_range("2000-01-01", periods=200, freq="MS"))
    assert missing_dates(months) == ("month", len(months), 200)
    hours = some_days(0, 0.3, pd.date_range("2000-01-01", periods=600, freq="h"))
    assert missing_dates(hours) == ("hour", len(hours), 600)


@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        DAYS[DAYS.day_of_week < 5],
        DAYS[DAYS.day_of_week < 2],  # two days a week
        DAYS[DAYS.day_of_week == 4] - pd.to_timedelta((np.arange(86) % 5 == 0).astype(int), "D"),
        pd.date_range("2000-01-31", periods=60, freq="BME"),
        pd.date_range("2000-01-01", periods=20, freq="QS"),
        pd.date_range("2000-01-01", periods=300, freq="h"),
        DAYS[[0, 1, 5, 60, 70]],  # too few to tell
        pd.Index(np.array([1, 2, 5, 9, 20, 21, 40, 48, 90])),
    ],
    ids=["daily", "weekdays", "two", "weeks", "month ends", "quarters", "hours", "few", "steps"],
)
def test_regular_series_lack_no_dates(times):
    assert missing_dates(times.to_numpy()) is None


def test_half_of_the_days_are_enough():
    assert missing_dates(some_days(3, 0.7)) is None


@pytest.fixture(scope="module")
def sales():
    """Return two items with rows on days with sales only, and one with a row a day."""
    rng = np.random.default_rng(4)
    each = {"a": some_days(5, 0.3), "b": some_days(6, 0.3)[3:], "c": DAYS}
    return pd.concat(
        pd.DataFrame({"unique_id": name, "ds": times, "y": rng.poisson(2, len(times)) + 1.0})
        for name, times in each.items()
    )


def test_a_fit_and_its_forecasts_warn_of_missing_dates(sales):
    message = r"most days between the rows of 2 of 3 series are missing: a \(\d+ rows in 600 days\)"
    config = fc.Config(horizon=5, model="ets")
    with pytest.warns(ForecasterWarning, match=message):
        model = fc.fit(sales, config, seed=0)
    with pytest.warns(ForecasterWarning, match=message):
        fc.predict(model, sales)


@pytest.mark.slow
def test_the_recipe_of_the_warning_fills_the_dates_with_zeros(sales):
    config = fc.Config(horizon=5, model="ets")
    with pytest.warns(ForecasterWarning) as caught:
        fc.fit(sales, config, seed=0)
    said = next(str(one.message) for one in caught if "in pandas: " in str(one.message))
    names = {"frame": sales}
    exec(said.split("in pandas: ")[1], names)  # it is Python
    filled = names["filled"]
    assert filled["a"].sum() == sales.loc[sales["unique_id"] == "a", "y"].sum()
    assert (filled["a"].notna().sum(), filled["b"].first_valid_index()) == (
        600, sales.loc[sales["unique_id"] == "b", "ds"].min(),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecasterWarning)
        model = fc.fit(filled.reset_index(), config, seed=0)
        ahead = fc.predict(model, filled.reset_index())
    first = ahead.groupby("unique_id")["ds"].min()
    assert (first == DAYS[-1] + pd.Timedelta(days=1)).all()


@pytest.mark.parametrize("memory", rest_slow([[], ["--memory", "1GB"]]))
def test_the_command_line_says_it_once(sales, tmp_path, memory):
    path = tmp_path / "sales.csv"
    sales.to_csv(path, index=False)
    home = ["--home", tmp_path / "home"]
    done = run("fit", "--source", f"files:{path}", "--model", "ets", *memory, *home)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("of 2 of 3 series are missing") == 1, done.stderr
    assert done.stderr.count("are missing") == 1, done.stderr
    done = run("predict", "--all", *home)
    assert done.stderr.count("of 2 of 3 series are missing") == 1, done.stderr
