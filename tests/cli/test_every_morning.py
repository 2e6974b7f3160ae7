"""Forecasts of a model over the days after its fit: rows that come, lack or change each morning."""

import io
import re
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from forecaster.ingest import refreshing as updating
from forecaster.pipeline.forecast_outputs import COLUMNS
from tests.cli.desk import BAR, DAYS, NAMES, ROWS, TABLE, Desk
from tests.conftest import prices

LEARNED, LAST = DAYS[299], DAYS[-1]  # the end of the fit, and of the file


@pytest.fixture(scope="module")
def first(tmp_path_factory, settings):
    """A desk with a model that was fitted on the first 300 days of its file."""
    desk = Desk(tmp_path_factory.mktemp("first"))
    desk.write(TABLE)
    return desk.fit("--end", LEARNED, "--config", settings, "--start-from", "pooled")


@pytest.fixture
def mornings(first):
    """The desk after the fit, as it was."""
    yield from first.borrowed()


def test_an_end_of_the_forecast_forgets_what_came_after_it(mornings):
    then = mornings.forecasts("--all", "--end", LEARNED)
    assert then["ds"].min() == DAYS[300]
    changed = TABLE.assign(close=TABLE["close"].where(TABLE["date"] <= LEARNED, 70.0))
    assert mornings.ingest(changed).exit_code == 0
    pd.testing.assert_frame_equal(mornings.forecasts("--all", "--end", LEARNED), then)


def test_what_is_forecast_from_the_past_is_not_in_the_record(mornings):
    assert mornings("predict", "--all", "--end", DAYS[310]).exit_code == 0
    assert not list(mornings.home.record.rglob("*.parquet"))
    assert mornings("predict", "--all").exit_code == 0
    assert len(list(mornings.home.record.rglob("*.parquet"))) == 1


def only(*names: str, until: str | None = None) -> pd.DataFrame:
    """The file with some of its tickers, perhaps without the last days."""
    table = TABLE[TABLE["ticker"].isin(names)]
    return table if until is None else table[table["date"] <= until]


GONE = "no longer in the source. If no more rows are to come, `forecaster tickers retire`"


def test_a_ticker_that_vanished_is_missed_every_morning_until_it_is_retired(mornings):
    for _ in range(2):  # the second time nothing is read
        done = mornings.ingest(only("AAA", "CCC"))
        assert done.exit_code == 3 and "Not updated (1)" in done.stderr
        assert f"BBB: {GONE}" in done.stderr
    assert set(mornings.forecasts("--all")["unique_id"]) == set(NAMES)
    done = mornings("tickers", "retire", "bbb")
    assert done.exit_code == 0 and "Retired BBB" in done.stdout
    done = mornings.ingest()
    assert done.exit_code == 0 and done.stderr == "" and "1 retired" in done.stdout
    made = mornings("predict", "--all", "--format", "csv", "--end", LAST)
    assert made.exit_code == 0 and "is retired and not forecast: BBB" in made.stderr
    assert "BBB," not in made.stdout and "AAA," in made.stdout
    assert "BBB" in mornings("predict", "BBB").stdout  # whoever names it gets it
    assert "retired" in mornings("status", "BBB").stdout


def test_a_retired_ticker_is_back_with_later_rows_or_when_it_is_restored(mornings):
    assert mornings("tickers", "retire", "BBB").exit_code == 0
    changed = TABLE.assign(volume=TABLE["volume"] + 1)
    assert "1 retired" in mornings.ingest(changed).stdout  # no later rows
    later = prices("BBB", 1, start="2021-05-01")
    done = mornings.ingest(pd.concat([changed, later]))
    assert "New (1): BBB" in done.stdout and "retired" not in done.stdout
    for command, found in (("retire", 2), ("restore", 3)):
        assert mornings("tickers", command, "BBB").exit_code == 0
        assert mornings.forecasts("--all")["unique_id"].nunique() == found


def test_a_model_of_retired_tickers_and_unknown_names_are_clear_errors(mornings):
    assert mornings("tickers", "retire", *NAMES).exit_code == 0
    done = mornings("predict", "--all")
    assert done.exit_code == 1 and "all of its series are retired" in done.stderr
    done = mornings("tickers", "retire", "AAB")
    assert done.exit_code == 2 and "AAB: not among the 3 stored series" in done.stderr
    assert "near: AAA" in done.stderr


