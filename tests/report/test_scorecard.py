"""Tests of the page of the scorecard, as a file and in a real browser."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from forecaster.files import Home
from forecaster.record import read_record, score_record
from forecaster.report import build_scorecard
from tests.record.made import DAYS, forecast, store, table
from tests.report import browsing
from tests.report.browsing import data_of


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Make forecasts from four days, before a split halved all prices."""
    home = Home(tmp_path_factory.mktemp("scorecard") / "home")
    source = store(home, table().groupby("ticker").head(61))
    for until in (40, 50, 59, 60):
        forecast(home, source, until)
    split = table().groupby("ticker").head(61)
    split[["open", "high", "low", "close"]] /= 2
    store(home, split)
    forecast(home, source, 61)
    return score_record(home, read_record(home))


@pytest.fixture(scope="module")
def page(card, tmp_path_factory) -> Path:
    return build_scorecard(card, tmp_path_factory.mktemp("page") / "scorecard.html")


def test_it_is_one_file_with_what_the_scorecard_says(card, page):
    text = page.read_text(encoding="utf-8")
    assert browsing.headings_of(page)[-1] == "How it is counted"
    assert "10 forecasts of 2 series were made, with 20 values: 14 have come" in text
    assert "too few to judge by" in text
    data, total = data_of(page), card.total()
    assert data["table"]["outcomes"] == [7, 7] and data["table"]["open"] == [3, 3]
    assert data["steps"]["by"] == [1, 2] and data["origins"]["outcomes"] == [4, 4, 4, 2]
    assert f"<strong>{total['crps']:.3f}</strong>" in text
    ours = np.average(data["table"]["held-80"], weights=data["table"]["outcomes"])
    assert total["held-80"] == pytest.approx(ours, abs=1e-4)


def test_all_of_a_series_is_drawn_in_the_units_of_its_latest_forecast(page, browser):
    browsing.open_page(browser, page)
    value, came = browser.execute_script(
        "const s = data.series['AAA'];"
        "return s.parts.slice(0, 2).map((text) => charts.unpack(text, ...s.range, 3))"
    )
    close = table().set_index(["ticker", "date"])["close"]["AAA"].to_numpy() / 2
    np.testing.assert_allclose(value[::2], close[[39, 49, 58, 59, 60]], rtol=1e-4)
    assert came[0] == pytest.approx(close[40], rel=1e-4) and came[-1] is None
    assert data_of(page)["series"]["AAA"]["from"][0] == DAYS[39].timestamp()


def test_before_anything_has_come_there_is_a_page_too(tmp_path, browser):
    home = Home(tmp_path / "home")
    source = store(home, table())
    forecast(home, source, 120 - 2)
    store(home, table().groupby("ticker").head(118), "--refresh")
    card = score_record(home, read_record(home))
    page = build_scorecard(card, tmp_path / "s.html")
    text = page.read_text(encoding="utf-8")
    assert "0 have come, 4 are still open" in text and "h-when" not in text
    assert f"made on {DAYS[117].date()} by" in text
    browsing.open_page(browser, page)
    browsing.check_drawn(browser, "#one")
    browsing.check_quiet(browser, page)


def test_what_is_no_longer_stored_has_a_page_that_says_so(tmp_path, browser):
    home = Home(tmp_path / "home")
    forecast(home, store(home, table()), 60)
    shutil.rmtree(home.prices)
    page = build_scorecard(score_record(home, read_record(home)), tmp_path / "s.html")
    assert "4 values cannot be compared" in page.read_text(encoding="utf-8")
    browsing.open_page(browser, page)
    assert "cannot be compared" in browser.find_element("css selector", "#one").text
    browsing.check_quiet(browser, page)


@pytest.mark.parametrize("screen", browsing.SCREENS)
def test_every_figure_is_drawn_and_can_be_read_by_all(page, browser, screen):
    browsing.check_page(browser, page, ("by-origin", "by-step", "one"), *screen)
