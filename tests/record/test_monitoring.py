"""Alarms from forecasts that were made, and the latest spans of a scorecard."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.files import Home
from forecaster.ingest import Store, panel_from_store
from forecaster.record import Made, Scorecard, alarm_lines, forecast_alarms, keep
from tests.conftest import error, run
from tests.messages import refuses
from tests.record.made import DAYS, forecast, store, table

COUNT, NAMES = 100, [f"S{number:02}" for number in range(30)]


def card(moves: np.ndarray, *, unchanged: float | np.ndarray = 0.6) -> Scorecard:
    """Forecasts of 100 with bands of normal moves, and outcomes that are these moves away from it.

    - ``moves``: (day, series)
    - ``unchanged``: CRPS of "unchanged", beside 0.6 of the forecast
    """
    days, series = moves.shape
    names = np.tile(NAMES[:series], days)
    rows = pd.DataFrame(
        {
            "unique_id": names, "series": names, "source": "yahoo",
            "ds": np.repeat(pd.bdate_range("2024-01-01", periods=days), series),
            "origin": pd.Timestamp("2024-01-01"), "run": "r", "step": 1, "state": "known",
            "y": 100 + moves.ravel(), "value": 100.0, "forecast": 100.0, "corrected": False,
            "crps": 0.6, "error": 1.0, "error_unchanged": 1.0,
            "crps_unchanged": np.broadcast_to(unchanged, moves.shape).ravel(),
        }
    )  # fmt: skip
    for level, width in ((80, 1.2816), (95, 1.96)):
        rows[f"forecast-lo-{level}"], rows[f"forecast-hi-{level}"] = 100 - width, 100 + width
    return Scorecard(rows, simulated=False)


def moves(days: int = COUNT, series: int = 30) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(days, series))


def test_a_series_whose_moves_have_grown_is_named_with_what_its_bands_covered():
    changed = moves()
    changed[-15:, 3] *= 4
    (alarm,) = forecast_alarms(card(changed))
    assert (alarm.kind, alarm.series) == ("coverage", "S03")
    assert pd.Timestamp("2024-01-01") + pd.offsets.BDay(85) < pd.Timestamp(alarm.since)
    held = (np.abs(changed[-21:, 3]) < 1.2816).mean()
    assert f"bands of 80 % covered {held:.0%}" in alarm.text and "latest 21 outcomes" in alarm.text
    assert "S03: bands have stopped covering (since" in alarm_lines([alarm])[0]
    assert not forecast_alarms(card(moves())) and not forecast_alarms(card(changed), None)


def test_all_together_are_found_within_days_though_no_series_is_alone():
    changed = moves()
    changed[-6:] *= 2.5
    found = forecast_alarms(card(changed))
    assert ("coverage", None) in [(alarm.kind, alarm.series) for alarm in found]


def test_days_without_an_outcome_are_no_evidence():
    changed = moves()
    changed[-15:, 3] *= 4
    gaps = card(changed)
    rows = gaps.rows[(gaps.rows["unique_id"] != "S03") | gaps.rows["ds"].dt.day_of_week.isin([0])]
    assert not forecast_alarms(Scorecard(rows, simulated=False))  # four of its days are left
    assert not forecast_alarms(Scorecard(rows[:0], simulated=False))


def test_errors_beyond_those_of_unchanged_are_an_alarm():
    better = np.full((COUNT, 30), 0.6)
    better[-60:, 7] = 0.2
    (alarm,) = forecast_alarms(card(moves(), unchanged=better), None, 0.005)
    assert (alarm.kind, alarm.series) == ("errors", "S07")
    assert "CRPS is 3.00 times that of 'unchanged' over the latest 21 outcomes" in alarm.text
    better[-60:] = 0.3
    found = forecast_alarms(card(moves(), unchanged=better), None, 0.005)
    assert (found[-1].kind, found[-1].series) == ("errors", None)
    assert not forecast_alarms(card(moves(), unchanged=0.58), None, 0.005)


def test_the_latest_month_and_quarter_are_scored_beside_all():
    scored = card(moves())
    month, quarter = scored.over("month"), scored.over("quarter")
    last = scored.rows["ds"].max()
    assert month.rows["ds"].min() == last - pd.Timedelta(days=29)
    assert quarter.rows["ds"].min() == last - pd.Timedelta(days=88)  # 90 and 89 were a weekend
    assert len(month.rows) < len(quarter.rows) < len(scored.rows)
    assert scored.over("all") is scored
    lines = scored.recent_lines()
    assert lines[0].startswith(f"Of the latest month, {len(month.rows)} values: bands of 80 %")
    assert len(lines) == 2 and not month.recent_lines()
    steps = scored.rows.assign(ds=np.repeat(np.arange(COUNT), 30))
    assert Scorecard(steps, simulated=False).over("month").rows["ds"].nunique() == 21


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A home whose forecasts of AAA are wrong for the latest month, and its source."""
    home = Home(tmp_path_factory.mktemp("recorded") / "home")
    prices = table()
    late = (prices["ticker"] == "AAA") & (prices["date"] >= str(DAYS[85].date()))
    swing = np.exp(np.cumsum(np.random.default_rng(0).choice([-0.08, 0.08], late.sum())))
    for name in ("open", "high", "low", "close"):
        prices.loc[late, name] *= swing
    source = store(home, prices.groupby("ticker").head(110))
    for until in range(60, 110):
        forecast(home, source, until, horizon=1)
    return home, source


@pytest.fixture
def wrong(recorded, tmp_path):
    return Home(shutil.copytree(recorded[0].folder, tmp_path / "home"))