def test_new_tickers_are_forecast_by_the_network_of_all(mornings):
    renamed = pd.concat([only("AAA", "CCC"), only("BBB").assign(ticker="NEW"), prices("IPO", 9)])
    done = mornings.ingest(renamed)
    assert done.exit_code == 3 and "New (2): IPO, NEW" in done.stdout
    made = mornings("predict", "--all", "--format", "csv", "--end", LAST)
    assert made.exit_code == 3 and made.stdout.count("\nNEW,") == made.stdout.count("\nIPO,") == 3
    assert "are forecast by those trained on all series: IPO, NEW\n" in made.stderr
    known = mornings("predict", "--all", "--no-newcomers", "--format", "csv", "--end", LAST)
    assert known.exit_code == 0 and "NEW" not in known.stdout + known.stderr
    known, made = (pd.read_csv(io.StringIO(done.stdout)) for done in (known, made))
    pd.testing.assert_frame_equal(
        known, made[~made["unique_id"].isin(["IPO", "NEW"])], check_like=True
    )


def late_by(count: int) -> pd.DataFrame:
    """The file without the latest rows of one ticker."""
    return pd.concat([only("AAA", "CCC"), only("BBB", until=DAYS[-1 - count])])


def begun(folder, table, settings):
    """Fit on a file, in a home of its own."""
    desk = Desk(folder)
    desk.write(table)
    return desk.fit("--config", settings)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_ticker_behind_the_others_is_named_from_the_first_session_on(tmp_path, settings, count):
    mornings = begun(tmp_path, late_by(count), settings)
    made = mornings("predict", "--all", "--format", "csv", "--end", LAST)
    assert made.exit_code == 3 and made.stdout.count("BBB,") == 3
    unit = "step" if count == 1 else "steps"
    assert f": BBB ({count} {unit} behind, since {DAYS[-1 - count]}). " in made.stderr
    assert "stale" not in made.stderr and "forecaster tickers retire" in made.stderr
    assert mornings("tickers", "retire", "BBB").exit_code == 0
    made = mornings("predict", "--all", "--end", LAST)
    assert made.exit_code == 0 and "behind" not in made.stderr


def test_one_that_is_late_for_long_does_not_hide_the_next(tmp_path, settings):
    table = pd.concat([late_by(60), prices("DDD", ROWS), prices("EEE", ROWS)])
    table.loc[(table["ticker"] == "CCC") & (table["date"] == LAST), "close"] = None  # not known yet
    mornings = begun(tmp_path, table, settings)
    made = mornings("predict", "--all", "--end", LAST)
    assert made.exit_code == 3 and "2 of 5 series end before the others" in made.stderr
    first, second = (made.stderr.index(text) for text in ("CCC (1 step", "BBB (60 steps"))
    assert first < second


def test_those_that_are_not_late_are_still_forecast(tmp_path, settings):
    mornings = begun(tmp_path, late_by(2), settings)
    done = mornings("predict", "--all", "--format", "csv", "--end", LAST, "--max-late", "1")
    assert done.exit_code == 3 and "BBB," not in done.stdout and "AAA," in done.stdout
    assert "BBB: the number of sessions that it lacks is 2; --max-late allows 1" in done.stderr


def test_a_price_that_stands_still_is_said(mornings, tmp_path):
    still = TABLE.copy()
    last = (still["ticker"] == "BBB") & (still["date"] >= DAYS[-5])
    still.loc[last, BAR] = 90.0
    assert mornings.ingest(still).exit_code == 0
    page = tmp_path / "f.html"
    made = mornings("predict", "--all", "--end", LAST, "--report", page)
    assert (
        f"the price of 1 series is the same since the day in brackets: BBB ({DAYS[-5]}). "
        in made.stderr
    )
    assert f'"said":["","frozen({DAYS[-5]})",""]' in page.read_text().replace(" ", "")
    earlier = mornings("predict", "--all", "--end", DAYS[-2])
    assert "the same price" not in earlier.stderr  # four sessions are not enough


