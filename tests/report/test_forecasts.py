"""Tests of the page of forecasts, as a file and in a real browser."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.files import Home
from forecaster.forecasting import Explanation
from forecaster.record import Made, keep, read_record
from forecaster.report import Forecasts, build_forecasts
from forecaster.series import Finding, Panel
from tests.report import browsing
from tests.report.browsing import data_of

DAYS = pd.bdate_range("2025-01-01", periods=300)
AHEAD = 3
IDS = ("AAA", "</b>", "CCC", "DDD")
EVIL = "<i>Tech</i></script>"


def panel_until(rows: int, ids=IDS, split: float = 1.0) -> Panel:
    """Make random walks of prices; ``split`` divides the past of the first one."""
    walks = np.exp(np.cumsum(np.random.default_rng(7).normal(0, 0.01, (len(ids), 300)), axis=1))
    walks[0] /= split
    frames = [
        pd.DataFrame({"unique_id": name, "ds": DAYS[:rows], "close": 100 * walk[:rows]})
        for name, walk in zip(ids, walks, strict=True)
    ]
    return fc.load_panel(pd.concat(frames))


def forecast(panel: Panel, width: float) -> pd.DataFrame:
    """Forecast the latest price, with bands of this share of it on each side, wider each step."""
    latest = panel.channel("close")[:, -1]
    ahead = pd.bdate_range(pd.Timestamp(panel.times[-1]) + pd.Timedelta(days=1), periods=AHEAD)
    middle = np.repeat(latest, AHEAD)
    half = middle * width * np.tile(np.arange(1, AHEAD + 1), len(latest))
    bounds = {f"LSTM-{side}-{lv}": middle + sign * half * (1 + (lv == 95)) for lv in (80, 95)
              for side, sign in (("lo", -1), ("hi", 1))}  # fmt: skip
    return pd.DataFrame(
        {"unique_id": np.repeat(np.array(panel.ids, object), AHEAD),
         "ds": np.tile(ahead, len(latest)), "LSTM": middle, **bounds, "probability_of_rise": 0.55}
    )  # fmt: skip


def forecasts(home: Home | None = None, ids=IDS, **changes) -> Forecasts:
    """Make today's forecasts, and record some of yesterday, two weeks and two months ago."""
    if home is not None:
        for rows, width in ((250, 0.5), (289, 0.02), (299, 0.04)):
            panel = panel_until(rows, ids, split=0.5 if rows < 299 else 1)
            keep(home, Made(panel, forecast(panel, width), "LSTM", "20250101-000000-000-lstm", "s"))
    record = read_record(home).frames["s"] if home is not None else None
    panel = panel_until(300, ids)
    made = Forecasts(
        panel, forecast(panel, 0.03), "LSTM", (80.0, 95.0), "mine", "files:x.csv",
        record=record,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def explanation(**changes: Any) -> Explanation:
    """The factors of each band: twice the usual own volatility, half of it since yesterday."""
    parts = [
        pd.DataFrame(
            {"unique_id": name, "step": step, "of": "band", "relative": True, "value": value,
             "factor": factor, "usual": value / 2, "percentile": 97.0, "change": np.log(2)}
        , index=[0])
        for name in IDS for step in range(1, AHEAD + 1)
        for factor, value in (("total", 0.06), ("own volatility", 0.06), ("networks", 1.0))
    ]  # fmt: skip
    given: dict[str, Any] = {"since": "2026-02-23"} | changes
    return Explanation(pd.concat(parts, ignore_index=True), **given)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("forecasts")
    made = forecasts(
        Home(folder / "home"),
        groups={"AAA": EVIL, "</b>": EVIL, "CCC": "Rest"},
        findings=[
            Finding("late", "CCC", "ends 2026-02-10, 7 sessions behind", 7),
            Finding("jumped", "DDD", "2026-02-24"),
            Finding("frozen", "AAA", "2026-02-16"),
            Finding("retired", "ZZZ"),
        ],
        fitted=["some rows are odd"],
        explained=explanation(),
    )
    return build_forecasts(made, folder / "forecasts.html")


def test_it_is_one_file_that_loads_nothing(page):
    text = page.read_text(encoding="utf-8")
    assert (
        "<i>Tech" not in text
        and "The data of 1 of 4 series are stale: CCC (ends 2026-02-10, 7 sessions" in text
    )
    assert browsing.headings_of(page) == [
        "Every series", "One series", "What changed", "Groups", "How to read this",
    ]  # fmt: skip


def test_data_to_check_are_counted_and_named(page):
    text = page.read_text(encoding="utf-8")
    assert "<li>When the model was fitted: some rows are odd.</li>" in text
    assert "1 stale, 1 jumped on the latest day, 1 with a price that stands still" in text
    assert data_of(page)["said"][:2].count("frozen (2026-02-16)") == 1


def test_widths_and_changes_are_those_of_the_frames(page):
    data = data_of(page)
    assert data["steps"] == [1, 2, 3] and data["level"] == "80"
    np.testing.assert_allclose(data["width"], [[0.06 * n] * 4 for n in (1, 2, 3)])
    np.testing.assert_allclose(data["median"], 0, atol=1e-9)
    last, week = data["compared"]["last"], data["compared"]["week"]
    np.testing.assert_allclose(last["width"], 0.03 / 0.04 - 1)
    np.testing.assert_allclose(week["width"], 0.03 / 0.02 - 1, rtol=1e-4)
    close = panel_until(300).channel("close")
    np.testing.assert_allclose(last["median"][0], close[:, 299] / close[:, 298] - 1, rtol=1e-4)
    # The first series has split since then: its prices were twice as high.
    np.testing.assert_allclose(week["median"][2], close[:, 299] / close[:, 288] - 1, rtol=1e-4)


def test_the_factors_of_each_band_are_beside_it(page, browser):
    said = data_of(page)["explained"]
    assert said["since"] == "2026-02-23" and "100 % wider than on 2026-02-23" in said["said"][0][2]
    assert said["rows"]["AAA"][2][0] == ["own volatility", 2.0, 97.0, 1.0]
    assert [one[2][-1][0] for one in said["rows"].values()] == ["total"] * 4
    browsing.open_page(browser, page)
    (table,) = browsing.found(browser, "#one > .scroll table")
    heads = [one.text for one in table.find_elements("css selector", "th")]
    assert heads == ["factor", "\u00d7 usual", "percentile", "change"]
    assert "own volatility 2.00 97 +100" in table.text
    assert "is 6.00 % wide" in browser.find_element("css selector", "#one h4 + p").text
    assert "percentile: how many of 100" in browser.find_element("css selector", "#one").text
    assert browser.find_element("css selector", "#one h4").text.endswith("1 step ahead")
    browser.find_element("css selector", "#one .bar option:last-child").click()
    assert browser.find_element("css selector", "#one h4").text.endswith("3 steps ahead")


def test_without_a_record_nothing_is_compared(tmp_path):
    path = build_forecasts(forecasts(source="simulated"), tmp_path / "f.html")
    text = path.read_text(encoding="utf-8")
    assert "no earlier forecast of these series" in text and "simulated, not real" in text
    assert data_of(path)["compared"] == {} and "What changed</h2>" not in text


def test_it_says_what_each_forecast_rests_on(tmp_path):
    made = forecasts()
    rungs = ["own networks", "combination", "combination", "last value"]
    frame = made.frame.assign(forecast_by=np.repeat(np.array(rungs, object), AHEAD))
    path = build_forecasts(forecasts(frame=frame), tmp_path / "f.html")
    text = path.read_text(encoding="utf-8")
    assert data_of(path)["rungs"] == rungs
    assert "4 series (1 by own networks, 2 by combination, 1 by last value)" in text
    assert "“Forecast by” says what" in text
    without = build_forecasts(made, tmp_path / "g.html")
    assert data_of(without)["rungs"] is None
    assert "“Forecast by” says what" not in without.read_text(encoding="utf-8")


@pytest.mark.parametrize("screen", browsing.SCREENS)
def test_every_figure_is_drawn_and_can_be_read_by_all(page, browser, screen):
    browsing.check_page(browser, page, ("one figure", "chances", "moves"), *screen)
    (box,) = browsing.found(browser, "#table .scroll")  # it starts with the columns that fit
    assert int(box.get_property("scrollWidth")) <= int(box.get_property("clientWidth"))


def test_series_are_found_by_their_data_and_groups_and_opened_by_keyboard(page, browser, find):
    from selenium.webdriver.common.keys import Keys

    browsing.open_page(browser, page)
    search = find("#table input[type=search]")
    for said, found in (
        ("late", ["CCC"]), ("frozen", ["AAA"]), ("tech", ["</b>", "AAA"]), ("jumped", ["DDD"]),
    ):  # fmt: skip
        search.clear()
        search.send_keys(said, Keys.ENTER)
        shown = browser.find_elements("css selector", "#table tbody th")
        assert sorted(cell.text for cell in shown) == found
    assert find("#one h3").text == "DDD" and "jumped (2026-02-24)" in find("#one .note").text
    assert browser.switch_to.active_element.get_attribute("id") == "one"


def test_what_is_chosen_holds_for_all_of_the_page(page, browser, find):
    from selenium.webdriver.support.ui import Select

    def shown(column):
        cells = browser.find_elements("css selector", f"#table td:nth-of-type({column})")
        return {cell.text for cell in cells}

    browsing.open_page(browser, page)
    assert shown(3) == {"18.0\u202f%"} and shown(5) == {"\u221225.0\u202f%"}
    Select(find("#choices label:nth-child(1) select")).select_by_visible_text("1")
    Select(find("#choices label:nth-child(2) select")).select_by_value("week")
    assert shown(3) == {"6.0\u202f%"} and shown(5) == {"+50.0\u202f%"}
    assert "since 2026-02" in find("#moves .below").text
    assert "1 step ahead the median" in find("#one .note").text
    assert len(browser.find_elements("css selector", "#most > div:first-child tr")) == 4
    find("#most > div:last-child button").click()
    assert find("#one h3").text in IDS
    find("#one .more button").click()
    assert "values from 2 Jan 2025" not in find("#one [role=img]").get_attribute("aria-label")
    assert find("#one .more button").text == "Show less of the past"


def test_numbered_series_that_cross_zero_have_a_page_too(tmp_path, browser):
    walk = np.sin(np.arange(60) / 5)
    frame = pd.DataFrame({"unique_id": "wave", "ds": np.arange(60), "y": walk})
    ahead = pd.DataFrame(
        {"unique_id": "wave", "ds": [60, 61], "LSTM": 0.1, "LSTM-lo-80": -0.4, "LSTM-hi-80": 0.6,
         "probability_of_rise": 0.5}
    )  # fmt: skip
    made = forecasts(
        panel=Panel.from_frame(frame), frame=ahead, levels=(80.0,), source="files:y.csv"
    )
    home = Home(tmp_path / "home")
    before = Panel.from_frame(frame[:-2])
    keep(home, Made(before, ahead.assign(ds=[58, 59]), "LSTM", "run", "files:y.csv"))
    record = read_record(home).frames["files:y.csv"]
    path = tmp_path / "wave.html"
    for each in (made, dataclasses.replace(made, record=record)):
        build_forecasts(each, path)
        browsing.open_page(browser, path, 390)
        browsing.check_drawn(browser, "#one figure")
        browsing.check_quiet(browser, path)
        browsing.check_fits(browser)
        data = data_of(path)  # in the units of the series, without a chance of a rise
        assert data["width"] == [[1.0], [1.0]] and data["median"] == [[0.1], [0.1]]
        assert data["rise"] is None and "rise" not in browser.find_element("id", "table").text
    assert data_of(path)["compared"]["last"]["width"] == [[0.0], [0.0]]
    assert data_of(path)["compared"]["last"]["when"] == "57"