def test_the_scorecard_marks_what_no_longer_covers(wrong, tmp_path):
    shown = run("scorecard", "--home", wrong)
    assert "│ AAA ! " in shown.stdout and "BRK-B !" not in shown.stdout
    assert "AAA: bands have stopped covering (since 2024-" in shown.stdout
    assert "Of the latest month, " in shown.stdout
    month = run("scorecard", "--home", wrong, "--span", "month").stdout
    assert "│ AAA ! " in month and "49 values" not in month
    scores, page = tmp_path / "scores.csv", tmp_path / "s.html"
    done = run("scorecard", "--output", scores, "--report", page, "--home", wrong)
    assert done.exit_code == 0
    since = pd.read_csv(scores).set_index("unique_id")["uncovered_since"]
    assert since["AAA"].startswith("2024-") and pd.isna(since["BRK-B"])
    assert "AAA: bands have stopped covering" in page.read_text()


def test_record_scores_and_alarms_in_python(wrong, monkeypatch):
    (frame,) = fc.read_record(str(wrong.folder)).frames.values()
    assert frame["origin"].nunique() == 50
    scored = fc.scorecard(wrong.folder, ["aaa"])
    assert scored.rows["unique_id"].unique().tolist() == ["AAA"]
    assert [alarm.series for alarm in fc.forecast_alarms(fc.scorecard(wrong))] == ["AAA"]
    monkeypatch.setenv("FORECASTER_HOME", str(wrong.folder))
    assert len(fc.scorecard().rows) == 100


def test_two_sources_with_the_same_names_are_two_rows_and_have_alarms_of_their_own(
    wrong, recorded, tmp_path, monkeypatch
):
    other = store(wrong, table().groupby("ticker").head(110), file="other.csv")
    for until in range(90, 110):  # of the other source no band has stopped covering
        forecast(wrong, other, until, horizon=1, level="95", run="20240102-000000-000-lstm")
    source = recorded[1]
    scored = fc.scorecard(wrong)
    assert [alarm.series for alarm in fc.forecast_alarms(scored)] == [f"AAA ({source})"]
    both = scored.table().set_index("by")
    assert sorted(both.index) == sorted(
        f"{n} ({s})" for n in ("AAA", "BRK-B") for s in (source, other)
    )
    assert sorted(both["forecasts"]) == [20, 20, 50, 50]
    assert scored.total()["forecasts"] == 140
    one = fc.scorecard(wrong, source=source)
    assert one.table()["by"].tolist() == ["AAA", "BRK-B"]
    np.testing.assert_allclose(one.table()["crps"], both["crps"].filter(like=f"({source})"))
    shown = run("scorecard", "--home", wrong, "--output", tmp_path / "s.csv")
    assert f"AAA ({source}): bands have stopped covering" in shown.stdout
    scores = pd.read_csv(tmp_path / "s.csv")
    assert scores["unique_id"].tolist() == ["(all)", "AAA", "AAA", "BRK-B", "BRK-B"]
    assert scores[scores["uncovered_since"].notna()]["source"].tolist() == [source]
    monkeypatch.chdir(tmp_path)
    shown = run("scorecard", "--home", wrong, "--source", "files:other.csv")
    assert "stopped covering" not in shown.stdout and "40 forecasts of 2" in shown.stdout
    assert "no forecast of the source 'x'" in error(
        "scorecard", "--source", "x", "--home", wrong, code=2
    )


def test_a_source_of_dates_and_one_of_whole_numbers(wrong, recorded, tmp_path):
    steps = pd.DataFrame({"unique_id": "AAA", "ds": range(300), "y": 100 + np.arange(300.0)})
    source = store(wrong, steps, file="steps.csv")
    opened = Store.open(wrong, source)
    for until in range(200, 240):
        panel = panel_from_store(opened, ["AAA"])
        panel = dataclasses.replace(panel, mask=panel.mask & (panel.times < until))
        bands = {f"X-{side}-80": value for side, value in (("lo", 5.0), ("hi", 6.0))}
        frame = pd.DataFrame({"unique_id": ["AAA"], "ds": [until], "X": 5.5, **bands})
        keep(wrong, Made(panel, frame, "X", "20240103-000000-000-x", source))
    scored = fc.scorecard(wrong)
    assert len(scored.rows) == 100 + 40
    month = scored.over("month").rows
    assert month["ds"][month["source"] == source].tolist() == list(range(219, 240))
    assert (month["source"] != source).sum() == 2 * 22
    found = fc.forecast_alarms(scored)
    assert {f"AAA ({source})", f"AAA ({recorded[1]})"} <= {a.series for a in found}
    (together,) = [alarm for alarm in found if alarm.series is None]
    assert together.text.endswith(f"of {source}")
    shown = run("scorecard", "--home", wrong, "--span", "month")
    assert shown.exit_code == 0 and "All series together: bands have stopped" in shown.stdout
    page = tmp_path / "s.html"
    said = error("scorecard", "--home", wrong, "--report", page, code=2)
    assert "times are dates in some and whole numbers in others" in said and "--source" in said
    done = run("scorecard", "--home", wrong, "--report", page, "--source", source)
    assert done.exit_code == 0 and page.exists()


@pytest.mark.parametrize("rate", ["x", 0, -1, 2, float("nan"), True])
@pytest.mark.parametrize("name", ["coverage", "errors"])
def test_a_rate_that_is_none_is_refused(name, rate):
    with refuses(UsageError):
        forecast_alarms(card(moves()), **{name: rate})