def test_a_killed_ingest_leaves_no_wrong_price_to_forecast_from(mornings, monkeypatch):
    """Its prices are committed but not reviewed: predict does that, and the next ingest."""
    wrong = TABLE.copy()
    wrong.loc[(wrong["ticker"] == "BBB") & (wrong["date"] == DAYS[-4]), BAR] *= 2
    with monkeypatch.context() as patch:
        patch.setattr(updating, "_review_if_changed", Mock(side_effect=KeyboardInterrupt))
        assert mornings.ingest(wrong).exit_code == 130
    then = mornings.forecasts("--all")
    assert mornings.ingest().exit_code == 0
    assert "reversed" in mornings("status", "BBB").stdout
    pd.testing.assert_frame_equal(mornings.forecasts("--all"), then)
    assert mornings.ingest(TABLE).exit_code == 0
    band = (then["LSTM-hi-80"] / then["LSTM-lo-80"] - 1)[then["unique_id"] == "BBB"]
    sound = mornings.forecasts("BBB")
    assert np.allclose(band, sound["LSTM-hi-80"] / sound["LSTM-lo-80"] - 1, rtol=0.2)


def test_a_series_with_rows_in_the_future_is_not_updated_and_named(mornings):
    rows = TABLE[(TABLE["ticker"] == "BBB") & (TABLE["date"] == LAST)]
    wrong = pd.concat([TABLE, rows.assign(date="2099-05-05"), rows.assign(date="2099-05-06")])
    later = pd.concat([wrong, *(prices(n, 1, start="2021-05-03") for n in NAMES)])
    for _ in range(2):
        done = mornings.ingest(later)
        assert done.exit_code == 3
        assert "BBB: holds rows in the future (2099-05-05 to 2099-05-06)" in done.stderr
    assert "suspect" in mornings("status", "BBB").stdout
    made = mornings.forecasts("--all").groupby("unique_id")["ds"].min()
    assert made["AAA"] == made["CCC"] == "2021-05-04" > made["BBB"]
    done = mornings.ingest(later[later["date"] < "2099"])
    assert done.exit_code == 0 and not done.stderr
    assert "suspect" not in mornings("status", "BBB").stdout.split("state")[1]


def test_an_update_learns_from_what_is_stored_and_leaves_the_rest_as_it_is(mornings):
    before = mornings.forecasts("--all")
    done = mornings("fit", "--update", "--tickers", "bbb", "--run", "second")
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stdout.split())
    assert "Updated 1 series: BBB As before 2 series" in shown and "Run second" in shown
    after = mornings.forecasts("--all", "--run", "second")
    same = (before.drop(columns="unique_id") == after.drop(columns="unique_id")).all(axis=1)
    assert same.groupby(before["unique_id"]).all().to_dict() == {
        "AAA": True, "BBB": False, "CCC": True
    }  # fmt: skip
    rest = mornings("fit", "--update", "--older-than", "30")
    assert "Continues run second" in " ".join(rest.stdout.split()), rest.output
    assert "Updated 2 series: AAA, CCC" in " ".join(rest.stdout.split())
    nothing = mornings("fit", "--update")
    assert nothing.exit_code == 1 and "the most new rows of a series is 0" in nothing.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--update", "--older-than", "31"], 1, "none has 31 or more stored rows .* is 30. Run"),
        (["--update", "--alarmed"], 1, "nothing to update: no series has an alarm"),
        (["--update", "--tickers", "AAA,XYZ"], 2, "no networks for:\n  XYZ: not among the 3"),
        (["--update", "--horizon", "3"], 2, "the settings of the run .*leave out --horizon"),
        (["--update", "--date-format", "%Y-%m-%d"], 2, "leave out --date-format"),
        (["--update", "nope"], 2, "nope"),
        (["--older-than", "3"], 2, "choose the series of --update; add it"),
    ],
)
def test_an_update_that_cannot_be_says_why(first, options, code, message):
    done = first("fit", *options)
    assert done.exit_code == code and re.search(message, done.stderr), done.output


def test_an_alarm_chooses_the_series_to_update(mornings, monkeypatch):
    from forecaster.pipeline import model_update as updating
    from forecaster.record import Alarm

    mornings.forecasts("--all")  # recorded
    alarm = Alarm("coverage", "CCC", "", "")
    monkeypatch.setattr(updating, "forecast_alarms", lambda card, errors: [alarm])
    done = mornings("fit", "--update", "--alarmed")
    assert "Updated 1 series: CCC" in " ".join(done.stdout.split()), done.output
    monkeypatch.setattr(
        updating, "forecast_alarms", lambda card, errors: [alarm._replace(series=None)]
    )
    done = mornings("fit", "--update", "--alarmed")
    assert "Updated 2 series: AAA, BBB" in " ".join(done.stdout.split()), done.output


def test_a_fixed_layout_has_the_same_columns_and_numbers_whatever_is_asked_for(mornings):
    frozen = TABLE.copy()
    frozen.loc[(frozen["ticker"] == "BBB") & (frozen["date"] > DAYS[-8]), BAR] = 50.0
    assert mornings.ingest(frozen, "--refresh").exit_code in (0, 3)
    fixed = mornings.forecasts("--all", "--layout", "fixed")
    again = mornings.forecasts("AAA", "BBB", "CCC", "--layout", "fixed", "--level", "50")
    assert list(fixed) == list(again) == [*COLUMNS]
    wide = mornings.forecasts("--all", "--quantile", "0.35", "--quantile", "0.95")
    for column, other in (("median", "LSTM"), ("q35", "LSTM-q-0.35"), ("q95", "LSTM-q-0.95")):
        pd.testing.assert_series_equal(fixed[column], wide[other], check_names=False)
    quantiles = fixed[sorted(name for name in COLUMNS if name[:1] == "q")].assign(
        q50=fixed["median"]
    )
    assert (quantiles.sort_index(axis=1).diff(axis=1).iloc[:, 1:] > 0).all(axis=None)
    (kept, *_) = mornings.home.record.rglob("*.parquet")
    assert not [name for name in pd.read_parquet(kept) if "-q-" in str(name)]
    assert set(fixed["origin"]) == {LAST} and set(fixed["run"]) == set(again["run"])
    book = mornings.folder / "f.xlsx"
    assert mornings("predict", "--all", "--layout", "fixed", "--output", book).exit_code == 0
    assert list(pd.read_excel(book)) == [*COLUMNS]
    flags = fixed.fillna({"flags": ""}).groupby("unique_id")["flags"].first()
    assert "frozen" in flags["BBB"].split(",") and "frozen" not in flags["AAA"]


HELD = "the quantiles 0.05, 0.1 ... 0.95"
FIXED = ["--layout", "fixed"]
INTO = ["--output", "sql:sqlite:///{folder}/none.db#forecasts"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FIXED, "is of files; add --output FILE, or --format csv"),
        ([*FIXED, "--paths", "9", "--format", "csv"], "or --paths"),
        ([*FIXED, "--format", "csv", "--quantile", "0.99", "--level", "99"],
         f"--quantile 0.99, --level 99: --layout fixed has {HELD}"),
        ([*FIXED, "--format", "csv", "--level", "95", "--level", "90"], "--level 95: --layout"),
        ([*FIXED, "--format", "csv", "--quantile", "0.351", "--report", "{folder}/p.html"],
         "--quantile 0.351: "),
        ([*INTO, "--quantile", "0.99"], f"--quantile 0.99: a table of a database has {HELD}"),
        ([*INTO, "--layout", "wide"], "its columns change with the model"),
        ([*INTO, "--format", "csv"], "--format csv is of files"),
        ([*INTO, "--paths", "9"], "--paths draws paths"),
        ([*INTO, "--end", LEARNED], "those that were really made"),
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_says_why(first, options, message):
    folder = first.folder
    done = first("predict", "AAA", *(option.format(folder=folder) for option in options))
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2 and not done.stdout and message in said, done.output
    assert not (folder / "none.db").exists()


def test_a_series_that_cannot_learn_keeps_no_other_from_it(mornings):
    table = TABLE[(TABLE["ticker"] != "BBB") | (TABLE["date"] > DAYS[-8])]
    assert mornings.ingest(table, "--refresh").exit_code in (0, 3)
    done = mornings("fit", "--update")
    assert done.exit_code == 3 and "Updated 2 series: AAA, CCC" in " ".join(done.stdout.split())
    assert "BBB" in done.stderr and "7 rows" in done.stderr, done.output
    assert mornings("fit", "--update", "--tickers", "BBB").exit_code == 1
